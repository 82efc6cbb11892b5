"""What is due, and what another run has measured already."""

from __future__ import annotations

from typing import Any

import pytest

from isoline.results.judging.reasons import MAX_INFRA_RETRIES, Verdict
from isoline.sweeps.planning.due import Elsewhere, OtherRun, due_points, grown_from, is_due, is_pinned, reuse

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


def other(run_id: str, found: dict[str, Elsewhere], **more: Any) -> OtherRun:
    return OtherRun(run_id, found, **more)


def plan_of(bundles: Any) -> tuple[Any, list[str], list[str]]:
    """A plan with two curves of two points each, in one launch; the ids of each curve."""
    points = [bundles.PointDef(c, scenario=name) for name in ("short", "chat") for c in (1, 4)]
    plan = bundles.make_plan([(bundles.LaunchDef(), points)])
    ids = [point.point_id for point in plan.launches[0].points]
    return plan, ids[:2], ids[2:]


def test_a_whole_curve_is_reused(bundles: Any) -> None:
    """A curve that one run has measured in full is reused; the other curve of the launch stays due."""
    plan, short, chat = plan_of(bundles)
    left, reused, _ = reuse(plan.launches, [other("run-a", {name: found() for name in short})])
    assert [item.point_id for item in reused] == short
    assert {(item.run_id, item.attempt) for item in reused} == {("run-a", 1)}
    assert [point.point_id for launch in left for point in launch.points] == chat


def test_a_tag_is_never_reused(bundles: Any) -> None:
    """What an image's tag meant yesterday nobody knows today: only a digest is the same."""
    plan = bundles.make_plan()
    launch = plan.launches[0]
    for ref, pinned in (("repo:tag", False), ("repo@sha256:" + "a" * 64, True), (None, True)):
        named = launch.model_copy(update={"identity": {**launch.identity, "image": {"ref": ref}}})
        assert is_pinned(named) is pinned


def test_nothing_is_left_of_a_launch(bundles: Any) -> None:
    """A launch of which everything is reused is not started."""
    plan, short, chat = plan_of(bundles)
    left, reused, _ = reuse(plan.launches, [other("run-a", {name: found() for name in [*short, *chat]})])
    assert left == []
    assert len(reused) == 4


@pytest.mark.parametrize("verdict", [P, I, X, C])
def test_one_bad_point_makes_the_curve_due(bundles: Any, verdict: Verdict) -> None:
    """If one point of a curve is not valid, all of the curve are measured again."""
    plan, short, _ = plan_of(bundles)
    left, reused, _ = reuse(plan.launches, [other("run-a", {short[0]: found(), short[1]: found(verdict)})])
    assert reused == []
    assert len(left[0].points) == 4


def test_curves_are_never_stitched(bundles: Any) -> None:
    """Two runs that have half of a curve each give none; the newest run that has all gives all."""
    plan, short, _ = plan_of(bundles)
    halves = [other("new", {short[0]: found()}), other("old", {short[1]: found()})]
    assert reuse(plan.launches, halves)[1] == []
    whole = other("older", {name: found() for name in short})
    assert {item.run_id for item in reuse(plan.launches, [*halves, whole])[1]} == {"older"}
    newest = other("newest", {name: found() for name in short})
    assert {item.run_id for item in reuse(plan.launches, [newest, *halves, whole])[1]} == {"newest"}


@pytest.mark.parametrize(("verdict", "is_reused"), [(I, False), (P, False), (X, True), (C, True)])
def test_newer_knowledge_counts(bundles: Any, verdict: Verdict, is_reused: bool) -> None:
    """A newer failure of the engine ends the reuse of older numbers; one of the machine does not."""
    plan, short, _ = plan_of(bundles)
    newer = other("newer", {short[0]: found(verdict)})
    older = other("older", {name: found() for name in short})
    assert bool(reuse(plan.launches, [newer, older])[1]) is is_reused


def test_a_missing_check_makes_the_curve_due(bundles: Any) -> None:
    """A point without a result for a wanted check is not covered."""
    points = [bundles.PointDef(1, accuracy=("arithmetic",)), bundles.PointDef(4)]
    plan = bundles.make_plan([(bundles.LaunchDef(), points)])
    one, four = [point.point_id for point in plan.launches[0].points]
    assert reuse(plan.launches, [other("a", {one: found(), four: found()})])[1] == []
    kept, reused, _ = reuse(plan.launches, [other("a", {one: found(V, "arithmetic", "more"), four: found()})])
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
    left, reused, _ = reuse(plan.launches, [other("a", {first.point_id: found()})])
    assert (len(left), reused) == (2, [])


# --- added concurrencies ----------------------------------------------------------------------


def curve(bundles: Any, *levels: int, **launch: Any) -> Any:
    """A plan of one curve."""
    points = [bundles.PointDef(level) for level in levels]
    return bundles.make_plan([(bundles.LaunchDef(**launch), points)])


def ids(plan: Any) -> list[str]:
    return [point.point_id for launch in plan.launches for point in launch.points]


def ran(run_id: str, plan: Any, bad: dict[int, Verdict] | None = None, **owned: str) -> OtherRun:
    """What a run of that plan has: all valid but ``bad`` (by concurrency); ``c4="x"``: run x measured c4."""
    found_, owners = {}, {}
    for launch in plan.launches:
        for point in launch.points:
            owners[point.point_id] = owned.get(f"c{point.concurrency}", run_id)
            if owners[point.point_id] == run_id:
                verdict = (bad or {}).get(point.concurrency, V)
                found_[point.point_id] = Elsewhere(1, verdict, frozenset(), launch.pool)
    key = plan.launches[0].points[0].curve_key
    return OtherRun(run_id, found_, {key: owners}, True, frozenset(owners))


