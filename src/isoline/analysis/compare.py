"""Two curves at equal interactivity: like readings, their ratio and its interval (DESIGN 5.3). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from isoline.analysis.cost import CostBasis, interval_of, value_of
from isoline.analysis.curves import SHARED, better, curve_table, eligible, frontier_rows
from isoline.analysis.frontier import Better, Floats, Frontier, frontier_of
from isoline.analysis.intervals import CONFIDENCE, Interval, Label, as_row
from isoline.analysis.joined import epsilon
from isoline.analysis.readings import Kind, Reading, estimate_reading, ratio, step_reading
from isoline.errors import InputError

Row = dict[str, Any]

DRAWS = 400
_READ = {"step": step_reading, "estimate": estimate_reading}


@dataclass(frozen=True)
class RepeatedCurve:
    """One curve with all that its readings may vary by.

    :param shared: what its points share, ``x_metric`` and ``y_metric`` too.
    :param frontier: of the medians.
    :param values: point id -> its valid repetitions, shape (n, 2): x and y.
    :param within: point id -> ``within_run`` interval of y, where a point has one repetition.
    """

    shared: Row
    frontier: Frontier
    values: Mapping[str, Floats]
    within: Mapping[str, Interval]

    @property
    def n(self) -> int:
        """Repetitions of the frontier point that has fewest; 0 without a frontier."""
        return min((len(self.values[name]) for name in self.frontier.ids), default=0)


def repeated_curve(
    points: pd.DataFrame,
    x: str | None = None,
    y: str | None = None,
    *,
    within: Mapping[str, Mapping[str, Interval]] | None = None,
) -> RepeatedCurve:
    """A curve from its rows of ``points``; parameters as :func:`isoline.analysis.curves.curve_table`.

    :raises InputError: when the rows are of none or of two curves, windows or runs.
    """
    rows = curve_table(points, x, y)
    if not rows:
        raise InputError("a curve without points cannot be compared", remedy="choose another curve")
    frontier = frontier_rows(rows)
    axes = [rows[0]["x_metric"], rows[0]["y_metric"]]
    timed = points[points["twin_of"].isna()] if "twin_of" in points else points
    usable = timed[eligible(timed)]
    values: dict[str, Floats] = {}
    for row in rows:
        if not row["n"]:
            continue
        own = usable[usable["point_digest"] == row["point_digest"]].sort_values("repetition")
        found = own[axes].to_numpy(dtype=np.float64, na_value=np.nan)
        values[row["point_id"]] = found[np.isfinite(found).all(axis=1)]
    shared = {name: rows[0][name] for name in SHARED}
    shared["window"] = next((row["window"] for row in rows if row["window"]), None)
    shared |= {"x_metric": axes[0], "y_metric": axes[1]}
    spread = {name: found[axes[1]] for name, found in (within or {}).items() if axes[1] in found}
    return RepeatedCurve(shared, frontier, values, spread)


def compare(
    a: RepeatedCurve,
    b: RepeatedCurve,
    at: Sequence[float],
    *,
    metric: str | None = None,
    bases: tuple[CostBasis, CostBasis] = (CostBasis(), CostBasis()),
    seed: int = 0,
) -> list[Row]:
    """A against B at each x, by steps and by estimates.

    A row holds ``at``, ``kind`` (of both readings), for ``a`` and ``b`` the value, ``_state``,
    ``_point`` (of a step), ``_low``, ``_high`` and ``_interval``, and ``ratio`` (a / b) with its interval.

    Intervals of readings: one repetition: ``within_run`` of the point that a step was read from; two
    to four: the reading of each repetition of the whole curve, smallest and largest; five or more:
    bootstrap over repetitions. The ratio's: of drawn ratios where both have a bootstrap; else the
    quotients of the ends, under the label of the weaker one.

    :param metric: what to show: the y metric of the curves, or one that is made of its reading.
    :param bases: price and power of A's and of B's SKU, for such a metric.
    :raises InputError: when the curves differ in axes, window, scenario or kind: no ratio means anything.
    """
    for name in ("x_metric", "y_metric", "scenario", "scenario_version", "window", "kind"):
        if a.shared[name] != b.shared[name]:
            raise InputError(
                f"A and B differ in {name}: {a.shared[name]} and {b.shared[name]}",
                remedy="compare curves of one scenario, kind, window and pair of axes",
            )
    shown = metric or a.shared["y_metric"]
    rows = []
    for kind in ("step", "estimate"):
        sides = [
            _side(curve, at, kind, shown, basis, seed + number)
            for number, (curve, basis) in enumerate(zip((a, b), bases, strict=True))
        ]
        for one, other in zip(*sides, strict=True):
            interval = _ratio_interval(one, other)
            rows.append(
                {
                    "at": one.reading.at,
                    "kind": kind,
                    **one.row("a"),
                    **other.row("b"),
                    "ratio": ratio(one.reading, other.reading),
                    **as_row(interval, "ratio"),
                }
            )
    return rows


def compare_frontiers(a: RepeatedCurve, b: RepeatedCurve) -> Row:
    """``epsilon_ab``: the factor that A lacks somewhere to reach all of B; ``epsilon_ba`` the other way."""
    return {"epsilon_ab": epsilon(a.frontier, b.frontier), "epsilon_ba": epsilon(b.frontier, a.frontier)}


@dataclass(frozen=True)
class _Side:
    """One reading as it is shown, with its interval and the draws behind it."""

    reading: Reading
    interval: Interval | None
    draws: Floats | None

    def row(self, name: str) -> Row:
        return {
            name: self.reading.value,
            f"{name}_state": self.reading.state,
            f"{name}_point": self.reading.point_id,
            **as_row(self.interval, name),
        }


def _side(
    curve: RepeatedCurve, at: Sequence[float], kind: Kind, metric: str, basis: CostBasis, seed: int
) -> list[_Side]:
    readings = [_READ[kind](curve.frontier, value) for value in at]
    varied = _varied(curve, at, kind, seed) if curve.n > 1 else None
    sides = []
    for place, reading in enumerate(readings):
        shown = replace(reading, value=value_of(metric, reading.value, basis))
        interval, draws = None, None
        if varied is not None:
            drawn = [value_of(metric, value, basis) for value in varied[place]]
            if all(value is not None for value in drawn):  # reached in each: else an end is unknown
                draws = np.array(drawn, dtype=np.float64)
                interval = _interval(draws, curve.n)
        elif reading.point_id is not None:
            interval = interval_of(metric, curve.within.get(reading.point_id), basis)
        sides.append(_Side(shown, interval, draws))
    return sides


def reading_by_repetition(curve: RepeatedCurve, at: float, kind: Kind) -> list[float | None]:
    """The reading of the first repetitions of all points, of the second ones, and so on.

    As many as the frontier point has that has fewest; None where one does not reach ``at``.
    """
    return _read(curve, _by_turn(curve), [at], kind)[0]


def _varied(curve: RepeatedCurve, at: Sequence[float], kind: Kind, seed: int) -> list[list[float | None]]:
    """For each x the readings of other curves that the repetitions could have been.

    Two to four repetitions: the first of each point, the second of each, and so on. Five or more: the
    medians of repetitions drawn with replacement, point by point.
    """
    if curve.n < 5:
        worlds = _by_turn(curve)
    else:
        random = np.random.default_rng(seed)
        medians = [
            np.median(values[random.integers(0, len(values), (DRAWS, len(values)))], axis=1)
            for values in curve.values.values()
        ]
        worlds = [[points[draw] for points in medians] for draw in range(DRAWS)]
    return _read(curve, worlds, at, kind)


def _by_turn(curve: RepeatedCurve) -> list[list[Floats]]:
    return [
        [values[turn] for values in curve.values.values() if len(values) > turn] for turn in range(curve.n)
    ]


def _read(
    curve: RepeatedCurve, worlds: Sequence[Sequence[Floats]], at: Sequence[float], kind: Kind
) -> list[list[float | None]]:
    x_better: Better = better(curve.shared["x_metric"])
    y_better: Better = better(curve.shared["y_metric"])
    found: list[list[float | None]] = [[] for _ in at]
    for world in worlds:
        x, y = np.array(world).T
        frontier = frontier_of(x, y, [""] * len(x), x_better=x_better, y_better=y_better)
        for place, value in enumerate(at):
            found[place].append(_READ[kind](frontier, value).value)
    return found


def _interval(draws: Floats, n: int) -> Interval:
    if n < 5:
        return Interval(float(draws.min()), float(draws.max()), "range", n)
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(low), float(high), "bootstrap_95", n)


def _ratio_interval(one: _Side, other: _Side) -> Interval | None:
    a, b = one.interval, other.interval
    if a is None or b is None or b.low <= 0 or a.low <= 0:
        return None
    n = min(a.n, b.n)
    if a.label == b.label == "bootstrap_95" and one.draws is not None and other.draws is not None:
        return _interval(one.draws / other.draws, n)
    label: Label = "within_run" if "within_run" in (a.label, b.label) else "range"
    return Interval(a.low / b.high, a.high / b.low, label, n)
