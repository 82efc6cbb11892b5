"""From a sweep's name to a finished run: plan, find or open the run, prepare, execute."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from isoline.catalog.pools import Pool
from isoline.datasets.schema import Dataset
from isoline.load.limits import check_limits, machine_limits
from isoline.load.supervise import aiperf_version
from isoline.results.decisions import load_overrides
from isoline.results.records import Plan
from isoline.runners.envs import ensure_aiperf
from isoline.runners.fingerprint import fingerprint
from isoline.runners.process import launcher_for
from isoline.settings import Settings
from isoline.sweeps.context import Client, Context, Stop, folder_is_usable, full_disk_is_clear
from isoline.sweeps.due import due_points, reuse
from isoline.sweeps.execute import Executor, Outcome, pool_lock
from isoline.sweeps.plan import Sources, assemble, make_plan
from isoline.sweeps.progress import Progress
from isoline.sweeps.runs import Run, find_run, measured_elsewhere, new_run, verdicts
from isoline.sweeps.schema import Scenario, load_sweep
from isoline.sweeps.sources import git_state, read_sources


@dataclass(frozen=True)
class Prepared:
    """A plan, what it was made of, and the run that continues it (None: a new one is due)."""

    sources: Sources
    plan: Plan
    run: Run | None


def prepare(settings: Settings, sweep: str, *, pool: str | None = None, is_new: bool = False) -> Prepared:
    """Plan a sweep and look whether a run of it can go on (DESIGN 5.8). Changes nothing.

    :param is_new: do not continue and reuse nothing.
    """
    document = load_sweep(settings.project, sweep)
    sources = read_sources(settings.project, document, pool=pool)
    plan = make_plan(sources, git_state(settings.project))
    if is_new:
        return Prepared(sources, plan, None)
    run = find_run(settings.store, plan, document.reuse.max_age_h)
    if run is not None:
        return Prepared(sources, run.plan, run)
    if document.reuse.from_other_runs:
        decided = load_overrides(settings.project)
        withdrawn = {(item.run_id, item.point_id) for item in decided if item.action == "withdraw"}
        elsewhere = measured_elsewhere(settings.store, plan, document.reuse.max_age_h, withdrawn=withdrawn)
        launches, reused = reuse(plan.launches, elsewhere)
        plan = assemble(
            document, launches, reused=reused, excluded=plan.excluded, created_from=plan.created_from
        )
    return Prepared(sources, plan, None)


def count_due(plan: Plan, run: Run | None) -> int:
    """How many points of the plan are due."""
    have = verdicts(run) if run else {}
    return sum(len(due_points(launch, have)) for launch in plan.launches)


def make_context(
    settings: Settings,
    scenarios: dict[str, Scenario],
    datasets: dict[str, Dataset],
    pool: Pool,
    stop: Stop,
) -> Context:
    """Look at the machine and the load generator; nothing is started.

    :raises InfraError: when AIPerf is not there or of another version.
    """
    aiperf_bin = ensure_aiperf(settings)
    return Context(
        settings=settings,
        scenarios=scenarios,
        datasets=datasets,
        client=Client(aiperf_bin, aiperf_version(aiperf_bin)),
        host=pool.host,
        launcher=pool.launcher,
        client_profile=pool.client_profile,
        stop=stop,
        fingerprint=fingerprint(),
    )


def run_sweep(settings: Settings, prepared: Prepared, stop: Stop | None = None) -> Outcome:
    """Execute what is due, in the run that is continued or in a new one.

    :raises InfraError: when the pool is in use, the disk is full, or the machine cannot be cleaned.
    """
    plan, pool = prepared.plan, prepared.sources.pool
    with pool_lock(settings.state, pool.name):
        due = count_due(plan, prepared.run)
        if due == 0 and prepared.run is not None:
            return Executor.outcome_of(prepared.run)
        context = make_context(
            settings,
            dict(prepared.sources.scenarios),
            dict(prepared.sources.datasets),
            pool,
            stop or Stop(),
        )
        return execute(context, prepared, due)


def execute(context: Context, prepared: Prepared, due: int) -> Outcome:
    """Execute in the run that is continued or in a new one; the caller holds the pool's lock."""
    settings, plan = context.settings, prepared.plan
    estimates = {point.point_id: point.estimate_s for launch in plan.launches for point in launch.points}
    have = verdicts(prepared.run) if prepared.run else {}
    open_ids = {point.point_id for launch in plan.launches for point in due_points(launch, have)}
    estimates = {point_id: estimate for point_id, estimate in estimates.items() if point_id in open_ids}
    check_limits(
        machine_limits(),
        max((point.concurrency for launch in plan.launches for point in launch.points), default=1),
    )
    with full_disk_is_clear(settings.store), folder_is_usable(settings.store, "ISOLINE_STORE"):
        run = prepared.run or new_run(settings.store, plan, _seen(context, settings.project))
    with Progress(due, estimates) as progress, context.stop.on_signals():
        verb = "continuing" if prepared.run else "starting"
        reused = f", {len(plan.reused)} reused" if plan.reused else ""
        progress.say(f"{verb} run {run.run_id}: {due} point(s) to measure{reused}")
        launcher = launcher_for(context.launcher, settings, progress.say)
        return Executor(context, launcher, run, progress).execute()


def _seen(context: Context, project: Path) -> dict[str, object]:
    return {
        "aiperf": context.client.version,
        "git": git_state(project),
        "fingerprint": dict(context.fingerprint),
    }
