"""Which Isoline process is meant, for good: pid, start, boot, host and pid space; and whether it lives."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Literal

from isoline.runners.machine import proc

Life = Literal["alive", "dead", "elsewhere"]
"""``elsewhere``: on a machine or in a pid space that we cannot see, so nothing is known of it."""


@dataclass(frozen=True)
class Orchestrator:
    """One process of Isoline that started things. ``start_ticks`` as in :class:`proc.Proc`."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    start_ticks: int

    def text(self) -> str:
        """``pid 123 on HOST``."""
        return f"pid {self.pid} on {self.host}"


def this_orchestrator() -> Orchestrator:
    """This process."""
    me = proc.read_proc(os.getpid())
    return Orchestrator(
        host=socket.gethostname(),
        boot_id=proc.boot_id(),
        pid_namespace=proc.pid_namespace(),
        pid=os.getpid(),
        start_ticks=me.start_ticks if me else 0,
    )


def life_of(who: Orchestrator) -> Life:
    """Whether it still runs."""
    if who.host != socket.gethostname():
        return "elsewhere"
    if who.boot_id != proc.boot_id():
        return "dead"
    if who.pid_namespace != proc.pid_namespace():
        return "elsewhere"
    return "alive" if proc.is_alive(who.pid, who.start_ticks) else "dead"
