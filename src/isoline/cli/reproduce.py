"""``isoline reproduce POINT_ID``: run a point again from its lock and compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isoline.cli.output import FormatOption, emit
from isoline.settings import load_settings


def reproduce(
    point_id: Annotated[str, typer.Argument(help="The point's id, as the dashboard and queries show it.")],
    run: Annotated[str | None, typer.Option("--run", help="The run it is of; default: the newest.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be started, start nothing.")
    ] = False,
    store: Annotated[
        Path | None, typer.Option("--store", help="Where sealed bundles are; default: the setting.")
    ] = None,
    format: FormatOption = "table",
) -> None:
    """Run a point again from its lock; print old, new and ratio, and what differs between the machines.

    The new attempt is a run of its own (sweep "reproduce"); it changes nothing that was there.
    """
    from isoline.recipes.renderers.text import line
    from isoline.sweeps.execution.reproduce import find_original, prepare
    from isoline.sweeps.execution.reproduce import reproduce as run_again

    settings = load_settings(store=store)
    original = find_original(settings.store, point_id, run)
    if dry_run:
        (launch,) = prepare(settings, original)[0].plan.launches
        typer.echo(f"# from the lock of run {original.run_id}, attempt {original.record.attempt}")
        typer.echo(line(launch.argv, launch.env))
        return
    comparison = run_again(settings, original)
    emit(comparison.rows, format, columns=["metric", "old", "new", "ratio"])
    if format == "table":
        typer.echo(f"old: run {original.run_id}; new: run {comparison.outcome.run_id}")
        if not comparison.differences:
            typer.echo("fingerprints: equal")
        for name, old, new in comparison.differences:
            typer.echo(f"fingerprint {name}: {old!r} -> {new!r}")
    if comparison.outcome.exit_code:
        raise typer.Exit(comparison.outcome.exit_code)
