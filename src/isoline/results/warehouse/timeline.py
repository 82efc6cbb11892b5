"""All runs of a curve, night after night: what trend and history read (DESIGN 5.10)."""

from __future__ import annotations

import hashlib
from typing import Any

import pandas as pd

from isoline.results.warehouse.file import Connection
from isoline.results.warehouse.snapshots import given_filters, steady_frame

NOTES: tuple[str, ...] = ("image", "engine", "driver", "node", "client")
"""The annotations that may explain a step, as columns ``note_<name>``."""

# From the lock of the counting attempt, wherever it was measured. A point without an attempt has none.
_SQL = """
    SELECT p.*, r.started_at AS run_started_at,
           coalesce(list_contains(r.curve_parts, p.curve_key), false) AS curve_is_part,
           coalesce(json_extract_string(l.lock, '$.launch.identity.image.digest'),
                    json_extract_string(l.lock, '$.launch.identity.image.ref'),
                    json_extract_string(l.lock, '$.launch.identity.image.packages')) AS note_image,
           p.engine_version AS note_engine,
           json_extract_string(l.lock, '$.fingerprint.driver') AS note_driver,
           json_extract_string(l.lock, '$.fingerprint.hostname') AS note_node,
           json_extract_string(l.lock, '$.resolved.client.aiperf') AS note_client
    FROM points p
    JOIN runs r USING (run_id)
    LEFT JOIN locks l ON l.run_id = coalesce(p.measured_in, p.run_id) AND l.point_id = p.point_id
                     AND l.attempt = p.counting_attempt
    WHERE p.twin_of IS NULL AND coalesce(r.published, true){where}
    ORDER BY r.started_at, p.run_id, p.curve_key, p.topology, p.concurrency, p.repetition, p.point_id
"""


def timeline_points(con: Connection, **filters: str | None) -> pd.DataFrame:
    """The points of every published run, oldest run first; try-outs and accuracy twins are left out.

    Columns: all of ``points``, ``run_started_at``, ``curve_is_part`` (the run meant to measure a part of the
    curve only) and ``note_<name>`` for :data:`NOTES` (None where unknown; the node under its pseudonym).

    :param con: from :func:`isoline.results.warehouse.file.open_reader`, or
        :func:`isoline.results.warehouse.asof.open_at` for an earlier moment.
    :param filters: equality on any of :data:`isoline.results.warehouse.snapshots.FILTERS`; None is no filter.
    :raises TypeError: for a name that is no filter.
    """
    chosen = given_filters(filters)
    where = "".join(f" AND p.{name} = ?" for name in chosen)
    frame = steady_frame(con.execute(_SQL.format(where=where), list(chosen.values())))
    for name in NOTES:
        texts = [value if isinstance(value, str) else None for value in frame[f"note_{name}"]]
        frame[f"note_{name}"] = pd.Series(texts, index=frame.index, dtype=object)
    frame["note_node"] = frame["note_node"].map(pseudonym, na_action="ignore").astype(object)
    frame["note_node"] = frame["note_node"].where(frame["note_node"].notna(), None)
    return frame


def pseudonym(host: Any) -> str:
    """A stable name for a machine that does not tell its name."""
    return f"node-{hashlib.sha256(str(host).encode()).hexdigest()[:6]}"
