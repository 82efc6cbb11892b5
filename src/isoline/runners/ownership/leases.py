"""Leases of nodes and devices: which launch has which, as durable files ``<state>/leases/<token>.json``.

They are of all pools together, by the node's name, so that two pools on one machine do not meet. A
lease lasts as long as its orchestrator; what a dead one left is freed by the next run or ``pool gc``.
A file that cannot be read may be a lease of any device: nothing is leased beside it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import TypeAdapter

from isoline.errors import InfraError
from isoline.results.bundles.bundle import sync, utc_now, write_file
from isoline.runners.ownership.orchestrators import Life, Orchestrator, life_of, this_orchestrator
from isoline.runners.ownership.quarantine import stamp
from isoline.runners.ownership.record import read_record

LOCK_TIMEOUT_S = 60.0

UNREADABLE_S = 48 * 3600.0
"""A lease that cannot be read holds for so long: no launch takes longer."""

Places = tuple[tuple[str, tuple[int, ...]], ...]
"""Nodes with the indices of the devices there; empty where the pool's own scheduler places launches."""


@dataclass(frozen=True)
class Lease:
    """What one launch has. ``is_whole``: nobody else gets anything of its nodes.

    ``ends_at`` is the expected end (UTC, ISO 8601), an estimate for people.
    """

    token: str
    pool: str
    run_id: str
    launch_id: str
    places: Places
    is_whole: bool
    since: str
    ends_at: str | None
    run_folder: str
    orchestrator: Orchestrator

    @property
    def life(self) -> Life:
        """Whether its orchestrator lives."""
        return life_of(self.orchestrator)

    def text(self) -> str:
        """``n1 devices 0 1``; every node of it."""
        return ", ".join(f"{node} devices {' '.join(map(str, found))}" for node, found in self.places)


def leases_folder(state: Path) -> Path:
    """Where leases lie."""
    return state / "leases"


def read_lease(path: Path) -> Lease | None:
    """The lease in a file; None where it is none."""
    return read_record(path, Lease, "token")


def all_leases(state: Path) -> list[Lease]:
    """Every lease that can be read, oldest first."""
    found = (read_lease(path) for path in leases_folder(state).glob("*.json"))
    return sorted((item for item in found if item is not None), key=lambda item: (item.since, item.token))


@dataclass(frozen=True)
class Unreadable:
    """A file among the leases that is none. ``since``: when it was last changed (UTC, ISO 8601).

    ``writer`` is the process that made it, where that much can be read; ``is_over``: that process is
    dead, or the file is older than :data:`UNREADABLE_S`.
    """

    path: Path
    since: str
    writer: Orchestrator | None
    is_over: bool

    def text(self) -> str:
        """What it is and what can be done, one line."""
        who = f", written by {self.writer.text()}" if self.writer else ""
        return (
            f"lease {self.path.name} cannot be read{who}: whatever devices it holds, none is leased beside "
            f"it; once nothing runs there delete leases/{self.path.name} in the state folder, or "
            f"`isoline pool gc` does when it is {UNREADABLE_S / 3600:.0f} h old ({self.since})"
        )


def unreadable(state: Path) -> list[Unreadable]:
    """Files among the leases that are none: they hold what nobody knows."""
    found = []
    for path in sorted(leases_folder(state).glob("[!.]*.json")):
        if read_lease(path) is not None:
            continue
        with contextlib.suppress(FileNotFoundError):  # given back meanwhile
            changed = path.lstat().st_mtime
            writer = _writer_in(path)
            is_old = time.time() - changed > UNREADABLE_S
            since = stamp(datetime.fromtimestamp(changed, UTC))
            is_dead = writer is not None and life_of(writer) == "dead"
            found.append(Unreadable(path, since, writer, is_old or is_dead))
    return found


def _writer_in(path: Path) -> Orchestrator | None:
    """Who wrote a damaged lease, if that part of it is whole."""
    try:
        writer = json.dumps(json.loads(path.read_bytes())["orchestrator"])
        return TypeAdapter(Orchestrator).validate_json(writer, strict=True)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def clash(places: Places, is_whole: bool, others: Sequence[Lease]) -> Lease | None:
    """The first lease that stands in the way of another one. Pure."""
    for other in others:
        theirs = dict(other.places)
        for node, devices in places:
            if node in theirs and (is_whole or other.is_whole or set(devices) & set(theirs[node])):
                return other
    return None


def take(
    state: Path,
    *,
    pool: str,
    run_id: str,
    launch_id: str,
    places: Places,
    is_whole: bool,
    run_folder: Path,
    ends_at: str | None = None,
) -> Lease:
    """Lease these devices. Durable when this returns.

    :param is_whole: keep the rest of the nodes free of others too.
    :raises InfraError: when a lease that is not stale has one of them, or one that cannot be read may.
    """
    folder = leases_folder(state)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock", timeout=LOCK_TIMEOUT_S):
        unknown = [item for item in unreadable(state) if not item.is_over]
        if places and unknown:
            raise InfraError(unknown[0].text(), where=f"pool {pool}")
        living = [item for item in all_leases(state) if item.life != "dead"]
        other = clash(places, is_whole, living)
        if other is not None:
            raise InfraError(
                f"{other.text()} is leased to launch {other.launch_id} of run {other.run_id}",
                where=f"pool {pool}",
                remedy="wait for it; `isoline pool status` shows it",
            )
        lease = Lease(
            token=secrets.token_hex(8),
            pool=pool,
            run_id=run_id,
            launch_id=launch_id,
            places=places,
            is_whole=is_whole,
            since=utc_now(),
            ends_at=ends_at,
            run_folder=str(run_folder.absolute()),
            orchestrator=this_orchestrator(),
        )
        write_file(folder / f"{lease.token}.json", (json.dumps(asdict(lease), indent=1) + "\n").encode())
        sync(folder)
    return lease


def give_back(state: Path, lease: Lease) -> None:
    """End a lease. May be called twice."""
    (leases_folder(state) / f"{lease.token}.json").unlink(missing_ok=True)


def stale(state: Path) -> list[Lease]:
    """Leases whose orchestrator is dead."""
    return [item for item in all_leases(state) if item.life == "dead"]


@contextmanager
def leased(state: Path, **fields: Any) -> Iterator[Lease]:
    """A lease for the time of a block; see :func:`take`."""
    lease = take(state, **fields)
    try:
        yield lease
    finally:
        with contextlib.suppress(OSError):
            give_back(state, lease)
