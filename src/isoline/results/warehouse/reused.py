"""What a run took over from other runs (DESIGN 5.8): read from where it was measured, and checked.

A plan lists the points that another run had measured already. Those of a curve to which the run only
added concurrencies are on its curve; the others are not, but what was checked there of the same recipe
and topology says something about the points of this run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from isoline.errors import IncompleteError
from isoline.results.bundles import bundle, checks
from isoline.results.bundles.folder import Folder
from isoline.results.bundles.records import Addition, Plan, PlanLaunch, PlanPoint, PointRecord, Reused
from isoline.results.identity import RUN_ID, run_start
from isoline.results.judging.reasons import Verdict

if TYPE_CHECKING:
    from isoline.results.bundles.readers import PointBundle

ReadPoint = Callable[[Path, PlanLaunch, PlanPoint], "PointBundle | None"]
"""Reads and checks one attempt in full; None where it does not pass."""


@dataclass(frozen=True)
class TakenOver:
    """One point that a plan lists as reused.

    :param path: of the attempt's bundle, relative to the store.
    :param digest: of that bundle as it is now; "" where it is none.
    :param run_digest: of ``_run`` of the run that measured it.
    :param addition: the addition to its curve; None where the point is not on a curve of this run.
    :param planned: its launch and point in the plan of the run that measured it; with ``addition`` only.
    :param attempt: what was measured; None where it cannot be read or does not pass its checks.
    :param state: its accuracy state; None where nothing can be said.
    :param is_added: whether it was itself added to the curve, by an earlier run.
    """

    item: Reused
    path: str
    digest: str
    run_digest: str
    addition: Addition | None = None
    planned: tuple[PlanLaunch, PlanPoint] | None = None
    attempt: PointBundle | None = None
    state: str | None = None
    is_added: bool = False


def group_of(point_id: str) -> str:
    """Recipe and topology of a point, from its id: their answers come from the same configuration."""
    return point_id.rsplit(".", 4)[0]


def concurrency_of(point_id: str) -> int:
    """The concurrency of a point, from its id."""
    return int(point_id.rsplit(".", 3)[1].removeprefix("c"))


def reused_digests(store: Path, run_id: str, point_id: str, attempt: int) -> tuple[str, str, str]:
    """(path of the attempt relative to the store, its digest, that of its run's ``_run``); "" = not there."""
    if not RUN_ID.fullmatch(run_id):
        return "", "", ""
    run = bundle.run_folder(store, run_id)
    path = run / point_id / str(attempt)
    return path.relative_to(store).as_posix(), _digest(path), _digest(run / "_run")


def _digest(path: Path) -> str:
    try:
        return bundle.bundle_digest(bundle.read_manifest(path))
    except (IncompleteError, OSError, ValueError):
        return ""


def take_over(store: Path, run_id: str, plan: Plan, read: ReadPoint) -> list[TakenOver]:
    """Everything that the plan of a run lists as reused and that says something about the run's own points.

    :raises IncompleteError: when a curve that was added to is not exactly what its base run has of it:
        nothing else may be put together from different days.
    """
    additions = {item.curve_key: item for item in plan.additions}
    groups = {group_of(point.point_id) for launch in plan.launches for point in launch.points}
    plans: dict[str, Plan] = {}

    def plan_of(name: str, what: str) -> Plan:
        if name not in plans:
            plans[name] = _read_plan(store, run_id, name, what)
        return plans[name]

    for each in plan.additions:
        _check_base(plan, each, plan_of(each.base_run_id, "the curve that is added to"))
    earlier = _added_before(plans, additions)
    return [
        _on_curve(store, run_id, plan, item, addition, plan_of, read, is_added=item.point_id in earlier)
        if (addition := additions.get(item.curve_key))
        else _beside(store, item)
        for item in plan.reused
        if item.curve_key in additions or group_of(item.point_id) in groups
    ]


def _read_plan(store: Path, run_id: str, name: str, what: str) -> Plan:
    """The plan of an earlier run.

    :raises IncompleteError: when there is no such run in the store, or its plan cannot be used.
    """
    if not RUN_ID.fullmatch(name) or name[:16] > run_id[:16] or name == run_id:
        raise IncompleteError(f"{what} is of run {name}, which is no earlier run")
    path = bundle.run_folder(store, name) / "_run"
    if not bundle.is_sealed(path):
        raise IncompleteError(f"{what} is of run {name}, which the store does not have")
    plan = Folder(path).record("plan.json", Plan)
    if problems := checks.check_plan(plan):
        raise IncompleteError(f"{what} is of run {name}, whose plan cannot be used: {problems[0]}")
    return plan


def _check_base(plan: Plan, addition: Addition, base: Plan) -> None:
    """Whether the plan took over the whole curve of its base, from where the base has it, and only added."""
    name = f"curve {addition.curve_key}"
    if base.sweep != plan.sweep or (plan.publish and not base.publish):
        raise IncompleteError(f"{name}: run {addition.base_run_id} is no run of this sweep to add to")
    owners: dict[str, tuple[str, int | None]] = {
        point.point_id: (addition.base_run_id, None) for _, point in _own(base, addition.curve_key)
    }
    if any(item.curve_key == addition.curve_key for item in base.additions):
        owners |= {
            i.point_id: (i.run_id, i.attempt) for i in base.reused if i.curve_key == addition.curve_key
        }
    taken = {i.point_id: i for i in plan.reused if i.curve_key == addition.curve_key}
    if taken.keys() != owners.keys():
        odd = min(taken.keys() ^ owners.keys())
        raise IncompleteError(f"{name} of run {addition.base_run_id} is not taken over as it is: {odd}")
    places = {(group_of(each), concurrency_of(each)) for each in taken}
    for _, point in _own(plan, addition.curve_key):
        place = (group_of(point.point_id), point.concurrency)
        if place in places or place[0] not in {group for group, _ in places}:
            raise IncompleteError(f"{point.point_id} is no concurrency that its curve lacked")
    for point_id, (run, attempt) in owners.items():
        item = taken[point_id]
        if item.run_id != run or attempt not in (None, item.attempt):
            raise IncompleteError(f"{point_id} is reused from another attempt than that of its curve")


def _own(plan: Plan, curve_key: str) -> Iterator[tuple[PlanLaunch, PlanPoint]]:
    for launch in plan.launches:
        for point in launch.points:
            if point.curve_key == curve_key:
                yield launch, point


def _added_before(plans: Mapping[str, Plan], additions: Mapping[str, Addition]) -> set[str]:
    """Points of the bases that are additions there: not of the run that began the curve."""
    runs: dict[str, dict[str, str]] = defaultdict(dict)
    for key, addition in additions.items():
        base = plans[addition.base_run_id]
        runs[key] |= {point.point_id: addition.base_run_id for _, point in _own(base, key)}
        if any(item.curve_key == key for item in base.additions):
            runs[key] |= {item.point_id: item.run_id for item in base.reused if item.curve_key == key}
    return {name for owners in runs.values() for name, run in owners.items() if run != min(owners.values())}


def _on_curve(
    store: Path,
    run_id: str,
    plan: Plan,
    item: Reused,
    addition: Addition,
    plan_of: Callable[[str, str], Plan],
    read: ReadPoint,
    *,
    is_added: bool,
) -> TakenOver:
    source = plan_of(item.run_id, f"reused point {item.point_id}")
    planned = next((pair for pair in _own(source, item.curve_key) if pair[1].point_id == item.point_id), None)
    if planned is None:
        raise IncompleteError(f"{item.point_id} is reused from run {item.run_id}, which did not plan it")
    if plan.publish and not source.publish:
        raise IncompleteError(f"{item.point_id} is reused from run {item.run_id}, a try-out")
    path, digest, run_digest = reused_digests(store, item.run_id, item.point_id, item.attempt)
    if (why := _why_not(store, run_id, item)) is not None:
        raise IncompleteError(f"{item.point_id} is reused from run {item.run_id}, {why}")
    if planned[0].pool not in {launch.pool for launch, _ in _own(plan, item.curve_key)}:
        raise IncompleteError(f"{item.point_id} was measured on pool {planned[0].pool}, the rest was not")
    found = read(store / path, *planned)
    if found is not None and found.record.verdict is not Verdict.VALID:
        raise IncompleteError(f"{item.point_id} is reused, though attempt {item.attempt} is not valid")
    state = found.record.accuracy_state if found else None
    return TakenOver(item, path, digest, run_digest, addition, planned, found, state, is_added)


def _why_not(store: Path, run_id: str, item: Reused) -> str | None:
    """Why an attempt is not the one that counted when the run began; None where it is."""
    sealed = {
        int(path.name): path for path in bundle.attempts(bundle.run_folder(store, item.run_id), item.point_id)
    }
    if item.attempt not in sealed:
        return f"which has no attempt {item.attempt} at it"
    for number in sorted(sealed):
        if number > item.attempt:
            record = Folder(sealed[number]).record("point.json", PointRecord)
            if checks.utc(record.ended_at) < run_start(run_id):  # there is no best-of
                return f"where attempt {number} counted already"
    return None


def _beside(store: Path, item: Reused) -> TakenOver:
    """A reused point that is not on a curve of this run: what its check said."""
    path, digest, run_digest = reused_digests(store, item.run_id, item.point_id, item.attempt)
    state = None
    try:
        record = Folder(store / path).record("point.json", PointRecord) if digest else None
        if record is not None and record.point_id == item.point_id:
            state = record.accuracy_state
    except (IncompleteError, ValueError, OSError, RecursionError):
        pass  # nothing is known then, and a check that was planned counts as not passed
    return TakenOver(item, path, digest, run_digest, state=state)
