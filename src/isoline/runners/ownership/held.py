"""Records of held launches: servers that `isoline launch` keeps.

The holder writes ``<state>/held/<launch_id>.json`` when the server is ready and removes it when it is
stopped. It stays the owner: when it dies, its server is ended like any other that a dead orchestrator left.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from isoline.errors import InputError
from isoline.results.bundles.bundle import write_file
from isoline.runners.ownership.orchestrators import Orchestrator, life_of
from isoline.runners.ownership.record import read_record

FAILED = "failed"
"""Marks the folder of a launch that failed."""

KEPT_FAILED = 5
"""So many of them are kept."""


@dataclass(frozen=True)
class HeldPart:
    """One program of a held launch, as others need it."""

    name: str
    host: str
    ports: dict[str, int]
    argv: list[str]
    program: list[str]
    env: dict[str, str]
    log: str
    scratch: str
    owner: str  # token of its record


@dataclass(frozen=True)
class Held:
    """A held launch. ``until`` and ``since``: UTC, ISO 8601."""

    launch_id: str
    launch_digest: str
    recipe_id: str
    topology: str
    pool: str
    kind: str
    url: str
    since: str
    until: str
    orchestrator: Orchestrator
    parts: list[HeldPart]

    @property
    def is_alive(self) -> bool:
        """Whether its holder lives."""
        return life_of(self.orchestrator) == "alive"


def held_folder(state: Path) -> Path:
    """Where the records lie."""
    return state / "held"


def write_held(state: Path, held: Held) -> Path:
    """Write the record of a ready server."""
    path = held_folder(state) / f"{held.launch_id}.json"
    write_file(path, (json.dumps(asdict(held), indent=1, ensure_ascii=False) + "\n").encode())
    return path


def keep_failed(state: Path, launch_id: str) -> bool:
    """Mark the folder of a launch that failed as one to keep, where it has logs; the oldest such go.

    :returns: whether it is kept: the logs say why a recipe does not start.
    """
    folder = held_folder(state) / launch_id
    if not any(folder.glob("server*.log")):
        return False
    write_file(folder / FAILED, b"")
    kept = sorted(held_folder(state).glob(f"*/{FAILED}"), key=lambda path: path.stat().st_mtime_ns)
    for path in kept[:-KEPT_FAILED]:
        shutil.rmtree(path.parent, ignore_errors=True)
    return True


def forget(state: Path, launch_id: str) -> None:
    """Remove the folder of a launch that is over, unless it failed and is kept."""
    folder = held_folder(state) / launch_id
    if not (folder / FAILED).exists():
        shutil.rmtree(folder, ignore_errors=True)


def read_held(path: Path) -> Held | None:
    """The record in a file; None when it is not one."""
    return read_record(path, Held, "launch_id")


def all_held(state: Path) -> list[Held]:
    """Every held launch whose holder lives."""
    found = (read_held(path) for path in sorted(held_folder(state).glob("*.json")))
    return [held for held in found if held is not None and held.is_alive]


def find_held(state: Path, launch_id: str) -> Held:
    """The held launch of that id.

    :raises InputError: when there is none; those that there are, are named.
    """
    known = {held.launch_id: held for held in all_held(state)}
    if launch_id not in known:
        names = ", ".join(known) or "none"
        raise InputError(f"no held launch {launch_id!r}", where="--attach", remedy=f"held now: {names}")
    return known[launch_id]
