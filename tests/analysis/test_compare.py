"""Two curves at equal interactivity: like readings, their ratio, and intervals by the rules of DESIGN 5.3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from isoline.analysis.compare import RepeatedCurve, compare, compare_frontiers, repeated_curve
from isoline.analysis.cost import CostBasis
from isoline.analysis.intervals import Interval
from isoline.errors import InputError

Frame = Callable[..., pd.DataFrame]


def curve(frame: Frame, key: str, points: list[tuple[int, float, list[float]]], **more: Any) -> RepeatedCurve:
    """A curve of (concurrency, x, the y of each repetition)."""
    rows = [
        {"c": c, "x": x, "y": y, "repetition": r + 1, "curve_key": key, "point_digest": f"{key}{c}", **more}
        for c, x, ys in points
        for r, y in enumerate(ys)
    ]
    return repeated_curve(frame(*rows))


def of(rows: list[dict[str, Any]], kind: str, at: float) -> dict[str, Any]:
    (row,) = [row for row in rows if row["kind"] == kind and row["at"] == at]
    return row


def test_a_ratio_is_of_like_readings(frame: Frame) -> None:
    """At each x the steps are compared with steps and the estimates with estimates; not reached is null."""
    a = curve(frame, "a", [(1, 40.0, [300.0]), (4, 20.0, [900.0])])
    b = curve(frame, "b", [(1, 30.0, [200.0]), (4, 20.0, [600.0])])
    rows = compare(a, b, [20, 30, 35])
    assert [(row["kind"], row["at"]) for row in rows] == [
        (kind, at) for kind in ("step", "estimate") for at in (20, 30, 35)
    ]
    assert (of(rows, "step", 20)["a"], of(rows, "step", 20)["b"]) == (900, 600)
    assert of(rows, "step", 20)["ratio"] == 1.5
    assert of(rows, "step", 30)["ratio"] == 1.5  # 300, measured at 40, against 200
    assert of(rows, "estimate", 30)["ratio"] == pytest.approx(of(rows, "estimate", 30)["a"] / 200)
    gone = of(rows, "step", 35)
    assert (gone["b"], gone["b_state"], gone["ratio"]) == (None, "not_reached", None)


def test_few_repetitions_give_a_range(frame: Frame) -> None:
    """Two to four repetitions: smallest and largest reading, and the quotients of the ends."""
    a = curve(frame, "a", [(1, 40.0, [290.0, 300.0, 310.0])])
    b = curve(frame, "b", [(1, 40.0, [95.0, 100.0, 105.0])])
    row = of(compare(a, b, [30]), "step", 30)
    assert (row["a"], row["a_low"], row["a_high"], row["a_interval"]) == (300, 290, 310, "range")
    assert row["ratio"] == 3
    assert (row["ratio_low"], row["ratio_high"]) == (pytest.approx(290 / 105), pytest.approx(310 / 95))
    assert row["ratio_interval"] == "range"


def test_five_repetitions_give_a_bootstrap(frame: Frame) -> None:
    """Five and more on both sides: 95 % over repetitions, of the ratio itself and the same each time."""
    a = curve(frame, "a", [(1, 40.0, [290.0, 295.0, 300.0, 305.0, 310.0])])
    b = curve(frame, "b", [(1, 40.0, [98.0, 99.0, 100.0, 101.0, 102.0])])
    row = of(compare(a, b, [30]), "step", 30)
    assert (row["a_interval"], row["ratio_interval"]) == ("bootstrap_95", "bootstrap_95")
    assert 290 / 102 <= row["ratio_low"] < 3 < row["ratio_high"] <= 310 / 98
    assert compare(a, b, [30]) == compare(a, b, [30])


def test_the_weaker_label_wins(frame: Frame) -> None:
    """A bootstrap against a range is a range; one repetition has no interval without its requests."""
    many = curve(frame, "a", [(1, 40.0, [290.0, 295.0, 300.0, 305.0, 310.0])])
    some = curve(frame, "b", [(1, 40.0, [95.0, 105.0])])
    one = curve(frame, "c", [(1, 40.0, [100.0])])
    assert of(compare(many, some, [30]), "step", 30)["ratio_interval"] == "range"
    assert of(compare(many, one, [30]), "step", 30)["ratio_interval"] is None
    known = RepeatedCurve(
        one.shared, one.frontier, one.values, {one.frontier.ids[0]: Interval(90.0, 110.0, "within_run", 64)}
    )
    row = of(compare(many, known, [30]), "step", 30)
    assert (row["b_low"], row["b_interval"], row["ratio_interval"]) == (90, "within_run", "within_run")


def test_an_unsteady_edge_has_no_interval(frame: Frame) -> None:
    """Where a repetition does not reach x, an end of the interval is unknown, and so is the interval."""
    rows = [
        {"c": 1, "x": x, "y": 100.0, "repetition": number + 1, "curve_key": "a", "point_digest": "a"}
        for number, x in enumerate((29.0, 31.0, 32.0))
    ]
    a = repeated_curve(frame(*rows))
    row = of(compare(a, a, [30]), "step", 30)
    assert (row["a"], row["a_low"], row["ratio"], row["ratio_low"]) == (100, None, 1, None)


def test_cost_is_made_of_the_readings(frame: Frame) -> None:
    """Dollars come from the read throughput and each side's own price; without one they are null."""
    a = curve(frame, "a", [(1, 40.0, [990.0, 1000.0, 1010.0])])
    b = curve(frame, "b", [(1, 40.0, [990.0, 1000.0, 1010.0])])
    bases = (CostBasis(usd_per_gpu_hour=3.6), CostBasis(usd_per_gpu_hour=7.2))
    row = of(compare(a, b, [30], metric="usd_per_m_total_tokens", bases=bases), "step", 30)
    assert (row["a"], row["b"], row["ratio"]) == (pytest.approx(1), pytest.approx(2), pytest.approx(0.5))
    assert (row["a_low"], row["a_high"]) == (pytest.approx(1000 / 1010), pytest.approx(1000 / 990))
    unpriced = of(compare(a, b, [30], metric="usd_per_m_total_tokens"), "step", 30)
    assert [unpriced[name] for name in ("a", "b", "ratio", "ratio_low")] == [None] * 4


