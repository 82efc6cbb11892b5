"""Energy of the allocated devices in a window, out of power samples (DESIGN 5.3). Pure.

Power is integrated only where samples cover the whole window without a gap of more than
:data:`MAX_GAP_S`, for every device; else there is no number, and a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from isoline.results.metrics.windows import Floats

POWER = "device.power_w"
MAX_GAP_S = 3.0
NS = 1e9

NO_SAMPLES = "no_power_samples"
CPU_SHARE = "power_of_a_share_unknown"


@dataclass(frozen=True)
class Energy:
    """Joules of all devices in a window, and of each; ``value_j`` None with a reason in ``note``."""

    value_j: float | None
    note: str = ""
    per_device_j: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Power:
    """Power samples of a launch's devices: device -> (times in epoch ns, W), in order of time.

    :param gpus: allocated devices: each must have samples.
    :param note: why there is no energy whatever the samples say.
    """

    gpus: int
    series: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)
    note: str = ""
    origin_ns: int = 0

    def energy(self, start_ns: int, end_ns: int) -> Energy:
        """The energy from one moment to another, epoch nanoseconds."""
        if self.note:
            return Energy(None, self.note)
        if not self.series:
            return Energy(None, NO_SAMPLES)
        if len(self.series) != self.gpus:
            return Energy(None, f"power_devices={len(self.series)}/{self.gpus}")
        start, end = (start_ns - self.origin_ns) / NS, (end_ns - self.origin_ns) / NS
        found: dict[str, float] = {}
        for device in sorted(self.series):
            value, note = joules(*self.series[device], start, end)
            if value is None:
                return Energy(None, f"{note} device={device}")
            found[device] = value
        return Energy(sum(found.values()), "", found)


def joules(times: Floats, watts: Floats, start: float, end: float) -> tuple[float | None, str]:
    """Power over [start, end] (s) by the trapezoid rule; (None, why) where samples do not cover it.

    Samples on both sides bound the window; the power at its ends lies on the line between two samples.
    """
    before = int(np.searchsorted(times, start, side="right")) - 1
    after = int(np.searchsorted(times, end, side="left"))
    if before < 0 or after >= times.size:
        return None, "power_not_covering_window"
    t, w = times[before : after + 1], watts[before : after + 1]
    if float(np.diff(t).max(initial=0.0)) > MAX_GAP_S:
        return None, f"power_gap>{MAX_GAP_S:g}s"
    inside = (t > start) & (t < end)
    moments = np.concatenate([[start], t[inside], [end]])
    values = np.interp(moments, t, w)
    return float(np.trapezoid(values, moments)), ""


def power_of(telemetry: pa.Table | None, *, gpus: int, sku: str) -> Power:
    """The power samples of an attempt's slice of telemetry.

    :param telemetry: columns t_ns, name, device, value; None where there is none. A table of the first
        schema has no devices and so no power.
    :param sku: that of the launch. For ``cpu`` a launch has a share of the machine, whose power nobody
        measures: null (DESIGN 2).
    """
    if sku == "cpu":
        return Power(gpus, note=CPU_SHARE)
    if telemetry is None or "device" not in telemetry.column_names:
        return Power(gpus)
    names = np.asarray(telemetry.column("name").to_pylist(), dtype=object)
    chosen = telemetry.filter(pa.array(names == POWER, pa.bool_()))
    if not chosen.num_rows:
        return Power(gpus)
    t_ns = np.asarray(chosen.column("t_ns").to_numpy(zero_copy_only=False), dtype=np.int64)
    origin = int(t_ns.min())
    # Subtract as integers: epoch nanoseconds do not fit in a float64 exactly.
    seconds = np.asarray((t_ns - origin) / NS, dtype=np.float64)
    watts = np.asarray(chosen.column("value").to_numpy(zero_copy_only=False), dtype=np.float64)
    devices = np.asarray(chosen.column("device").to_pylist(), dtype=object)
    series: dict[str, tuple[Floats, Floats]] = {}
    for device in sorted({item for item in devices if item is not None}):
        mine = np.flatnonzero(devices == device)
        mine = mine[np.argsort(seconds[mine], kind="stable")]
        series[device] = (seconds[mine], watts[mine])
    return Power(gpus, series, origin_ns=origin)
