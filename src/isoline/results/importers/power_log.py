"""A power log as nvidia-smi writes it: values with their units, idle GPUs among them. Pure."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

from isoline.results.importers.foreign import ForeignError, ForeignFile, ForeignPoint, Found, Sample, quantity

_COLUMNS = {
    "power.draw [w]": "power_w",
    "utilization.gpu [%]": "utilisation_percent",
    "memory.used [mib]": "memory_used_mib",
}


def read(file: ForeignFile) -> Iterator[Found]:
    """One row: the samples, and the mean power of the GPUs that worked.

    A GPU is idle where its utilisation is 0 in every sample. The times have no zone and are kept as
    they are.

    :raises ForeignError: when it has no sample.
    """
    rows = list(
        csv.reader(io.StringIO(file.content.decode("utf-8", errors="replace")), skipinitialspace=True)
    )
    header = [name.strip().lower() for name in rows[0]] if rows else []
    if not {"timestamp", "index"} <= set(header):
        raise ForeignError("unknown_format", "not the columns of a power log")
    samples: list[Sample] = []
    bad = 0
    for row in rows[1:]:
        cells = dict(zip(header, row, strict=False))
        try:
            at = datetime.strptime(cells["timestamp"].strip(), "%Y/%m/%d %H:%M:%S.%f")
            device = cells["index"].strip()
        except (KeyError, ValueError):
            bad += 1
            continue
        for theirs, ours in _COLUMNS.items():
            value = quantity(cells.get(theirs, ""))
            if value is not None:
                samples.append(Sample(at, device, ours, value))
    if not samples:
        raise ForeignError("no_rows", "no sample")
    point = ForeignPoint(0, {"samples": len(samples), "unreadable lines": bad}, "nvidia-smi", samples=samples)
    used, idle, mean = _means(samples)
    point.values = {} if mean is None else {"power_w_per_gpu": mean}
    point.notes.append(f"{used} GPUs worked, {idle} were idle and are not in the mean")
    point.notes.append("its times have no zone; taken as UTC")
    if bad:
        point.notes.append(f"{bad} lines are not readable")
    yield point


def _means(samples: list[Sample]) -> tuple[int, int, float | None]:
    power: dict[str, list[float]] = defaultdict(list)
    busiest: dict[str, float] = defaultdict(float)
    for sample in samples:
        if sample.name == "power_w":
            power[sample.device].append(sample.value)
        elif sample.name == "utilisation_percent":
            busiest[sample.device] = max(busiest[sample.device], sample.value)
    worked = [device for device in power if busiest[device] > 0]
    means = [sum(power[device]) / len(power[device]) for device in worked]
    return len(worked), len(power) - len(worked), sum(means) / len(means) if means else None
