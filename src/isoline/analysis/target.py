"""What is there to beat: of each SKU the best official reading, and the recipe that made it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from isoline.analysis.cost import CostBasis, value_of
from isoline.analysis.curves import better, curve_groups, curve_table, frontier_rows
from isoline.analysis.frontier import sign
from isoline.analysis.joined import best_of
from isoline.analysis.noise import Constants
from isoline.analysis.readings import step_reading
from isoline.results.metrics.registry import FROM_READINGS

Row = dict[str, Any]


def targets(
    points: pd.DataFrame,
    at: float,
    *,
    x: str | None = None,
    y: str | None = None,
    basis: Callable[[str], CostBasis] = lambda sku: CostBasis(),
    constants: Constants = Constants(),
) -> list[Row]:
    """One row for each SKU and precision of the weights, in the order of their names.

    A row holds ``sku``, ``weight_precision``, ``at``, ``value`` (the best official step reading; None: not
    reached), ``state``, ``n`` (how many curves were looked at) and ``label``, what made it (``recipe_id``,
    ``engine``, ``topology``, ``concurrency``, ``run_id``, ``point_id``, ``curve_key``), ``to_beat`` and
    ``costs``.

    ``to_beat``: x at ``at`` or better, and a y beyond ``value`` by the smallest change that counts; anything
    measured there where nothing was.

    :param points: rows of ``points`` of one model and scenario; only official points count.
    :param basis: price and power of a SKU.
    """
    # Before the frontier, not after it: what is not official must not hide what is.
    rows = curve_table(points[points["official"].fillna(False).astype(bool)], x, y)
    by_place: dict[tuple[str, str], list[list[Row]]] = {}
    for curve in curve_groups(rows).values():
        place = (str(curve[0]["sku"]), str(curve[0]["weight_precision"]))
        by_place.setdefault(place, []).append(curve)
    return [
        _target(sku, precision, curves, at, basis(sku), constants)
        for (sku, precision), curves in sorted(by_place.items())
    ]


def _target(
    sku: str,
    precision: str,
    curves: Sequence[Sequence[Row]],
    at: float,
    basis: CostBasis,
    constants: Constants,
) -> Row:
    first = curves[0][0]
    x_metric, y_metric = first["x_metric"], first["y_metric"]
    joined = best_of([(_shared(rows), frontier_rows(rows)) for rows in curves])
    reading = step_reading(joined.frontier, at)
    made: Mapping[str, Any] = {}
    if reading.point_id is not None:
        place = joined.frontier.ids.index(reading.point_id)
        made = next(row for row in curves[joined.curves[place]] if row["point_id"] == reading.point_id)
    gain = sign(better(y_metric))
    beyond = None if reading.value is None else reading.value * (1 + gain * constants.min_change)
    names = ("recipe_id", "engine", "topology", "gpus", "concurrency", "run_id", "point_id", "curve_key")
    return {
        "sku": sku,
        "weight_precision": precision,
        "at": at,
        "x_metric": x_metric,
        "y_metric": y_metric,
        "value": reading.value,
        "state": reading.state,
        "n": joined.n,
        "label": joined.label,
        **{name: made.get(name) for name in names},
        "to_beat": {
            x_metric: {"at_least" if better(x_metric) == "max" else "at_most": at},
            y_metric: {"above" if gain > 0 else "below": beyond},
        },
        "costs": {
            name: value_of(name, reading.value, basis)
            for name, item in FROM_READINGS.items()
            if item.of == y_metric
        },
        "prices": basis.prices,
        "tier": basis.tier,
    }


def _shared(rows: Sequence[Row]) -> Row:
    window = next((row["window"] for row in rows if row["window"]), None)
    return {**rows[0], "window": window}
