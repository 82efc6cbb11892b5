"""Leases: no device twice, an exclusive node is exclusive, and what a dead process left is free."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isoline.errors import InfraError
from isoline.runners.ownership import leases
from isoline.runners.ownership.orchestrators import life_of, this_orchestrator


def take(
    state: Path, *places: tuple[str, tuple[int, ...]], whole: bool = False, **fields: Any
) -> leases.Lease:
    """A lease of a launch."""
    fields = {"pool": "p", "run_id": "r", "launch_id": "l-1", "run_folder": state, **fields}
    return leases.take(state, places=places, is_whole=whole, **fields)


def test_a_device_is_leased_once(state: Path) -> None:
    """Other devices of the node can be had, the same one only after it was given back."""
    first = take(state, ("n1", (0, 1)))
    take(state, ("n1", (2,)), launch_id="l-2")
    with pytest.raises(InfraError, match=r"n1 devices 0 1 is leased to launch l-1 of run r"):
        take(state, ("n1", (1, 3)))
    leases.give_back(state, first)
    take(state, ("n1", (1, 3)), launch_id="l-3")
    assert [item.launch_id for item in leases.all_leases(state)] == ["l-2", "l-3"]


def test_a_node_that_is_held_whole_is_nobody_elses(state: Path) -> None:
    """Neither beside it nor in its place, also for another pool; another node is free."""
    take(state, ("n1", (0,)), whole=True)
    with pytest.raises(InfraError, match="leased"):
        take(state, ("n1", (1,)), pool="other")
    take(state, ("n2", (0,)))
    with pytest.raises(InfraError, match="leased"):
        take(state, ("n2", (1,)), whole=True)


def test_what_a_dead_process_left_is_free(state: Path, spawn: Callable[..., subprocess.Popen[bytes]]) -> None:
    """A lease of a process that is gone is stale and in nobody's way."""
    code = (
        "import sys, time; from pathlib import Path; from isoline.runners.ownership import leases\n"
        "state = Path(sys.argv[1])\n"
        "leases.take(state, pool='p', run_id='r', launch_id='dead-1', places=(('n1', (0,)),),"
        " is_whole=True, run_folder=state)\n"
        "print('up', flush=True); time.sleep(60)"
    )
    child = spawn([sys.executable, "-c", code, str(state)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    assert leases.stale(state) == []
    with pytest.raises(InfraError, match="dead-1"):
        take(state, ("n1", (0,)))
    child.kill()
    child.wait()
    assert [item.launch_id for item in leases.stale(state)] == ["dead-1"]
    take(state, ("n1", (0,)))


def test_a_process_elsewhere_is_not_called_dead() -> None:
    """Of another machine nothing is known; a number that another process has now is not the old one."""
    me = this_orchestrator()
    assert life_of(me) == "alive"
    assert life_of(replace(me, host="another")) == "elsewhere"
    assert life_of(replace(me, boot_id="another")) == "dead"
    assert life_of(replace(me, start_ticks=me.start_ticks + 1)) == "dead"


def test_many_at_once_get_one_lease(state: Path) -> None:
    """Of threads that want one device at the same moment exactly one gets it."""
    got: list[leases.Lease] = []

    def want() -> None:
        with contextlib.suppress(InfraError):
            got.append(take(state, ("n1", (0,))))

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


DAMAGE = [
    ("cut", lambda text: text[: len(text) // 2]),
    ("empty", lambda text: ""),
    ("deep", lambda text: "[" * 100_000),
    ("bytes", lambda text: "\x00\udcff"),
    ("places", lambda text: text.replace('"places": [', '"places": 3, "was": [')),
    ("token", lambda text: text.replace('"token": "', '"token": "../')),
    ("other", lambda text: "{}"),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGE, ids=[name for name, _ in DAMAGE])
def test_a_damaged_lease_may_hold_anything(state: Path, name: str, damage: Callable[[str], str]) -> None:
    """No device is leased beside it, of whatever node, until it is gone; launches that Slurm places go on."""
    path = leases.leases_folder(state) / f"{take(state, ('n1', (0, 1))).token}.json"
    path.write_bytes(damage(path.read_text()).encode("utf-8", "surrogateescape"))
    for _ in range(2):
        with pytest.raises(InfraError, match=f"lease {path.name} cannot be read.*`isoline pool gc`"):
            take(state, ("n2", (3,)))
    take(state, pool="slurm")
    (found,) = leases.unreadable(state)
    assert not found.is_over
    path.unlink()
    take(state, ("n2", (3,)))


def test_a_damaged_lease_ends_with_its_writer_or_its_age(state: Path) -> None:
    """Where the writer can still be read and is dead it holds nothing, likewise after two days; one whose
    writer lives, or is of a machine that is not seen, holds on."""
    lease = take(state, ("n1", (0,)))
    path = leases.leases_folder(state) / f"{lease.token}.json"
    whole = json.loads(path.read_text())

    def damaged(**writer: object) -> bool:
        path.write_text(
            json.dumps({**whole, "places": 3, "orchestrator": {**whole["orchestrator"], **writer}})
        )
        (found,) = leases.unreadable(state)
        return found.is_over

    assert not damaged()
    assert not damaged(host="another")
    assert damaged(start_ticks=1)
    assert damaged(boot_id="another")
    take(state, ("n1", (0,)), launch_id="l-2")
    path.write_text("")
    old = time.time() - leases.UNREADABLE_S
    os.utime(path, (old + 600, old + 600))
    assert not leases.unreadable(state)[0].is_over
    os.utime(path, (old - 600, old - 600))
    assert leases.unreadable(state)[0].is_over
    take(state, ("n2", (0,)))


def test_what_is_no_lease_at_all_is_passed_by(state: Path) -> None:
    """The lock, parts of a write that was cut, and files that are given back while they are read."""
    take(state, ("n1", (0,)))
    folder = leases.leases_folder(state)
    (folder / ".x.json.0a1b.part").write_text("{")
    (folder / "gone.json").symlink_to(folder / "nowhere")
    (folder / "gone.json").unlink()
    (folder / "notes.txt").write_text("x")
    assert leases.unreadable(state) == []
    take(state, ("n2", (0,)))