def due_of(plan: Any, *others: OtherRun) -> tuple[list[int], dict[int, str], list[str]]:
    """(concurrencies that are due, concurrency -> run it is reused from, the bases)."""
    kept, reused, additions = reuse(plan.launches, others)
    levels = {p.point_id: p.concurrency for launch in plan.launches for p in launch.points}
    due = [point.concurrency for launch in kept for point in launch.points]
    if additions:
        (one,) = additions
        assert [levels[name] for name in one.point_ids] == due
    return due, {levels[item.point_id]: item.run_id for item in reused}, [a.base_run_id for a in additions]


def test_an_added_concurrency_is_all_that_is_due(bundles: Any) -> None:
    """What the base has is reused, the new point is due and listed, and the launch takes less time."""
    plan = curve(bundles, 1, 2, 4)
    base = ran("a", curve(bundles, 1, 2))
    assert due_of(plan, base) == ([4], {1: "a", 2: "a"}, ["a"])
    kept, reused, (addition,) = reuse(plan.launches, [base])
    assert {item.curve_key for item in reused} == {addition.curve_key}
    assert kept[0].estimate_s == plan.launches[0].estimate_s - 2 * 10.0


def test_two_additions_in_a_row(bundles: Any) -> None:
    """The base may itself have added; each point is reused from the run that measured it."""
    first, second = ran("a", curve(bundles, 1, 2)), ran("b", curve(bundles, 1, 2, 4), c1="a", c2="a")
    plan = curve(bundles, 1, 2, 4, 8)
    assert due_of(plan, second, first) == ([8], {1: "a", 2: "a", 4: "b"}, ["b"])
    assert due_of(curve(bundles, 1, 2, 4), second, first) == ([], {1: "a", 2: "a", 4: "b"}, [])
    assert due_of(plan, second)[0] == [1, 2, 4, 8]  # the first is too old, withdrawn or gone
    spoilt = ran("b", curve(bundles, 1, 2, 4), {4: X}, c1="a", c2="a")
    assert due_of(plan, spoilt, first) == ([4, 8], {1: "a", 2: "a"}, ["a"])


def test_what_is_no_addition(bundles: Any) -> None:
    """Another argument, a level less, a repetition more, another pool, topology or sweep: all is due."""
    base = ran("a", curve(bundles, 1, 2))
    assert due_of(curve(bundles, 1, 2, 4, args=("--parallel", "4")), base)[0] == [1, 2, 4]
    assert due_of(curve(bundles, 1, 4), base)[0] == [1, 4]
    assert due_of(curve(bundles, 1, 2, 4, pool="other"), base)[0] == [1, 2, 4]
    assert due_of(curve(bundles, 1, 2, 4), base._replace(is_own=False))[0] == [1, 2, 4]
    levels = [bundles.PointDef(1), bundles.PointDef(2), bundles.PointDef(2, 2)]
    assert due_of(bundles.make_plan([(bundles.LaunchDef(), levels)]), base)[0] == [1, 2, 2]
    wide = (bundles.LaunchDef(topology="tp2", gpus=2), [bundles.PointDef(4)])
    both = bundles.make_plan([(bundles.LaunchDef(), levels[:2]), wide])
    assert due_of(both, base)[0] == [1, 2, 4]


def test_a_level_less_reuses_the_rest(bundles: Any) -> None:
    """Where only levels were taken away, what is left is there already."""
    assert due_of(curve(bundles, 1, 2), ran("a", curve(bundles, 1, 2, 4))) == ([], {1: "a", 2: "a"}, [])


@pytest.mark.parametrize("verdict", [I, P, X, C])
def test_nothing_is_added_to_a_broken_curve(bundles: Any, verdict: Verdict) -> None:
    """When a point of the base is not valid, the whole curve is due."""
    base = ran("a", curve(bundles, 1, 2), {2: verdict})
    assert due_of(curve(bundles, 1, 2, 4), base)[0] == [1, 2, 4]


def test_the_newest_curve_is_the_base(bundles: Any) -> None:
    """Behind a newer curve with other points none is a base; one that the machine spoilt is passed."""
    plan, older = curve(bundles, 1, 2, 4), ran("a", curve(bundles, 1, 2))
    assert due_of(plan, ran("b", curve(bundles, 1, 8)), older)[0] == [1, 2, 4]
    assert due_of(plan, ran("b", curve(bundles, 1, args=())), older)[0] == [1, 2, 4]
    assert due_of(plan, ran("b", curve(bundles, 1, 2), {1: X}), older)[2] == ["a"]
    assert due_of(plan, ran("b", curve(bundles, 1)), older) == ([2, 4], {1: "b"}, ["b"])
    assert due_of(plan, ran("b", curve(bundles, 1)), ran("a", plan)) == (
        [],
        dict.fromkeys((1, 2, 4), "a"),
        [],
    )


def test_a_plan_that_only_grows(bundles: Any) -> None:
    """Without reuse from other runs, the sweep's own count where nothing of the newest is changed."""
    newest, older = ran("b", curve(bundles, 1, 2)), ran("a", curve(bundles, 1))
    foreign = newest._replace(is_own=False)
    assert grown_from(ids(curve(bundles, 1, 2, 4)), [foreign, newest, older]) == [newest, older]
    assert grown_from(ids(curve(bundles, 1, 4)), [newest, older]) == []
    assert grown_from(ids(curve(bundles, 1, 4)), [foreign]) == []
