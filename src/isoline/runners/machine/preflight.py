"""Before a launch: are the devices there and idle, is there room, are tools, clock and model files right?

:func:`inspect` looks at one machine and never raises for what it finds there: a tool that does not answer is
a problem. What it returns is what ``pool check`` prints and a launch keeps as ``preflight.json``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import asdict, dataclass
from typing import Any

from isoline.results.bundles.bundle import utc_now
from isoline.results.judging.reasons import REASONS
from isoline.runners.machine import probes
from isoline.runners.machine.device_checks import look_at_devices
from isoline.runners.machine.devices.model import DeviceReport
from isoline.runners.machine.hosts import Host, ToolUnavailableError
from isoline.runners.machine.needs import Finding, Needs, Problem

PREFLIGHT_SCHEMA_VERSION = 1

AT_A_TIME = 16
"""Machines that are looked at together."""


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


def _probed(host: Host, needs: Needs) -> Iterator[probes.Found]:
    for name in needs.tools:
        yield probes.tool(host, name, needs.image_gb)
    if needs.rootless is not None:
        yield probes.rootless(host, needs.rootless)
    if needs.partition is not None:
        yield probes.partition(host, *needs.partition)
    for room in needs.rooms:
        yield probes.room(host, room.what, room.path, room.need_gb)
    yield probes.port_range(host, needs.ports)
    yield probes.clock(host)
    if needs.files:
        yield probes.files(host, [(item.path, item.bytes) for item in needs.files])


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
