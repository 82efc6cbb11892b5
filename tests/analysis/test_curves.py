"""Curve rows: medians, what may be on a frontier, what is refused, and readings of them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pandas as pd
import pytest

from isoline.analysis.curves import curve_groups, curve_readings, curve_table, frontier_rows, round_values
from isoline.analysis.frontier import frontier_of
from isoline.analysis.intervals import Interval
from isoline.errors import InputError

Frame = Callable[..., pd.DataFrame]


def on_frontier(rows: list[dict]) -> list[int]:
    """Concurrencies on the frontier."""
    return [row["concurrency"] for row in rows if row["frontier"]]


def test_one_row_a_point_with_medians_and_range(frame: Frame) -> None:
    """Three repetitions become one row: medians, minimum to maximum, n of repetitions."""
    rows = curve_table(
        frame(
            {"c": 1, "x": 50.0, "y": 100.0, "ttft_p50_ms": 10.0},
            {"c": 1, "x": 40.0, "y": 110.0, "ttft_p50_ms": 30.0, "repetition": 2},
            {"c": 1, "x": 45.0, "y": 90.0, "ttft_p50_ms": 20.0, "repetition": 3},
            {"c": 8, "x": 10.0, "y": 200.0},
        )
    )
    assert len(rows) == 2
    first = rows[0]
    assert (first["x"], first["y"], first["ttft_p50_ms"], first["n"], first["repetitions"]) == (
        45,
        100,
        20,
        3,
        3,
    )
    assert (first["y_low"], first["y_high"], first["y_interval"]) == (90, 110, "range")
    assert rows[1]["y_interval"] is None
    assert on_frontier(rows) == [1, 8]


def test_axes_and_directions_come_from_the_registry(frame: Frame) -> None:
    """The frontier is that of the displayed axes: for a latency the small values win."""
    points = frame(
        {"c": 1, "x": 50.0, "y": 100.0, "ttft_p50_ms": 900.0},
        {"c": 8, "x": 10.0, "y": 200.0, "ttft_p50_ms": 100.0},
    )
    assert on_frontier(curve_table(points)) == [1, 8]
    rows = curve_table(points, x="ttft_p50_ms")
    assert on_frontier(rows) == [8]
    assert rows[0]["x_metric"] == "ttft_p50_ms"


def test_trace_curves_have_their_own_default_axes(frame: Frame) -> None:
    """A trace is shown on end-to-end interactivity p90, not on the axes of fixed lengths."""
    rows = curve_table(
        frame({"scenario_kind": "trace", "e2e_interactivity_p90_tps": 5.0, "output_tps_per_gpu": 7.0})
    )
    assert (rows[0]["x"], rows[0]["y"]) == (5, 7)


@pytest.mark.parametrize(
    "row",
    [
        {"verdict": "partial", "official": False},
        {"verdict": "invalid", "official": False, "reasons": ["server_died"]},
        {"verdict": "infra_error", "official": False},
        {"verdict": None, "official": False},
        {"official": False, "accuracy_state": "failed"},
        {"official": False, "accuracy_state": "invalid"},
        {"official": False, "marks": ["withdrawn"]},
        {"official": False, "marks": ["implausible"]},
    ],
)
def test_what_is_held_back_is_never_on_the_frontier(frame: Frame, row: dict) -> None:
    """The best numbers of all do not help a point that is not valid, wrong or withdrawn."""
    rows = curve_table(frame({"c": 1, "x": 50.0, "y": 100.0}, {"c": 8, "x": 99.0, "y": 999.0, **row}))
    assert on_frontier(rows) == [1]
    assert rows[1]["n"] == 0
    assert rows[1]["reasons"] == row.get("reasons", [])


def test_failed_accuracy_throws_doubt_on_its_topology_only(frame: Frame) -> None:
    """Unchecked points next to a failed check are off the frontier, other topologies stay."""
    rows = curve_table(
        frame(
            {"c": 1, "x": 50.0, "y": 100.0, "official": False, "accuracy_state": "failed"},
            {"c": 2, "x": 40.0, "y": 200.0, "official": False},
            {"c": 4, "x": 30.0, "y": 300.0, "official": False, "topology": "tp2", "gpus": 2},
            {"c": 8, "x": 20.0, "y": 400.0, "accuracy_state": "passed"},
        )
    )
    assert on_frontier(rows) == [8, 4]


def test_curves_that_cannot_be_official_still_have_a_frontier(frame: Frame) -> None:
    """Simulated points are shown with their frontier, and say that they are not official."""
    rows = curve_table(frame({"x": 1.0, "y": 2.0, "kind": "simulated", "official": False}))
    assert on_frontier(rows) == [1]
    assert rows[0]["official"] is False


def test_partial_points_keep_their_coordinates_and_missing_ones_have_none(frame: Frame) -> None:
    """A partial point can be drawn hollow; an invalid or missing one is null, not 0."""
    rows = curve_table(
        frame(
            {"c": 1, "x": 5.0, "y": 6.0, "verdict": "partial", "official": False},
            {"c": 2, "x": 7.0, "y": 8.0, "verdict": "invalid", "official": False},
            {"c": 4, "verdict": None, "official": None, "window": None},
        )
    )
    assert [(row["verdict"], row["x"], row["y"]) for row in rows] == [
        ("partial", 5, 6),
        ("invalid", None, None),
        ("missing", None, None),
    ]
    json.dumps(rows, allow_nan=False)


def test_lost_repetitions_are_counted_apart(frame: Frame) -> None:
    """A failed repetition neither enters the median nor disappears from the count."""
    (row,) = curve_table(
        frame({"x": 10.0, "y": 10.0}, {"x": 90.0, "y": 90.0, "repetition": 2, "verdict": "infra_error"})
    )
    assert (row["x"], row["n"], row["repetitions"]) == (10, 1, 2)
    assert row["verdicts"] == {"valid": 1, "infra_error": 1}


def test_two_recipes_at_one_topology_are_two_points(frame: Frame) -> None:
    """Points are told apart by their digest: a variant of a recipe is no repetition."""
    rows = curve_table(frame({"x": 1.0, "y": 5.0}, {"x": 2.0, "y": 4.0, "recipe_id": "m/other"}))
    assert [row["n"] for row in rows] == [1, 1]


def test_each_curve_has_its_own_frontier(frame: Frame) -> None:
    """A slow precision keeps its frontier beside a fast one."""
    rows = curve_table(
        frame(
            {"x": 1.0, "y": 1.0, "curve_key": "slow", "weight_precision": "q8"},
            {"x": 9.0, "y": 9.0, "curve_key": "fast"},
        )
    )
    assert [row["frontier"] for row in rows] == [True, True]
    assert [row["curve_key"] for row in rows] == ["fast", "slow"]
    with pytest.raises(InputError, match="curves"):
        frontier_rows(rows)


@pytest.mark.parametrize(("field", "word"), [("run_id", "runs"), ("window", "windows")])
def test_a_stitched_curve_is_refused(frame: Frame, field: str, word: str) -> None:
    """Points of two runs, or of two windows, do not become one curve."""
    with pytest.raises(InputError, match=word):
        curve_table(frame({"x": 1.0, "y": 1.0}, {"c": 2, "x": 2.0, "y": 1.0, field: "other"}))


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        ("nonsense", "unknown metric"),
        ("cache_hit_share", "no better direction"),
        ("ttfot_p50_ms", "not a column"),
    ],
)
def test_unsuitable_axes_are_refused(frame: Frame, metric: str, text: str) -> None:
    """An axis that is unknown, has no direction or is not in the rows gets one clear line."""
    with pytest.raises(InputError, match=text):
        curve_table(frame({"x": 1.0, "y": 1.0}), x=metric)


def test_accuracy_twins_are_left_out(frame: Frame) -> None:
    """The timing of an accuracy twin is not shown as a point."""
    rows = curve_table(frame({"x": 1.0, "y": 1.0}, {"c": 2, "x": 9.0, "y": 9.0, "twin_of": "abc"}))
    assert on_frontier(rows) == [1]
    assert len(rows) == 1


def test_tie_keeps_the_lower_concurrency(frame: Frame) -> None:
    """Of two points with equal coordinates the lower concurrency is on the frontier."""
    rows = curve_table(frame({"c": 8, "x": 1.0, "y": 1.0}, {"c": 4, "x": 1.0, "y": 1.0}))
    assert on_frontier(rows) == [4]


def test_within_run_interval_is_for_single_repetitions_only(frame: Frame) -> None:
    """A within-run interval is shown for n = 1 under its label, and never mixed with a range."""
    within = {"p0.r1": {"total_tps_per_gpu": Interval(9, 11, "within_run", 30)}}
    (row,) = curve_table(frame({"x": 1.0, "y": 10.0}), within=within)
    assert (row["y_low"], row["y_high"], row["y_interval"], row["x_interval"]) == (9, 11, "within_run", None)
    (row,) = curve_table(frame({"x": 1.0, "y": 10.0}, {"x": 1.0, "y": 12.0, "repetition": 2}), within=within)
    assert row["y_interval"] == "range"


def test_ties_with_what_nobody_counted(frame: Frame) -> None:
    """Of two equal points, the one whose concurrency and GPUs are known is kept; alone the other is too."""
    unknown = {"c": None, "gpus": None, "x": 50.0, "y": 100.0, "source": "somebody", "topology": "unknown"}
    assert on_frontier(
        curve_table(frame(unknown, {"c": 4, "x": 50.0, "y": 100.0, "source": "somebody"}))
    ) == [4]
    assert on_frontier(curve_table(frame(unknown))) == [None]


def test_no_points_no_rows(frame: Frame) -> None:
    """An empty selection is an empty table."""
    assert curve_table(frame()) == []
    assert curve_groups([]) == {}
    assert curve_readings([], [1.0])[0]["step_state"] == "not_reached"


def test_readings_of_a_curve(frame: Frame) -> None:
    """Step and estimate stand side by side, each with its state, and name the point."""
    rows = curve_table(frame({"c": 1, "x": 50.0, "y": 100.0}, {"c": 8, "x": 10.0, "y": 200.0}))
    slow, between, beyond = curve_readings(rows, [5, 20, 51])
    assert (slow["step"], slow["step_state"], slow["estimate"]) == (200, "at_edge", None)
    assert (between["step"], between["point_id"]) == (100, "p0.r1")
    assert 100 < between["estimate"] < 200
    assert (beyond["step"], beyond["step_state"]) == (None, "not_reached")


@pytest.mark.parametrize(
    ("x", "values"),
    [
        ([10.0, 50.0], [10, 20, 30]),
        ([11.3, 48.0], [20, 30, 40]),
        ([0.011, 0.012], [0.011, 0.0115, 0.012]),
        ([7.0], []),
        ([], []),
    ],
)
def test_default_readings_are_at_round_values_inside(x: list[float], values: list[float]) -> None:
    """Without a wish the readings are at round numbers between the two ends."""
    curve = frontier_of(x, [-v for v in x], [str(v) for v in x])
    assert round_values(curve) == pytest.approx(values)
