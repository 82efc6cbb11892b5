"""Telemetry of a launch: a long table of samples (t_ns, name, device, value), sliced for each attempt."""

from __future__ import annotations

import json
import threading
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

TELEMETRY_SCHEMA_VERSION = 2

TELEMETRY_SCHEMA = pa.schema(
    [
        pa.field("t_ns", pa.int64(), nullable=False),  # epoch nanoseconds
        # engine.<counter>, process.rss_bytes, process.cpu_s, device.power_w, ...
        pa.field("name", pa.string(), nullable=False),
        pa.field("device", pa.string()),  # index of the device; null for what is of no device
        pa.field("value", pa.float64(), nullable=False),
    ],
    metadata={b"isoline.schema_version": str(TELEMETRY_SCHEMA_VERSION).encode()},
)

WINDOWS_KEY = b"isoline.windows"
"""Metadata of a slice: JSON, window -> [start_ns, end_ns] or null."""


class Sample(NamedTuple):
    """One value at one moment (epoch nanoseconds); ``device`` None = of no device."""

    t_ns: int
    name: str
    value: float
    device: str | None = None


def write_samples(
    path: Path,
    samples: Iterable[Sample],
    *,
    from_ns: int | None = None,
    to_ns: int | None = None,
) -> int:
    """Write the samples inside [from_ns, to_ns] as Parquet, also when there is none. Returns how many."""
    kept = [
        sample
        for sample in samples
        if (from_ns is None or sample.t_ns >= from_ns) and (to_ns is None or sample.t_ns <= to_ns)
    ]
    kept.sort(key=lambda sample: sample.t_ns)  # several threads gather them
    table = pa.table(
        [
            [sample.t_ns for sample in kept],
            [sample.name for sample in kept],
            [sample.device for sample in kept],
            [sample.value for sample in kept],
        ],
        schema=TELEMETRY_SCHEMA,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")
    return len(kept)


class SampleStore:
    """Samples of hours in little memory: 18 bytes each. Any thread may add and ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times = array("q")
        self._values = array("d")
        self._kinds = array("H")  # number of (name, device)
        self._numbers: dict[tuple[str, str | None], int] = {}

    def add(self, samples: Iterable[Sample]) -> None:
        """Keep samples."""
        with self._lock:
            for item in samples:
                kind = self._numbers.setdefault((item.name, item.device), len(self._numbers))
                self._times.append(item.t_ns)
                self._values.append(item.value)
                self._kinds.append(kind)

    def __len__(self) -> int:
        return len(self._times)

    def between(self, from_ns: int | None = None, to_ns: int | None = None) -> list[Sample]:
        """The samples in [from_ns, to_ns], in the order in which they came."""
        with self._lock:
            kinds = list(self._numbers)
            return [
                Sample(t_ns, kinds[kind][0], value, kinds[kind][1])
                for t_ns, value, kind in zip(self._times, self._values, self._kinds, strict=True)
                if (from_ns is None or t_ns >= from_ns) and (to_ns is None or t_ns <= to_ns)
            ]


def mark(path: Path, windows: Mapping[str, tuple[int, int] | None]) -> None:
    """Write the windows of measurement into the metadata of a slice."""
    said = {name: None if span is None else list(span) for name, span in windows.items()}
    table = pq.read_table(path)
    marked = {**(table.schema.metadata or {}), WINDOWS_KEY: json.dumps(said).encode()}
    pq.write_table(table.replace_schema_metadata(marked), path, compression="zstd")
