"""Telemetry of a launch: a long table of samples (t_ns, name, value), sliced for each attempt."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

TELEMETRY_SCHEMA_VERSION = 1

TELEMETRY_SCHEMA = pa.schema(
    [
        pa.field("t_ns", pa.int64(), nullable=False),  # epoch nanoseconds
        pa.field("name", pa.string(), nullable=False),  # engine.<counter>, process.rss_bytes, process.cpu_s
        pa.field("value", pa.float64(), nullable=False),
    ],
    metadata={b"isoline.schema_version": str(TELEMETRY_SCHEMA_VERSION).encode()},
)


class Sample(NamedTuple):
    """One value at one moment (epoch nanoseconds)."""

    t_ns: int
    name: str
    value: float


def write_samples(
    path: Path, samples: Iterable[Sample], *, from_ns: int | None = None, to_ns: int | None = None
) -> int:
    """Write the samples inside [from_ns, to_ns] as Parquet, also when there is none. Returns how many."""
    kept = [
        sample
        for sample in samples
        if (from_ns is None or sample.t_ns >= from_ns) and (to_ns is None or sample.t_ns <= to_ns)
    ]
    columns = [list(column) for column in zip(*kept, strict=True)] if kept else [[], [], []]
    table = pa.table(columns, schema=TELEMETRY_SCHEMA)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")
    return len(kept)
