"""Derive the metrics of a sealed attempt again from its request table (DESIGN 5.5)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from isoline.errors import IncompleteError
from isoline.results.derive import Derived, derive
from isoline.results.readers import Folder
from isoline.results.records import LockRecord, PointRecord


def rederive(folder: Path) -> Derived:
    """All metrics of an attempt, from ``requests.parquet`` and ``lock.json`` alone.

    :param folder: the sealed attempt, ``<point_id>/<attempt>``.
    :raises IncompleteError: when it is not sealed, was changed, or has no request table.
    """
    sealed = Folder(folder)
    lock = sealed.record("lock.json", LockRecord)
    table = pq.read_table(pa.BufferReader(sealed.read("requests.parquet")))
    try:
        gpus = int(lock.launch["gpus"])
        concurrency = int(lock.point["concurrency"])
        limits = lock.point["identity"]["scenario"].get("limits")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise IncompleteError(f"lock.json does not say how to derive: {error}", where=str(folder)) from None
    return derive(table, gpus=gpus, concurrency=concurrency, slo=limits or None)


def differences(folder: Path) -> list[str]:
    """One line for each number of point.json that deriving again does not give; empty when all agree."""
    record = Folder(folder).record("point.json", PointRecord)
    derived = rederive(folder)
    had = {(row.name, row.window): row for row in record.metrics}
    now = {(row.name, row.window): row for row in derived.rows}
    lines = []
    for name, window in sorted(had.keys() | now.keys()):
        old, new = had.get((name, window)), now.get((name, window))
        if old is None or new is None:
            lines.append(
                f"{name} ({window}): {'only derived now' if old is None else 'not derived any more'}"
            )
        elif old.metrics_version == new.metrics_version and old != new:
            lines.append(f"{name} ({window}): {old.value}, derived now {new.value}")
    if derived.counts != record.counts:
        lines.append(f"counts: {record.counts}, derived now {derived.counts}")
    return lines
