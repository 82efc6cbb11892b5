"""What machine this is: the facts that explain a step in the numbers. Every field is internal unless the
registry of public fields says otherwise; an unreadable fact is null."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from isoline.runners.proc import boot_id

CPUINFO = Path("/proc/cpuinfo")
OS_RELEASE = Path("/etc/os-release")
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")

VOLATILE = ("boot_id",)
"""Fields that differ after a restart of the same machine: no difference that matters for a comparison."""


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def parse_cpuinfo(text: str) -> dict[str, str | None]:
    """``model`` and ``flags`` (sorted, only those that decide arithmetic) of /proc/cpuinfo."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    words = (fields.get("flags") or fields.get("Features") or "").split()
    deciding = sorted(
        word for word in words if word.startswith(("avx", "amx", "fma", "sve", "asimd", "f16c", "sse4"))
    )
    return {
        "model": fields.get("model name") or fields.get("Model") or fields.get("CPU part"),
        "flags": " ".join(deciding) or None,
    }


def parse_os_release(text: str) -> str | None:
    """``PRETTY_NAME`` of /etc/os-release."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip().strip('"')
    return None


def fingerprint() -> dict[str, Any]:
    """The facts of this machine, a flat table. ``cores_usable`` is what this process may use."""
    cpu = parse_cpuinfo(_read(CPUINFO) or "")
    governor = _read(GOVERNOR)
    return {
        "hostname": socket.gethostname(),
        "boot_id": boot_id() or None,
        "cpu_model": cpu["model"] or platform.processor() or None,
        "cpu_flags": cpu["flags"],
        "cores_logical": psutil.cpu_count(),
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_usable": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "swap_bytes": psutil.swap_memory().total,
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "os": parse_os_release(_read(OS_RELEASE) or ""),
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "python": platform.python_version(),
        "cpu_governor": governor.strip() if governor else None,
    }


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(field, old, new) for each field that differs, by name; a missing field is null. Without
    :data:`VOLATILE` ones."""
    names = sorted((set(old) | set(new)) - set(VOLATILE))
    return [(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]
