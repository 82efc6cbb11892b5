"""Leases of nodes and devices: which launch has which, as durable files ``<state>/leases/<token>.json``.

They are of all pools together, by the node's name, so that two pools on one machine do not meet. A
lease lasts as long as its orchestrator; what a dead one left is freed by the next run or ``pool gc``.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from isoline.errors import InfraError
from isoline.results.bundle import sync, utc_now, write_file
from isoline.runners.ownership.orchestrators import Life, Orchestrator, life_of, this_orchestrator
from isoline.runners.ownership.record import read_record

LOCK_TIMEOUT_S = 60.0

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
    """Every lease, oldest first."""
    found = (read_lease(path) for path in leases_folder(state).glob("*.json"))
    return sorted((item for item in found if item is not None), key=lambda item: (item.since, item.token))


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
    :raises InfraError: when a lease that is not stale has one of them.
    """
    folder = leases_folder(state)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock", timeout=LOCK_TIMEOUT_S):
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
