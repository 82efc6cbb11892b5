"""What is still to be measured in a run, and what another run has already measured. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from isoline.results.bundles.records import Addition, PlanLaunch, PlanPoint, Reused
from isoline.results.judging.reasons import MAX_INFRA_RETRIES, Verdict


def is_due(verdicts: Sequence[Verdict], retried_after: int = -1) -> bool:
    """Whether a point is due, from the verdicts of its sealed attempts in order (DESIGN 5.8).

    Without an attempt it is. An ``infra_error`` is tried again, at most twice. What was cancelled
    is tried again. ``valid``, ``partial`` and ``invalid`` are not measured again.

    :param retried_after: how many attempts it had when a person asked for one more; -1 = nobody did.
    """
    if not verdicts or len(verdicts) == retried_after:
        return True
    match verdicts[-1]:
        case Verdict.CANCELLED:
            return True
        case Verdict.INFRA_ERROR:
            return sum(item is Verdict.INFRA_ERROR for item in verdicts) <= MAX_INFRA_RETRIES
        case _:
            return False


def due_points(
    launch: PlanLaunch, attempts: Mapping[str, Sequence[Verdict]], retries: Mapping[str, int] = {}
) -> list[PlanPoint]:
    """The due points of a launch, in the plan's order.

    :param retries: point id -> how many attempts it had when a person asked for one more.
    """
    return [
        point
        for point in launch.points
        if is_due(attempts.get(point.point_id, ()), retries.get(point.point_id, -1))
    ]


@dataclass(frozen=True)
class Elsewhere:
    """A counting attempt at a point in another run. ``accuracy``: the tasks that it has a result for."""

    attempt: int
    verdict: Verdict
    accuracy: frozenset[str]
    pool: str = ""

    def covers(self, point: PlanPoint) -> bool:
        """Whether it says everything that the plan wants to know of the point."""
        return self.verdict is Verdict.VALID and self.accuracy.issuperset(point.accuracy)


class OtherRun(NamedTuple):
    """What another run has.

    :param found: its counting attempt at each point that it has measured itself.
    :param curves: curve key -> point id -> the run that measured it: all that this run expects of a
        curve. It is another run for what this one took over when it added to a curve.
    :param is_own: whether it is a run of the plan's own sweep. Only to these is added: what another
        sweep selects of a curve is no earlier form of it.
    :param expected: every point id of its plan, reused ones included.
    """

    run_id: str
    found: Mapping[str, Elsewhere]
    curves: Mapping[str, Mapping[str, str]] = {}
    is_own: bool = False
    expected: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Source:
    """Where a curve is taken from.

    :param owners: point id -> the run that measured it; what is not in it is new.
    """

    base_run_id: str
    owners: Mapping[str, str]


@dataclass(frozen=True)
class _Planned:
    """One curve of a plan."""

    key: str
    points: list[PlanPoint] = field(default_factory=list)
    launches: dict[str, PlanLaunch] = field(default_factory=dict)  # by point id


def source_of(curve: _Planned, others: Sequence[OtherRun]) -> Source | None:
    """Where a curve comes from; None where it is due as a whole.

    Best is the newest run that has all of it. Else the newest that has a whole curve to which the plan
    only adds concurrencies: then the others are due. A newer run in which the engine failed at one of
    the points ends the search: what an older run says is not the newest knowledge. What the machine
    spoilt, or a run that measured a part of the curve, says nothing.

    :param others: newest first.
    """
    base: Source | None = None
    is_open = True
    measured = {run.run_id: run.found for run in others}
    for run in others:
        owners = run.curves.get(curve.key) or {point.point_id: run.run_id for point in curve.points}
        covered = {
            point.point_id: owners[point.point_id]
            for point in curve.points
            if (owner := owners.get(point.point_id))
            and (there := measured.get(owner, {}).get(point.point_id))
            and there.covers(point)
        }
        if len(covered) == len(curve.points):
            return Source(run.run_id, covered)
        mine = [run.found.get(point.point_id) for point in curve.points]
        if any(item is not None and item.verdict in (Verdict.INVALID, Verdict.PARTIAL) for item in mine):
            return base
        if is_open and run.is_own and curve.key in run.curves:
            is_whole = covered.keys() == owners.keys()
            if is_whole and _only_adds(curve, covered, measured):
                base = Source(run.run_id, covered)
            # Behind the newest whole curve, or one that has what the plan left out, none is a base.
            is_open = not is_whole and owners.keys() <= curve.launches.keys()
    return base


def _only_adds(
    curve: _Planned, covered: Mapping[str, str], measured: Mapping[str, Mapping[str, Elsewhere]]
) -> bool:
    """Whether the new points are other concurrencies of what is there, on the same pool.

    A repetition more is none: its median would be of two days. Nor is another recipe or topology.
    """
    levels: dict[tuple[str, str, str], set[int]] = {}
    for point in curve.points:
        if point.point_id in covered:
            there = measured[covered[point.point_id]][point.point_id]
            levels.setdefault(_place(curve, point, there.pool), set()).add(point.concurrency)
    new = [point for point in curve.points if point.point_id not in covered]
    pools = [(point, curve.launches[point.point_id].pool) for point in new]
    return bool(new) and all(
        point.concurrency not in levels.get(_place(curve, point, pool), {point.concurrency})
        for point, pool in pools
    )


def _place(curve: _Planned, point: PlanPoint, pool: str) -> tuple[str, str, str]:
    launch = curve.launches[point.point_id]
    return launch.recipe_id, launch.topology, pool


def _curves(launches: Sequence[PlanLaunch]) -> dict[str, _Planned]:
    curves: dict[str, _Planned] = {}
    for launch in launches:
        for point in launch.points:
            curve = curves.setdefault(point.curve_key, _Planned(point.curve_key))
            curve.points.append(point)
            curve.launches[point.point_id] = launch
    return curves


def is_pinned(launch: PlanLaunch) -> bool:
    """Whether a launch's image is named by its digest: what a tag means today nobody knows tomorrow."""
    ref = launch.identity.get("image", {}).get("ref")
    return ref is None or "@sha256:" in ref


