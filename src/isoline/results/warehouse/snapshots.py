"""What is official at one moment: for each curve its newest complete run (DESIGN 2, 5.6).

Never stitched point by point: every row of a curve comes from one run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from isoline.results.metrics.registry import HEADLINE
from isoline.results.warehouse.file import Connection
from isoline.results.warehouse.schema import BY_NAME

NEWEST = "newest"
"""For ``run``: the newest run of each curve, complete or not."""

FILTERS: tuple[str, ...] = (
    "model",
    "scenario",
    "sku",
    "engine",
    "weight_precision",
    "recipe_id",
    "sweep",
    "kind",
    "source",
    "curve_key",
)
"""The columns by which :func:`snapshot_points` filters."""

_OF_CURVE = (
    "model",
    "scenario",
    "sku",
    "engine",
    "weight_precision",
    "kind",
    "source",
    "curve_key",
)
"""Of these the filters that all points of a curve have in common: other curves need not be looked at."""

# A curve is complete in a run when each of its expected points has a verdict that says something
# about the engine, and the run did not mean to measure a part of it only. Accuracy twins are not on the
# curve. A try-out (smoke, reproduce) has the same curve as the real thing and would stand in its place: it
# counts only where its run is named.
_CURVES = """
    SELECT p.curve_key, p.run_id, r.started_at,
           coalesce(list_contains(any_value(r.curve_parts), p.curve_key), false) AS is_part,
           bool_and(p.got AND p.verdict NOT IN ('infra_error', 'cancelled')) AND NOT is_part AS complete,
           coalesce(any_value(r.published), true) AS published
    FROM points p JOIN runs r USING (run_id)
    WHERE p.twin_of IS NULL{of_curve}
    GROUP BY p.curve_key, p.run_id, r.started_at
"""

_RANKED = f"""
    WITH curves AS ({_CURVES}),
    ranked AS (
        SELECT *, row_number() OVER (PARTITION BY curve_key ORDER BY started_at DESC, run_id DESC) AS place
        FROM curves WHERE {{eligible}}
    )
"""

_SQL = f"""
    {_RANKED},
    chosen AS (FROM ranked WHERE place = 1),
    newer AS (
        SELECT c.curve_key, arg_max(c.run_id, (c.started_at, c.run_id)) AS newer_incomplete_run,
               arg_max(c.is_part, (c.started_at, c.run_id)) AS newer_is_part
        FROM curves c JOIN chosen k USING (curve_key)
        WHERE NOT c.complete AND c.published AND (c.started_at, c.run_id) > (k.started_at, k.run_id)
        GROUP BY ALL
    )
    SELECT {{columns}}, k.complete AS curve_complete, k.is_part AS curve_is_part,
           k.started_at AS run_started_at,
           n.newer_incomplete_run, n.newer_incomplete_run IS NOT NULL AS newer_incomplete,
           coalesce(n.newer_is_part, false) AS newer_is_part
    FROM points p
    JOIN chosen k USING (curve_key, run_id)
    LEFT JOIN newer n USING (curve_key)
    WHERE p.twin_of IS NULL{{where}}
    ORDER BY p.curve_key, p.topology, p.concurrency, p.repetition, p.point_id
