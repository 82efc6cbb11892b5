"""What dead orchestrators left, and its removal: one registry for all kinds of things.

A cleaner finds what belongs to an Isoline process that is dead, and removes exactly that. The launchers
of containers and Slurm register theirs. The first step of each run cleans; ``isoline pool gc`` shows.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from isoline.errors import IsolineError
from isoline.runners.machine import ports
from isoline.runners.machine.hosts import Host
from isoline.runners.ownership import leases, owners

OURS = re.compile(r"^\d{8}T\d{6}Z-[a-z0-9]")
"""Begins the name of a launch's scratch folder: its run's id. Where ``<state>/scratch`` is a link to a big
disk, whatever else lies there is somebody's."""

SCRATCH_AGE_S = 3600.0
"""A scratch folder that nobody owns is only called left when nothing changed in it for so long."""


@dataclass(frozen=True)
class Left:
    """One thing that a dead orchestrator left.

    :param kind: the cleaner's name: ``process``, ``container``, ``job``, ``lease``, ``port``, ``scratch``.
    :param name: what it is called; ``what`` more of it in one line; ``since`` UTC, ISO 8601.
    :param handle: whatever its cleaner needs to remove it; of no meaning to others.
    """

    kind: str
    name: str
    host: str
    run_id: str = ""
    launch_id: str = ""
    since: str = ""
    what: str = ""
    handle: Any = field(default=None, compare=False, repr=False)


class Cleaner(Protocol):
    """Finds and removes one kind of things. Both are bounded in time."""

    kind: str

    def find(self, state: Path, host: Host) -> list[Left]:
        """What is left on a machine; nothing is changed.

        :raises ToolUnavailableError: when a tool does not answer: that is never read as "nothing there".
        """
        ...

    def remove(self, state: Path, left: Left) -> str:
        """Remove one thing. Returns "" or, in one line, why it is still there."""
        ...


class Processes:
    """Processes of this machine by their owner records, with their ports and scratch folders."""

    kind = "process"

    def find(self, state: Path, host: Host) -> list[Left]:
        """Records whose orchestrator is dead, with the processes that still run."""
        if not host.is_local:
            return []
        found = []
        for owner in owners.all_owners(state):
            if owners.orchestrator_state(owner) != "dead":
                continue
            pids = [item.pid for item in owners.find_processes(state, owner)]
            what = f"{owner.what}, pids {' '.join(map(str, pids))}" if pids else f"record of a {owner.what}"
            found.append(
                Left(
                    self.kind,
                    owner.token,
                    host.name,
                    owner.run_id,
                    owner.launch_id,
                    owner.created_at,
                    what,
                    owner,
                )
            )
        return found

    def remove(self, state: Path, left: Left) -> str:
        """End the processes, then remove scratch, ports and record."""
        swept = owners.sweep_one(state, left.handle)
        if swept.left:
            return f"processes {', '.join(map(str, swept.left))} cannot be ended"
        return ""


class Leases:
    """Leases whose orchestrator is dead."""

    kind = "lease"

    def find(self, state: Path, host: Host) -> list[Left]:
        """Stale leases; they are files of this machine, whichever node they name."""
        if not host.is_local:
            return []
        found = [
            Left(self.kind, item.token, host.name, item.run_id, item.launch_id, item.since, item.text(), item)
            for item in leases.stale(state)
        ]
        for damaged in leases.unreadable(state):
            if damaged.is_over:
                what = "a lease that cannot be read, of nobody who lives"
                name = damaged.path.stem
                found.append(Left(self.kind, name, host.name, since=damaged.since, what=what, handle=damaged))
        return found

    def remove(self, state: Path, left: Left) -> str:
        """Free the devices."""
        if isinstance(left.handle, leases.Unreadable):
            left.handle.path.unlink(missing_ok=True)
        else:
            leases.give_back(state, left.handle)
        return ""


class Ports:
    """Port leases without an owner's record."""

    kind = "port"

    def find(self, state: Path, host: Host) -> list[Left]:
        """Stale port leases."""
        return [Left(self.kind, str(port), host.name) for port in ports.stale(state)] if host.is_local else []

    def remove(self, state: Path, left: Left) -> str:
        """Give back every stale port."""
        ports.drop_stale(state)
        return ""


class Scratch:
    """Scratch folders that no record and no lease speaks of."""

    kind = "scratch"

    def find(self, state: Path, host: Host) -> list[Left]:
        """Launches' folders below ``<state>/scratch`` of nobody, at rest for :data:`SCRATCH_AGE_S`."""
        if not host.is_local or leases.unreadable(state):
            return []  # whose folder it is may stand where nobody can read it
        owned = {Path(owner.scratch).resolve() for owner in owners.all_owners(state) if owner.scratch}
        owned |= {parent for path in owned for parent in path.parents}
        leased = {f"{item.run_id}-{item.launch_id}" for item in leases.all_leases(state)}
        found = []
        for path in sorted((state / "scratch").glob("*")):
            if not OURS.match(path.name) or path.is_symlink() or not path.is_dir():
                continue
            with suppress(OSError):
                rests = time.time() - path.stat().st_mtime > SCRATCH_AGE_S
                if path.resolve() not in owned and path.name not in leased and rests:
                    found.append(Left(self.kind, path.name, host.name, handle=path))
        return found

    def remove(self, state: Path, left: Left) -> str:
        """Remove the folder."""
        shutil.rmtree(left.handle, ignore_errors=True)
        return "it cannot be removed" if left.handle.exists() else ""


CLEANERS: list[Cleaner] = [Processes(), Leases(), Ports(), Scratch()]
"""All cleaners, in the order in which they work: what runs first, what it held afterwards."""


def register(cleaner: Cleaner) -> None:
    """Add a cleaner before those of leases and ports; a second one of its kind takes its place."""
    CLEANERS[:] = [item for item in CLEANERS if item.kind != cleaner.kind]
    CLEANERS.insert(1, cleaner)


@dataclass(frozen=True)
class Cleaned:
    """What became of one thing; ``problem`` "" = it is gone."""

    left: Left
    problem: str


def find_all(
    state: Path, hosts: Iterable[Host], cleaners: Sequence[Cleaner] | None = None
) -> tuple[list[Left], list[str]]:
    """Everything that is left on these machines, and one line for each that could not be asked."""
    found: list[Left] = []
    silent: list[str] = []
    for host in hosts:
        for cleaner in CLEANERS if cleaners is None else cleaners:
            try:
                found += cleaner.find(state, host)
            except IsolineError as error:
                silent.append(f"{cleaner.kind} on {host.name}: {error.line()}")
    return found, silent


def remove_all(
    state: Path, found: Iterable[Left], say: Callable[[Cleaned], None] = lambda _: None
) -> list[Cleaned]:
    """Remove what was found; what cannot be is told and left."""
    done = []
    by_kind = {cleaner.kind: cleaner for cleaner in CLEANERS}
    for left in found:
        try:
            problem = by_kind[left.kind].remove(state, left)
        except IsolineError as error:
            problem = error.line()
        done.append(Cleaned(left, problem))
        say(done[-1])
    return done
