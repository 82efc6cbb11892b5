"""``isoline logs``: the server's and the load generator's log of a point or launch."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from isoline.settings import load_settings


def logs(
    name: Annotated[str, typer.Argument(metavar="POINT", help="A point's id, or a launch's.")],
    run: Annotated[str | None, typer.Option(help="The run; default: the newest that has some.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as more is written.")] = False,
    lines: Annotated[int, typer.Option(min=1, help="How many lines of the end of each log.")] = 40,
) -> None:
    """The end of the server log and the client log of a point or launch, running or sealed."""
    from isoline.sweeps.state.logs import find_logs, follow_logs, held_logs, is_written, tail

    settings = load_settings()
    held = held_logs(settings.state, name) if run is None else []
    found_in, logs = (None, held) if held else find_logs(settings.store, name, run)
    for log in logs:
        typer.echo(f"==> {log.label}: {log.path}")
        text = tail(log.path, lines)
        typer.echo(text if text.endswith("\n") or not text else f"{text}\n", nl=False)
    if not follow:
        return
    last = logs[-1]
    for log, text in follow_logs(logs, lambda: not is_written(found_in, logs)):
        if log != last:
            typer.echo(f"==> {log.label}: {log.path}")
            last = log
        sys.stdout.write(text)
        sys.stdout.flush()
