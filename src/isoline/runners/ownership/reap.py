"""End processes for good: ask, wait, force, look again, within bounds."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from isoline.runners.machine import proc

KILL_ROUNDS = 5
"""How often what is left is killed: a dying group may still fork once."""

KILL_WAIT_S = 2.0
POLL_S = 0.02


def _wait_gone(targets: list[proc.Proc], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not any(proc.is_alive(item.pid, item.start_ticks) for item in targets):
            return
        time.sleep(POLL_S)


def end_processes(find: Callable[[], list[proc.Proc]], term_s: float) -> tuple[list[int], list[int]]:
    """End all that ``find`` gives: SIGTERM, up to ``term_s`` seconds, then SIGKILL in bounded rounds.

    :returns: pids that were ended, and pids that are still there (uninterruptible, or not ours to end).
    """
    seen: dict[int, proc.Proc] = {}
    targets = find()
    for item in targets:
        seen[item.pid] = item
        proc.send(item, signal.SIGTERM)
        proc.send(item, signal.SIGCONT)  # a stopped process would not even see the SIGTERM
    if targets:
        _wait_gone(targets, term_s)
    for _ in range(KILL_ROUNDS):
        targets = find()
        if not targets:
            break
        for item in targets:
            seen[item.pid] = item
            proc.send(item, signal.SIGKILL)
        _wait_gone(targets, KILL_WAIT_S)
    left = {item.pid for item in find()}
    return sorted(set(seen) - left), sorted(left)
