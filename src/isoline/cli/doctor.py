"""``isoline doctor``: what works here, what is missing, how to get it."""

from __future__ import annotations

import typer

from isoline.cli.output import FormatOption, emit
from isoline.settings import load_settings

#: ``absent``: not here, and only some work needs it.
STATES = {True: "ok", False: "missing", None: "absent"}


def doctor(format: FormatOption = "table") -> None:
    """What works on this machine, what is missing, how to get it.

    Exit code 4 when a part is missing that the demo needs.
    """
    from isoline.runners.doctor import checks

    found = checks(load_settings())
    emit(
        [
            {
                "check": check.name,
                "state": STATES[check.ok],
                "detail": check.detail or None,
                "remedy": (check.remedy or None) if not check.ok else None,
                "required": check.required,
            }
            for check in found
        ],
        format,
        columns=["check", "state", "detail", "remedy"]
        if format == "table"
        else ["check", "state", "required", "detail", "remedy"],
    )
    lacking = [check.name for check in found if check.required and check.ok is False]
    if lacking:
        typer.echo(
            f"isoline: missing: {', '.join(lacking)}; run `make setup`, or see the remedies above", err=True
        )
        raise typer.Exit(4)
