"""The nodes of a pool: closed ones, what others hold, and errors that count against them."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.pools import Pool
from isoline.errors import InfraError
from isoline.results.bundles.records import ReasonNote
from isoline.runners.ownership import leases, quarantine
from isoline.sweeps.execution.fleet import Fleet
from isoline.sweeps.execution.schedule import Node, Taken
from isoline.sweeps.state.runs import Run

LATER = datetime(2100, 1, 1, tzinfo=UTC)


def pool(**fields: Any) -> Pool:
    """A pool of two machines with four accelerators each."""
    base: dict[str, Any] = {
        "schema_version": 1,
        "name": "p",
        "launcher": "container",
        "sku": "cpu",
        "accelerators": 4,
    }
    base["container"] = {"device_profile": "cpu", "model_cache": "/m", "scratch": "/s"}
    return Pool.model_validate(base | {"hosts": ["n1", "n2"]} | fields)


@pytest.fixture
def run(bundles: Any, tmp_path: Path) -> Run:
    """A run with a plan."""
    plan = bundles.make_plan()
    folder = bundles.seal_plan(tmp_path / "store", plan)
    return Run(folder.name, folder, plan)


def test_nodes_with_what_is_known_of_them(tmp_path: Path) -> None:
    """Drained ones are closed with their reason; where Slurm places launches there are no nodes of ours."""
    now = datetime.now(UTC)
    quarantine.hold(tmp_path, "n2", "drained", "fan", now + timedelta(hours=1), now)
    first, second = Fleet(tmp_path, pool()).nodes(now) or ()
    assert first == Node("n1", 4)
    assert second.closed.startswith("drained until ")
    assert (Fleet(tmp_path, pool()).nodes(now + timedelta(hours=2)) or ())[1].closed == ""
    slurm = {"partition": "x", "container": "none"}
    assert Fleet(tmp_path, pool(launcher="slurm", hosts=[], slurm=slurm)).nodes(now) is None


def test_a_lease_is_whole_unless_the_pool_shares(tmp_path: Path, run: Run) -> None:
    """With share_node two launches are on one node; without it the second is refused."""
    shared = Fleet(tmp_path, pool(share_node=True))
    shared.lease(run, "a-1", (("n1", (0, 1)),), LATER)
    shared.lease(run, "b-1", (("n1", (2,)),), LATER)
    with pytest.raises(InfraError, match="leased to launch a-1"):
        Fleet(tmp_path, pool()).lease(run, "c-1", (("n1", (3,)),), LATER)
    assert shared.taken() == (), "our own launches are known as flights"
    assert {item.run_folder for item in leases.all_leases(tmp_path)} == {str(run.folder)}


def test_a_lease_that_cannot_be_read_holds_every_node(tmp_path: Path, run: Run) -> None:
    """Whatever it holds, the scheduler starts nothing beside it; where it is known to be over it holds
    nothing."""
    fleet = Fleet(tmp_path, pool())
    assert fleet.taken() == ()
    lease = fleet.lease(run, "a-1", (("n1", (0,)),), LATER)
    path = leases.leases_folder(tmp_path) / f"{lease.token}.json"
    path.write_text("{")
    assert fleet.taken() == (Taken("n1", None), Taken("n2", None))
    old = time.time() - 2 * leases.UNREADABLE_S
    os.utime(path, (old, old))
    assert fleet.taken() == ()


def test_errors_of_the_machine_quarantine_its_node(tmp_path: Path, run: Run) -> None:
    """Three launches with one do; errors of the client or the engine do not, nor this machine alone."""
    fleet = Fleet(tmp_path, pool(share_node=True))
    lost, client, engine = (ReasonNote(code=code) for code in ("server_killed", "client_died", "oom"))
    for number in range(2):
        lease = fleet.lease(run, f"a-{number}", (("n1", (number,)),), LATER)
        assert fleet.note(lease, [lost, lost], False) == []
        assert fleet.note(lease, [client, engine], False) == []
    ((node, hold),) = fleet.note(lease, [lost], False)
    assert node == "n1"
    assert "server_killed" in hold.reason
    assert (fleet.nodes(datetime.now(UTC)) or ())[0].closed.startswith("quarantined until ")
    alone = Fleet(tmp_path / "alone", pool(hosts=[]))
    mine = alone.lease(run, "a-1", (("local", (0,)),), LATER)
    assert [alone.note(mine, [lost], False) for _ in range(4)] == [[], [], [], []]
    assert len(alone.note(mine, [ReasonNote(code="memory_not_freed")], False)) == 1


def test_errors_of_a_node_that_slurm_chose(tmp_path: Path, run: Run) -> None:
    """Three launches that lost it quarantine that node alone; what the batch system decides says nothing
    of a node, nor does a launch that never had one."""
    slurm = {"partition": "x", "container": "none"}
    fleet = Fleet(tmp_path, pool(launcher="slurm", hosts=[], slurm=slurm))
    lost, other = ReasonNote(code="node_failed"), ReasonNote(code="job_time_limit")
    lease = fleet.lease(run, "a-1", (), LATER)
    assert [fleet.note(lease, [lost], False, ["n1"]) for _ in range(2)] == [[], []]
    assert [fleet.note(lease, [code], False, names) for code, names in ((other, ["n1"]), (lost, []))] == [
        [],
        [],
    ]
    fleet.note(lease, [], True, ["n2"])
    ((node, hold),) = fleet.note(lease, [lost], False, ["n1"])
    assert (node, "node_failed" in hold.reason, bool(hold.until)) == ("n1", True, True)
    assert set(quarantine.kept_away(tmp_path, pool(), datetime.now(UTC))) == {"n1"}
    for _ in range(2):
        fleet.note(lease, [lost], False, ["n3"])
    fleet.note(lease, [], True, ["n3"])
    assert fleet.note(lease, [lost], False, ["n3"]) == [], "a good launch speaks for it"


def test_a_good_launch_speaks_for_its_node(tmp_path: Path, run: Run) -> None:
    """Errors before it are forgotten."""
    fleet = Fleet(tmp_path, pool())
    lease = fleet.lease(run, "a-1", (("n1", (0,)),), LATER)
    lost = ReasonNote(code="server_killed")
    fleet.note(lease, [lost], False)
    fleet.note(lease, [lost], False)
    fleet.note(lease, [], True)
    assert fleet.note(lease, [lost], False) == []
