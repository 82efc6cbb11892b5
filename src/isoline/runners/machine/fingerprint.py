"""What machine this is: the facts that explain a step in the numbers. Every field is internal unless the
registry of public fields says otherwise; an unreadable fact is null."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import psutil

from isoline.runners.machine.detect import INFINIBAND, RAILS_SCRIPT, parse_meminfo, parse_rails
from isoline.runners.machine.devices.model import Device, DeviceReport
from isoline.runners.machine.devices.reader import read_devices
from isoline.runners.machine.hosts import Host, ToolUnavailableError
from isoline.runners.machine.proc import boot_id

CPUINFO = Path("/proc/cpuinfo")
OS_RELEASE = Path("/etc/os-release")
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")

VOLATILE = ("boot_id",)
"""Fields that differ after a restart of the same machine: no difference that matters for a comparison."""

DEVICE_FIELDS = (
    "uuid",
    "name",
    "sku",
    "bus",
    "memory_total_mb",
    "power_cap_w",
    "clock_max_mhz",
    "clock_set_mhz",
)
"""What is kept of each device: what stays equal unless somebody changes it."""

MARK = "=isoline="
BASE_SCRIPT = f"""
say() {{ printf '{MARK} %s\\n' "$1"; shift; "$@" 2>/dev/null; }}
say hostname uname -n
say boot_id cat /proc/sys/kernel/random/boot_id
say cpuinfo sed -n '/^$/q;p' /proc/cpuinfo
say cores getconf _NPROCESSORS_ONLN
say memory cat /proc/meminfo
say architecture uname -m
say kernel uname -r
say os cat /etc/os-release
say cpu_governor cat {GOVERNOR}
true
"""
"""What another machine is asked for instead of :func:`fingerprint`'s own look."""

NODE_SCRIPT = f"""
say() {{ printf '{MARK} %s\\n' "$1"; shift; "$@" 2>/dev/null; }}
say docker docker version --format '{{{{.Server.Version}}}}'
say podman podman version --format '{{{{.Client.Version}}}}'
say enroot enroot version
say slurm sbatch --version
say nvidia-ctk nvidia-ctk --version
say nics sh -c 'for d in /sys/class/net/*; do [ -e "$d/device" ] || continue
  printf "%s %s %s\\n" "${{d##*/}}" "$(cat "$d/speed" 2>/dev/null)" \\
    "$(basename "$(readlink -f "$d/device/driver")")"; done'
true
"""


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


def sections(output: str) -> dict[str, str]:
    """What each question of a script was answered with, by its name."""
    found: dict[str, str] = {}
    for block in output.split(f"{MARK} ")[1:]:
        name, _, answer = block.partition("\n")
        found[name.strip()] = answer.strip()
    return found


def parse_base(output: str) -> dict[str, Any]:
    """The fields of :func:`fingerprint` of another machine; what only a process there could say is null."""
    said = sections(output)
    cpu = parse_cpuinfo(said.get("cpuinfo", ""))
    memory = said.get("memory", "")
    cores = said.get("cores", "")
    return {
        "hostname": said.get("hostname") or None,
        "boot_id": said.get("boot_id") or None,
        "cpu_model": cpu["model"],
        "cpu_flags": cpu["flags"],
        "cores_logical": int(cores) if cores.isdigit() else None,
        "cores_physical": None,
        "cores_usable": None,
        "memory_bytes": parse_meminfo(memory),
        "swap_bytes": parse_meminfo(memory, "SwapTotal"),
        "architecture": said.get("architecture") or None,
        "kernel": said.get("kernel") or None,
        "os": parse_os_release(said.get("os", "")),
        "libc": None,
        "python": None,
        "cpu_governor": said.get("cpu_governor") or None,
    }


def parse_nics(text: str) -> dict[str, dict[str, Any]]:
    """Network cards by name: Mb/s and kernel driver; a card that is down has no speed."""
    found: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        name, *rest = line.split() or [""]
        if not name:
            continue
        speed = next((int(word) for word in rest if word.lstrip("-").isdigit()), None)
        driver = next((word for word in rest if not word.lstrip("-").isdigit()), None)
        found[name] = {"mbit_s": speed if speed is not None and speed > 0 else None, "driver": driver}
    return found


def node_fingerprint(
    host: Host, vendor: str, devices: Collection[int] | None = None, *, infiniband: str = INFINIBAND
) -> dict[str, Any]:
    """The facts of one machine of a pool: those of :func:`fingerprint`, and its devices, driver, runtimes,
    cards and fabric.

    Taken before and after a launch; :func:`compare` says what changed. Never raises: what a tool does not
    say is null, and ``unread`` says why.

    :param devices: indices of the launch's devices; None = all.
    """
    unread: list[str] = []

    def ask(script: str, *words: str) -> str:
        try:
            return host.run(["sh", "-c", script, "sh", *words]).stdout
        except ToolUnavailableError as error:
            unread.append(error.what)
            return ""

    base = fingerprint() if host.is_local else parse_base(ask(BASE_SCRIPT))
    report: DeviceReport | None = None
    try:
        report = read_devices(host, vendor)
    except ToolUnavailableError as error:
        unread.append(error.what)
    said = sections(ask(NODE_SCRIPT))
    names = ("docker", "podman", "enroot", "slurm", "nvidia-ctk")
    versions = {name: said[name].splitlines()[0] for name in names if said.get(name)}
    return {
        **base,
        "driver": report.driver if report else None,
        "device_runtime": report.runtime if report else None,
        "devices": _devices(report, devices) if report else None,
        "fabric": _fabric(report, devices) if report else None,
        "runtimes": versions,
        "nics": parse_nics(said.get("nics", "")),
        "rails": {
            rail.name: {"state": rail.state, "rate": rail.rate, "layer": rail.layer}
            for rail in parse_rails(ask(RAILS_SCRIPT, infiniband))
        },
        "unread": "; ".join(unread) or None,
    }


def _kept(report: DeviceReport, devices: Collection[int] | None) -> list[Device]:
    return [item for item in report.devices if devices is None or item.index in devices]


def _devices(report: DeviceReport, devices: Collection[int] | None) -> dict[str, dict[str, Any]] | None:
    if report.vendor == "cpu":
        return {}
    return {
        str(item.index): {name: getattr(item, name) for name in DEVICE_FIELDS}
        for item in _kept(report, devices)
    }


def _fabric(report: DeviceReport, devices: Collection[int] | None) -> str | None:
    """The state of the links, where all devices say the same; else each one's."""
    states = {str(item.index): item.fabric for item in _kept(report, devices)}
    if len(set(states.values())) <= 1:
        return next(iter(states.values()), None)
    return "; ".join(f"{index}: {state}" for index, state in states.items())


def flat(facts: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested tables as one: ``devices.3.power_cap_w``."""
    found: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = value
    return found


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(field, old, new) for each field that differs, by name; a missing field is null. Without
    :data:`VOLATILE` ones. Of nested tables each field on its own (``devices.3.uuid``)."""
    one, two = flat(old), flat(new)
    names = sorted(name for name in set(one) | set(two) if name.rpartition(".")[2] not in VOLATILE)
    return [(name, one.get(name), two.get(name)) for name in names if one.get(name) != two.get(name)]


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What changed on a machine during a launch, one line each; what could not be read is no change."""
    return [
        f"{name}: {old} -> {new}"
        for name, old, new in compare(before, after)
        if old is not None and new is not None and name != "unread"
    ]
