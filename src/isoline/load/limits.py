"""Does this machine let the load generator open as many connections as a point asks for?

A limit on open files or ports that is reached under load looks like a slow server. So it is looked
at before anything is started.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

from isoline.errors import InfraError

FILES_BASE = 512
"""Open files that AIPerf needs besides its connections (sockets between its processes, logs)."""

FILES_PER_REQUEST = 2
PORTS_PER_REQUEST = 2
"""A closed connection keeps its port for a while, so that more are used than are open."""

PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True)
class Limits:
    """What the machine allows: open files of a process, and local ports; None = not known."""

    open_files: int | None
    ports: int | None


def machine_limits() -> Limits:
    """The limits of this process and machine."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = None if soft == resource.RLIM_INFINITY else soft
    try:
        low, high = (int(word) for word in PORT_RANGE.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return Limits(files, None)
    return Limits(files, high - low + 1)


def check_limits(limits: Limits, concurrency: int) -> None:
    """Refuse a concurrency that the machine's limits do not carry.

    :raises InfraError: with the limit and the remedy.
    """
    files = FILES_BASE + FILES_PER_REQUEST * concurrency
    if limits.open_files is not None and limits.open_files < files:
        raise InfraError(
            f"concurrency {concurrency} needs {files} open files, {limits.open_files} are allowed",
            where="ulimit -n",
            remedy=f"raise it: ulimit -n {files}",
        )
    ports = PORTS_PER_REQUEST * concurrency
    if limits.ports is not None and limits.ports < ports:
        raise InfraError(
            f"concurrency {concurrency} needs {ports} local ports, {limits.ports} are allowed",
            where=str(PORT_RANGE),
            remedy="widen net.ipv4.ip_local_port_range",
        )
