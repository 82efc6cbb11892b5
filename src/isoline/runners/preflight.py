"""Before a launch: are the devices there and idle, is there room, are tools, clock and model files right?

:func:`inspect` looks at one machine and never raises for what it finds there: a tool that does not answer is
a problem, and no device is called idle that nobody could ask. What it returns is what ``pool check`` prints
and a launch keeps as ``preflight.json``.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Pool
from isoline.results.bundle import utc_now
from isoline.results.reasons import REASONS
from isoline.runners import probes
from isoline.runners.devices.model import Device, DeviceReport
from isoline.runners.devices.reader import commands_of, read_devices, vendor_of, with_commands
from isoline.runners.hosts import Host, ToolUnavailableError
from isoline.runners.launcher import Problem

PREFLIGHT_SCHEMA_VERSION = 1

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

AT_A_TIME = 16
"""Machines that are looked at together."""

MODEL_CACHE = "model cache"
LOG_GB = 1.0
SCRATCH_GB = 10.0
IMAGE_GB = 10.0


@dataclass(frozen=True)
class Room:
    """Free space that a path must have, GB (10^9 bytes)."""

    what: str
    path: str
    need_gb: float


@dataclass(frozen=True)
class NeededFile:
    """A file that must be on the machine; ``bytes`` None = any size."""

    path: str
    bytes: int | None = None


@dataclass(frozen=True)
class Needs:
    """What a launch (or a pool) needs of one machine.

    :param devices: indices of the devices that the launch leased; None = all of them.
    :param own_pids: processes that are ours and may be there.
    :param ports: how many free ports of Isoline's range.
    :param tools: programs that must answer: docker, podman, sbatch.
    :param has_devices: False where the launch's devices are those of other machines (Slurm's nodes).
    :param partition: Slurm's partition, and how many nodes of it must take jobs.
    :param image_gb: free space where the container runtime keeps its images, GB.
    """

    sku: str
    accelerators: int
    devices: tuple[int, ...] | None = None
    own_pids: frozenset[int] = frozenset()
    rooms: tuple[Room, ...] = ()
    files: tuple[NeededFile, ...] = ()
    tools: tuple[str, ...] = ()
    image_gb: float = IMAGE_GB
    ports: int = 1
    has_devices: bool = True
    partition: tuple[str, int] | None = None


@dataclass(frozen=True)
class Finding:
    """One check. ``ok`` None = nobody could tell. ``code`` is a reason code where it is not ok."""

    name: str
    ok: bool | None
    detail: str
    code: str | None = None

    @property
    def remedy(self) -> str | None:
        """What to do about it."""
        return REASONS[self.code].remedy if self.code else None


@dataclass(frozen=True)
class NodeReport:
    """What was found on one machine. ``report`` is None where its device tool did not answer."""

    node: str
    at: str
    findings: tuple[Finding, ...]
    report: DeviceReport | None

    @property
    def problems(self) -> list[Problem]:
        """What speaks against a launch, in the order of the checks."""
        return [
            Problem(item.code, f"{self.node}: {item.detail}")
            for item in self.findings
            if item.code is not None and item.ok is False
        ]


def needs_of_pool(pool: Pool, *, state: str, need_gb: float | None = None) -> Needs:
    """What every machine of a pool needs, before any launch is named.

    Of a Slurm pool it is the machine that submits: devices and disks of the nodes are looked at inside the
    job of a launch, as only there they are ours.

    :param state: folder of this machine where a ``process`` pool works.
    :param need_gb: free space that each path must have, instead of the usual.
    """

    def gb(usual: float) -> float:
        return usual if need_gb is None else need_gb

    rooms: tuple[Room, ...] = (Room("state", state, gb(LOG_GB)),)
    tools: tuple[str, ...] = ()
    if pool.launcher == "slurm" and pool.slurm is not None:
        return Needs(
            sku=pool.sku,
            accelerators=pool.accelerators,
            rooms=rooms,
            tools=("sbatch", "srun", "squeue", "scancel"),
            has_devices=False,
            partition=(pool.slurm.partition, pool.nodes),
        )
    if pool.container is not None:
        ours = Path(state)
        rooms = (
            Room(MODEL_CACHE, str(pool.container.model_cache_in(ours)), gb(LOG_GB)),
            Room("scratch and logs", str(pool.container.scratch_in(ours)), gb(SCRATCH_GB)),
        )
    if pool.launcher == "container" and pool.container is not None:
        tools = (pool.container.runtime,)
    return Needs(
        sku=pool.sku,
        accelerators=pool.accelerators,
        rooms=rooms,
        tools=tools,
        image_gb=gb(IMAGE_GB),
    )


def hosts_of(pool: Pool) -> list[Host]:
    """The machines of a process or container pool: its ``hosts``, else this one."""
    env = dict(pool.container.env) if pool.container else {}
    options = ("-F", pool.ssh_config) if pool.ssh_config else ()
    if pool.hosts:
        return [Host(name, name, options, env) for name in pool.hosts]
    return [Host("local", env=env)]


def preflight(host: Host, needs: Needs) -> list[Problem]:
    """What speaks against a launch on this machine; empty = nothing."""
    return inspect(host, needs).problems


def inspect(host: Host, needs: Needs) -> NodeReport:
    """Look at one machine, every check."""
    at = utc_now()
    report, findings = look_at_devices(host, needs) if needs.has_devices else (None, [])
    try:
        for found in _probed(host, needs):
            findings.append(Finding(*found))
    except ToolUnavailableError as error:
        # A machine out of reach is one problem, not five.
        findings.append(Finding("machine", False, error.what, "tool_missing"))
    return NodeReport(host.name, at, tuple(findings), report)


def inspect_all(hosts: Sequence[Host], needs: Needs) -> list[NodeReport]:
    """Look at every machine of a pool, some at a time, in the order of ``hosts``."""
    context = copy_context()  # the catalog is that of the caller's project
    with ThreadPoolExecutor(max_workers=AT_A_TIME) as threads:
        tasks = [threads.submit(context.copy().run, inspect, host, needs) for host in hosts]
        return [task.result() for task in tasks]


def for_launch(
    needs: Needs,
    *,
    devices: Sequence[int] | None = None,
    own_pids: Collection[int] = (),
    weights_gb: float = 0.0,
    files: Sequence[NeededFile] = (),
) -> Needs:
    """What one launch needs beside what its pool does.

    :param devices: indices that are leased to it; None = all.
    :param own_pids: processes of ours that may hold its devices (a server that is kept).
    :param weights_gb: what is still to be brought to the model cache, GB.
    :param files: the model's files on the machine.
    """
    rooms = tuple(
        replace(room, need_gb=room.need_gb + weights_gb) if room.what == MODEL_CACHE else room
        for room in needs.rooms
    )
    return replace(
        needs,
        devices=None if devices is None else tuple(devices),
        own_pids=frozenset(own_pids),
        rooms=rooms,
        files=tuple(files),
    )


def _probed(host: Host, needs: Needs) -> Iterator[probes.Found]:
    for name in needs.tools:
        yield probes.tool(host, name, needs.image_gb)
    if needs.partition is not None:
        yield probes.partition(host, *needs.partition)
    for room in needs.rooms:
        yield probes.room(host, room.what, room.path, room.need_gb)
    yield probes.port_range(host, needs.ports)
    yield probes.clock(host)
    if needs.files:
        yield probes.files(host, [(item.path, item.bytes) for item in needs.files])


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
        foreign = [one for one in item.processes or () if one.pid not in needs.own_pids]
        ours = len(item.processes or ()) > len(foreign)
        used = item.memory_used_mb
        unknown |= used is None and item.processes is None
        if item.sku and item.sku.startswith("mi") and used is not None and used <= BUSY_MB:
            continue  # amd-smi lists a process under every device, also those that it leaves alone
        if foreign:
            names = ", ".join(f"pid {one.pid} ({one.command or 'unknown'})" for one in foreign)
            said.append(f"device {item.index}: {names}")
        elif used is not None and used > BUSY_MB and not ours:
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


def driver_problem(reports: Sequence[NodeReport]) -> Problem | None:
    """Machines of one pool with different drivers measure different things under one name."""
    drivers: dict[str, list[str]] = {}
    for item in reports:
        if item.report is not None and item.report.driver is not None:
            drivers.setdefault(item.report.driver, []).append(item.node)
    if len(drivers) < 2:
        return None
    said = "; ".join(f"{driver} on {', '.join(nodes)}" for driver, nodes in sorted(drivers.items()))
    return Problem("drivers_differ", said)


def all_problems(reports: Sequence[NodeReport]) -> list[Problem]:
    """What was found on any of the machines, and between them."""
    between = driver_problem(reports)
    return [problem for item in reports for problem in item.problems] + ([between] if between else [])


def as_json(pool: str, reports: Sequence[NodeReport]) -> dict[str, Any]:
    """``preflight.json``: every check of every machine, every device, and the problems."""
    return {
        "schema_version": PREFLIGHT_SCHEMA_VERSION,
        "pool": pool,
        "nodes": [
            {
                "node": item.node,
                "at": item.at,
                "checks": [asdict(one) | {"remedy": one.remedy} for one in item.findings],
                "tool": item.report.tool if item.report else None,
                "driver": item.report.driver if item.report else None,
                "runtime": item.report.runtime if item.report else None,
                "devices": [asdict(device) for device in item.report.devices] if item.report else None,
            }
            for item in reports
        ],
        "problems": [
            {"code": item.code, "detail": item.detail, "remedy": REASONS[item.code].remedy}
            for item in all_problems(reports)
        ],
    }


def wait_until_idle(host: Host, needs: Needs, deadline_s: float, poll_s: float = 2.0) -> Finding:
    """After a stop: until the devices' memory is free again, at most ``deadline_s``. The last word on it."""
    until = time.monotonic() + deadline_s
    while True:
        _, findings = look_at_devices(host, needs)
        last = next((item for item in findings if item.name == "idle"), findings[0])
        if last.ok is not False or time.monotonic() >= until:
            return last
        time.sleep(poll_s)
