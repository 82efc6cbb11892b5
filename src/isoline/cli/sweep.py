"""``isoline sweep``: plan, run and watch sweeps."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isoline.cli import sweep_control
from isoline.cli.output import FormatOption, emit
from isoline.errors import InputError
from isoline.settings import load_settings

if TYPE_CHECKING:
    from isoline.catalog.pools import Pool
    from isoline.results.bundles.records import CauseRecord, Plan
    from isoline.sweeps.planning.prepare import Prepared, Wishes
    from isoline.sweeps.state.runs import Run

app = typer.Typer(help="Plan, run and watch sweeps.")

SweepArgument = Annotated[str, typer.Argument(help="The sweep's name: sweeps/<name>.yaml.")]
PoolOption = Annotated[str | None, typer.Option(help="A pool instead of the sweep's own.")]
RecipeOption = Annotated[
    str | None,
    typer.Option(help="One recipe instead of all; a try-out takes any, at one point of its own."),
]
NewOption = Annotated[bool, typer.Option("--new", help="Start a new run; continue and reuse nothing.")]
ImageOption = Annotated[
    list[str] | None,
    typer.Option("--image", help="CHANNEL=REF: another image of a channel, for this run; may be repeated."),
]
ChangedOption = Annotated[
    str | None,
    typer.Option("--changed-since", help="Only points that are not in the plan of this git revision."),
]
UrlOption = Annotated[
    str | None,
    typer.Option(help="Measure a server that somebody else runs, with --topology and --sku; never official."),
]
TopologyOption = Annotated[
    str | None, typer.Option(help="The topology that the server of --url is declared to have, such as tp8.")
]
SkuOption = Annotated[str | None, typer.Option(help="The SKU that the server of --url is declared to be on.")]
AttachOption = Annotated[
    str | None,
    typer.Option(help="Measure on a server that `isoline launch` keeps, without a restart; never official."),
]
StoreOption = Annotated[
    Path | None, typer.Option("--store", help="Where sealed bundles go; default: the setting.")
]


def _plan_rows(plan: Plan, due: set[str]) -> list[dict[str, Any]]:
    added = {name for item in plan.additions for name in item.point_ids}
    rows: list[dict[str, Any]] = [
        {
            "launch": launch.launch_digest[:10],
            "point_id": point.point_id,
            "gpus": launch.gpus,
            "accuracy": " ".join(point.accuracy) or None,
            "estimate_s": point.estimate_s,
            "state": ("due" if point.point_id in due else "measured")
            + (", added" if point.point_id in added else ""),
        }
        for launch in plan.launches
        for point in launch.points
    ]
    rows += [
        {"launch": None, "point_id": item.point_id, "state": f"reused from {item.run_id}"}
        for item in plan.reused
    ]
    return rows


def _costs(prepared: Prepared, due: set[str]) -> tuple[list[str], str]:
    """What is due takes: a line for each pool and one for the prices; and the sum in words."""
    from isoline.sweeps.planning.due import without
    from isoline.sweeps.planning.estimates import budget_of

    plan = prepared.plan
    wanted = [(launch, [p for p in launch.points if p.point_id in due]) for launch in plan.launches]
    budget = budget_of([without(launch, left) for launch, left in wanted if left], prepared.sources.terms)
    lines, walls = [], dict.fromkeys((launch.pool for launch in plan.launches), 0.0)
    for row in budget["pools"]:
        walls[row["pool"]] = row["wall_minutes"]
        cost = "no price" if row["usd"] is None else f"${row['usd']:.2f}"
        lines.append(
            f"pool {row['pool']} ({row['sku']}): {row['gpu_minutes']:.1f} GPU-minutes, "
            f"{row['wall_minutes']:.1f} min, {cost}"
        )
    prices = budget["prices"]
    if prices and due:
        used = f"prices: list {prices['list']} (dated {prices['dated']}), tier {prices['tier']}"
        lines.append(f"{used}; {budget['note']}, so the cost is not known" if budget["note"] else used)
    each = ", ".join(f"about {minutes:.1f} min on pool {pool}" for pool, minutes in walls.items())
    cost = "" if budget["usd"] is None or not due else f", ${budget['usd']:.2f}"
    return lines, f"{each}, {budget['gpu_minutes']:.0f} GPU-minutes{cost}"


def _show_plan(prepared: Prepared, format: str) -> None:
    from isoline.sweeps.planning.prepare import open_points

    plan = prepared.plan
    due = {point.point_id for point in open_points(plan, prepared.run)}
    columns = ["launch", "point_id", "gpus", "accuracy", "estimate_s", "state"]
    emit(_plan_rows(plan, due), format, columns=columns)  # type: ignore[arg-type]
    if format == "table":
        lines, cost = _costs(prepared, due)
        for line in lines:
            typer.echo(line)
        goes_on = f"continues {prepared.run.run_id}" if prepared.run else "a new run"
        typer.echo(
            f"{len(due)} due, {len(plan.launches)} launch(es), {cost}; "
            f"plan {plan.plan_digest[:10]}, {goes_on}"
        )
        for name, ref in sorted(plan.channels.items()):
            mark = "" if "@sha256:" in ref else " (unresolved: known by its tag only)"
            typer.echo(f"channel {name}: {ref}{mark}")
        points = {point.point_id: point for launch in plan.launches for point in launch.points}
        for addition in plan.additions:
            new = [points[name] for name in addition.point_ids]
            levels = ", ".join(dict.fromkeys(f"{point.scenario} c{point.concurrency}" for point in new))
            typer.echo(f"added to the curve of run {addition.base_run_id}: {levels}")
        for key in plan.parts:
            levels = ", ".join(
                f"{point.scenario} c{point.concurrency}"
                for point in points.values()
                if point.curve_key == key
            )
            typer.echo(f"a part of curve {key}, never shown as the whole of it: {levels}")
        for item in plan.excluded:
            typer.echo(f"excluded: {item.what}: {item.why}")


def _wishes(
    pool: str | None,
    new: bool,
    image: list[str] | None,
    changed_since: str | None,
    recipe: str | None = None,
    url: str | None = None,
    topology: str | None = None,
    sku: str | None = None,
    attach: str | None = None,
) -> Wishes:
    from isoline.recipes.channels import parse_override
    from isoline.sweeps.planning.declared import endpoint_pool
    from isoline.sweeps.planning.prepare import Wishes

    images = dict(parse_override(item) for item in image or [])
    where: str | Pool | None = pool
    if url is not None:
        if pool is not None:
            raise InputError("an endpoint is a pool of its own", where="--pool", remedy="leave it out")
        where = endpoint_pool(url, topology, sku)
    elif topology is not None or sku is not None:
        raise InputError("they describe the server of --url", where="--topology and --sku")
    return Wishes(
        pool=where, is_new=new, images=images, changed_since=changed_since, recipe=recipe, attach=attach
    )


@app.command()
def plan(
    sweep: SweepArgument,
    pool: PoolOption = None,
    recipe: RecipeOption = None,
    new: NewOption = False,
    image: ImageOption = None,
    changed_since: ChangedOption = None,
    url: UrlOption = None,
    topology: TopologyOption = None,
    sku: SkuOption = None,
    out: Annotated[Path | None, typer.Option(help="Write plan.json to this file.")] = None,
    store: StoreOption = None,
    format: FormatOption = "table",
) -> None:
    """Expand a sweep and print every point: what is due, what is there, what is left out and why."""
    from isoline.results.bundles.bundle import write_record
    from isoline.sweeps.planning.prepare import prepare

    wishes = _wishes(pool, new, image, changed_since, recipe, url, topology, sku)
    prepared = prepare(load_settings(store=store), sweep, wishes)
    _show_plan(prepared, format)
    if out is not None:
        try:
            write_record(out, prepared.plan)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", where=str(out)) from None


@app.command()
def run(
    sweep: SweepArgument,
    pool: PoolOption = None,
    recipe: RecipeOption = None,
    new: NewOption = False,
    image: ImageOption = None,
    changed_since: ChangedOption = None,
    url: UrlOption = None,
    topology: TopologyOption = None,
    sku: SkuOption = None,
    attach: AttachOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and every command; start nothing.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Measure what is due. Killed at any moment and started again it goes on where it was.

    Exit code 0 when every point is valid; 3 when one is partial, invalid or missing; 4 when the
    machine failed; 130 after Ctrl-C.
    """
    from isoline.sweeps.planning.prepare import prepare

    settings = load_settings(store=store)
    wishes = _wishes(pool, new, image, changed_since, recipe, url, topology, sku, attach)
    prepared = prepare(settings, sweep, wishes)
    if dry_run:
        from isoline.sweeps.planning.dryrun import dry_run as commands

        _show_plan(prepared, "table")
        typer.echo()
        for line in commands(prepared, attached=attach):
            typer.echo(line)
        return
    if attach is not None:
        from isoline.sweeps.execution.hold import run_attached

        outcome = run_attached(settings, prepared, attach)
    else:
        from isoline.sweeps.execution.start import run_sweep

        outcome = run_sweep(settings, prepared)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(outcome.verdicts.items())) or "no attempt"
    causes = ", ".join(f"{count} {cause}" for cause, count in sorted(outcome.skipped.items()))
    missing = f", {outcome.missing} without an attempt" if outcome.missing else ""
    missing += f" ({causes})" if missing and causes else ""
    reused = f", {len(prepared.plan.reused)} reused" if prepared.plan.reused else ""
    did = f"{outcome.measured} measured now"
    if not outcome.measured:
        did = "nothing could be measured" if outcome.missing else "nothing was due"
    typer.echo(f"run {outcome.run_id}: {counts}{missing}{reused}; {did}")
    if outcome.exit_code:
        print(
            f"not every point is valid; see `isoline sweep status --run {outcome.run_id}`"
            if not outcome.interrupted
            else outcome.told or "interrupted; run the same command again and it goes on",
            file=sys.stderr,
        )
        raise typer.Exit(outcome.exit_code)


