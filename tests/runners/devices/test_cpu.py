"""Processors as a device: read by one script, power by RAPL where it is readable."""

from __future__ import annotations

import pytest

from isoline.runners.machine.devices.cpu import CpuReading, power, utilisation
from isoline.runners.machine.devices.model import UnreadableOutputError
from isoline.runners.machine.devices.reader import read_devices
from isoline.runners.machine.hosts import this_host


def reading(ticks: str, *more: str) -> CpuReading:
    return CpuReading("\n".join([f"ticks {ticks}", *more, "end"]))


def test_this_machine_is_read() -> None:
    """The real script gives this machine's memory; what it lacks is None."""
    report = read_devices(this_host(), "cpu")
    (item,) = report.devices
    assert item.sku == "cpu" and item.memory_total_mb is not None and item.memory_total_mb > 100
    assert item.power_w is None or item.power_w > 0


def test_power_is_the_step_of_the_counters() -> None:
    """Two packages, one of which wraps around between two readings."""
    before = reading(
        "0 0 0 0 0 0 0 0",
        "rapl intel-rapl:0/energy_uj 1000000",
        "rapl intel-rapl:1/energy_uj 9000000",
        "rapl intel-rapl:1/max_energy_range_uj 10000000",
    )
    after = reading(
        "0 0 0 0 0 0 0 0",
        "rapl intel-rapl:0/energy_uj 201000000",
        "rapl intel-rapl:1/energy_uj 1000000",
        "rapl intel-rapl:1/max_energy_range_uj 10000000",
    )
    assert power(before, after, 2.0) == pytest.approx((200 + 2) / 2)


def test_unreadable_counters_give_no_power() -> None:
    """An empty counter (only root may read it), or a wrap of unknown range, is no power; never 0."""
    silent = reading("0 0 0 0 0 0 0 0", "rapl intel-rapl:0/energy_uj")
    assert power(silent, silent, 1.0) is None
    high = reading("0 0 0 0 0 0 0 0", "rapl intel-rapl:0/energy_uj 5")
    low = reading("0 0 0 0 0 0 0 0", "rapl intel-rapl:0/energy_uj 4")
    assert power(high, low, 1.0) is None


def test_hwmon_stands_in_for_rapl() -> None:
    """Power sensors of the processors are summed; the hottest sensor is the temperature."""
    found = reading("0 0 0 0 0 0 0 0", "power /a/power1_input 65000000", "power /b/power1_input 60000000",
                    "temp 41000", "temp 52000", "clock 3100000")  # fmt: skip
    assert (power(found, found, 1.0), found.temperature_c, found.clock_mhz) == (125, 52, 3100)


def test_use_is_the_busy_share() -> None:
    """Idle and waiting for disk are not busy."""
    assert utilisation(reading("0 0 0 0 0 0 0 0"), reading("60 0 15 20 5 0 0 0")) == pytest.approx(0.75)
    assert utilisation(reading("1 0 0 0 0 0 0 0"), reading("1 0 0 0 0 0 0 0")) is None


def test_a_script_that_was_cut_is_no_answer() -> None:
    """Output without its end is refused, and so are ticks that the kernel does not show."""
    for said in ("ticks 1 2 3 4 5 6 7 8\nMemTotal 5\n", "ticks \nend", "ticks 1 2 x 4 5 6\nend"):
        with pytest.raises(UnreadableOutputError):
            CpuReading(said)
