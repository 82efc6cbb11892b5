"""What is around a launch: devices of a server that was there before are neither busy nor to come free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.pools import load_pool
from isoline.runners.machine.hosts import Host
from isoline.sweeps.execution import surroundings
from isoline.sweeps.execution.surroundings import Surroundings


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the machine; every device is busy there."""
    calls: list[str] = []

    class Busy:
        problems = ("gpu_busy",)
        ok = False
        detail = "device 0 holds 90000 MB"

    def look(*args: Any) -> Busy:
        calls.append("look")
        return Busy()

    monkeypatch.setattr(surroundings, "inspect", look)
    monkeypatch.setattr(surroundings, "wait_until_idle", look)
    monkeypatch.setattr(surroundings, "as_json", lambda *args: {})
    return calls


@pytest.mark.parametrize(("starts", "problems"), [(True, ("gpu_busy",)), (False, ())])
def test_a_launch_that_starts_nothing_does_not_mind_busy_devices(
    starts: bool, problems: tuple[str, ...], asked: list[str], project_root: Path, tmp_path: Path
) -> None:
    """Attached to a held server its own devices are in use, before and after: no fault of the machine."""
    pool = load_pool(project_root, "examples/h200-docker")
    around = Surroundings(pool, Host("here"), (0,), tmp_path, starts)
    assert tuple(around.look(tmp_path)) == problems
    note = around.drained()
    assert (note.code if note else None) == ("memory_not_freed" if starts else None)
    assert bool(asked) is starts
