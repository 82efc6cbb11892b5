"""Progress: what is said, and numbers that mean something."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from isoline.results.bundles.records import PointRecord
from isoline.sweeps.state import progress as module
from isoline.sweeps.state.progress import Estimator, Progress, TokenRate, duration, point_name


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (60, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7800, "2 h 10 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    """Seconds, minutes and hours as people say them."""
    assert duration(seconds) == text


def test_time_left_is_scaled_by_what_points_really_took() -> None:
    """After a point took twice its estimate, the others are expected to."""
    estimator = Estimator({"a": 10, "b": 20, "c": 30})
    assert estimator.left_s() == 60
    estimator.done("a", 20)
    assert estimator.left_s() == 100
    assert estimator.left_s({"b": 15}) == 85
    estimator.done("unknown", 5)
    assert estimator.left_s() > 0


def test_time_left_is_never_stuck_at_nothing() -> None:
    """A point that runs over its estimate has a tenth of it left; the others count in full."""
    estimator = Estimator({"a": 10, "b": 20})
    assert estimator.left_s({"a": 9.5}) == 21
    assert estimator.left_s({"a": 10_000}) == 21
    estimator.done("a", 10)
    assert estimator.left_s({"b": 10_000}) == 2
    estimator.done("b", 20)
    assert estimator.left_s() == 0


def test_tokens_per_second_since_the_load_began() -> None:
    """The counter moves when requests end: the rate is over the load so far, not over the last seconds."""
    rate = TokenRate()
    assert rate.tell(0, 1000, 0) is None
    assert rate.tell(5, 1000, 0) is None  # the load generator is still starting
    assert rate.tell(6, 1000, 4) is None  # at work, nothing counted yet
    assert rate.tell(9, 1200, 4) == pytest.approx(50)
    assert rate.tell(13, 1200, 4) == pytest.approx(25)  # no jump to 0 between two requests' ends
    assert rate.tell(15, 1500, 4) == pytest.approx(50)
    assert rate.tell(16, None, None) is None


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def test_the_lines_of_a_run(bundles: Any, tmp_path: Path, clock: Clock) -> None:
    """Off a terminal: a line for each phase, the load at most each 10 s, and a result that stays."""
    plan = bundles.make_plan()
    one, two = plan.launches[0].points[:2]
    run = bundles.make_run(tmp_path, plan)
    record = PointRecord.model_validate_json((run / one.point_id / "1" / "point.json").read_bytes())
    stream = io.StringIO()
    with Progress(2, {one.point_id: 30.0, two.point_id: 30.0}, stream) as shown:
        line = shown.line("a-1")
        line.phase("start")
        line.begin(one)
        line.phase("load")
        line.load(0, 12, 20.0, 1)  # the load generator's own warm-up request
        clock.now += 9
        line.load(0, 12, 100.0, 0)
        line.load(1, 12, 100.0, 1)
        clock.now += 2
        line.load(2, 12, 140.0, 1)
        clock.now += 1
        line.load(3, 12, 180.0, 1)
        line.end(record, ", 80 tokens/s")
        line.begin(two)
        line.phase("reset")
        line.begin(two)  # tried again: it keeps its number
        line.phase("reset")
    assert stream.getvalue().splitlines() == [
        "start, about 1 min 00 s left",
        "[1/2] demo-short c1 load, about 1 min 00 s left",
        "[1/2] demo-short c1 load 2/12 requests, 20 tokens/s, about 49 s left",
        "[1/2] demo-short c1: valid, 80 tokens/s (12 s)",
        "[2/2] demo-short c2 reset, about 12 s left",
        "[2/2] demo-short c2 reset, about 12 s left",
    ]


def test_reasons_are_said(bundles: Any, tmp_path: Path, clock: Clock) -> None:
    """A point that is not valid says why on its line; square brackets in a log do no harm."""
    plan = bundles.make_plan()
    point = plan.launches[0].points[0]
    run = bundles.make_run(tmp_path, plan, outcomes={(1, 1): bundles.Outcome(reasons=("canary_failed",))})
    record = PointRecord.model_validate_json((run / point.point_id / "1" / "point.json").read_bytes())
    stream = io.StringIO()
    with Progress(1, {}, stream) as shown:
        line = shown.line("a-1")
        line.begin(point)
        line.end(record, "")
        shown.say("[bold]log[/bold]")
    said = stream.getvalue().splitlines()
    assert said[0] == "[1/1] demo-short c1: invalid (0 s); canary_failed: seen: canary_failed"
    assert said[1] == "[bold]log[/bold]"


def test_several_launches_have_a_line_each(bundles: Any, tmp_path: Path, clock: Clock) -> None:
    """Each line names its launch, numbers are given in the order of beginning, time left is shared."""
    plan = bundles.make_plan()
    one, two = plan.launches[0].points[:2]
    run = bundles.make_run(tmp_path, plan)
    record = PointRecord.model_validate_json((run / two.point_id / "1" / "point.json").read_bytes())
    stream = io.StringIO()
    with Progress(2, {one.point_id: 30.0, two.point_id: 30.0}, stream, lanes=2) as shown:
        first, second = shown.line("a-1"), shown.line("b-1")
        second.begin(two)
        first.begin(one)
        second.phase("load")
        clock.now += 10
        first.phase("warmup")
        second.end(record, "")
        second.close()
    assert stream.getvalue().splitlines() == [
        "b-1: [1/2] demo-short c2 load, about 30 s left",
        "a-1: [2/2] demo-short c1 warmup, about 20 s left",
        "b-1: [1/2] demo-short c2: valid (10 s)",
    ]


def test_on_a_terminal_the_lines_move(bundles: Any) -> None:
    """One line for each launch in flight; a closed one is gone."""
    points = bundles.make_plan().launches[0].points
    stream = io.StringIO()
    moving = Progress(2, {}, stream, lanes=2)
    moving.console = type(moving.console)(file=stream, force_terminal=True, width=80, soft_wrap=True)
    with moving:
        first, second = moving.line("a-1"), moving.line("b-1")
        first.begin(points[0])
        first.phase("load")
        second.phase("start")
        first.close()
    shown_text = stream.getvalue()
    assert "a-1: [1/2] demo-short c1 load" in shown_text
    assert "b-1: start" in shown_text


def test_names_of_points(bundles: Any) -> None:
    """The first repetition has no number."""
    points = bundles.make_plan(
        [(bundles.LaunchDef(), [bundles.PointDef(4), bundles.PointDef(4, repetition=2)])]
    )
    assert [point_name(point) for point in points.launches[0].points] == ["demo-short c4", "demo-short c4 r2"]
