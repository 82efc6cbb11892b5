"""What a device is to us, and how values of tools are read. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isoline.catalog.skus import Sku

NUMBER = re.compile(r"^\(?\s*([-+]?\d+(?:\.\d+)?)\s*\)?\s*([A-Za-z%/°]*)\)?\Z")
MB_OF = {"": 1.0, "mib": 1.0, "mb": 1.0, "gib": 1024.0, "gb": 1024.0, "kib": 1 / 1024, "kb": 1 / 1024}
"""Units of memory in MiB. The tools write MB and GB and mean powers of two."""

ABSENT = {
    "",
    "n/a",
    "none",
    "not supported",
    "unknown error",
    "requested functionality has been deprecated",
}
"""What the tools print where they have no value, without brackets."""

DROPPED = {"nvidia", "amd", "instinct", "oam"}
"""Words that one version of a tool prints in a name and another leaves out."""


@dataclass(frozen=True)
class DeviceProcess:
    """A process that holds a device. ``memory_mb`` (MiB) and ``command`` are None where nobody says."""

    pid: int
    command: str | None = None
    memory_mb: float | None = None


@dataclass(frozen=True)
class Device:
    """One device at one moment. None = the tool does not say.

    ``memory_*_mb`` are MiB, ``utilisation`` is a share of 0 to 1. ``ecc_*`` count since the last reset.
    ``clock_max_mhz`` is what the device can, ``clock_set_mhz`` what somebody has set for applications.
    ``fabric`` is the state of the links to other devices, as the tool says it.
    ``throttle`` names what holds the clocks down now: ``()`` is nothing. ``processes`` ``()`` is none.
    ``needs_repair`` says why the device should not be used (a pending row remap, a required reset).
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    sku: str | None = None
    memory_total_mb: float | None = None
    memory_used_mb: float | None = None
    utilisation: float | None = None
    power_w: float | None = None
    power_cap_w: float | None = None
    clock_mhz: float | None = None
    clock_max_mhz: float | None = None
    clock_set_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    throttle: tuple[str, ...] | None = None
    needs_repair: str | None = None
    processes: tuple[DeviceProcess, ...] | None = None
    bus: str | None = None
    fabric: str | None = None


@dataclass(frozen=True)
class DeviceReport:
    """What one tool said of one machine. ``runtime`` is the CUDA or ROCm version of the driver."""

    vendor: str
    tool: str
    driver: str | None
    runtime: str | None
    devices: tuple[Device, ...]


class UnreadableOutputError(ValueError):
    """A tool printed something else than its format. Nothing may be concluded from it."""


def quantity(value: Any) -> tuple[float, str] | None:
    """(number, unit) of ``"610.00 W"``, ``"[N/A]"``, ``{"value": 610, "unit": "W"}``, ``"(173Mhz)"``, 610.

    None for everything that says that there is no value.
    """
    if isinstance(value, Mapping):
        found = quantity(value.get("value"))
        return None if found is None else (found[0], str(value.get("unit") or found[1]))
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return float(value), ""
    match = NUMBER.match(str(value).strip())
    return (float(match[1]), match[2]) if match else None


def number(value: Any) -> float | None:
    """The number of a value, whatever its unit."""
    found = quantity(value)
    return None if found is None else found[0]


def count(value: Any) -> int | None:
    """A count; None where there is none."""
    found = number(value)
    return None if found is None else int(found)


def watts(value: Any) -> float | None:
    """Power in W; mW are converted."""
    found = quantity(value)
    if found is None:
        return None
    return found[0] / 1000 if found[1] == "mW" else found[0]


def mebibytes(value: Any) -> float | None:
    """Memory in MiB; None for an unknown unit."""
    found = quantity(value)
    if found is None:
        return None
    if found[1] == "B":
        return found[0] / (1 << 20)
    factor = MB_OF.get(found[1].lower())
    return None if factor is None else found[0] * factor


def share(value: Any) -> float | None:
    """A percentage as a share of 0 to 1."""
    found = number(value)
    return None if found is None else found / 100


def text(value: Any) -> str | None:
    """A word, None for the tools' ways to say that there is none."""
    said = str(value).strip() if value is not None else ""
    bare = said.strip("[]").strip().lower()
    return None if bare in ABSENT else said


def _plain(name: str) -> tuple[str, ...]:
    return tuple(word for word in name.lower().split() if word not in DROPPED)


def sku_of(name: str | None, vendor: str, skus: Mapping[str, Sku]) -> str | None:
    """The SKU whose product name a vendor's tool prints so; None where the catalog knows no such name.

    A longer name is another product (``NVIDIA H200 NVL`` is no ``NVIDIA H200``): no part of it counts.
    """
    if name is None:
        return None
    for key, sku in skus.items():
        if sku.names is None:
            continue
        known = sku.names.nvidia_smi if vendor == "nvidia" else sku.names.amd_smi
        if _plain(name) in {_plain(item) for item in known}:
            return key
    return None