"""

_DECISIONS = "SELECT run_id, point_id, action, reason, reviewer, dated FROM overrides ORDER BY ALL"


def snapshot_points(
    con: Connection,
    *,
    run: str | None = None,
    metrics: Collection[str] | None = None,
    **filters: str | None,
) -> pd.DataFrame:
    """The points of a snapshot, one row for each expected point (repetitions are rows of their own).

    Columns: all of ``points``, and ``curve_complete``, ``curve_is_part`` (its run meant to measure a part
    of the curve only), ``run_started_at``, ``newer_incomplete`` (whether a newer run of that curve is
    incomplete), ``newer_incomplete_run``, ``newer_is_part`` and ``decisions`` (what people decided about
    the point, one line each). List columns hold Python lists. A point without an attempt is there with
    ``got`` false and nulls.

    :param con: from :func:`isoline.results.warehouse.file.open_reader`, or
        :func:`isoline.results.warehouse.asof.open_at` for an earlier moment.
    :param run: None: the newest complete run of each curve (the official snapshot);
        :data:`NEWEST`: the newest run of each curve, complete or not; else a run id.
    :param metrics: the headline metrics that are needed; None: all. Each costs time, and there are many.
    :param filters: equality on any of :data:`FILTERS`; None is no filter.
    :raises TypeError: for a name that is no filter.
    """
    spared = [] if metrics is None else [name for name in HEADLINE if name not in metrics]
    columns = f"p.* EXCLUDE ({', '.join(spared)})" if spared else "p.*"
    if run is None:
        eligible = "complete AND published"
    elif run == NEWEST:
        eligible = "published"
    else:
        eligible = "run_id = $run"
    of_curve, where, values = _where(filters)
    sql = _SQL.format(eligible=eligible, of_curve=of_curve, where=where, columns=columns)
    frame = steady_frame(con.execute(sql, values | ({"run": run} if "$run" in eligible else {})))
    decided = decision_lines(con)
    places = zip(frame["run_id"], frame["measured_in"], frame["point_id"], strict=True)
    lines = [decided(*place) for place in places]
    frame["decisions"] = pd.Series(lines, index=frame.index, dtype=object)
    return frame


def with_metrics(con: Connection, points: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """The same points with metrics as columns that ``points`` has none for, each of the point's own window.

    A name that no attempt has a value of becomes a column of NaN.

    :param con: the reader that the points are from.
    :param names: of the registry; those that are columns already are passed over.
    """
    wanted = [name for name in dict.fromkeys(names) if name not in points]
    if not wanted:
        return points
    found: dict[tuple[Any, ...], float] = {}
    rows = con.execute(
        """SELECT run_id, point_id, attempt, "window", name, value FROM metrics
        WHERE list_contains($names, name) AND list_contains($runs, run_id) AND value IS NOT NULL""",
        {"names": wanted, "runs": sorted(set(points["measured_in"].dropna()))},
    ).fetchall()
    for *place, value in rows:
        found[tuple(place)] = value
    places = list(
        zip(
            *(points[name] for name in ("measured_in", "point_id", "counting_attempt", "window")), strict=True
        )
    )
    return points.assign(
        **{name: np.array([found.get((*place, name), np.nan) for place in places]) for name in wanted}
    )


def given_filters(filters: Mapping[str, str | None]) -> dict[str, str]:
    """The equality filters that a caller gave; None is no filter.

    :raises TypeError: for a name that is no filter.
    """
    unknown = set(filters) - set(FILTERS)
    if unknown:
        raise TypeError(f"no filter {', '.join(sorted(unknown))}; known: {', '.join(FILTERS)}")
    return {name: value for name, value in filters.items() if value is not None}


def _where(filters: Mapping[str, str | None]) -> tuple[str, str, dict[str, str]]:
    """(condition on curves, condition on points, values) of equality filters."""
    values = given_filters(filters)
    of_curve = "".join(f" AND p.{name} = ${name}" for name in values if name in _OF_CURVE)
    return of_curve, "".join(f" AND p.{name} = ${name}" for name in values), values


def decision_lines(con: Connection) -> Callable[[str, str | None, str], list[str]]:
    """What people decided, one line for each decision: of a run, the run that measured there, and a point."""
    found: dict[tuple[str, str | None], list[str]] = {}
    for run, point, action, reason, reviewer, dated in con.execute(_DECISIONS).fetchall():
        word = "withdrawn" if action == "withdraw" else "note"
        found.setdefault((run, point), []).append(f"{word}: {reason} ({reviewer}, {dated})")

    def lines(run_id: str, measured_in: str | None, point_id: str) -> list[str]:
        if not found:
            return []
        places = [(run, point) for run in (run_id, measured_in) if run for point in (None, point_id)]
        return [text for place in dict.fromkeys(places) for text in found.get(place, ())]

    return lines


_LOST = f"""
    {_RANKED},
    had AS (
        SELECT p.curve_key, p.series_key, p.topology, p.concurrency, any_value(p.run_id) AS former_run_id
        FROM points p JOIN ranked r USING (curve_key, run_id)
        WHERE r.place = 2 AND p.twin_of IS NULL AND p.verdict = 'valid'
              AND NOT list_contains(p.marks, 'withdrawn'){{where}}
        GROUP BY ALL
    ),
    has AS (
        SELECT p.series_key, bool_or(p.verdict IS NOT DISTINCT FROM 'valid') AS is_valid,
               any_value(p.verdict) AS verdict, flatten(list(p.reasons)) AS reasons
        FROM points p JOIN ranked r USING (curve_key, run_id)
        WHERE r.place = 1 AND p.twin_of IS NULL
        GROUP BY ALL
    )
    SELECT h.curve_key, r.run_id, h.former_run_id, h.series_key, h.topology, h.concurrency,
           coalesce(n.verdict, 'not planned') AS now,
           coalesce(list_sort(list_distinct(n.reasons)), []) AS reasons
    FROM had h JOIN ranked r ON r.curve_key = h.curve_key AND r.place = 1
    LEFT JOIN has n USING (series_key)
    WHERE NOT coalesce(n.is_valid, false)
    ORDER BY h.curve_key, h.topology, h.concurrency
