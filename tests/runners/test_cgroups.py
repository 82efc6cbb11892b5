"""Limits on memory: the kernel ends what is over them, the reason says so, and no cgroup stays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from isoline.catalog.pools import Pool
from isoline.recipes.deployment import Command, Deployment
from isoline.runners.launchers.exits import reason_of_exit
from isoline.runners.launchers.interface import LaunchSpec, Server, Staged
from isoline.runners.launchers.process import ProcessLauncher
from isoline.runners.ownership import cgroups, owners
from isoline.settings import Settings

V1 = "11:memory,hugetlb:/a/b\n4:cpu:/x\n1:name=systemd:/x\n0::/x\n"
V2 = "0::/user.slice/run-7.scope\n"
MOUNTS_V1 = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory,hugetlb 0 0\n"
MOUNTS_V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"


def test_where_a_cgroup_can_be() -> None:
    """Below our own in the hierarchy of memory; in the one hierarchy beside our own, then at its top."""
    (one,) = cgroups.places(V1, MOUNTS_V1)
    assert (one.folder, one.limits[0][0]) == (Path("/sys/fs/cgroup/memory/a/b"), "memory.limit_in_bytes")
    two = cgroups.places(V2, MOUNTS_V2)
    assert [item.folder for item in two] == [Path("/sys/fs/cgroup/user.slice"), Path("/sys/fs/cgroup")]
    assert two[0].limits[0] == ("memory.max", "{limit}")
    assert [item.folder for item in cgroups.places("0::/\n", MOUNTS_V2)] == [Path("/sys/fs/cgroup")]
    assert [item.folder for item in cgroups.places("0::/../x\n", MOUNTS_V2)] == [Path("/sys/fs/cgroup")]
    (space,) = cgroups.places("0::/\n", "cgroup2 /mnt/a\\040b cgroup2 rw 0 0\n")
    assert space.folder == Path("/mnt/a b")
    for own, mounts in (("", MOUNTS_V1), (V1, ""), ("garbage\n:::\n", "x\ny z\n"), (V2, MOUNTS_V1)):
        assert cgroups.places(own, mounts) == []


def place(folder: Path) -> cgroups.Place:
    """A folder that takes a limit and refuses the second one, as a kernel without swap accounting does."""
    return cgroups.Place(folder, (("max", "{limit}"), ("no/swap", "0")), "events")


def test_a_cgroup_is_made_noted_and_removed(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first place that takes one; its path is known to whoever comes later, and only it is removed."""
    folder, notes = tmp_path / "hierarchy", state / "owners"
    folder.mkdir()
    monkeypatch.setattr(cgroups, "_here", lambda: [place(tmp_path / "gone"), place(folder)])
    made = cgroups.make(notes, "abc", 5_000_000)
    assert made.path == folder / "isoline-abc" and made.why == "" and not made.killed
    assert (made.path / "max").read_text() == "5000000"
    (made.path / "events").write_text("low 0\noom 3\noom_kill 2\n")
    assert made.killed
    for path in made.path.iterdir():  # of a real one the kernel takes them away
        path.unlink()
    assert (notes / "abc.cgroup").read_text() == f"{made.path}\n"
    cgroups.remove(notes, "abc")
    assert not made.path.exists() and list(notes.iterdir()) == []
    precious = tmp_path / "precious"
    precious.mkdir()
    for text in (f"{precious}\n", "isoline-abc\n", "\x00\n", ""):
        (notes / "abc.cgroup").write_text(text)
        cgroups.remove(notes, "abc")
    assert precious.exists() and list(notes.iterdir()) == []


def test_where_there_is_none_it_says_why(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No place, and places that refuse: a reason, and nothing is left."""
    monkeypatch.setattr(cgroups, "_here", list)
    assert "no cgroup hierarchy" in cgroups.make(state / "owners", "abc", 1).why
    monkeypatch.setattr(cgroups, "_here", lambda: [place(tmp_path / "gone")])
    assert cgroups.make(state / "owners", "abc", 1).why == f"{tmp_path}/gone: No such file or directory"
    assert list((state / "owners").iterdir()) == []


def test_only_pools_of_processes_have_a_limit() -> None:
    """Elsewhere it would be a word without an effect."""
    fields = {"schema_version": 1, "name": "p", "sku": "cpu", "memory_limit_gb": 1}
    Pool.model_validate({**fields, "launcher": "process"})
    slurm = {"partition": "x", "container": "none"}
    with pytest.raises(ValidationError, match="only programs of launcher process"):
        Pool.model_validate({**fields, "launcher": "slurm", "slurm": slurm})


@pytest.fixture
def start(settings: Settings, staged: Staged) -> Iterator[Callable[[LaunchSpec], Server]]:
    """A starter of process launches; each is stopped at the end, and nothing of it stays."""
    launcher, servers = ProcessLauncher(settings), []

    def run(spec: LaunchSpec) -> Server:
        servers.append(launcher.start(spec, staged))
        return servers[-1]

    yield run
    for server in servers:
        launcher.stop(server)
    assert list(owners.owners_folder(settings.state).iterdir()) == []


TAKES = "import time; kept = bytearray(400_000_000); print('took it', flush=True); time.sleep(60)"


def limited(spec: LaunchSpec, limit_gb: float | None) -> LaunchSpec:
    """A launch of a program that takes 0.4 GB."""
    fields: dict[str, Any] = {"schema_version": 1, "name": "p", "launcher": "process", "sku": "cpu"}
    pool = Pool.model_validate({**fields, "memory_limit_gb": limit_gb})
    worker = Command("aggregated", [sys.executable, "-c", TAKES], {}, role="aggregated", gpus=1)
    return replace(spec, pool=pool, deployment=Deployment(None, (), (worker,), ()))


def test_a_program_over_the_limit_is_ended_as_out_of_memory(
    start: Callable[..., Server], spec_of: Callable[..., LaunchSpec], eventually: Callable[..., None]
) -> None:
    """The kernel ends what takes more than the pool allows, and it counts as the engine's own doing; below
    the limit it runs. Where the kernel takes no limit the launch runs without one and says why."""
    small, large = start(limited(spec_of(name="s"), 0.1)), start(limited(spec_of(name="l"), 2))
    (note,) = small.notes
    if note.startswith("no memory limit: "):
        eventually(lambda: "took it" in small.spec.log.read_text(), 30)
        return
    assert note == "memory limit 0.1 GB for aggregated.0"
    eventually(small.ended, 30)
    ended = small.ended()
    assert ended is not None and reason_of_exit(ended[1]) == "oom", ended
    eventually(lambda: "took it" in large.spec.log.read_text(), 30)
    assert large.ended() is None
    cgroup = large.main.cgroup  # type: ignore[attr-defined]
    assert str(large.pid) in (cgroup.path / "cgroup.procs").read_text().split()


def test_what_a_dead_run_left_goes_with_its_cgroup(
    state: Path, spec_of: Callable[..., LaunchSpec], start: Callable[..., Server], settings: Settings
) -> None:
    """Whoever sweeps an owner's processes removes its cgroup too; one without an owner's record goes as
    well."""
    server = start(limited(spec_of(), 2))
    made = server.main.cgroup  # type: ignore[attr-defined]
    owners.sweep_one(state, server.main.owner, term_s=1.0)
    assert made.path is None or not made.path.exists()
    stray = cgroups.make(owners.owners_folder(state), "stray", 10_000_000)
    owners.drop_strays(state)
    assert stray.path is None or not stray.path.exists()
    assert list(owners.owners_folder(state).iterdir()) == []
