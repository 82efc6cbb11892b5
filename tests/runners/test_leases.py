"""Leases: no device twice, an exclusive node is exclusive, and what a dead process left is free."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
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


def test_a_broken_file_is_no_lease(state: Path) -> None:
    """A file that is not ours, or of another form, does no harm."""
    take(state, ("n1", (0,)))
    folder = leases.leases_folder(state)
    (folder / "x.json").write_text("{}")
    (folder / "y.json").write_text(json.dumps({"places": 3}))
    assert len(leases.all_leases(state)) == 1


def test_a_damaged_lease_is_none(state: Path) -> None:
    """Wrong types, or a token that is not the file's own name, are passed by."""
    lease = take(state, ("n1", (0, 1)))
    text = (leases.leases_folder(state) / f"{lease.token}.json").read_text()
    for name, old, new in (("a", f'"{lease.token}"', '"../b"'), ("b", f'"{lease.token}"', "5")):
        (leases.leases_folder(state) / f"{name}.json").write_text(text.replace(old, new))
    assert leases.all_leases(state) == [lease]
