"""Run the device tool of a machine and read what it says.

A tool that does not answer is an error, never "idle".
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace

from isoline.catalog.facts import load_catalog
from isoline.catalog.skus import Sku
from isoline.runners.machine.devices import amd, cpu, nvidia, rocm
from isoline.runners.machine.devices.model import DeviceProcess, DeviceReport, UnreadableOutputError
from isoline.runners.machine.hosts import Host, ToolUnavailableError

TOOL_S = 30.0
"""Time-out of a device tool: without persistence mode eight devices take some seconds to wake."""

VENDORS = ("nvidia", "amd", "cpu")


def has_tool(host: Host, name: str) -> bool:
    """Whether a program is on PATH there.

    :raises ToolUnavailableError: when the machine does not answer.
    """
    # 127 would say that the machine has no sh.
    return host.run(["sh", "-c", f"command -v {shlex.quote(name)} >/dev/null 2>&1 || exit 1"]).ok


def vendor_of(sku: str) -> str:
    """``nvidia``, ``amd`` or ``cpu``: which tools can read a SKU.

    :raises ToolUnavailableError: for a vendor whose tools are not known here.
    """
    vendor = load_catalog().skus[sku].vendor.lower()
    if sku == "cpu":
        return "cpu"
    if vendor not in VENDORS:
        raise ToolUnavailableError(f"no tool is known that reads devices of {vendor}", where=sku)
    return vendor


def known_vendor(sku: str) -> str | None:
    """:func:`vendor_of`, and None for a vendor whose tools are not known here."""
    try:
        return vendor_of(sku)
    except ToolUnavailableError:
        return None


def detect(host: Host) -> str:
    """The vendor whose tool is there: ``nvidia``, ``amd``, else ``cpu``."""
    if has_tool(host, "nvidia-smi"):
        return "nvidia"
    return "amd" if has_tool(host, "amd-smi") or has_tool(host, "rocm-smi") else "cpu"


def read_devices(host: Host, vendor: str, *, timeout_s: float | None = None) -> DeviceReport:
    """Every device of a machine.

    :raises ToolUnavailableError: when the tool is missing, hangs, fails, or prints what is not its format.
    """
    skus = load_catalog().skus
    limit_s = TOOL_S if timeout_s is None else timeout_s
    readers = {"nvidia": _nvidia, "amd": _amd, "cpu": _cpu}
    try:
        return readers[vendor](host, skus, limit_s)
    except UnreadableOutputError as error:
        raise ToolUnavailableError(
            str(error), where=host.name, remedy="run the tool by hand on that machine"
        ) from None


def _said(host: Host, argv: tuple[str, ...], timeout_s: float) -> str:
    done = host.run(argv, timeout_s=timeout_s)
    if not done.ok:
        raise ToolUnavailableError(
            f"{argv[0]} failed: {done.last_line()}",
            where=host.name,
            remedy=f"run `{shlex.join(argv[:3])}` by hand on that machine",
        )
    return done.stdout


def _nvidia(host: Host, skus: Mapping[str, Sku], timeout_s: float) -> DeviceReport:
    try:
        return nvidia.parse_xml(_said(host, nvidia.XML_COMMAND, timeout_s), skus)
    except UnreadableOutputError:
        facts, apps = (_said(host, argv, timeout_s) for argv in (nvidia.FACTS_COMMAND, nvidia.APPS_COMMAND))
        return nvidia.parse_facts(facts, apps, skus)


def _amd(host: Host, skus: Mapping[str, Sku], timeout_s: float) -> DeviceReport:
    if not has_tool(host, "amd-smi") and has_tool(host, "rocm-smi"):
        return rocm.parse(_said(host, rocm.COMMAND, timeout_s), skus)
    static, metric, process = (
        _said(host, argv, timeout_s) for argv in (amd.STATIC_COMMAND, amd.METRIC_COMMAND, amd.PROCESS_COMMAND)
    )
    listed = host.run(amd.LIST_COMMAND, timeout_s=timeout_s)
    version = host.run(amd.VERSION_COMMAND, timeout_s=timeout_s)
    return amd.parse(
        static,
        metric,
        process,
        skus,
        listed=listed.stdout if listed.ok else None,
        version=version.stdout if version.ok else None,
    )


def _cpu(host: Host, skus: Mapping[str, Sku], timeout_s: float) -> DeviceReport:
    return cpu.parse(_said(host, cpu.COMMAND, timeout_s))


def commands_of(host: Host, pids: list[int]) -> dict[int, str]:
    """``user: command line`` of processes, as far as they can be seen; without ps the tool's names stay."""
    if not pids:
        return {}
    try:
        done = host.run(["ps", "-o", "pid=,user=,args=", "-p", ",".join(map(str, pids))])
    except ToolUnavailableError:
        return {}
    found = {}
    for line in done.stdout.splitlines():
        pid, _, rest = line.strip().partition(" ")
        user, _, command = rest.strip().partition(" ")
        if pid.isdigit() and command:
            found[int(pid)] = f"{user}: {' '.join(command.split())[:120]}"
    return found


def with_commands(report: DeviceReport, said: Mapping[int, str]) -> DeviceReport:
    """The report with what ``ps`` knows of the processes in place of the tool's short names."""

    def named(process: DeviceProcess) -> DeviceProcess:
        return replace(process, command=said.get(process.pid, process.command))

    devices = tuple(
        item if item.processes is None else replace(item, processes=tuple(map(named, item.processes)))
        for item in report.devices
    )
    return replace(report, devices=devices)
