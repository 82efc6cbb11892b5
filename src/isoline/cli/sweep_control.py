"""``isoline sweep pause|resume|cancel|skip|retry``: commands to a run, whether or not it works now."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from isoline.cli.options import DryRunOption
from isoline.errors import InputError
from isoline.settings import Settings, load_settings

if TYPE_CHECKING:
    from isoline.sweeps.state.control import Command
    from isoline.sweeps.state.runs import Run

RunArgument = Annotated[
    str, typer.Argument(metavar="SWEEP-or-RUN", help="A run's id, or a sweep: its newest run.")
]
ReasonOption = Annotated[str, typer.Option(help="Why, for those who look later.")]


def run_named(settings: Settings, name: str) -> Run:
    """The run of that id, or the newest one of the sweep of that name.

    :raises InputError: when there is none.
    """
    from isoline.results.identity import RUN_ID
    from isoline.sweeps.state.runs import named_run, runs_newest_first

    if RUN_ID.fullmatch(name):
        return named_run(settings.store, name)
    found = next(runs_newest_first(settings.store, name), None)
    if found is None:
        raise InputError(
            f"no run of sweep {name!r}",
            where=str(settings.store),
            remedy=f"`isoline sweep run {name}` makes one",
        )
    return found


def _give(settings: Settings, run: Run, command: Command, what: str, dry_run: bool) -> None:
    """Write the command, and say who obeys it when."""
    from isoline.sweeps.state.control import give
    from isoline.sweeps.state.poollock import holder_of

    holders = [holder_of(settings.state, pool) for pool in {launch.pool for launch in run.plan.launches}]
    working = next((item for item in holders if item and item.run_id == run.run_id), None)
    when = (
        f"{working.orchestrator.text()} obeys within a second"
        if working
        else f"nothing works at it now: it counts from the next `isoline sweep run {run.plan.sweep}`"
    )
    if dry_run:
        typer.echo(f"would be told: {what}; {when}")
        return
    give(run.work, command)
    typer.echo(f"{what}; {when}")


def pause(name: RunArgument, reason: ReasonOption = "", dry_run: DryRunOption = False) -> None:
    """Let nothing new start: points that are measured now end, servers stop, nodes are free."""
    from isoline.sweeps.state.control import new_command

    settings = load_settings()
    run = run_named(settings, name)
    _give(settings, run, new_command("pause", reason=reason), f"run {run.run_id} pauses", dry_run)


def resume(name: RunArgument, dry_run: DryRunOption = False) -> None:
    """Go on after a pause or a cancel; launches that were skipped by hand are due again."""
    from isoline.sweeps.state.control import new_command

    settings = load_settings()
    run = run_named(settings, name)
    _give(settings, run, new_command("resume"), f"run {run.run_id} goes on", dry_run)


def cancel(name: RunArgument, reason: ReasonOption = "", dry_run: DryRunOption = False) -> None:
    """End a run: what is measured now ends as cancelled, servers stop; `resume` lifts it."""
    from isoline.sweeps.state.control import new_command

    settings = load_settings()
    run = run_named(settings, name)
    _give(settings, run, new_command("cancel", reason=reason), f"run {run.run_id} is cancelled", dry_run)


def skip(
    name: RunArgument,
    launch: Annotated[str, typer.Argument(help="A launch: its id, or the first digits of its digest.")],
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
) -> None:
    """Leave out one launch of a run; in flight it ends as cancelled. `resume` lifts it."""
    from isoline.sweeps.state.control import new_command

    settings = load_settings()
    run = run_named(settings, name)
    digits = launch.partition("-")[0]
    fits = [item for item in run.plan.launches if item.launch_digest.startswith(digits)]
    if len(fits) != 1 or len(digits) < 4:
        known = ", ".join(f"{item.launch_digest[:10]} ({item.recipe_id})" for item in run.plan.launches[:9])
        what = "no launch" if not fits else "more than one launch"
        raise InputError(f"{what} {launch!r}", where=f"run {run.run_id}", remedy=f"its launches: {known}")
    digest = fits[0].launch_digest[:10]
    what = f"launch {digest} ({fits[0].recipe_id} {fits[0].topology}) of run {run.run_id} is skipped"
    _give(settings, run, new_command("skip", digest, reason=reason), what, dry_run)


def retry(
    name: RunArgument,
    point: Annotated[str, typer.Argument(help="A point's id.")],
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
) -> None:
    """Make a point due once more, and open the breaker of its image."""
    from isoline.results.judging.reasons import Verdict
    from isoline.sweeps.state.control import new_command
    from isoline.sweeps.state.runs import sealed_records

    settings = load_settings()
    run = run_named(settings, name)
    if point not in {item.point_id for launch in run.plan.launches for item in launch.points}:
        raise InputError(
            f"no point {point!r} is planned",
            where=f"run {run.run_id}",
            remedy=f"`isoline sweep status --run {run.run_id}` shows its points",
        )
    sealed = sealed_records(run, point)
    if sealed and sealed[-1].verdict is Verdict.VALID:
        raise InputError(
            f"{point} is valid", where=f"run {run.run_id}", remedy=f"`isoline reproduce {point}` repeats it"
        )
    command = new_command("retry", point, attempts=len(sealed), reason=reason)
    _give(settings, run, command, f"point {point} of run {run.run_id} is due once more", dry_run)


def follow(settings: Settings, run: Run, format: str) -> None:
    """Print each change of phase of a run as it comes, until it ended and nobody works at it."""
    from isoline.sweeps.state import follow as following
    from isoline.sweeps.state.poollock import holder_of

    pools = {launch.pool for launch in run.plan.launches}

    def is_over() -> bool:
        holders = (holder_of(settings.state, pool) for pool in pools)
        return not any(item is not None and item.run_id == run.run_id for item in holders)

    for row in following.follow(run, is_over):
        text = json.dumps(row, ensure_ascii=False) if format == "json" else following.line(row)
        print(text, flush=True)
