"""What is official at one moment: for each curve its newest complete run (DESIGN 2, 5.6).

Never stitched point by point: every row of a curve comes from one run.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from isoline.results.schema import BY_NAME
from isoline.results.warehouse import Connection

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

# A curve is complete in a run when each of its expected points has a verdict that says something
# about the engine. Accuracy twins are not on the curve. A try-out (smoke, reproduce) has the same
# curve as the real thing and would stand in its place: it counts only where its run is named.
_CURVES = """
    SELECT p.curve_key, p.run_id, r.started_at,
           bool_and(p.got AND p.verdict NOT IN ('infra_error', 'cancelled')) AS complete,
           coalesce(any_value(r.published), true) AS published
    FROM points p JOIN runs r USING (run_id)
    WHERE p.twin_of IS NULL
    GROUP BY ALL
"""

_SQL = f"""
    WITH curves AS ({_CURVES}),
    chosen AS (
        SELECT curve_key, run_id, started_at, complete FROM curves WHERE {{eligible}}
        QUALIFY row_number() OVER (PARTITION BY curve_key ORDER BY started_at DESC, run_id DESC) = 1
    ),
    newer AS (
        SELECT c.curve_key, arg_max(c.run_id, (c.started_at, c.run_id)) AS newer_incomplete_run
        FROM curves c JOIN chosen k USING (curve_key)
        WHERE NOT c.complete AND c.published AND (c.started_at, c.run_id) > (k.started_at, k.run_id)
        GROUP BY ALL
    )
    SELECT p.*, k.complete AS curve_complete, k.started_at AS run_started_at, n.newer_incomplete_run,
           n.newer_incomplete_run IS NOT NULL AS newer_incomplete
    FROM points p
    JOIN chosen k USING (curve_key, run_id)
    LEFT JOIN newer n USING (curve_key)
    WHERE p.twin_of IS NULL{{where}}
    ORDER BY p.curve_key, p.topology, p.concurrency, p.repetition, p.point_id
"""


def snapshot_points(con: Connection, *, run: str | None = None, **filters: str | None) -> pd.DataFrame:
    """The points of a snapshot, one row for each expected point (repetitions are rows of their own).

    Columns: all of ``points``, and ``curve_complete``, ``run_started_at``, ``newer_incomplete``
    (whether a newer run of that curve is incomplete) and ``newer_incomplete_run``. List columns
    hold Python lists. A point without an attempt is there with ``got`` false and nulls.

    :param con: from :func:`isoline.results.warehouse.open_reader`.
    :param run: None: the newest complete run of each curve (the official snapshot);
        :data:`NEWEST`: the newest run of each curve, complete or not; else a run id.
    :param filters: equality on any of :data:`FILTERS`; None is no filter.
    :raises TypeError: for a name that is no filter.
    """
    unknown = set(filters) - set(FILTERS)
    if unknown:
        raise TypeError(f"no filter {', '.join(sorted(unknown))}; known: {', '.join(FILTERS)}")
    values: list[Any] = []
    if run is None:
        eligible = "complete AND published"
    elif run == NEWEST:
        eligible = "published"
    else:
        eligible = "run_id = ?"
        values.append(run)
    where = ""
    for name, value in filters.items():
        if value is not None:
            where += f" AND p.{name} = ?"
            values.append(value)
    return steady_types(con.execute(_SQL.format(eligible=eligible, where=where), values).df())


def steady_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of ``points`` with column types that do not depend on which values happen to be null.

    Metrics are float64 with NaN for null, whole numbers ``Int64`` with NA, lists Python lists,
    texts objects with None.
    """
    for name, kind in BY_NAME["points"].columns:
        column = frame[name]
        if kind == "DOUBLE":
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
