"""What is due, and what another run has measured already."""

from __future__ import annotations

from typing import Any

import pytest

from isoline.results.reasons import MAX_INFRA_RETRIES, Verdict
from isoline.sweeps.due import Elsewhere, due_points, is_due, reuse

V, P, I, X, C = Verdict.VALID, Verdict.PARTIAL, Verdict.INVALID, Verdict.INFRA_ERROR, Verdict.CANCELLED  # noqa: E741


@pytest.mark.parametrize(
    ("verdicts", "due"),
    [
        ([], True),
        ([V], False),
        ([P], False),
        ([I], False),
        ([C], True),
        ([C, C, C, C, C], True),
        ([X], True),
        ([X] * MAX_INFRA_RETRIES, True),
        ([X] * (MAX_INFRA_RETRIES + 1), False),
        ([X, C, X, C, X, C], True),  # a person ended it: it is due, whatever was before
        ([X, C, X, X], False),  # but the machine's tries are used up
        ([X, V], False),
        ([C, I], False),
        ([V, C], True),  # asked for again, and cut off
    ],
)
def test_what_is_due(verdicts: list[Verdict], due: bool) -> None:
    """No attempt, a cancelled one, and the machine's faults with tries left are due; the rest is not."""
    assert is_due(verdicts) is due


def test_two_retries_at_most() -> None:
    """The contract: an infra_error is retried at most twice."""
    assert MAX_INFRA_RETRIES == 2


def test_due_points_keep_the_plan_s_order(bundles: Any) -> None:
    """The due points of a launch come in the order in which they are planned."""
    (launch,) = bundles.make_plan().launches
    first, second, third, fourth = [point.point_id for point in launch.points]
    left = due_points(launch, {second: [V], third: [X], fourth: [I]})
    assert [point.point_id for point in left] == [first, third]


def found(verdict: Verdict = V, *tasks: str) -> Elsewhere:
    return Elsewhere(attempt=1, verdict=verdict, accuracy=frozenset(tasks))


def plan_of(bundles: Any) -> tuple[Any, list[str], list[str]]:
    """A plan with two curves of two points each, in one launch; the ids of each curve."""
    points = [bundles.PointDef(c, scenario=name) for name in ("short", "chat") for c in (1, 4)]
    plan = bundles.make_plan([(bundles.LaunchDef(), points)])
    ids = [point.point_id for point in plan.launches[0].points]
    return plan, ids[:2], ids[2:]


def test_a_whole_curve_is_reused(bundles: Any) -> None:
    """A curve that one run has measured in full is reused; the other curve of the launch stays due."""
    plan, short, chat = plan_of(bundles)
    left, reused = reuse(plan.launches, [("run-a", {name: found() for name in short})])
    assert [item.point_id for item in reused] == short
    assert {(item.run_id, item.attempt) for item in reused} == {("run-a", 1)}
    assert [point.point_id for launch in left for point in launch.points] == chat


def test_nothing_is_left_of_a_launch(bundles: Any) -> None:
    """A launch of which everything is reused is not started."""
    plan, short, chat = plan_of(bundles)
    left, reused = reuse(plan.launches, [("run-a", {name: found() for name in [*short, *chat]})])
    assert left == []
    assert len(reused) == 4


@pytest.mark.parametrize("verdict", [P, I, X, C])
def test_one_bad_point_makes_the_curve_due(bundles: Any, verdict: Verdict) -> None:
    """If one point of a curve is not valid, all of the curve are measured again."""
    plan, short, _ = plan_of(bundles)
    left, reused = reuse(plan.launches, [("run-a", {short[0]: found(), short[1]: found(verdict)})])
    assert reused == []
    assert len(left[0].points) == 4


def test_curves_are_never_stitched(bundles: Any) -> None:
    """Two runs that have half of a curve each give none; the newest run that has all gives all."""
    plan, short, _ = plan_of(bundles)
    halves = [("new", {short[0]: found()}), ("old", {short[1]: found()})]
    assert reuse(plan.launches, halves)[1] == []
    whole = ("older", {name: found() for name in short})
    assert {item.run_id for item in reuse(plan.launches, [*halves, whole])[1]} == {"older"}
    newest = ("newest", {name: found() for name in short})
    assert {item.run_id for item in reuse(plan.launches, [newest, *halves, whole])[1]} == {"newest"}


@pytest.mark.parametrize(("verdict", "is_reused"), [(I, False), (P, False), (X, True), (C, True)])
def test_newer_knowledge_counts(bundles: Any, verdict: Verdict, is_reused: bool) -> None:
    """A newer failure of the engine ends the reuse of older numbers; one of the machine does not."""
    plan, short, _ = plan_of(bundles)
    newer = ("newer", {short[0]: found(verdict)})
    older = ("older", {name: found() for name in short})
    assert bool(reuse(plan.launches, [newer, older])[1]) is is_reused


def test_a_missing_check_makes_the_curve_due(bundles: Any) -> None:
    """A point without a result for a wanted check is not covered."""
    points = [bundles.PointDef(1, accuracy=("arithmetic",)), bundles.PointDef(4)]
    plan = bundles.make_plan([(bundles.LaunchDef(), points)])
    one, four = [point.point_id for point in plan.launches[0].points]
    assert reuse(plan.launches, [("a", {one: found(), four: found()})])[1] == []
    kept, reused = reuse(plan.launches, [("a", {one: found(V, "arithmetic", "more"), four: found()})])
    assert kept == []
    assert [item.accuracy for item in reused] == [["arithmetic"], []]


def test_one_curve_over_two_topologies(bundles: Any) -> None:
    """A curve runs over all topologies: when one launch's point is due, the other launch's are too."""
    launches = [
        (bundles.LaunchDef(topology="tp1"), [bundles.PointDef(1)]),
        (bundles.LaunchDef(topology="tp2", gpus=2), [bundles.PointDef(1)]),
    ]
    plan = bundles.make_plan(launches)
    first, second = [launch.points[0] for launch in plan.launches]
    assert first.curve_key == second.curve_key
    left, reused = reuse(plan.launches, [("a", {first.point_id: found()})])
    assert (len(left), reused) == (2, [])
