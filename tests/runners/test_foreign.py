import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from isoline.results.judging.reasons import Verdict, worst
from isoline.runners.ownership import owners
from isoline.runners.telemetry import foreign
from isoline.runners.telemetry.foreign import CpuMark, busy_line, foreign_share, mark


def test_what_is_not_ours_is_foreign() -> None:
    """Machine time minus server, client and own time, over all cores."""
    before = CpuMark(at_s=0.0, machine_s=100.0, server_s=10.0, own_s=1.0)
    after = CpuMark(at_s=10.0, machine_s=118.0, server_s=18.0, own_s=2.0)
    assert foreign_share(before, after, client_s=4.0, cores=2) == 0.25


def test_no_time_has_no_share() -> None:
    """Two marks at one moment give null, not 0."""
    moment = CpuMark(1.0, 1.0, 1.0, 1.0)
    assert foreign_share(moment, moment, 0.0, 2) is None


def test_rounding_never_gives_less_than_nothing() -> None:
    """Clocks of different grain can make a small negative rest: it is shown as 0."""
    before = CpuMark(0.0, 10.0, 0.0, 0.0)
    after = CpuMark(10.0, 11.0, 1.1, 0.0)
    assert foreign_share(before, after, 0.0, 2) == 0.0


def test_a_busy_neighbour_is_seen() -> None:
    """A program that spins on one core for a second shows up as foreign."""
    spin = "import time\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass"
    before = mark([])
    neighbour = subprocess.Popen([sys.executable, "-c", spin], start_new_session=True)
    time.sleep(1.0)
    share = foreign_share(before, mark([]), 0.0, os.cpu_count() or 1)
    neighbour.wait()
    assert share is not None
    assert share > 0.3 / (os.cpu_count() or 1)


def test_running_out_of_time_on_a_busy_machine_is_the_machines_fault() -> None:
    """Above half of the CPU the engine is not blamed; at half, below, or unknown it is."""
    assert busy_line(0.51) == "other programs used 51% of the CPU meanwhile"
    assert busy_line(0.5) is None
    assert busy_line(None) is None
    assert worst(["load_timeout", "machine_busy"]) is Verdict.INFRA_ERROR


def test_our_other_launches_are_named(
    state: Path, spawn: Callable[..., subprocess.Popen[bytes]], eventually: Callable[..., None]
) -> None:
    """The CPU time of another launch of ours is told by its id, that of the measured one is not."""
    code = "while True: sum(range(10000))"
    for name in ("mine-1", "other-1"):
        owner = owners.claim(state, run_id="r", launch_id=name, what="server")
        spawn(owners.wrap(state, owner, [sys.executable, "-c", code]), env=os.environ | owners.label(owner))
    before = foreign.launches_cpu_s(state, "mine-1")
    eventually(lambda: foreign.launches_cpu_s(state, "mine-1").get("other-1", 0.0) > 0.3, 60.0)
    after = foreign.launches_cpu_s(state, "mine-1")
    assert set(after) == {"other-1"}
    assert foreign.shares(before, after, 1.0, 2)["other-1"] > 0.1


def test_shares_of_launches() -> None:
    """A launch that came meanwhile counts from nothing, one that is gone has nothing; no time, no share."""
    assert foreign.shares({"a": 1.0, "gone": 5.0}, {"a": 2.0, "new": 4.0}, 10.0, 2) == {
        "a": 0.05,
        "gone": 0.0,
        "new": 0.2,
    }
    assert foreign.shares({}, {"a": 1.0}, 0.0, 2) == {}
