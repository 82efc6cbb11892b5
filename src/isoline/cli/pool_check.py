"""``isoline pool check``: the preflight alone, on every machine of a pool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isoline.cli.options import PoolArgument
from isoline.cli.output import FormatOption, emit
from isoline.errors import InputError
from isoline.settings import load_settings

if TYPE_CHECKING:
    from isoline.runners.machine.preflight import NodeReport

STATES = {True: "ok", False: "wrong", None: "unknown"}


def check(
    pool: PoolArgument,
    need_gb: Annotated[
        float | None,
        typer.Option(min=0, help="Free space that every disk must have, GB; default: the usual."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write preflight.json to this file.")] = None,
    format: FormatOption = "table",
) -> None:
    """Whether the pool's machines are ready: devices idle, disk, tools, clock, health.

    It is what a launch does first, alone. Exit code 4 when something is wrong, with one line for each.
    """
    from isoline.catalog.facts import catalog_of
    from isoline.catalog.pools import load_pool
    from isoline.results.bundles.bundle import write_file
    from isoline.results.judging.reasons import REASONS
    from isoline.runners.machine.hosts import hosts_of
    from isoline.runners.machine.needs import needs_of_pool
    from isoline.runners.machine.preflight import all_problems, as_json, inspect_all

    settings = load_settings()
    with catalog_of(settings.project):
        wanted = load_pool(settings.project, pool)
        if wanted.launcher in ("endpoint", "simulated"):
            raise InputError(
                f"a pool of launcher {wanted.launcher} has no machine of ours to look at", where=pool
            )
        needs = needs_of_pool(wanted, state=str(settings.state), need_gb=need_gb)
        reports = inspect_all(hosts_of(wanted), needs)
    record = as_json(pool, reports) | {"warnings": wanted.warnings}
    if out is not None:
        try:
            write_file(out, (json.dumps(record, indent=1) + "\n").encode())
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", where=str(out)) from None
    if format == "json":
        typer.echo(json.dumps(record, indent=2))
    else:
        emit(_rows(reports), format)
    for line in wanted.warnings:
        typer.echo(f"isoline: warning: {line}", err=True)
    problems = all_problems(reports)
    for item in problems:
        typer.echo(f"isoline: {item.code}: {item.detail}; {REASONS[item.code].remedy}", err=True)
    if problems:
        raise typer.Exit(4)


def _rows(reports: list[NodeReport]) -> list[dict[str, Any]]:
    return [
        {"node": item.node, "check": one.name, "state": STATES[one.ok], "detail": one.detail}
        for item in reports
        for one in item.findings
    ]
