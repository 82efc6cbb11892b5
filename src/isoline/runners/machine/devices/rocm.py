"""``rocm-smi --json``, the older tool of AMD. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from isoline.catalog.skus import Sku
from isoline.runners.machine.devices.model import (
    Device,
    DeviceProcess,
    DeviceReport,
    UnreadableOutputError,
    count,
    number,
    share,
    sku_of,
    text,
)

COMMAND = (
    "rocm-smi", "--showproductname", "--showuniqueid", "--showbus", "--showdriverversion", "--showpower",
    "--showmaxpower", "--showuse", "--showmeminfo", "vram", "--showtemp", "--showclocks", "--showpids",
    "--json",
)  # fmt: skip
SAMPLE_COMMAND = (
    "rocm-smi", "--showpower", "--showuse", "--showmeminfo", "vram", "--showtemp", "--showclocks", "--json",
)  # fmt: skip
MIB = 1 << 20


def parse(output: str, skus: Mapping[str, Sku]) -> DeviceReport:
    """Everything out of one call.

    ECC and throttling are not in it (None). Which process uses which device is not either: each one is
    listed under every device, as we cannot say that a device is free of it.

    :raises UnreadableOutputError: when there is no JSON of cards.
    """
    at = output.find("{")
    try:
        said = json.loads(output[at:]) if at >= 0 else None
    except ValueError:
        said = None
    if not isinstance(said, dict) or not any(key.startswith("card") for key in said):
        raise UnreadableOutputError("rocm-smi printed no JSON of cards")
    system = said.get("system", {})
    processes = _processes(system)
    cards = {int(key[4:]): value for key, value in said.items() if key[:4] == "card" and key[4:].isdigit()}
    found = tuple(_device(index, cards[index], processes, skus) for index in sorted(cards))
    return DeviceReport("amd", "rocm-smi", text(system.get("Driver version")), None, found)


def _first(card: Mapping[str, Any], *names: str) -> Any:
    lower = {key.lower(): value for key, value in card.items()}
    return next((lower[name.lower()] for name in names if text(lower.get(name.lower())) is not None), None)


def _device(
    index: int, card: Mapping[str, Any], processes: tuple[DeviceProcess, ...] | None, skus: Mapping[str, Sku]
) -> Device:
    name = text(_first(card, "Card Series", "Market Name", "Device Name"))
    total = number(_first(card, "VRAM Total Memory (B)"))
    used = number(_first(card, "VRAM Total Used Memory (B)"))
    return Device(
        index=index,
        uuid=text(_first(card, "Unique ID")),
        name=name,
        sku=sku_of(name, "amd", skus),
        memory_total_mb=None if total is None else total / MIB,
        memory_used_mb=None if used is None else used / MIB,
        utilisation=share(_first(card, "GPU use (%)")),
        power_w=number(
            _first(card, "Current Socket Graphics Package Power (W)", "Average Graphics Package Power (W)")
        ),
        power_cap_w=number(_first(card, "Max Graphics Package Power (W)")),
        clock_mhz=number(_first(card, "sclk clock speed:")),
        memory_clock_mhz=number(_first(card, "mclk clock speed:")),
        temperature_c=number(
            _first(card, "Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)")
        ),
        processes=processes,
        bus=text(_first(card, "PCI Bus")),
    )


def _processes(system: Mapping[str, Any]) -> tuple[DeviceProcess, ...] | None:
    """``"PID4242": "python3, 8, 121000000000, 0, 0"``: name, devices, VRAM bytes, SDMA, share of CUs."""
    found = []
    for key, value in system.items():
        pid = count(key[3:]) if key.startswith("PID") else None
        if pid is None:
            continue
        name, *rest = [cell.strip() for cell in str(value).split(",")]
        used = number(rest[1]) if len(rest) > 1 else None
        if used != 0:
            found.append(DeviceProcess(pid, text(name), None if used is None else used / MIB))
    return tuple(found)