def _cause_columns(cause: CauseRecord | None) -> dict[str, Any]:
    """What the server's log proves: its name, the line that proves it, whether a retry makes sense."""
    if cause is None:
        return {"cause": None, "proof": None, "retry": None}
    first = cause.lines[0]
    place = f"{first.log}:{first.number}: " if first.number else f"{first.log}: "
    return {"cause": cause.name, "proof": f"{place}{first.text}", "retry": cause.retry}


def _status_rows(item: Run) -> list[dict[str, Any]]:
    from isoline.sweeps.execution.sofar import last_skipped
    from isoline.sweeps.state.control import read_controls
    from isoline.sweeps.state.runs import records

    controls, left = read_controls(item.work), last_skipped(item)
    skipped = {point.point_id: f"skipped: {point.cause}" for point in left.points} if left else {}
    rows: list[dict[str, Any]] = []
    for point_id, attempts in records(item).items():
        last = attempts[-1] if attempts else None
        rows.append(
            {
                "point_id": point_id,
                "attempts": len(attempts),
                "verdict": last.verdict.value if last else None,
                "reasons": " ".join(note.code for note in last.reasons) if last else skipped.get(point_id),
                **_cause_columns(last.cause if last else None),
                "accuracy": last.accuracy_state if last else None,
                "due": controls.is_due(point_id, [record.verdict for record in attempts]),
            }
        )
    rows += [
        {"point_id": reused.point_id, "reasons": f"reused from {reused.run_id}", "due": False}
        for reused in item.plan.reused
    ]
    return rows


