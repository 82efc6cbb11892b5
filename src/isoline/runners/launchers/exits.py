"""How a server ended, and whose doing it was. Pure but for reading the log's end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from isoline.runners.launchers.interface import ExitStatus

DIED = "server_died"
KILLED_FROM_OUTSIDE = "server_killed"

OUTSIDE_SIGNALS = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals that a program does not send itself. All others (SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE,
SIGXFSZ, ...) come out of its own doing."""

TAIL_BYTES = 16_384
TAIL_LINES = 40


def exit_status(returncode: int | None) -> ExitStatus:
    """From ``Popen.returncode``. 128 + n, as shells and container tools report signal n, counts as it."""
    if returncode is None:
        return ExitStatus(None, None)
    if returncode < 0:
        return ExitStatus(None, -returncode)
    if returncode - 128 in (signal.SIGKILL, signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV):
        return ExitStatus(None, returncode - 128)
    return ExitStatus(returncode, None)


def reason_of_exit(status: ExitStatus) -> str:
    """Its own reason where it has one, else ``server_killed`` for a signal from outside, ``server_died``."""
    if status.reason is not None:
        return status.reason
    return KILLED_FROM_OUTSIDE if status.signal in OUTSIDE_SIGNALS else DIED


def log_tail(path: Path, offset: int = 0, lines: int = TAIL_LINES) -> str:
    """The last lines of a log from byte ``offset`` on; empty when there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(offset, size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