def test_what_cannot_be_compared(frame: Frame) -> None:
    """Other scenarios, windows and kinds have no ratio, nor has a curve without points."""
    a = curve(frame, "a", [(1, 40.0, [1.0])])
    for field, value in (("scenario", "long"), ("window", "steady"), ("kind", "simulated")):
        with pytest.raises(InputError, match=field):
            compare(a, curve(frame, "b", [(1, 40.0, [1.0])], **{field: value}), [30])
    with pytest.raises(InputError, match="without points"):
        repeated_curve(frame())


def test_only_what_counts_on_the_frontier_varies_it(frame: Frame) -> None:
    """Invalid repetitions and held-back points move neither a reading nor its interval."""
    rows = [
        {"c": 1, "x": 40.0, "y": y, "repetition": number + 1, "point_digest": "a", "verdict": verdict}
        for number, (y, verdict) in enumerate(((100.0, "valid"), (110.0, "valid"), (900.0, "invalid")))
    ]
    rows.append(
        {"c": 2, "x": 50.0, "y": 500.0, "point_digest": "b", "official": False, "marks": ["withdrawn"]}
    )
    a = repeated_curve(frame(*rows))
    row = of(compare(a, a, [30]), "step", 30)
    assert (row["a"], row["a_low"], row["a_high"]) == (105, 100, 110)


def test_epsilon_of_two_curves(frame: Frame) -> None:
    """Both directions are told."""
    a, b = curve(frame, "a", [(1, 40.0, [100.0])]), curve(frame, "b", [(1, 40.0, [80.0])])
    assert compare_frontiers(a, b) == {"epsilon_ab": 1.0, "epsilon_ba": 1.25}