def _explained(item: Run) -> list[str]:
    """Which launches failed; what each reason code of the last attempts means and what to do."""
    from isoline.results.bundles.records import LaunchRecord
    from isoline.results.judging.reasons import REASONS
    from isoline.sweeps.planning.due import is_due
    from isoline.sweeps.state.runs import records

    lines: dict[str, str] = {}
    for path in sorted(item.folder.glob("_launch/*/launch.json")):
        with contextlib.suppress(OSError, ValueError):  # `results verify` is who tells of damage
            record = LaunchRecord.model_validate_json(path.read_bytes())
            for note in record.reasons:
                lines[str(path)] = f"launch {path.parent.name}: {note.code}: {note.detail}; see {path.parent}"
            if record.cause is not None:
                why = _cause_columns(record.cause)
                again = "worth a retry" if why["retry"] else "a retry will not help"
                lines[f"{path} cause"] = f"  {why['cause']}: {why['proof']}; {again}; {record.cause.remedy}"
    is_closed = False
    for attempts in records(item).values():
        for note in attempts[-1].reasons if attempts else ():
            reason = REASONS.get(note.code)
            if reason is not None and note.code not in lines:
                detail = f" ({note.detail})" if note.detail else ""
                lines[note.code] = f"{note.code}: {reason.meaning}{detail}; {reason.remedy}"
        bad = bool(attempts) and attempts[-1].verdict.value != "valid"
        is_closed |= bad and not is_due([record.verdict for record in attempts])
    if is_closed and item.plan.sweep != "reproduce":
        again = f"isoline sweep run {item.plan.sweep} --new"
        lines[""] = f"what is not due is not measured again in this run; `{again}` measures everything anew"
    return list(lines.values())


