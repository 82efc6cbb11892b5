"""Derive the metrics of a sealed attempt again from its request table (DESIGN 5.5)."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa

from isoline.errors import IncompleteError
from isoline.results.bundles.folder import Folder
from isoline.results.bundles.records import METRICS_VERSION, LockRecord, MetricRow, PointRecord
from isoline.results.metrics.derive import Derived, derive
from isoline.results.metrics.energy import power_of

TELEMETRY = "telemetry.parquet"


def rederive(folder: Path) -> Derived:
    """All metrics of an attempt, from ``requests.parquet``, its slice of telemetry and ``lock.json`` alone.

    :param folder: the sealed attempt, ``<point_id>/<attempt>``.
    :raises IncompleteError: when it is not sealed, was changed, or has no request table.
    """
    sealed = Folder(folder)
    return _derive(sealed, sealed.record("lock.json", LockRecord))


def _derive(sealed: Folder, lock: LockRecord) -> Derived:
    table = _table(sealed, "requests.parquet")
    try:
        gpus = int(lock.launch["gpus"])
        concurrency = int(lock.point["concurrency"])
        limits = lock.point["identity"]["scenario"].get("limits")
        sku = str(lock.launch["identity"]["sku"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise IncompleteError(
            f"lock.json does not say how to derive: {error}", where=str(sealed.path)
        ) from None
    telemetry = None
    if TELEMETRY in sealed:
        telemetry = _table(sealed, TELEMETRY)
    power = power_of(telemetry, gpus=gpus, sku=sku)
    return derive(table, gpus=gpus, concurrency=concurrency, slo=limits or None, power=power)


def _table(sealed: Folder, name: str) -> pa.Table:
    return sealed.parquet(name).read(use_threads=False)  # in this thread: small files by the thousand


def differences(folder: Path) -> list[str]:
    """One line for each number of point.json that deriving again does not give; empty when all agree."""
    sealed = Folder(folder)
    return compare(sealed, sealed.record("point.json", PointRecord), sealed.record("lock.json", LockRecord))


def compare(sealed: Folder, record: PointRecord, lock: LockRecord) -> list[str]:
    """The same for an attempt that is open already.

    An older version may lack rows that are derived now (2 added energy and power); what it has must be what
    is derived now. A version that defines a metric anew has to say here which rows it no longer compares.
    """
    derived = _derive(sealed, lock)
    lines = []
    had = {(row.name, row.window): row for row in record.metrics}
    now = {(row.name, row.window): row for row in derived.rows}
    is_older = bool(record.metrics) and all(row.metrics_version < METRICS_VERSION for row in record.metrics)
    for name, window in sorted(had.keys() | now.keys()):
        old, new = had.get((name, window)), now.get((name, window))
        if old is None:
            if not is_older:
                lines.append(f"{name} ({window}): only derived now")
        elif new is None:
            lines.append(f"{name} ({window}): not derived any more")
        elif not _alike(old, new):
            lines.append(f"{name} ({window}): {old.value}, derived now {new.value}")
    if derived.windows != record.windows:
        lines.append(f"windows: {record.windows}, derived now {derived.windows}")
    counts = derived.counts
    # Requests that were asked for and never sent are in no table.
    if record.counts != counts.model_copy(update={"asked": max(counts.asked, record.counts.asked)}):
        lines.append(f"counts: {record.counts}, derived now {counts}")
    return lines


def _alike(old: MetricRow, new: MetricRow) -> bool:
    if (old.name, old.window, old.unit, old.n, old.note) != (new.name, new.window, new.unit, new.n, new.note):
        return False
    if old.value is None or new.value is None:
        return old.value is new.value
    # Another build of numpy may add in another order.
    return math.isclose(old.value, new.value, rel_tol=1e-9, abs_tol=1e-12)
