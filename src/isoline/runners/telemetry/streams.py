"""Lines of a running device tool -> samples. One reader a tool; each remembers what its header said. Pure.

A reader is told each line with the moment of its arrival. Where a tool prints its own time, that counts for
rows that came late in a lump (a pipe holds them back): arrival alone would crowd them into one moment.
"""

from __future__ import annotations

import csv
from calendar import timegm
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from isoline.runners.machine.devices import cpu, rocm
from isoline.runners.machine.devices.model import (
    Device,
    UnreadableOutputError,
    mebibytes,
    number,
    share,
    watts,
)
from isoline.runners.machine.devices.nvidia import column
from isoline.runners.telemetry.table import Sample

NS = 1_000_000_000
LATE_NS = 1 * NS
"""A row that comes this much later than rows usually do was held back; its own time counts then."""

JUMP_NS = 300 * NS
"""The tool's clock was set (summer time): what it says is compared anew from here."""

FIELDS = ("power_w", "utilisation", "memory_used_mb", "clock_mhz", "memory_clock_mhz", "temperature_c")
"""What is kept of each device, as ``device.<field>``."""


class Reader(Protocol):
    """Takes lines, gives samples."""

    def feed(self, line: str, arrived_ns: int) -> list[Sample]:
        """The samples that this line completes; none for a header or a line that is not understood."""
        ...


class Clock:
    """Times of rows: the arrival, or for a row that was held back what the tool itself said."""

    def __init__(self) -> None:
        self._offset_ns: int | None = None

    def time_ns(self, arrived_ns: int, said_ns: int | None) -> int:
        """The moment of a row; ``said_ns`` is the tool's time, on whatever clock."""
        if said_ns is None:
            return arrived_ns
        apart = arrived_ns - said_ns
        if self._offset_ns is None or apart < self._offset_ns or apart > self._offset_ns + JUMP_NS:
            self._offset_ns = apart
        late = apart - self._offset_ns
        return arrived_ns if late < LATE_NS else said_ns + self._offset_ns


def samples_of(t_ns: int, device: str, values: Mapping[str, float | None]) -> list[Sample]:
    """One sample for each value that is there."""
    return [
        Sample(t_ns, f"device.{name}", value, device)
        for name in FIELDS
        if (value := values.get(name)) is not None
    ]


def of_device(t_ns: int, device: Device) -> list[Sample]:
    """The samples of one reading of a device."""
    return samples_of(t_ns, str(device.index), {name: getattr(device, name) for name in FIELDS})


def nvidia_time(text: str) -> int | None:
    """``2026/05/03 12:00:00.123`` in ns as if it were UTC: the tool prints no zone."""
    try:
        moment = datetime.strptime(text, "%Y/%m/%d %H:%M:%S.%f")
    except ValueError:
        return None
    return timegm(moment.timetuple()) * NS + moment.microsecond * 1000


class Table:
    """Lines of CSV as rows by column; each line with the column ``index`` by its name is a header.

    :param index: the column with the number of the device.
    """

    def __init__(self, index: str) -> None:
        self._index = index
        self._names: list[str] = []

    def row(self, line: str) -> dict[str, str] | None:
        """The row of a device; None for a header and for a line that is no such row."""
        cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
        names = [column(cell) for cell in cells]
        if self._index in names:
            self._names = names
            return None
        if not self._names or len(cells) != len(self._names):
            return None
        row = dict(zip(self._names, cells, strict=True))
        return None if number(row[self._index]) is None else row


class NvidiaReader:
    """``nvidia-smi --query-gpu=... --format=csv -lms N``."""

    def __init__(self) -> None:
        self._table = Table("index")
        self._clock = Clock()

    def feed(self, line: str, arrived_ns: int) -> list[Sample]:
        """See :class:`Reader`."""
        row = self._table.row(line)
        if row is None:
            return []
        t_ns = self._clock.time_ns(arrived_ns, nvidia_time(row.get("timestamp", "")))
        return samples_of(
            t_ns,
            row["index"],
            {
                "power_w": watts(row.get("power.draw")),
                "utilisation": share(row.get("utilization.gpu")),
                "memory_used_mb": mebibytes(row.get("memory.used")),
                "clock_mhz": number(row.get("clocks.current.sm") or row.get("clocks.sm")),
                "memory_clock_mhz": number(row.get("clocks.current.memory") or row.get("clocks.mem")),
                "temperature_c": number(row.get("temperature.gpu")),
            },
        )


class AmdReader:
    """``amd-smi monitor --csv --watch 1``; a line of JSON is rocm-smi's, which stands in for it."""

    def __init__(self) -> None:
        self._table = Table("gpu")
        self._clock = Clock()

    def feed(self, line: str, arrived_ns: int) -> list[Sample]:
        """See :class:`Reader`."""
        if line.startswith("{"):
            try:
                report = rocm.parse(line, {})
            except UnreadableOutputError:
                return []
            return [sample for device in report.devices for sample in of_device(arrived_ns, device)]
        row = self._table.row(line)
        if row is None:
            return []
        said = number(row.get("timestamp"))
        t_ns = self._clock.time_ns(arrived_ns, None if said is None else int(said) * NS)
        return samples_of(
            t_ns,
            row["gpu"],
            {
                "power_w": watts(row.get("power_usage")),
                "utilisation": share(row.get("gfx")),
                "memory_used_mb": mebibytes(row.get("vram_used")),
                "clock_mhz": number(row.get("gfx_clk") or row.get("gfx_clock")),
                "memory_clock_mhz": number(row.get("mem_clock")),
                "temperature_c": number(row.get("hotspot_temperature")),
            },
        )


class CpuReader:
    """The script of :mod:`.machine.devices.cpu`, again and again: power and use are differences."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._before: tuple[int, cpu.CpuReading] | None = None

    def feed(self, line: str, arrived_ns: int) -> list[Sample]:
        """See :class:`Reader`."""
        self._lines.append(line)
        if line != "end":
            return []
        output, self._lines = "\n".join(self._lines), []
        try:
            reading = cpu.CpuReading(output)
        except UnreadableOutputError:
            return []
        values: dict[str, Any] = {
            "memory_used_mb": reading.memory_used_mb,
            "clock_mhz": reading.clock_mhz,
            "temperature_c": reading.temperature_c,
        }
        if self._before is not None:
            then_ns, before = self._before
            values["power_w"] = cpu.power(before, reading, (arrived_ns - then_ns) / NS)
            values["utilisation"] = cpu.utilisation(before, reading)
        self._before = (arrived_ns, reading)
        return samples_of(arrived_ns, "0", values)