def _how_to_get_one(project: Path, sweep: str | None) -> str:
    """What to do where there is no run: a name that no sweep has will never have one."""
    from isoline.catalog.documents import nearest

    known = sorted(path.stem for path in (project / "sweeps").glob("*.yaml"))
    if sweep is None or sweep in known:
        return f"`isoline sweep run {sweep or 'demo'}` makes one"
    return f"no sweep has that name; {nearest(sweep, known)}"


@app.command()
def status(
    sweep: Annotated[
        str | None, typer.Argument(help="The newest run of this sweep; default: of any.")
    ] = None,
    run: Annotated[str | None, typer.Option("--run", help="One run, by its id.")] = None,
    overhead: Annotated[
        bool, typer.Option("--overhead", help="What the harness costs between two points.")
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Each change of phase, from the run's begin to its end; json: one line each."
        ),
    ] = False,
    store: StoreOption = None,
    format: FormatOption = "table",
) -> None:
    """The points of a run: attempts, verdicts, what is due; and what is going on right now."""
    from isoline.sweeps.state.journal import JOURNAL, read_journal
    from isoline.sweeps.state.journal import overhead as overhead_of
    from isoline.sweeps.state.runs import named_run, records, runs_newest_first

    settings = load_settings(store=store)
    item = named_run(settings.store, run) if run else next(runs_newest_first(settings.store, sweep), None)
    if item is None:
        what = f"no run of sweep {sweep!r}" if sweep else "no run"
        raise InputError(what, where=str(settings.store), remedy=_how_to_get_one(settings.project, sweep))
    if overhead:
        found = overhead_of([record for attempts in records(item).values() for record in attempts])
        emit([{"run_id": item.run_id, "overhead_median_s": found.median_s, "pairs": found.pairs}], format)
        return
    if follow:
        sweep_control.follow(settings, item, format)
        return
    columns = ["point_id", "attempts", "verdict", "reasons", "accuracy", "due"]
    if format != "table":  # there it has lines of its own
        columns += ["cause", "proof", "retry"]
    emit(_status_rows(item), format, columns=columns, title=item.run_id if format == "table" else None)
    if format == "table":
        for line in _explained(item):
            typer.echo(line)
    events = read_journal(item.work / JOURNAL)
    if format == "table" and events:
        last = events[-1]
        now = " ".join(str(last[key]) for key in ("phase", "point_id", "verdict") if last.get(key))
        typer.echo(f"last event {last['at']}: {last['event']} {now}".rstrip())


for _verb in (
    sweep_control.pause,
    sweep_control.resume,
    sweep_control.cancel,
    sweep_control.skip,
    sweep_control.retry,
):
    app.command()(_verb)