"""


def lost_points(con: Connection, **filters: str | None) -> list[dict[str, Any]]:
    """What the snapshot before had of each curve and this one has not: valid points, repetitions together.

    Keys: ``curve_key``, ``run_id`` (of the snapshot), ``former_run_id``, ``series_key``, ``topology``,
    ``concurrency``, ``now`` (the verdict, or ``not planned``) and ``reasons``. A withdrawn point is not
    lost: somebody decided that, and it is shown.

    :param con: as :func:`snapshot_points`.
    :param filters: likewise.
    """
    of_curve, where, values = _where(filters)
    sql = _LOST.format(eligible="complete AND published", of_curve=of_curve, where=where)
    result = con.execute(sql, values)
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def steady_frame(result: Connection) -> pd.DataFrame:
    """The rows of an executed query that has the columns of ``points``, as :func:`steady_types` has them.

    Straight from the database's arrays: by way of pandas' own guesses a hundred columns take longer than
    the query.
    """
    kinds = dict(BY_NAME["points"].columns)
    return pd.DataFrame(
        {name: _steady(values, kinds.get(name)) for name, values in result.fetchnumpy().items()}
    )


def _steady(values: Any, kind: str | None) -> Any:
    mask, data = np.ma.getmaskarray(values), np.ma.getdata(values)
    if data.dtype.kind == "f":
        return np.where(mask, np.nan, data)
    if data.dtype.kind == "i" and kind is not None:
        return pd.arrays.IntegerArray(data.astype(np.int64), mask)
    if data.dtype.kind == "b":
        return pd.arrays.BooleanArray(data, mask) if mask.any() else data
    if data.dtype.kind == "M":
        return np.where(mask, np.datetime64("NaT"), data)
    if kind == "VARCHAR[]":
        lists: list[Any] = [[] if absent else list(item) for item, absent in zip(data, mask, strict=True)]
        return pd.Series(lists, dtype=object)
    if data.dtype.kind == "O":
        texts: list[Any] = [None if absent else item for item, absent in zip(data, mask, strict=True)]
        return pd.Series(texts, dtype=object)
    return data


def steady_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of ``points`` with column types that do not depend on which values happen to be null.

    Metrics are float64 with NaN for null, whole numbers ``Int64`` with NA, lists Python lists,
    texts objects with None.
    """
    for name, kind in BY_NAME["points"].columns:
        column = frame[name]
        if kind == "DOUBLE" and column.dtype != np.float64:
            frame[name] = column.astype("Float64").to_numpy(dtype="float64", na_value=float("nan"))
        elif kind in ("INTEGER", "BIGINT"):
            frame[name] = column.astype("Int64")
        elif kind == "VARCHAR[]":
            lists = [list(value) if hasattr(value, "__iter__") else [] for value in column]
            frame[name] = pd.Series(lists, index=frame.index, dtype=object)
        elif kind == "VARCHAR":
            texts = [value if isinstance(value, str) else None for value in column]
            frame[name] = pd.Series(texts, index=frame.index, dtype=object)
    return frame


def run_ids(con: Connection) -> list[str]:
    """The run ids, newest first."""
    return [
        row[0]
        for row in con.execute("SELECT run_id FROM runs ORDER BY started_at DESC, run_id DESC").fetchall()
    ]
