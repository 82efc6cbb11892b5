"""How much of the machine's CPU other programs used during a measurement.

On a SKU ``cpu`` the accelerator is shared with whatever else runs: a busy neighbour makes a number
that nobody can reproduce. It is recorded with each attempt and said aloud; the reader decides.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from isoline.runners.machine import proc
from isoline.runners.ownership import owners


def machine_cpu_s() -> float:
    """CPU seconds that the machine has worked since boot, over all cores."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def processes_cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds of these processes, as far as they live."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            used = psutil.Process(pid).cpu_times()
            total += used.user + used.system
    return total


def own_cpu_s() -> float:
    """CPU seconds of this process."""
    times = os.times()
    return times.user + times.system


def launches_cpu_s(state: Path, but: str) -> dict[str, float]:
    """CPU seconds of this orchestrator's other launches on this machine, their load generators included.

    Beside a measurement on SKU ``cpu`` they are other programs as well; so they are named.

    :param but: the launch that is measured.
    :returns: by launch id; of processes that live now.
    """
    sessions: dict[int, str] = {}
    for owner in owners.all_owners(state):
        child = owners.child_of(state, owner.token)
        if child and owner.orchestrator_pid == os.getpid() and owner.launch_id != but:
            sessions[child.sid] = owner.launch_id
    found: dict[str, float] = {}
    for item in proc.all_procs() if sessions else ():
        if item.sid in sessions:
            name = sessions[item.sid]
            found[name] = found.get(name, 0.0) + processes_cpu_s([item.pid])
    return found


def shares(before: dict[str, float], after: dict[str, float], wall_s: float, cores: int) -> dict[str, float]:
    """Share of all cores that each launch used in between, 0 to 1.

    Of a launch that was not there before all counts; one whose processes ended meanwhile has 0.
    """
    if wall_s <= 0 or cores < 1:
        return {}
    used = {name: max(after.get(name, 0.0) - before.get(name, 0.0), 0.0) for name in before | after}
    return {name: round(min(seconds / (wall_s * cores), 1.0), 3) for name, seconds in sorted(used.items())}


@dataclass(frozen=True)
class CpuMark:
    """A moment: what the machine, the server and we had used until then."""

    at_s: float
    machine_s: float
    server_s: float
    own_s: float


def mark(server: Iterable[int]) -> CpuMark:
    """The moment now. ``server``: the processes of the server."""
    return CpuMark(time.monotonic(), machine_cpu_s(), processes_cpu_s(server), own_cpu_s())


def foreign_share(before: CpuMark, after: CpuMark, client_s: float, cores: int) -> float | None:
    """Share of all cores that other programs used between two marks, 0 to 1; None for no time.

    :param client_s: CPU seconds of the load generator between the marks.
    """
    wall = after.at_s - before.at_s
    if wall <= 0 or cores < 1:
        return None
    ours = (after.server_s - before.server_s) + (after.own_s - before.own_s) + client_s
    foreign = (after.machine_s - before.machine_s) - ours
    return round(min(1.0, max(0.0, foreign / (wall * cores))), 3)


BUSY_SHARE = 0.5
"""Above it a load that ran out of time says nothing about the engine."""


def busy_line(share: float | None) -> str | None:
    """That the machine was too busy, in one line; None when it was not, or nobody knows."""
    if share is None or share <= BUSY_SHARE:
        return None
    return f"other programs used {share:.0%} of the CPU meanwhile"
