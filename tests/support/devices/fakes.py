"""A made-up machine with accelerators: its vendors' tools as executables in a folder for PATH."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("smi.py")
NVIDIA = {"driver": "580.82.07", "runtime": "13.0"}
AMD = {"driver": "6.16.6", "runtime": "7.0.2"}


def device(number: int, name: str, total: int, **changed: Any) -> dict[str, Any]:
    """One idle device; processes are (pid, name, MiB, type)."""
    return {
        "name": name,
        "uuid": f"GPU-0000000{number}-aaaa-bbbb-cccc-00000000000{number}",
        "total": total,
        "used": 4,
        "util": 0,
        "power": 75.25,
        "cap": 700.0,
        "clock": 345,
        "mem_clock": 3201,
        "temp": 31,
        "ecc_uncorrected": 0,
        "remap_pending": False,
        "throttle": [],
        "processes": [],
    } | changed


def h200s(count: int = 8) -> list[dict[str, Any]]:
    """Idle H200 devices."""
    return [device(number, "NVIDIA H200", 143771) for number in range(count)]


def mi355xs(count: int = 8) -> list[dict[str, Any]]:
    """Idle MI355X devices."""
    return [device(number, "AMD Instinct MI355X", 294896, cap=1400) for number in range(count)]


class Machine:
    """The folder ``bin`` is for PATH; :meth:`say` changes what the tools print from now on."""

    def __init__(
        self, folder: Path, tools: Iterable[str], devices: list[dict[str, Any]], **said: Any
    ) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self.said: dict[str, Any] = {"devices": devices, "new": True, "tools": {}, **NVIDIA, **said}
        for name in tools:
            self.add(name)
        self.say()

    def add(self, name: str) -> None:
        """Put one more tool on PATH."""
        path = self.bin / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{SCRIPT}" "{self.folder}" {name} "$@"\n')
        path.chmod(0o755)

    def say(self, **changed: Any) -> None:
        """Change the machine."""
        self.said |= changed
        part = self.folder / "machine.part"
        part.write_text(json.dumps(self.said))
        part.replace(self.folder / "machine.json")

    def change(self, number: int, **changed: Any) -> None:
        """Change one device."""
        self.said["devices"][number] |= changed
        self.say()

    def calls(self) -> list[list[str]]:
        """Every call so far: the tool and its arguments."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
