"""Facts about processes from ``/proc``: who they are for good, not just by a number that is used again."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Proc:
    """One process. (pid, start_ticks) names it for good inside one boot.

    ``start_ticks`` is field 22 of ``/proc/<pid>/stat``: clock ticks since boot.
    """

    pid: int
    state: str
    ppid: int
    pgid: int
    sid: int
    start_ticks: int


def read_proc(pid: int) -> Proc | None:
    """The process of that number; None when there is none. A zombie is one, with state ``Z``."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name is in brackets and may hold blanks and brackets: the fields begin after the last one.
    fields = text.rpartition(")")[2].split()
    return Proc(
        pid=pid,
        state=fields[0],
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        sid=int(fields[3]),
        start_ticks=int(fields[19]),
    )


def is_alive(pid: int, start_ticks: int | None) -> bool:
    """Whether that very process runs. A zombie does not; another process with its number is not it."""
    found = read_proc(pid)
    if found is None or found.state in "ZX":
        return False
    return start_ticks is None or found.start_ticks == start_ticks


def all_procs() -> Iterator[Proc]:
    """Every process that can be seen, zombies included."""
    for entry in os.listdir(PROC):  # noqa: PTH208 - names only, and there are many
        if entry.isdigit() and (found := read_proc(int(entry))) is not None:
            yield found


def read_environ(pid: int) -> dict[str, str]:
    """The environment that the process was started with; empty where it cannot be read."""
    try:
        data = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in data.split(b"\0") if b"=" in item)
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, _, value in pairs}


def output_files(pid: int) -> set[str]:
    """The paths behind stdout and stderr of a process; empty where they cannot be read."""
    found = set()
    for number in (1, 2):
        with contextlib.suppress(OSError):
            found.add(str((PROC / str(pid) / "fd" / str(number)).readlink()))
    return found


def boot_id() -> str:
    """What the kernel calls this boot; empty where it does not."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def pid_namespace() -> str:
    """The name of our process number space; pids of another one mean nothing here."""
    try:
        return str((PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def send(process: Proc, number: int) -> bool:
    """Send a signal to that very process; False when it is gone, or is not ours to signal.

    A pidfd holds on to the process while its start is compared, so that no other one is ever hit.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not is_alive(process.pid, process.start_ticks):
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def _listeners() -> dict[str, int]:
    """Every TCP socket that listens here: ``socket:[inode]`` and its port."""
    found: dict[str, int] = {}
    for table in ("net/tcp", "net/tcp6"):
        try:
            lines = (PROC / "self" / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A":  # TCP_LISTEN
                found[f"socket:[{fields[9]}]"] = int(fields[1].rpartition(":")[2], 16)
    return found


def listener_exists(port: int) -> bool:
    """Whether any process listens on that TCP port."""
    return port in _listeners().values()


def listening_ports(pids: set[int]) -> set[int]:
    """The TCP ports on which one of these processes listens."""
    inodes = _listeners()
    found = set()
    for pid in pids:
        folder = PROC / str(pid) / "fd"
        try:
            entries = os.listdir(folder)  # noqa: PTH208
        except OSError:
            continue
        for entry in entries:
            with contextlib.suppress(OSError):
                port = inodes.get(str((folder / entry).readlink()))
                if port is not None:
                    found.add(port)
    return found
