"""Readings: what was measured at x or better, and the marked estimate between."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isoline.analysis.frontier import Better, Frontier, frontier_of
from isoline.analysis.readings import Reading, estimate_reading, ratio, step_reading
from isoline.errors import InputError

CURVE = frontier_of([10.0, 20.0, 40.0], [900.0, 600.0, 100.0], ["a", "b", "c"])

directions = st.sampled_from(["max", "min"])
numbers = st.floats(1e-6, 1e6)


@st.composite
def curves(draw: st.DrawFn) -> Frontier:
    """Frontiers of random positive points, in all four direction pairs."""
    points = draw(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12))
    x, y = zip(*points, strict=True)
    x_better: Better = draw(directions)
    y_better: Better = draw(directions)
    return frontier_of(x, y, [str(i) for i in range(len(x))], x_better=x_better, y_better=y_better)


@pytest.mark.parametrize(
    ("at", "value", "state", "point"),
    [
        (5, 900, "at_edge", "a"),
        (10, 900, "ok", "a"),
        (10.01, 600, "ok", "b"),
        (20, 600, "ok", "b"),
        (40, 100, "ok", "c"),
        (40.01, None, "not_reached", None),
    ],
)
def test_step_is_the_best_at_x_or_faster(
    at: float, value: float | None, state: str, point: str | None
) -> None:
    """The step reading is the largest measured y at x or faster, and says where there is none."""
    assert step_reading(CURVE, at) == Reading(value, "step", state, point, at)  # type: ignore[arg-type]


def test_step_for_x_to_be_minimised() -> None:
    """For a latency axis the points at x or below count, and the edge is the slow end."""
    curve = frontier_of([100.0, 300.0], [5.0, 9.0], ["fast", "slow"], x_better="min")
    assert step_reading(curve, 50).state == "not_reached"
    assert step_reading(curve, 100) == Reading(5, "step", "ok", "fast", 100)
    assert step_reading(curve, 299) == Reading(5, "step", "ok", "fast", 299)
    assert step_reading(curve, 1000) == Reading(9, "step", "at_edge", "slow", 1000)


def test_step_for_y_to_be_minimised() -> None:
    """For a cost the reading is the lowest y, not the largest."""
    curve = frontier_of([10.0, 20.0], [1.0, 4.0], ["a", "b"], y_better="min")
    assert step_reading(curve, 5).value == 1
    assert step_reading(curve, 15).value == 4


def test_empty_frontier_reaches_nothing() -> None:
    """A curve without one usable point reads as not reached, never as 0."""
    empty = frontier_of([math.nan], [1.0], ["a"])
    assert step_reading(empty, 1) == Reading(None, "step", "not_reached", None, 1)
    assert estimate_reading(empty, 1) == Reading(None, "estimate", "not_reached", None, 1)


def test_estimate_of_two_points_is_a_power_law() -> None:
    """Between two points the estimate is a straight line in log-log."""
    curve = frontier_of([10.0, 1000.0], [100.0, 1.0], ["a", "b"])
    assert estimate_reading(curve, 100).value == pytest.approx(10)


def test_estimate_ends_where_measurement_ends() -> None:
    """Outside of the two ends there is no estimate, and the state tells which end."""
    assert estimate_reading(CURVE, 9.9) == Reading(None, "estimate", "at_edge", None, 9.9)
    assert estimate_reading(CURVE, 40.1) == Reading(None, "estimate", "not_reached", None, 40.1)
    assert estimate_reading(CURVE, 40).value == 100


def test_estimate_without_a_logarithm() -> None:
    """Points at zero are left out of the estimate; it ends at the last one above zero."""
    curve = frontier_of([1.0, 2.0, 3.0], [8.0, 4.0, 0.0], ["a", "b", "c"])
    assert estimate_reading(curve, 2.5).value is None
    assert 4 < estimate_reading(curve, 1.5).value < 8  # type: ignore[operator]


def test_estimate_between_x_of_one_logarithm() -> None:
    """Two x that differ in the last bit only do not break the interpolation."""
    low = 1e300
    high = np.nextafter(np.nextafter(low, np.inf), np.inf)
    curve = frontier_of([low, high], [2.0, 1.0], ["a", "b"])
    assert 1 <= estimate_reading(curve, float(np.nextafter(low, np.inf))).value <= 2  # type: ignore[operator]


def test_no_reading_at_nan() -> None:
    """A reading at NaN or infinity is an input error."""
    with pytest.raises(InputError, match="finite"):
        step_reading(CURVE, math.nan)
    with pytest.raises(InputError, match="finite"):
        estimate_reading(CURVE, math.inf)


@settings(max_examples=300, deadline=None)
@given(curves(), st.lists(numbers, min_size=2, max_size=20))
def test_readings_never_rise_with_a_better_x(curve: Frontier, ats: list[float]) -> None:
    """Asking for a better x never gives a better y, for both kinds and all directions."""
    ordered = sorted(ats, reverse=curve.x_better == "min")
    gain = 1 if curve.y_better == "max" else -1
    for read in (step_reading, estimate_reading):
        values = [gain * r.value for at in ordered if (r := read(curve, at)).value is not None]
        assert all(a >= b * (1 - gain * 1e-12) for a, b in pairwise(values))


@settings(max_examples=300, deadline=None)
@given(curves(), st.floats(0, 1))
def test_estimate_lies_between_its_neighbours(curve: Frontier, share: float) -> None:
    """Inside, the estimate lies between the y of its two neighbours and the step is not better."""
    at = curve.x[0] * (1 - share) + curve.x[-1] * share
    at = min(max(at, curve.x[0]), curve.x[-1])
    value = estimate_reading(curve, at).value
    assert value is not None
    left = max(i for i, x in enumerate(curve.x) if x <= at)
    right = min(i for i, x in enumerate(curve.x) if x >= at)
    assert min(curve.y[left], curve.y[right]) <= value <= max(curve.y[left], curve.y[right])
    step = step_reading(curve, at).value
    assert step is not None
    assert step <= value if curve.y_better == "max" else step >= value


@settings(max_examples=200, deadline=None)
@given(curves(), numbers)
def test_step_equals_its_definition(curve: Frontier, at: float) -> None:
    """The step reading equals a scan over the points by the words of the definition."""
    good = [
        y for x, y in zip(curve.x, curve.y, strict=True) if (x >= at if curve.x_better == "max" else x <= at)
    ]
    best = (max if curve.y_better == "max" else min)(good, default=None)
    reading = step_reading(curve, at)
    assert reading.value == best
    slowest = curve.x[0] if curve.x_better == "max" else curve.x[-1]
    outside = at < slowest if curve.x_better == "max" else at > slowest
    assert reading.state == ("not_reached" if not good else "at_edge" if outside else "ok")


def test_ratio_compares_like_with_like() -> None:
    """A ratio of step and estimate, or of two x, is refused; a missing value gives null."""
    step, estimate = step_reading(CURVE, 20), estimate_reading(CURVE, 20)
    assert ratio(step, step) == 1
    assert ratio(step, Reading(None, "step", "not_reached", None, 20)) is None
    assert ratio(step, Reading(0.0, "step", "ok", "z", 20)) is None
    with pytest.raises(InputError, match="two different things"):
        ratio(step, estimate)
    with pytest.raises(InputError, match="one x"):
        ratio(step, step_reading(CURVE, 30))
