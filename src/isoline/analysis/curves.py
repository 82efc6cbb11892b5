"""The rows that show curves: one place for the terminal, the dashboard and the JSON (DESIGN 5.3, 5.4).

``curve_table`` turns rows of the warehouse's ``points`` table into one row a point, with the
median over its repetitions, its interval and whether it is on the frontier of its curve.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from isoline.analysis.frontier import Better, Floats, Frontier, frontier_of, medians, require_one_curve
from isoline.analysis.intervals import Interval, as_row, over_repetitions
from isoline.analysis.readings import Reading, estimate_reading, step_reading
from isoline.errors import InputError
from isoline.results.identity import CURVE_FIELDS
from isoline.results.judging.reasons import SEVERITY
from isoline.results.metrics.registry import AXES, FROM_READINGS, METRICS, Axes

Row = dict[str, Any]

SHARED: tuple[str, ...] = ("curve_key", *CURVE_FIELDS, "scenario_kind", "run_id", "window")
"""What all points of one curve in one snapshot share, in the order of display."""

_DECIDING = ("recipe_id", "topology", "accuracy_state", "official", "verdict", "marks")
"""The columns that decide whether a row may be on a frontier."""

_NEEDED: tuple[str, ...] = (
    *SHARED,
    *_DECIDING,
    *("gpus", "concurrency", "point_digest", "repetition", "point_id", "series_key", "ttft_p50_ms"),
    *("reasons", "unofficial_why", "decisions"),
)
"""The columns that a curve is made of, beside its axes."""

_HELD_BACK = {"withdrawn", "implausible"}
_FAILED = {"failed", "invalid"}
_PASSED = {"passed", "provisional", "inconclusive"}


def better(metric: str) -> Better:
    """The better direction of a metric of the registry.

    :raises InputError: for an unknown name, or a metric of which neither direction is better.
    """
    if metric in FROM_READINGS:
        raise InputError(
            f"{metric} is made of readings of {FROM_READINGS[metric].of}; it can be the vertical axis only",
            remedy="choose a metric that is measured",
        )
    if metric not in METRICS:
        raise InputError(f"unknown metric {metric!r}", remedy="docs/metrics.md names them all")
    direction = METRICS[metric].better
    if direction is None:
        raise InputError(
            f"{metric} has no better direction, so it has no frontier", remedy="choose another metric"
        )
    return direction


def default_axes(scenario_kind: str | None) -> Axes:
    """The default axes of a scenario kind (``fixed_length``, ``trace``).

    :raises InputError: for a kind that has none.
    """
    if scenario_kind is None or scenario_kind not in AXES:
        raise InputError(
            f"no default axes for scenarios of kind {scenario_kind!r}", remedy="name two metrics as x and y"
        )
    return AXES[scenario_kind]


def curve_table(
    points: pd.DataFrame,
    x: str | None = None,
    y: str | None = None,
    *,
    within: Mapping[str, Mapping[str, Interval]] | None = None,
) -> list[Row]:
    """One row for each point of each curve, curve after curve, by topology and concurrency.

    A row holds :data:`SHARED`, ``recipe_id``, ``topology``, ``gpus``, ``concurrency``, ``x_metric``,
    ``y_metric``, ``x``, ``y``, their ``_low``, ``_high`` and ``_interval`` (label), ``ttft_p50_ms``,
    ``n`` (repetitions in the medians) of ``repetitions``, ``verdict`` (``missing`` where there was
    no attempt), ``verdicts`` (how many of each), ``reasons``, ``accuracy``, ``official``, ``why``
    (not official), ``marks``, ``decisions`` (of people, one line each), ``frontier``, ``point_id`` (of one
    repetition in the medians), ``point_ids``, ``point_digest`` and ``series_key``. What is unknown is None,
    never NaN or 0.

    On the frontier are medians over valid repetitions that are not held back (:func:`eligible`).
    Partial points have coordinates, but are never on it. Accuracy twins are left out: their timing
    is not the point's.

    :param points: rows of ``points`` of any number of curves; of each curve one run and one window.
    :param x: metric of the horizontal axis; None: the default of the curve's scenario kind.
    :param y: likewise, vertical.
    :param within: ``within_run`` intervals by ``point_id`` and metric, for single repetitions.
    :raises InputError: for an unknown metric, one that the rows lack, one without a direction, or
        a curve with two runs or windows in it.
    """
    for metric in (x, y):
        if metric is not None:
            better(metric)
    if points.empty:
        return []
    timed = points[points["twin_of"].isna()] if "twin_of" in points else points
    rows: list[Row] = []
    for part in sorted(_parts(timed, x, y), key=lambda part: _curve_order(part[0])):
        axes = _axes(part[0], x, y)
        windows = (row["window"] for row in part if row["window"] is not None)
        require_one_curve((row["curve_key"] for row in part), windows, (row["run_id"] for row in part))
        rows.extend(_one_curve(part, axes, within or {}))
    return rows


def eligible(part: pd.DataFrame) -> list[bool]:
    """Which rows of one curve may be on its frontier.

    Official rows may. So may valid ones of curves that cannot be official as a whole (simulated,
    imported, off the rule set), but never what is withdrawn or implausible, nor what a failed
    accuracy check of the same recipe and topology throws doubt on.

    :param part: rows of ``points`` of one curve.
    """
    return _eligible(_records(part, _DECIDING))


def _eligible(rows: Sequence[Row]) -> list[bool]:
    doubtful = {_place(row) for row in rows if row["accuracy_state"] in _FAILED}
    result = []
    for row in rows:
        checked = row["accuracy_state"] in _PASSED
        unchecked = row["accuracy_state"] in (None, "not_run") and _place(row) not in doubtful
        fine = row["official"] is True or checked or unchecked
        result.append(row["verdict"] == "valid" and fine and not _HELD_BACK & set(row["marks"] or ()))
    return result


def curve_groups(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows of :func:`curve_table` by curve, in their order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["curve_key"], []).append(row)
    return groups


def frontier_rows(rows: Sequence[Row]) -> Frontier:
    """The frontier of the rows of one curve, as :func:`curve_table` marked it.

    :raises InputError: when the rows are of two curves, windows, runs or axis pairs.
    """
    require_one_curve(
        (row["curve_key"] for row in rows),
        (row["window"] for row in rows if row["window"]),
        (row["run_id"] for row in rows),
    )
    if len({(row["x_metric"], row["y_metric"]) for row in rows}) > 1:
        raise InputError("one frontier has one pair of axes")
    kept = [row for row in rows if row["frontier"]]
    x_better = better(rows[0]["x_metric"]) if rows else "max"
    y_better = better(rows[0]["y_metric"]) if rows else "max"
    return frontier_of(
        [row["x"] for row in kept],
        [row["y"] for row in kept],
        [row["point_id"] for row in kept],
        x_better=x_better,
        y_better=y_better,
    )


def curve_readings(rows: Sequence[Row], at: Sequence[float] | None = None) -> list[Row]:
    """Step and estimate readings of the rows of one curve, one row for each x.

    A row holds ``curve_key``, ``x_metric``, ``y_metric``, ``at``, ``step``, ``step_state``,
    ``point_id``, ``estimate`` and ``estimate_state``.

    :param at: values of x; None: :func:`round_values` of the frontier.
    """
    curve = frontier_rows(rows)
    found: list[Row] = []
    for value in round_values(curve) if at is None else at:
        step: Reading = step_reading(curve, value)
        estimate: Reading = estimate_reading(curve, value)
        found.append(
            {
                "curve_key": rows[0]["curve_key"] if rows else None,
                "x_metric": rows[0]["x_metric"] if rows else None,
                "y_metric": rows[0]["y_metric"] if rows else None,
                "at": value,
                "step": step.value,
                "step_state": step.state,
                "point_id": step.point_id,
                "estimate": estimate.value,
                "estimate_state": estimate.state,
            }
        )
    return found


def round_values(curve: Frontier, count: int = 3) -> list[float]:
    """At most ``count`` round numbers between the two ends of a frontier, ascending."""
    if not curve.x:
        return []
    low, high = curve.x[0], curve.x[-1]
    span = (high - low) / (count + 1)
    if not span > 0:
        return []
    scale = 10.0 ** math.floor(math.log10(span))
    step = next(size * scale for size in (1, 2, 5, 10) if size * scale >= span)
    first = math.ceil(low / step)
    values = [float(f"{index * step:.12g}") for index in range(first, first + count + 1)]
    return [value for value in values if low <= value <= high][:count]


def _place(row: Row) -> tuple[Any, Any]:
    return row["recipe_id"], row["topology"]


def _parts(points: pd.DataFrame, x: str | None, y: str | None) -> list[list[Row]]:
    """The rows of each curve. Only columns that a curve is made of: a point has a hundred."""
    kinds = points["scenario_kind"].dropna().unique() if x is None or y is None else ()
    axes = [AXES[kind] for kind in kinds if kind in AXES]
    metrics = [x, y, *(name for pair in axes for name in (pair.x, pair.y))]
    parts: dict[Any, list[Row]] = {}
    for row in _records(points, dict.fromkeys([*_NEEDED, *(name for name in metrics if name)])):
        if row["curve_key"] is not None:
            parts.setdefault(row["curve_key"], []).append(row)
    return list(parts.values())


def _axes(first: Row, x: str | None, y: str | None) -> Axes:
    if x is not None and y is not None:
        axes = Axes(x, y)
    else:
        default = default_axes(first["scenario_kind"])
        axes = Axes(x or default.x, y or default.y)
    for metric in (axes.x, axes.y):
        if metric not in first:
            raise InputError(f"{metric} is not a column of the points", remedy="choose a headline metric")
    return axes


_ORDER = ("gpus", "topology", "recipe_id", "concurrency", "point_digest", "repetition")


def _one_curve(part: list[Row], axes: Axes, within: Mapping[str, Mapping[str, Interval]]) -> list[Row]:
    records = sorted(part, key=lambda row: [(row[name] is None, row[name] or 0) for name in _ORDER])
    may = _eligible(records)
    # A point is what point_digest says: two recipes at one topology are two points.
    groups: list[Hashable] = [record["point_digest"] for record in records]
    pairs = [[record[axes.x], record[axes.y]] for record in records]
    values = np.array([[np.nan if item is None else item for item in pair] for pair in pairs])
    names, middle, counts = medians(values, groups, may)
    rows = []
    for name, xy, n in zip(names, middle, counts, strict=True):
        members = [i for i, group in enumerate(groups) if group == name]
        used = [i for i in members if may[i] and np.isfinite(values[i]).all()]
        if not n:  # shown, but not comparable: held back, partial, or without one of the two
            used = _shown(members, records)
            xy = np.array([_median(values[used, column]) for column in (0, 1)])
        row = _point_row([records[i] for i in members], [records[i] for i in used], axes)
        row.update(x=_number(xy[0]), y=_number(xy[1]), n=int(n))
        for axis, metric, column in (("x", axes.x, 0), ("y", axes.y, 1)):
            interval = over_repetitions(values[used, column]) if n else None
            if n == 1:
                interval = within.get(row["point_id"], {}).get(metric)
            row.update(as_row(interval, axis))
        rows.append(row)
    _mark_frontier(rows, axes)
    return rows


def _shown(members: list[int], records: list[Row]) -> list[int]:
    """The repetitions that give a point without a comparable one its numbers: valid, else partial."""
    for verdict in ("valid", "partial"):
        found = [i for i in members if records[i]["verdict"] == verdict]
        if found:
            return found
    return []


def _median(values: Floats) -> float:
    found = values[np.isfinite(values)]
    return float(np.median(found)) if found.size else math.nan


def _point_row(members: list[Row], used: list[Row], axes: Axes) -> Row:
    first = members[0]
    shown = used[0] if used else first
    verdicts = Counter(str(row["verdict"] or "missing") for row in members)
    ttft = [value for row in used if (value := row.get("ttft_p50_ms")) is not None]
    counting = used or members
    return {
        **{name: first.get(name) for name in SHARED},
        "window": shown["window"],
        **{name: first[name] for name in ("recipe_id", "topology", "gpus", "concurrency")},
        "x_metric": axes.x,
        "y_metric": axes.y,
        "x": None,
        "y": None,
        "ttft_p50_ms": float(median(ttft)) if ttft else None,
        "n": 0,
        "repetitions": len(members),
        "verdict": shown["verdict"] or "missing",
        "verdicts": {name: verdicts[name] for name in sorted(verdicts, key=_severity)},
        "reasons": _union(members, "reasons"),
        "accuracy": sorted({str(row["accuracy_state"] or "not_run") for row in members}),
        "official": all(row["official"] is True for row in counting),
        "why": _union([{"why": [row.get("unofficial_why")]} for row in counting], "why"),
        "marks": _union(members, "marks"),
        "decisions": _union(members, "decisions"),
        "frontier": False,
        "point_id": shown["point_id"],
        "point_ids": [row["point_id"] for row in members],
        "point_digest": first["point_digest"],
        "series_key": first.get("series_key"),
    }


def _mark_frontier(rows: list[Row], axes: Axes) -> None:
    usable = [row for row in rows if row["n"]]
    curve = frontier_of(
        [row["x"] for row in usable],
        [row["y"] for row in usable],
        [row["point_id"] for row in usable],
        x_better=better(axes.x),
        y_better=better(axes.y),
        # Imported rows may have neither: an open loop, or GPUs that nobody counted.
        ties=[[_or_last(row[name]) for row in usable] for name in ("concurrency", "gpus")],
    )
    kept = set(curve.ids)
    for row in usable:
        row["frontier"] = row["point_id"] in kept


def _or_last(value: int | None) -> float:
    return math.inf if value is None else value


def _curve_order(first: Row) -> tuple[str, ...]:
    names = ("model", "scenario", "sku", "engine", "weight_precision", "curve_key")
    return tuple(str(first[name]) for name in names if name in first)


def _severity(verdict: str) -> int:
    order = [str(known.value) for known in SEVERITY]
    return order.index(verdict) if verdict in order else len(order)


def _union(rows: Iterable[Mapping[str, Any]], name: str) -> list[str]:
    return sorted({str(item) for row in rows for item in row.get(name) or () if item})


def _number(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


def _records(part: pd.DataFrame, names: Iterable[str]) -> list[Row]:
    """Rows as plain Python, by column: row by row pandas takes ten times as long."""
    found = [name for name in names if name in part]
    columns = [[_plain(value) for value in part[name].tolist()] for name in found]
    return [dict(zip(found, row, strict=True)) for row in zip(*columns, strict=True)]


def _plain(value: Any) -> Any:
    """A cell of pandas as plain Python: lists for arrays, None for what is missing."""
    if type(value) is str or type(value) is int:
        return value
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(item) for item in value]
    if value is None or value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
