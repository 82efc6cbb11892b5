"""From a sweep's name to a finished run: plan, find or open the run, prepare, execute."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from isoline.catalog.pools import Pool
from isoline.datasets.schema import Dataset
from isoline.load.limits import check_limits, machine_limits
from isoline.load.supervise import aiperf_version
from isoline.results.bundles.records import PlanPoint
from isoline.runners.envs import ensure_aiperf
from isoline.runners.launchers.kinds import launcher_for
from isoline.runners.machine.fingerprint import fingerprint
from isoline.settings import Settings
from isoline.sweeps.execution.context import Client, Context, Stop, folder_is_usable, full_disk_is_clear
from isoline.sweeps.execution.execute import Executor
from isoline.sweeps.execution.loads import past_loads
from isoline.sweeps.planning.prepare import Prepared, open_points
from isoline.sweeps.planning.refuse import refuse_unfit
from isoline.sweeps.planning.schema import Scenario
from isoline.sweeps.planning.sources import git_state
from isoline.sweeps.state.outcome import Outcome, outcome_of
from isoline.sweeps.state.poollock import pool_lock, tidy
from isoline.sweeps.state.progress import Progress
from isoline.sweeps.state.runs import new_run


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
        pool=pool,
        stop=stop,
        fingerprint=fingerprint(),
        # A process pool reads small weights from this machine's own disk.
        past_loads=() if pool.launcher == "process" else past_loads(settings.store, pool.name),
    )


def run_sweep(settings: Settings, prepared: Prepared, stop: Stop | None = None) -> Outcome:
    """Execute what is due, in the run that is continued or in a new one.

    :raises InfraError: when the pool is in use, the disk is full, or the machine cannot be cleaned.
    """
    plan, pool = prepared.plan, prepared.sources.pool
    refuse_unfit(settings.project, plan)
    with pool_lock(settings.state, pool.name):
        due = open_points(plan, prepared.run)
        if not due and prepared.run is not None:
            # Nothing to measure, but the run may have been killed while it stopped its last server.
            tidy(settings, prepared.run, lambda line: print(line, file=sys.stderr), pool)
            return outcome_of(prepared.run)
        context = make_context(
            settings,
            dict(prepared.sources.scenarios),
            dict(prepared.sources.datasets),
            pool,
            stop or Stop(),
        )
        return execute(context, prepared, due)


def execute(context: Context, prepared: Prepared, due: Sequence[PlanPoint]) -> Outcome:
    """Execute in the run that is continued or in a new one; the caller holds the pool's lock.

    :param due: :func:`open_points` of the two.
    """
    settings, plan = context.settings, prepared.plan
    estimates = {point.point_id: point.estimate_s for point in due}
    check_limits(
        machine_limits(),
        max((point.concurrency for launch in plan.launches for point in launch.points), default=1),
    )
    with full_disk_is_clear(settings.store), folder_is_usable(settings.store, "ISOLINE_STORE"):
        run = prepared.run or new_run(settings.store, plan, _seen(context, settings.project))
    with (
        Progress(len(due), estimates, lanes=context.pool.max_parallel) as progress,
        context.stop.on_signals(),
    ):
        for line in context.pool.warnings:
            progress.say(f"warning: {line}")
        verb = "continuing" if prepared.run else "starting"
        reused = f", {len(plan.reused)} reused" if plan.reused else ""
        progress.say(f"{verb} run {run.run_id}: {len(due)} point(s) to measure{reused}")
        launcher = launcher_for(context.launcher, settings, progress.say)
        limit = prepared.sources.sweep.budget.gpu_minutes
        budget_s = None if limit is None else limit * 60
        return Executor(context, launcher, run, progress, budget_s).execute()


def _seen(context: Context, project: Path) -> dict[str, object]:
    return {
        "aiperf": context.client.version,
        "git": git_state(project),
        "fingerprint": dict(context.fingerprint),
    }
