"""What is still to be measured in a run, and what another run has already measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isoline.results.reasons import MAX_INFRA_RETRIES, Verdict
from isoline.results.records import Plan, PlanLaunch, PlanPoint, Reused


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
    """A counting attempt at a point in another run: newest first wins.

    ``accuracy`` are the tasks that it has a result for.
    """

    run_id: str
    attempt: int
    verdict: Verdict
    accuracy: frozenset[str]


def reuse(
    plan_launches: Sequence[PlanLaunch], elsewhere: Mapping[str, Elsewhere]
) -> tuple[list[PlanLaunch], list[Reused]]:
    """Take curves out of a plan that other runs have measured as a whole.

    Decided for a whole curve: if one of its points is due, all are, so that no curve is stitched
    from different days point by point. Only ``valid`` counts.

    :returns: the launches that are left, and what is reused.
    """

    def covers(point: PlanPoint) -> bool:
        found = elsewhere.get(point.point_id)
        return (
            found is not None and found.verdict is Verdict.VALID and found.accuracy.issuperset(point.accuracy)
        )

    runs_of: dict[str, set[str]] = {}
    whole: dict[str, bool] = {}
    for launch in plan_launches:
        for point in launch.points:
            whole[point.curve_key] = whole.get(point.curve_key, True) and covers(point)
            if point.point_id in elsewhere:
                runs_of.setdefault(point.curve_key, set()).add(elsewhere[point.point_id].run_id)
    kept: list[PlanLaunch] = []
    reused: list[Reused] = []
    for launch in plan_launches:
        left = []
        for point in launch.points:
            if whole[point.curve_key] and len(runs_of[point.curve_key]) == 1:
                found = elsewhere[point.point_id]
                reused.append(
                    Reused(
                        point_id=point.point_id,
                        run_id=found.run_id,
                        attempt=found.attempt,
                        accuracy=point.accuracy,
                    )
                )
            else:
                left.append(point)
        if left:
            kept.append(launch.model_copy(update={"points": left}))
    return kept, reused


def order_of(plan: Plan) -> dict[str, int]:
    """point id -> its number in the plan, from 1."""
    ids = [point.point_id for launch in plan.launches for point in launch.points]
    return {point_id: number for number, point_id in enumerate(ids, 1)}