def reuse(
    plan_launches: Sequence[PlanLaunch], others: Sequence[OtherRun]
) -> tuple[list[PlanLaunch], list[Reused], list[Addition]]:
    """Take out of a plan what another run has measured.

    Decided for a whole curve, and one run must have all of it, so that no curve is stitched from
    different days point by point; the exception is a curve to which only concurrencies are added,
    and it is listed. Only ``valid`` counts.

    :param others: newest first.
    :returns: the launches that are left, what is reused, and the curves that are added to.
    """
    curves = _curves(plan_launches)
    sources = {
        key: source_of(curve, others) if all(map(is_pinned, curve.launches.values())) else None
        for key, curve in curves.items()
    }
    found = {run.run_id: run.found for run in others}
    kept: list[PlanLaunch] = []
    reused: list[Reused] = []
    for launch in plan_launches:
        left = []
        for point in launch.points:
            source = sources[point.curve_key]
            run_id = source.owners.get(point.point_id) if source else None
            if run_id is None:
                left.append(point)
                continue
            reused.append(
                Reused(
                    point_id=point.point_id,
                    run_id=run_id,
                    attempt=found[run_id][point.point_id].attempt,
                    accuracy=point.accuracy,
                    curve_key=point.curve_key,
                )
            )
        if left:
            kept.append(without(launch, left))
    return kept, reused, list(_additions(curves, sources))


def grown_from(planned: Collection[str], others: Sequence[OtherRun]) -> list[OtherRun]:
    """The runs of the plan's own sweep where the plan only adds to the newest of them; else none.

    :param planned: the point ids of the plan.
    :param others: newest first.
    """
    own = [run for run in others if run.is_own]
    return own if own and own[0].expected <= set(planned) else []


def _additions(curves: Mapping[str, _Planned], sources: Mapping[str, Source | None]) -> Iterator[Addition]:
    for curve in curves.values():
        source = sources[curve.key]
        new = [point.point_id for point in curve.points if source and point.point_id not in source.owners]
        if source and new:
            yield Addition(curve_key=curve.key, base_run_id=source.base_run_id, point_ids=new)


def without(launch: PlanLaunch, left: list[PlanPoint]) -> PlanLaunch:
    """The launch with only these of its points, and the time that it then takes."""
    gone = sum(point.estimate_s for point in launch.points) - sum(point.estimate_s for point in left)
    return launch.model_copy(update={"points": left, "estimate_s": round(launch.estimate_s - gone, 1)})
