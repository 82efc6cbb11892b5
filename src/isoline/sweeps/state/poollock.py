"""One process works on a pool; it says who it is, and cleans up after dead ones before it begins."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from isoline.catalog.pools import Pool
from isoline.errors import InfraError
from isoline.results.bundles.bundle import utc_now, write_file
from isoline.runners.machine import ports
from isoline.runners.ownership import gc, leases, owners
from isoline.runners.ownership.cleaners import machines_of, register_cleaners
from isoline.runners.ownership.orchestrators import Life, Orchestrator, life_of, this_orchestrator
from isoline.runners.ownership.record import read_record
from isoline.settings import Settings
from isoline.sweeps.execution.context import folder_is_usable, full_disk_is_clear
from isoline.sweeps.state.journal import JOURNAL, Journal
from isoline.sweeps.state.runs import Run, clear_wreckage


@dataclass(frozen=True)
class Holder:
    """Who works on a pool, at which run, since when (UTC, ISO 8601)."""

    pool: str
    run_id: str
    run_folder: str
    since: str
    orchestrator: Orchestrator

    @property
    def life(self) -> Life:
        """Whether it still does."""
        return life_of(self.orchestrator)


def _holder_path(state: Path, pool: str) -> Path:
    return state / "pools" / f"{pool}.json"


def say_who(state: Path, pool: str, run: Run) -> None:
    """Note that this process works at a run on a pool."""
    holder = Holder(pool, run.run_id, str(run.folder.absolute()), utc_now(), this_orchestrator())
    write_file(_holder_path(state, pool), (json.dumps(asdict(holder), indent=1) + "\n").encode())


def holder_of(state: Path, pool: str) -> Holder | None:
    """Who works on a pool; None when nobody that lives does."""
    found = read_record(_holder_path(state, pool), Holder, "pool")
    return None if found is None or found.life == "dead" else found


@contextmanager
def pool_lock(state: Path, pool: str) -> Iterator[None]:
    """The one process that may work on a pool. The system drops the lock when that process dies.

    :raises InfraError: when another process has it, or the state folder cannot be written.
    """
    folder = state / "pools"
    lock = FileLock(folder / f"{pool}.lock", timeout=0)
    try:
        with folder_is_usable(folder, "ISOLINE_STATE"):
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
    except Timeout:
        raise InfraError(
            f"pool {pool!r} is in use by another run", remedy="wait for it, or end it with Ctrl-C there"
        ) from None
    try:
        yield
    finally:
        _holder_path(state, pool).unlink(missing_ok=True)
        lock.release()


def clean_up_after_others(state: Path, say: Callable[[str], None], pool: Pool | None = None) -> None:
    """End and remove what dead orchestrators left here and on the pool's machines, and only that.

    :param say: told a line for each thing of which something ran, and for each machine that is silent.
    :raises InfraError: when something here cannot be ended: nothing can be measured beside it.
    """
    pools = [pool] if pool else []
    register_cleaners(pools)
    found, silent = gc.find_all(state, machines_of(pools))
    for line in silent:
        say(f"not looked at: {line}")
    for damaged in leases.unreadable(state):
        if not damaged.is_over:
            say(damaged.text())
    for done in gc.remove_all(state, found):
        left = done.left
        if done.problem and left.kind == "process":
            raise InfraError(
                f"{done.problem}: they are of a dead run",
                where=left.run_id,
                remedy="look at them and end them by hand",
            )
        if done.problem:
            say(f"{left.kind} {left.name} on {left.host}: {done.problem}")
        elif left.kind not in ("port", "lease"):
            say(f"ended what a dead run left ({left.kind} {left.name}: {left.what}; {left.launch_id})")
    owners.drop_strays(state)
    ports.drop_stale(state)


def tidy(settings: Settings, run: Run, say: Callable[[str], None], pool: Pool | None = None) -> None:
    """First of all, also where nothing is due: end orphans, seal or drop what a crash left of the run.

    :raises InfraError: for a full disk or a machine that cannot be cleaned.
    """
    with full_disk_is_clear(settings.store):
        clean_up_after_others(settings.state, say, pool)
        for line in clear_wreckage(run):
            Journal(run.work / JOURNAL).write("wreckage", what=line)
