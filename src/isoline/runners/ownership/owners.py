"""Who owns which process, so that what a dead orchestrator left is found and ended, and only that.

Each child has a record ``<state>/owners/<token>.json``, durable **before** the fork, and a note
``<token>.child`` that the child writes itself before it becomes the program (:mod:`own_exec`). A
child is found again by either of

* its label ``ISOLINE_OWNER=<token>`` in the environment that it was started with,
* its session: the leader noted by the child, or what that leader left behind (AIPerf overwrites its
  environment, so the label alone would miss it).

A record is acted on only when its orchestrator is dead: same host, boot and pid space, and no
process with that pid and that start time.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from isoline.results.bundles.bundle import sync, utc_now, write_file
from isoline.runners.machine import ports, proc
from isoline.runners.ownership import cgroups, own_exec
from isoline.runners.ownership.orchestrators import Life, Orchestrator, life_of, this_orchestrator
from isoline.runners.ownership.reap import end_processes
from isoline.runners.ownership.record import read_record

LABEL = "ISOLINE_OWNER"
SCRATCH_PREFIX = "isoline-load-"
"""Begins the name of a load generator's scratch folder in the system's folder for temporary files."""
What = Literal["server", "client"]


@dataclass(frozen=True)
class Owner:
    """One record: which orchestrator (pid, start, boot) owns the child with this token.

    ``log`` is where the child's output goes, ``scratch`` a folder of the child alone; "" = none.
    """

    token: str
    run_id: str
    launch_id: str
    what: str
    host: str
    boot_id: str
    pid_namespace: str
    orchestrator_pid: int
    orchestrator_start_ticks: int
    created_at: str
    log: str
    scratch: str

    @property
    def orchestrator(self) -> Orchestrator:
        """The process of Isoline that owns the child."""
        return Orchestrator(
            self.host,
            self.boot_id,
            self.pid_namespace,
            self.orchestrator_pid,
            self.orchestrator_start_ticks,
        )


@dataclass(frozen=True)
class Child:
    """What the child noted about itself."""

    pid: int
    pgid: int
    sid: int
    start_ticks: int


@dataclass(frozen=True)
class Swept:
    """What became of one record whose orchestrator is dead."""

    owner: Owner
    ended: tuple[int, ...]
    left: tuple[int, ...]


def owners_folder(state: Path) -> Path:
    """Where the records lie."""
    return state / "owners"


def _record_path(state: Path, token: str) -> Path:
    return owners_folder(state) / f"{token}.json"


def _note_path(state: Path, token: str) -> Path:
    return owners_folder(state) / f"{token}.child"


def claim(
    state: Path,
    *,
    run_id: str,
    launch_id: str,
    what: What,
    log: Path | None = None,
    scratch: Path | None = None,
) -> Owner:
    """Write the record of a child that is about to be started. Durable when this returns."""
    me = this_orchestrator()
    owner = Owner(
        token=secrets.token_hex(12),
        run_id=run_id,
        launch_id=launch_id,
        what=what,
        host=me.host,
        boot_id=me.boot_id,
        pid_namespace=me.pid_namespace,
        orchestrator_pid=me.pid,
        orchestrator_start_ticks=me.start_ticks,
        created_at=utc_now(),
        log=str(log.absolute()) if log else "",
        scratch=str(scratch.absolute()) if scratch else "",
    )
    path = _record_path(state, owner.token)
    write_file(path, (json.dumps(asdict(owner), indent=1) + "\n").encode())
    sync(path.parent)
    return owner


def label(owner: Owner) -> dict[str, str]:
    """The environment entry that marks the child."""
    return {LABEL: owner.token}


def wrap(state: Path, owner: Owner, argv: list[str], cgroup: Path | None = None) -> list[str]:
    """The command that notes the child's identity and then becomes ``argv``, in that cgroup if there is one.

    Start it with ``start_new_session=True`` and :func:`label` in its environment.
    """
    note = str(_note_path(state, owner.token).absolute())
    inside = ["--cgroup", str(cgroup)] if cgroup else []
    return [sys.executable, "-I", "-S", str(Path(own_exec.__file__).absolute()), note, *inside, "--", *argv]


def child_of(state: Path, token: str) -> Child | None:
    """What the child noted, or None when it has not come so far."""
    return read_record(_note_path(state, token), Child)


def note_child(state: Path, owner: Owner, pid: int) -> None:
    """Note a child that was started without :func:`wrap`. Leaves a gap between fork and this call."""
    found = proc.read_proc(pid)
    if found is None:
        return
    data = {"pid": pid, "pgid": found.pgid, "sid": found.sid, "start_ticks": found.start_ticks}
    write_file(_note_path(state, owner.token), json.dumps(data).encode())


def release(state: Path, owner: Owner) -> None:
    """Remove record and note, and give back the owner's ports: nothing of the child is left."""
    ports.release_all(state, owner.token)
    cgroups.remove(owners_folder(state), owner.token)
    _note_path(state, owner.token).unlink(missing_ok=True)
    _record_path(state, owner.token).unlink(missing_ok=True)


