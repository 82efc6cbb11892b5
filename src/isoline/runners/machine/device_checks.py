"""Devices before a launch and after a stop: count, SKU, idleness, health, driver.

A tool that does not answer is a finding, and no device is called idle that nobody could ask.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from isoline.catalog.facts import load_catalog
from isoline.runners.machine.devices.model import Device, DeviceReport
from isoline.runners.machine.devices.reader import commands_of, read_devices, vendor_of, with_commands
from isoline.runners.machine.hosts import Host, ToolUnavailableError
from isoline.runners.machine.needs import Finding, Needs

BUSY_MB = 1024.0
"""A device with more memory in use than this is held by somebody, also where no process is seen (those of
another container are not). An idle driver keeps less: about 600 MiB on the largest devices."""

COLD_REASONS = frozenset(
    {
        "hw_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
        "sw_thermal_slowdown",
        "prochot",
        "socket_thermal",
        "vr_thermal",
        "hbm_thermal",
        "throttled",
    }
)
"""What holds clocks down through heat or supply, before there is any load. A power cap is no such fault."""


def look_at_devices(host: Host, needs: Needs) -> tuple[DeviceReport | None, list[Finding]]:
    """Count, SKU, idleness, health and driver of the devices."""
    try:
        report = read_devices(host, vendor_of(needs.sku))
        pids = sorted({item.pid for device in report.devices for item in device.processes or ()})
        report = with_commands(report, commands_of(host, pids))
    except ToolUnavailableError as error:
        return None, [Finding("devices", False, error.what, "tool_missing")]
    return report, device_findings(report, needs)


def device_findings(report: DeviceReport, needs: Needs) -> list[Finding]:
    """The checks on what the device tool said. Pure."""
    devices = chosen(report.devices, needs.devices)
    if report.vendor == "cpu":
        memory = devices[0].memory_total_mb if devices else None
        return [Finding("devices", True, f"this machine's processors, {(memory or 0) / 1024:.0f} GiB memory")]
    found = [_count(report, needs), _sku(devices, needs), _busy(devices, needs), *_health(devices)]
    detail = report.driver or "the tool does not say"
    if report.runtime:
        detail += f", {'CUDA' if report.vendor == 'nvidia' else 'ROCm'} {report.runtime}"
    found.append(Finding("driver", None if report.driver is None else True, detail))
    return found


def chosen(devices: Sequence[Device], wanted: tuple[int, ...] | None) -> tuple[Device, ...]:
    """The devices of a launch."""
    return tuple(item for item in devices if wanted is None or item.index in wanted)


def _count(report: DeviceReport, needs: Needs) -> Finding:
    there = {item.index for item in report.devices}
    lost = sorted(set(needs.devices or ()) - there)
    if lost:
        names = ", ".join(map(str, lost))
        return Finding("devices", False, f"device {names} is leased and not there", "gpu_count_mismatch")
    detail = f"{len(there)} device(s), the pool says {needs.accelerators}"
    if len(there) == needs.accelerators:
        return Finding("devices", True, f"{len(there)} device(s)")
    return Finding("devices", False, detail, "gpu_count_mismatch")


def _sku(devices: Sequence[Device], needs: Needs) -> Finding:
    known = load_catalog().skus
    wrong = sorted({item.name or "a device without a name" for item in devices if item.sku != needs.sku})
    if not wrong:
        return Finding("sku", True, needs.sku)
    said = ", ".join(
        f"{name!r}" + (f" ({sku})" if (sku := _sku_of(devices, name)) in known else "") for name in wrong
    )
    return Finding("sku", False, f"the pool says {needs.sku}, the tool says {said}", "sku_mismatch")


def _sku_of(devices: Sequence[Device], name: str) -> str | None:
    return next((item.sku for item in devices if item.name == name), None)


def _busy(devices: Sequence[Device], needs: Needs) -> Finding:
    said: list[str] = []
    unknown = False
    for item in devices:
        used = item.memory_used_mb
        unknown |= used is None and item.processes is None
        if item.sku and item.sku.startswith("mi") and used is not None and used <= BUSY_MB:
            continue  # amd-smi lists a process under every device, also those that it leaves alone
        if item.processes:  # whatever a launch leased must be idle: none of them is ours
            names = ", ".join(f"pid {one.pid} ({one.command or 'unknown'})" for one in item.processes)
            said.append(f"device {item.index}: {names}")
        elif used is not None and used > BUSY_MB:
            said.append(f"device {item.index}: {used:.0f} MiB in use by a process that is not visible here")
    if said:
        return Finding("idle", False, "; ".join(said), "gpu_busy")
    if unknown:
        return Finding("idle", False, "the tool says neither memory in use nor processes", "tool_missing")
    return Finding("idle", True, "no foreign process")


def _health(devices: Sequence[Device]) -> list[Finding]:
    ill = [
        f"device {item.index}: {item.needs_repair or f'{item.ecc_uncorrected} uncorrected memory error(s)'}"
        for item in devices
        if item.needs_repair or item.ecc_uncorrected
    ]
    hot = [
        f"device {item.index}: {', '.join(reasons)}"
        for item in devices
        if (reasons := sorted(set(item.throttle or ()) & COLD_REASONS))
    ]
    return [
        _judged("ecc", ill, "gpu_unhealthy", any(item.ecc_uncorrected is not None for item in devices)),
        _judged("throttle", hot, "gpu_throttled", any(item.throttle is not None for item in devices)),
    ]


def _judged(name: str, wrong: Sequence[str], code: str, is_told: bool) -> Finding:
    if wrong:
        return Finding(name, False, "; ".join(wrong), code)
    return Finding(name, True, "none") if is_told else Finding(name, None, "the tool does not say")


def wait_until_idle(host: Host, needs: Needs, deadline_s: float, poll_s: float = 2.0) -> Finding:
    """After a stop: until the devices' memory is free again, at most ``deadline_s``. The last word on it."""
    until = time.monotonic() + deadline_s
    while True:
        _, findings = look_at_devices(host, needs)
        last = next((item for item in findings if item.name == "idle"), findings[0])
        if last.ok is not False or time.monotonic() >= until:
            return last
        time.sleep(poll_s)
