"""A machine without an accelerator: its processors, and their power by RAPL or hwmon where it is readable.

Everything is read by one small shell script, so that another machine is read as this one is.
"""

from __future__ import annotations

import re

from isoline.runners.machine.devices.model import Device, DeviceReport, UnreadableOutputError, number

TICK = 100.0
"""Clock ticks a second of /proc/stat on Linux."""

WRAP = re.compile(r"^(?P<zone>intel-rapl:\d+)/(?P<file>energy_uj|max_energy_range_uj)\Z")

SCRIPT = r"""
printf 'ticks %s\n' "$(sed -n 's/^cpu  *//p' /proc/stat)"
while read -r name value _; do
  case $name in MemTotal:|MemAvailable:) printf '%s %s\n' "${name%:}" "$value";; esac
done </proc/meminfo
rapl=/sys/class/powercap
for file in $rapl/intel-rapl:[0-9]/energy_uj $rapl/intel-rapl:[0-9]/max_energy_range_uj; do
  [ -r "$file" ] && printf 'rapl %s %s\n' "${file#$rapl/}" "$(cat "$file" 2>/dev/null)"
done
for dir in /sys/class/hwmon/hwmon*; do
  kind=$(cat "$dir/name" 2>/dev/null)
  case $kind in
    coretemp|k10temp|zenpower|cpu_thermal)
      [ -r "$dir/temp1_input" ] && printf 'temp %s\n' "$(cat "$dir/temp1_input")"
      for file in "$dir"/power[0-9]*_input; do
        [ -r "$file" ] && printf 'power %s %s\n' "$file" "$(cat "$file")"
      done;;
  esac
done
read -r clock <<END
$(cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq 2>/dev/null)
END
[ -n "$clock" ] && printf 'clock %s\n' "$clock"
printf 'end\n'
"""
COMMAND = ("sh", "-c", SCRIPT)


def loop_command(interval_s: float) -> tuple[str, ...]:
    """A command that prints the same again and again."""
    return ("sh", "-c", f"while :; do ( {SCRIPT} ) || exit; sleep {interval_s:g}; done")


class CpuReading:
    """One output of the script. ``energy_j`` counts up and wraps at ``energy_range_j``."""

    def __init__(self, output: str) -> None:
        self.busy_s: float | None = None
        self.total_s: float | None = None
        self.memory_total_mb: float | None = None
        self.memory_free_mb: float | None = None
        self.temperature_c: float | None = None
        self.clock_mhz: float | None = None
        self.energy_j: dict[str, float] = {}
        self.energy_range_j: dict[str, float] = {}
        self.power_w: float | None = None
        lines = [line.split() for line in output.splitlines() if line.strip()]
        if ["end"] not in lines or not any(line[0] == "ticks" for line in lines):
            raise UnreadableOutputError("the facts of the processors are not readable")
        for name, *values in lines:
            self._take(name, values)

    def _take(self, name: str, values: list[str]) -> None:
        value = number(values[-1]) if values else None
        if name == "ticks":
            if len(values) < 5 or not all(item.isdecimal() for item in values):
                raise UnreadableOutputError("the kernel does not say how busy its processors were")
            ticks = [float(item) for item in values[:8]]
            self.total_s = sum(ticks) / TICK
            self.busy_s = (sum(ticks) - ticks[3] - ticks[4]) / TICK
        elif value is None:
            return
        elif name == "MemTotal":
            self.memory_total_mb = value / 1024
        elif name == "MemAvailable":
            self.memory_free_mb = value / 1024
        elif name == "temp":
            self.temperature_c = max(self.temperature_c or value / 1e3, value / 1e3)
        elif name == "clock":
            self.clock_mhz = value / 1e3
        elif name == "power":
            self.power_w = (self.power_w or 0.0) + value / 1e6
        elif name == "rapl" and (match := WRAP.match(values[0])):
            where = self.energy_j if match["file"] == "energy_uj" else self.energy_range_j
            where[match["zone"]] = value / 1e6

    @property
    def memory_used_mb(self) -> float | None:
        """Memory that is not available, MiB."""
        if self.memory_total_mb is None or self.memory_free_mb is None:
            return None
        return self.memory_total_mb - self.memory_free_mb


def utilisation(before: CpuReading, after: CpuReading) -> float | None:
    """The busy share of all processors between two readings."""
    if None in (before.busy_s, after.busy_s, before.total_s, after.total_s):
        return None
    passed = (after.total_s or 0.0) - (before.total_s or 0.0)
    if passed <= 0:
        return None
    # The kernel's counters are rounded each by itself: their share may be a hair outside.
    return min(1.0, max(0.0, ((after.busy_s or 0.0) - (before.busy_s or 0.0)) / passed))


def power(before: CpuReading, after: CpuReading, seconds: float) -> float | None:
    """Mean power of all packages between two readings, W: RAPL's counters, else what hwmon says."""
    if seconds <= 0:
        return None
    if not after.energy_j or set(before.energy_j) != set(after.energy_j):
        return after.power_w
    total = 0.0
    for zone, energy in after.energy_j.items():
        step = energy - before.energy_j[zone]
        if step < 0:
            if zone not in after.energy_range_j:
                return None
            step += after.energy_range_j[zone]
        total += step
    return total / seconds


def parse(output: str, name: str | None = None) -> DeviceReport:
    """The machine as one device of SKU ``cpu``.

    :raises UnreadableOutputError: when the script did not run to its end.
    """
    reading = CpuReading(output)
    device = Device(
        index=0,
        name=name,
        sku="cpu",
        memory_total_mb=reading.memory_total_mb,
        memory_used_mb=reading.memory_used_mb,
        power_w=reading.power_w,
        clock_mhz=reading.clock_mhz,
        temperature_c=reading.temperature_c,
    )
    return DeviceReport("cpu", "proc", None, None, (device,))
