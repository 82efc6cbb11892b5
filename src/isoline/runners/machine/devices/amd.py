"""``amd-smi``: its JSON (``static``, ``metric``, ``process``) and its CSV of ``monitor``. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from isoline.catalog.skus import Sku
from isoline.runners.machine.devices.model import (
    Device,
    DeviceProcess,
    DeviceReport,
    UnreadableOutputError,
    count,
    mebibytes,
    number,
    share,
    sku_of,
    text,
    watts,
)

STATIC_COMMAND = ("amd-smi", "static", "--json")
METRIC_COMMAND = ("amd-smi", "metric", "--json")
PROCESS_COMMAND = ("amd-smi", "process", "--json")
VERSION_COMMAND = ("amd-smi", "version", "--json")
LIST_COMMAND = ("amd-smi", "list", "--json")


def monitor_command() -> tuple[str, ...]:
    """A command that prints power, temperature, use and memory of every device once a second, as CSV.

    The tool is a Python program: unbuffered, or its rows come in lumps of 8 KB.
    """
    return (
        "env", "PYTHONUNBUFFERED=1", "amd-smi", "monitor",
        "--power-usage", "--temperature", "--gfx", "--mem", "--vram-usage", "--csv", "--watch", "1",
    )  # fmt: skip


def entries(output: str) -> dict[int, dict[str, Any]]:
    """Entries of each device by index: a list, or (newer) under ``gpu_data``; warnings before it are skipped.

    :raises UnreadableOutputError: when there is no such JSON.
    """
    for begin in re.finditer(r"[\[{]", output):
        try:
            found, _ = json.JSONDecoder().raw_decode(output, begin.start())
        except ValueError:
            continue
        if isinstance(found, dict):
            found = found.get("gpu_data")
        if isinstance(found, list) and all(isinstance(item, dict) and "gpu" in item for item in found):
            return {int(item["gpu"]): item for item in found}
        break
    raise UnreadableOutputError("amd-smi printed no JSON of devices")


def _at(item: Mapping[str, Any], *path: str) -> Any:
    value: Any = item
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _first(item: Mapping[str, Any], *paths: tuple[str, ...]) -> Any:
    """The first path with a value: releases of ROCm name the same thing differently."""
    return next((found for path in paths if text(found := _at(item, *path)) is not None), None)


def parse(
    static: str,
    metric: str,
    process: str,
    skus: Mapping[str, Sku],
    *,
    listed: str | None = None,
    version: str | None = None,
) -> DeviceReport:
    """Everything out of the three calls; ``listed`` (``list --json``) gives the UUIDs.

    :raises UnreadableOutputError: when one is unreadable, or the calls disagree about the devices.
    """
    facts, now, running = entries(static), entries(metric), entries(process)
    uuids = entries(listed) if listed is not None else {}
    if set(facts) != set(now):
        raise UnreadableOutputError("amd-smi static and amd-smi metric name different devices")
    found = tuple(
        _device(index, facts[index], now[index], running.get(index), uuids.get(index, {}), skus)
        for index in sorted(facts)
    )
    first = facts[min(facts)] if facts else {}
    return DeviceReport("amd", "amd-smi", text(_at(first, "driver", "version")), rocm_version(version), found)


def rocm_version(output: str | None) -> str | None:
    """ROCm's version out of ``amd-smi version --json``."""
    try:
        said = json.loads(output or "null")
    except ValueError:
        return None
    first = said[0] if isinstance(said, list) and said else said
    return text(first.get("rocm_version")) if isinstance(first, dict) else None


def _device(
    index: int,
    facts: Mapping[str, Any],
    now: Mapping[str, Any],
    running: Mapping[str, Any] | None,
    listed: Mapping[str, Any],
    skus: Mapping[str, Sku],
) -> Device:
    name = text(_first(facts, ("asic", "market_name"), ("board", "product_name")))
    cap = _first(
        facts,
        ("limit", "ppt0", "socket_power_limit"),
        ("limit", "socket_power"),
        ("limit", "current_power"),
    )
    return Device(
        index=index,
        uuid=text(_first(listed, ("uuid",)) or _first(facts, ("uuid",), ("asic", "asic_serial"))),
        name=name,
        sku=sku_of(name, "amd", skus),
        memory_total_mb=mebibytes(_first(now, ("mem_usage", "total_vram")) or _at(facts, "vram", "size")),
        memory_used_mb=mebibytes(_at(now, "mem_usage", "used_vram")),
        utilisation=share(_at(now, "usage", "gfx_activity")),
        power_w=watts(_first(now, ("power", "socket_power"), ("power", "average_socket_power"))),
        power_cap_w=watts(cap),
        clock_mhz=_fastest(now, "clk"),
        clock_max_mhz=_fastest(now, "max_clk"),
        memory_clock_mhz=number(_at(now, "clock", "mem_0", "clk")),
        temperature_c=number(_first(now, ("temperature", "hotspot"), ("temperature", "edge"))),
        ecc_corrected=count(_at(now, "ecc", "total_correctable_count")),
        ecc_uncorrected=count(_at(now, "ecc", "total_uncorrectable_count")),
        throttle=_throttle(now),
        processes=_processes(running),
        bus=text(_at(facts, "bus", "bdf")),
    )


def _fastest(now: Mapping[str, Any], name: str) -> float | None:
    """The highest of one figure of the clocks of the device's parts (``gfx_0`` ...), MHz."""
    parts = [value for key, value in (_at(now, "clock") or {}).items() if key.startswith("gfx")]
    return max((found for part in parts if (found := number(_at(part, name))) is not None), default=None)


def _throttle(now: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Names of the violations that are active; an older tool says only that there is one."""
    known = {
        key.removesuffix("_violation_status"): str(value)
        for key, value in (_at(now, "throttle") or {}).items()
        if key.endswith("_violation_status") and text(value) is not None
    }
    if known:
        return tuple(name for name, state in known.items() if state == "ACTIVE")
    state = text(_at(now, "power", "throttle_status"))
    return None if state is None else () if state == "UNTHROTTLED" else ("throttled",)


def _processes(running: Mapping[str, Any] | None) -> tuple[DeviceProcess, ...] | None:
    """Processes that hold memory of the device.

    Newer tools list every process under every device; one that holds no memory there is not on it.
    """
    listed = (running or {}).get("process_list")
    if not isinstance(listed, list):
        return None
    found = []
    for item in listed:
        info = item.get("process_info", item) if isinstance(item, dict) else None
        if not isinstance(info, dict):
            continue  # "No running processes detected"
        pid = count(info.get("pid"))
        if pid is None:
            continue
        memory = mebibytes(
            _first(info, ("memory_usage", "vram_mem"), ("vram_mem",), ("mem_usage",), ("mem",))
        )
        if memory != 0:
            found.append(DeviceProcess(pid, text(info.get("name")), memory))
    return tuple(found)