def read_owner(path: Path) -> Owner | None:
    """The record in a file; None when it is not one (a half file of a crash is never renamed in)."""
    return read_record(path, Owner, "token")


def all_owners(state: Path) -> list[Owner]:
    """Every record, by token."""
    found = (read_owner(path) for path in sorted(owners_folder(state).glob("*.json")))
    return [owner for owner in found if owner is not None]


def orchestrator_state(owner: Owner) -> Life:
    """Whether the owner's orchestrator still runs."""
    return life_of(owner.orchestrator)


def _ourselves() -> set[int]:
    """This process and those above it: never to be ended, whatever label they inherited."""
    found: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        above = proc.read_proc(pid)
        pid = above.ppid if above else 0
    return found


def find_processes(state: Path, owner: Owner) -> list[proc.Proc]:
    """The living processes of an owner's child: by label, and by the session that the child noted."""
    if owner.boot_id != proc.boot_id() or owner.pid_namespace != proc.pid_namespace():
        return []
    child = child_of(state, owner.token)
    excluded = _ourselves()
    living = [item for item in proc.all_procs() if item.state not in "ZX" and item.pid not in excluded]
    # A label is inherited: one that an orchestrator got from its own owner says nothing about its child.
    found = {item.pid: item for item in living if proc.read_environ(item.pid).get(LABEL) == owner.token}
    if child is not None and child.sid == child.pid:
        members = [item for item in living if item.sid == child.sid and item.start_ticks >= child.start_ticks]
        if members and _session_is_ours(owner, child, members, set(found)):
            found.update({item.pid: item for item in members})
    return [found[pid] for pid in sorted(found)]


def _session_is_ours(owner: Owner, child: Child, members: list[proc.Proc], labelled: set[int]) -> bool:
    """Whether the session of that number is still the child's, not one of a later process of that pid."""
    leader = proc.read_proc(child.pid)
    if leader is not None:
        return leader.start_ticks == child.start_ticks
    # The leader is gone. A number is not given out again while its session lives, but the whole session
    # may have ended and the number gone round: then no member has our label or writes to our log.
    if any(item.pid in labelled for item in members):
        return True
    return bool(owner.log) and any(owner.log in proc.output_files(item.pid) for item in members)


def end_owned(state: Path, owner: Owner, term_s: float) -> tuple[list[int], list[int]]:
    """End every process of an owner's child. Returns (ended, left) pids; bounded in time."""
    return end_processes(lambda: find_processes(state, owner), term_s)


def _remove_scratch(state: Path, owner: Owner) -> None:
    """Remove the child's scratch folder, but only where scratch of ours lies."""
    if owner.scratch:
        path = Path(owner.scratch).resolve()
        is_temporary = path.parent == Path(tempfile.gettempdir()).resolve()
        if (state / "scratch").resolve() in path.parents or (
            is_temporary and path.name.startswith(SCRATCH_PREFIX)
        ):
            shutil.rmtree(path, ignore_errors=True)


def sweep_orphans(state: Path, *, term_s: float = 5.0) -> list[Swept]:
    """End what dead orchestrators left, and remove their records and port leases.

    The first step of each run. A record whose processes could not be ended stays, with their pids in
    ``left``. Records of living orchestrators, and of other hosts, are not touched.
    """
    swept = []
    for owner in all_owners(state):
        if orchestrator_state(owner) == "dead":
            swept.append(sweep_one(state, owner, term_s=term_s))
    drop_strays(state)
    ports.drop_stale(state)
    return swept


def sweep_one(state: Path, owner: Owner, *, term_s: float = 5.0) -> Swept:
    """End what one owner left, and remove its scratch, ports and record once nothing of it runs."""
    ended, left = end_owned(state, owner, term_s)
    if not left:
        _remove_scratch(state, owner)
        release(state, owner)
    return Swept(owner=owner, ended=tuple(ended), left=tuple(left))


def drop_strays(state: Path) -> None:
    """Remove notes whose record is gone (a release that was killed half way)."""
    for note in owners_folder(state).glob("*.child"):
        if not note.with_suffix(".json").exists():
            note.unlink(missing_ok=True)
    for note in owners_folder(state).glob("*.cgroup"):
        if not note.with_suffix(".json").exists():
            cgroups.remove(owners_folder(state), note.stem)


@contextmanager
def owned(
    state: Path,
    *,
    run_id: str,
    launch_id: str,
    what: What,
    log: Path | None = None,
    scratch: Path | None = None,
) -> Iterator[Owner]:
    """An owner for the time of a ``with`` block; afterwards nothing of the child runs.

    For a child that somebody else starts (AIPerf): give it :func:`label` as environment and either
    :func:`wrap` its command or call :func:`note_child`.
    """
    owner = claim(state, run_id=run_id, launch_id=launch_id, what=what, log=log, scratch=scratch)
    try:
        yield owner
    finally:
        _, left = end_owned(state, owner, term_s=5.0)
        if not left:
            with contextlib.suppress(OSError):
                release(state, owner)
