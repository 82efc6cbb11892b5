"""What is still to be measured in a run, and what another run has already measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isoline.results.reasons import MAX_INFRA_RETRIES, Verdict
from isoline.results.records import PlanLaunch, PlanPoint, Reused


def is_due(verdicts: Sequence[Verdict]) -> bool:
    """Whether a point is due, from the verdicts of its sealed attempts in order (DESIGN 5.8).

    Without an attempt it is. An ``infra_error`` is tried again, at most twice. What was cancelled
    is tried again. ``valid``, ``partial`` and ``invalid`` are not measured again.
    """
    if not verdicts:
        return True
    match verdicts[-1]:
        case Verdict.CANCELLED:
            return True
        case Verdict.INFRA_ERROR:
            return sum(item is Verdict.INFRA_ERROR for item in verdicts) <= MAX_INFRA_RETRIES
        case _:
            return False


def due_points(launch: PlanLaunch, attempts: Mapping[str, Sequence[Verdict]]) -> list[PlanPoint]:
    """The due points of a launch, in the plan's order."""
    return [point for point in launch.points if is_due(attempts.get(point.point_id, ()))]


@dataclass(frozen=True)
class Elsewhere:
    """A counting attempt at a point in another run. ``accuracy``: the tasks that it has a result for."""

    attempt: int
    verdict: Verdict
    accuracy: frozenset[str]

    def covers(self, point: PlanPoint) -> bool:
        """Whether it says everything that the plan wants to know of the point."""
        return self.verdict is Verdict.VALID and self.accuracy.issuperset(point.accuracy)


OtherRun = tuple[str, Mapping[str, Elsewhere]]
"""A run id, and its counting attempt at each point that it has measured."""


def source_of(points: Sequence[PlanPoint], others: Sequence[OtherRun]) -> OtherRun | None:
    """The newest run that has measured all points of a curve; None where they are due.

    A newer run in which the engine failed at one of them ends the search: what an older run says
    is not the newest knowledge. What the machine spoilt, or a run that measured a part of the
    curve, says nothing.

    :param others: newest first.
    """
    for run_id, found in others:
        mine = [found.get(point.point_id) for point in points]
        if all(item is not None and item.covers(point) for item, point in zip(mine, points, strict=True)):
            return run_id, found
        if any(item is not None and item.verdict in (Verdict.INVALID, Verdict.PARTIAL) for item in mine):
            return None
    return None


def reuse(
    plan_launches: Sequence[PlanLaunch], others: Sequence[OtherRun]
) -> tuple[list[PlanLaunch], list[Reused]]:
    """Take curves out of a plan that another run has measured as a whole.

    Decided for a whole curve, and one run must have all of it, so that no curve is stitched from
    different days point by point. Only ``valid`` counts.

    :param others: newest first.
    :returns: the launches that are left, and what is reused.
    """
    curves: dict[str, list[PlanPoint]] = {}
    for launch in plan_launches:
        for point in launch.points:
            curves.setdefault(point.curve_key, []).append(point)
    sources = {key: source_of(points, others) for key, points in curves.items()}
    kept: list[PlanLaunch] = []
    reused: list[Reused] = []
    for launch in plan_launches:
        left = []
        for point in launch.points:
            source = sources[point.curve_key]
            if source is None:
                left.append(point)
                continue
            run_id, found = source
            reused.append(
                Reused(
                    point_id=point.point_id,
                    run_id=run_id,
                    attempt=found[point.point_id].attempt,
                    accuracy=point.accuracy,
                )
            )
        if left:
            kept.append(launch.model_copy(update={"points": left}))
    return kept, reused
