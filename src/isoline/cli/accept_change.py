"""``isoline results accept-change``: a known and wanted step, written into the reviewed file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from isoline.cli.options import DryRunOption
from isoline.errors import InputError
from isoline.settings import load_settings


def accept_change(
    curve: Annotated[str, typer.Argument(help="The curve's key, as `isoline history` shows it.")],
    from_run: Annotated[str, typer.Option("--from", metavar="RUN", help="The first run at the new level.")],
    reason: Annotated[str, typer.Option(help="Why the step is known and wanted.")],
    reviewer: Annotated[str, typer.Option(help="Who agrees: a role or a public handle.")],
    dry_run: DryRunOption = False,
) -> None:
    """Accept a step of a curve: from that run on its baseline starts anew.

    Adds to results/accepted-changes.yaml, which is reviewed and committed like code.
    """
    from isoline.results.decisions.accepted import FILE
    from isoline.results.decisions.accepted import accept_change as accept
    from isoline.results.warehouse.file import open_reader
    from isoline.results.warehouse.timeline import timeline_points

    settings = load_settings()
    con = open_reader(settings.warehouse)
    try:
        points = timeline_points(con, curve_key=curve)
    finally:
        con.close()
    if points.empty:
        raise InputError(f"no curve {curve!r}", where="CURVE", remedy="`isoline history` names the curves")
    runs = list(dict.fromkeys(points["run_id"]))
    if from_run not in runs:
        raise InputError(
            f"run {from_run!r} did not measure this curve", where="--from", remedy=f"newest: {runs[-1]}"
        )
    change = {
        "curve_key": curve,
        "from_run_id": from_run,
        "reason": reason,
        "reviewer": reviewer,
        "dated": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    accept(settings.project, change, dry_run=dry_run)
    typer.echo(f"{'would add' if dry_run else 'added'} to {FILE}: curve {curve} from {from_run}")
