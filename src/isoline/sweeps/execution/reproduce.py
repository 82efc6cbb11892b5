"""Run one point again from its lock, and compare: fingerprints, numbers, ratio."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from isoline.catalog.documents import DocumentError
from isoline.catalog.pools import Pool
from isoline.datasets.schema import Dataset, load_dataset
from isoline.errors import IncompleteError, InputError
from isoline.results.bundles.bundle import attempts
from isoline.results.bundles.records import LockRecord, PlanLaunch, PlanPoint, PointRecord
from isoline.runners.machine.fingerprint import compare
from isoline.settings import Settings
from isoline.sweeps.execution.context import Stop
from isoline.sweeps.execution.start import execute, make_context
from isoline.sweeps.planning.assemble import assemble
from isoline.sweeps.planning.plan import Sources
from isoline.sweeps.planning.prepare import Prepared, open_points
from isoline.sweeps.planning.schema import REPRODUCE, Scenario, Selection, Sweep
from isoline.sweeps.state.outcome import Outcome
from isoline.sweeps.state.poollock import pool_lock
from isoline.sweeps.state.runs import named_run, read_point, runs_newest_first

COMPARED = (
    "total_tps_per_gpu",
    "output_tps_per_gpu",
    "interactivity_p50_tps",
    "ttft_p50_ms",
    "tpot_p50_ms",
    "e2el_p50_ms",
    "cache_hit_share",
)
"""The numbers that are printed side by side."""


@dataclass(frozen=True)
class Original:
    """The attempt that is run again."""

    run_id: str
    record: PointRecord
    lock: LockRecord


@dataclass(frozen=True)
class Comparison:
    """What came out: rows of (metric, old, new, ratio), and what differs between the machines."""

    outcome: Outcome
    rows: list[dict[str, Any]]
    differences: list[tuple[str, Any, Any]]


def find_original(store: Path, point_id: str, run_id: str | None) -> Original:
    """The counting attempt at a point: of one run, else of the newest run that has one.

    :raises InputError: when there is none, or its lock is not of our form.
    """
    runs = [named_run(store, run_id)] if run_id else runs_newest_first(store)
    for run in runs:
        planned = {point.point_id for launch in run.plan.launches for point in launch.points}
        sealed = attempts(run.folder, point_id) if point_id in planned else []
        if not sealed or (run.plan.sweep == REPRODUCE and run_id is None):
            continue
        try:
            lock = LockRecord.model_validate_json((sealed[-1] / "lock.json").read_bytes())
        except (OSError, ValidationError) as error:
            raise InputError(
                f"its lock cannot be read: {str(error).splitlines()[0]}", where=str(sealed[-1])
            ) from None
        return Original(run.run_id, read_point(sealed[-1]), lock)
    where = f"run {run_id}" if run_id else str(store)
    raise InputError(
        f"no attempt at point {point_id!r}", where=where, remedy="`isoline sweep status` shows point ids"
    )


def _datasets(
    project: Path, original: Original, point: PlanPoint, recipe: dict[str, Any]
) -> dict[str, Dataset]:
    """The datasets that the lock names, as they are in the project; another content is refused."""
    lock = original.lock
    found: dict[str, Dataset] = {}
    for name in (lock.resolved["dataset"]["name"], recipe["canary"], *point.accuracy):
        if name is not None:
            found[name] = load_dataset(project, name)
    kept = [lock.resolved[kind] for kind in ("dataset", "canary")]
    was = [Dataset.model_validate(item) for item in kept if item is not None]
    digests = {item.task: item.dataset_digest for item in original.record.accuracy}
    digests |= {item.name: item.digest() for item in was}
    for name, digest in digests.items():
        if name in found and found[name].digest() != digest:
            raise IncompleteError(
                f"dataset {name!r} is not the one of the lock",
                where=f"datasets/{name}.yaml",
                remedy=f"check out revision {lock.created_from.get('rev')}",
            )
    return found


def prepare(
    settings: Settings, original: Original
) -> tuple[Prepared, dict[str, Scenario], dict[str, Dataset]]:
    """A plan of one point, from the lock alone: identity, arguments, seed and rules are the lock's.

    :raises InputError, IncompleteError: when the lock cannot be run again as it is.
    """
    lock = original.lock
    try:
        point = PlanPoint.model_validate(lock.point)
        launch = PlanLaunch.model_validate({**lock.launch, "points": [point]})
        scenario = Scenario.model_validate(lock.resolved["scenario"])
        where = lock.resolved["pool"]
        pool = Pool(
            schema_version=1,
            name=launch.pool,
            launcher=where["launcher"],
            sku=launch.identity["sku"],
            accelerators=max(launch.gpus, 1),
            host=where["host"],
            client_profile=where["client_profile"],
        )
        datasets = _datasets(settings.project, original, point, launch.recipe)
    except DocumentError:
        raise
    except (ValidationError, KeyError, TypeError) as error:
        raise InputError(
            f"the lock of {original.record.point_id} is not of this version: {str(error).splitlines()[0]}"
        ) from None
    sweep = Sweep(
        schema_version=1,
        name=REPRODUCE,
        pool=pool.name,
        publish=False,
        select=[Selection(recipes=[launch.recipe_id], scenario=scenario.name)],
    )
    plan = assemble(sweep, [launch], reused=[], excluded=[], created_from=lock.created_from)
    scenarios = {scenario.name: scenario}
    sources = Sources(sweep, {pool.sku: pool}, {}, {}, scenarios, datasets, {})
    return Prepared(sources, plan, None), scenarios, datasets


def reproduce(settings: Settings, original: Original, stop: Stop | None = None) -> Comparison:
    """Measure the point again and compare with the original.

    :raises InfraError: when the machine or the load generator is not fit.
    """
    prepared, scenarios, datasets = prepare(settings, original)
    pool = prepared.sources.pool
    with pool_lock(settings.state, pool.name):
        context = make_context(settings, scenarios, datasets, pool, stop or Stop())
        outcome = execute(context, prepared, open_points(prepared.plan, None))
    run = named_run(settings.store, outcome.run_id)
    sealed = attempts(run.folder, original.record.point_id)
    if not sealed:
        return Comparison(outcome, [], [])
    new = read_point(sealed[-1])
    return Comparison(
        outcome,
        side_by_side(original.record, new),
        compare(original.lock.fingerprint, dict(context.fingerprint)),
    )


def side_by_side(old: PointRecord, new: PointRecord) -> list[dict[str, Any]]:
    """Old, new and new/old of the compared numbers; the full window of both. Null where one is null."""

    def values(record: PointRecord) -> dict[str, float | None]:
        return {row.name: row.value for row in record.metrics if row.window == "full"}

    before, after = values(old), values(new)
    rows: list[dict[str, Any]] = [
        {"metric": "verdict", "old": old.verdict.value, "new": new.verdict.value, "ratio": None}
    ]
    for name in COMPARED:
        a, b = before.get(name), after.get(name)
        ratio = None if a is None or b is None or a == 0 else round(b / a, 4)
        rows.append({"metric": name, "old": a, "new": b, "ratio": ratio})
    return rows
