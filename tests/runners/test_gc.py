"""Clean-up after dead runs: what they left is found and removed, what lives or is somebody else's stays."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from isoline.errors import InfraError
from isoline.runners.machine import ports
from isoline.runners.machine.hosts import Host, ToolUnavailableError, this_host
from isoline.runners.ownership import gc, leases, owners

DEAD = """
import subprocess, sys, os
from pathlib import Path
from isoline.runners.ownership import leases
from isoline.runners.ownership import owners
from isoline.runners.machine import ports
state = Path(sys.argv[1])
owner = owners.claim(state, run_id="r", launch_id="l-1", what="server", scratch=state / "scratch" / "r-l-1")
(state / "scratch" / "r-l-1").mkdir(parents=True)
ports.lease(state, owner.token, "127.0.0.1")
leases.take(state, pool="p", run_id="r", launch_id="l-1", places=(("local", (0,)),), is_whole=True,
            run_folder=state)
argv = owners.wrap(state, owner, [sys.executable, "-c", "import time; time.sleep(600)"])
child = subprocess.Popen(argv, env=os.environ | owners.label(owner), start_new_session=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(child.pid, flush=True)
import time; time.sleep(600)
"""


@pytest.fixture(autouse=True)
def only_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cleaners that are always there: other tests of the process may have added those of their pools."""
    always = [item for item in gc.CLEANERS if item.kind in ("process", "lease", "port", "scratch")]
    monkeypatch.setattr(gc, "CLEANERS", always)


def dead_run(state: Path, spawn: Callable[..., subprocess.Popen[bytes]]) -> int:
    """An orchestrator that is killed with a server in flight; the server's pid."""
    process = spawn([sys.executable, "-c", DEAD, str(state)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    until = time.monotonic() + 20
    while not list((state / "owners").glob("*.child")) and time.monotonic() < until:
        time.sleep(0.02)
    process.kill()
    process.wait()
    return pid


def test_what_a_dead_run_left_is_shown_and_removed(
    state: Path, spawn: Callable[..., subprocess.Popen[bytes]], eventually: Callable[..., None]
) -> None:
    """Process, lease and scratch are found first and removed then; a second look finds nothing."""
    pid = dead_run(state, spawn)
    alive = owners.claim(state, run_id="r2", launch_id="l-2", what="client")
    mine = leases.take(
        state, pool="p", run_id="r2", launch_id="l-2", places=(("n2", (0,)),), is_whole=True, run_folder=state
    )
    found, silent = gc.find_all(state, [this_host()])
    assert silent == []
    assert [(item.kind, item.run_id, item.launch_id) for item in found] == [
        ("process", "r", "l-1"),
        ("lease", "r", "l-1"),
    ]
    assert str(pid) in found[0].what
    os.kill(pid, 0)
    assert [item.problem for item in gc.remove_all(state, found)] == ["", ""]
    eventually(lambda: not Path(f"/proc/{pid}").exists() or owners.find_processes(state, alive) == [])
    assert gc.find_all(state, [this_host()]) == ([], [])
    assert not (state / "scratch" / "r-l-1").exists()
    assert [item.token for item in owners.all_owners(state)] == [alive.token]
    assert [item.token for item in leases.all_leases(state)] == [mine.token]
    assert ports.stale(state) == []


def test_scratch_of_nobody_is_left_once_it_rests(state: Path) -> None:
    """A folder that no record speaks of is removed after an hour at rest, not one that has just been made."""
    run = "20260101T000000Z-demo-abcdef"
    new, old = state / "scratch" / f"{run}-new", state / "scratch" / f"{run}-old"
    for path in (new, old):
        path.mkdir(parents=True)
    os.utime(old, (time.time() - 2 * gc.SCRATCH_AGE_S,) * 2)
    found, _ = gc.find_all(state, [this_host()])
    assert [(item.kind, item.name) for item in found] == [("scratch", f"{run}-old")]
    gc.remove_all(state, found)
    assert new.exists()
    assert not old.exists()


def test_what_else_lies_beside_scratch_is_somebodys(state: Path, tmp_path: Path) -> None:
    """Scratch may be a link to a disk with other data: only folders named after a run are removed."""
    disk = tmp_path / "disk"
    link = disk / "20260101T000000Z-demo-abcdef-link"
    (disk / "data").mkdir(parents=True)
    link.symlink_to(disk / "data")
    os.utime(disk / "data", (time.time() - 2 * gc.SCRATCH_AGE_S,) * 2)
    state.mkdir(exist_ok=True)
    (state / "scratch").symlink_to(disk)
    assert gc.find_all(state, [this_host()])[0] == []


def test_a_damaged_lease_goes_when_its_writer_is_gone(state: Path) -> None:
    """One that may be somebody's stays, and with it scratch of which nobody can say whose it is; one of a
    dead process goes, and then the scratch."""
    run = "20260101T000000Z-demo-abcdef"
    scratch = state / "scratch" / f"{run}-old"
    scratch.mkdir(parents=True)
    os.utime(scratch, (time.time() - 2 * gc.SCRATCH_AGE_S,) * 2)
    mine = leases.take(
        state, pool="p", run_id="r", launch_id="l", places=(("n1", (0,)),), is_whole=True, run_folder=state
    )
    path = leases.leases_folder(state) / f"{mine.token}.json"
    text = path.read_text()
    path.write_text(text.replace('"places": [', '"places": "x", "was": ['))
    assert gc.find_all(state, [this_host()]) == ([], [])
    path.write_text(path.read_text().replace('"boot_id": "', '"boot_id": "0'))
    found, _ = gc.find_all(state, [this_host()])
    assert [(item.kind, item.name) for item in found] == [("lease", mine.token)]
    assert [item.problem for item in gc.remove_all(state, found)] == [""]
    assert not path.exists()
    assert [item.kind for item in gc.find_all(state, [this_host()])[0]] == ["scratch"]


def test_a_port_without_an_owner_is_left(state: Path) -> None:
    """Its lease is dropped; that of a living owner stays."""
    owner = owners.claim(state, run_id="r", launch_id="l", what="server")
    kept = ports.lease(state, owner.token, "127.0.0.1")
    stray = ports.lease(state, "nobody", "127.0.0.1", avoid={kept})
    found, _ = gc.find_all(state, [this_host()])
    assert [item.name for item in found] == [str(stray)]
    gc.remove_all(state, found)
    assert ports.holder(state, kept) == owner.token
    assert ports.stale(state) == []


class Odd:
    """A cleaner of which a tool is silent, and which cannot remove what it found."""

    kind = "odd"

    def find(self, state: Path, host: Host) -> list[gc.Left]:
        if host.name == "silent":
            raise ToolUnavailableError("no answer", where=host.name)
        return [gc.Left(self.kind, "thing", host.name)]

    def remove(self, state: Path, left: gc.Left) -> str:
        raise InfraError("it will not go")


def test_a_silent_tool_is_told_and_never_read_as_nothing(state: Path) -> None:
    """The other machine is looked at all the same; what cannot be removed says why, and the rest goes on."""
    gc.register(Odd())
    gc.register(Odd())
    assert sum(item.kind == "odd" for item in gc.CLEANERS) == 1
    found, silent = gc.find_all(state, [Host("silent", "silent"), Host("good", "good")])
    assert silent == ["odd on silent: silent: no answer"]
    assert [item.host for item in found] == ["good"]
    assert [item.problem for item in gc.remove_all(state, found)] == ["it will not go"]
