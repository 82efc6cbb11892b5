"""A lock file that says who holds it. It dies with its process, also by SIGKILL."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isoline.errors import InfraError
from isoline.results.bundles.bundle import utc_now


@contextmanager
def hold(
    lock: Path, *, what: str, doing: str, where: Path, wait_s: float = 0.0, setting: str = ""
) -> Iterator[None]:
    """Be the one process that does this.

    :param lock: the lock file; it is made, and stays.
    :param what: what it is about, for the message: ``the warehouse``.
    :param doing: what the other process does, for the message: ``writes the warehouse``.
    :param where: its place.
    :param wait_s: how long to wait for another process, seconds.
    :param setting: what to do where the file cannot be made.
    :raises InfraError: when another process does it; says which, where and since when. Also when
        nothing can be written there.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InfraError(
            f"{what} cannot be written there: {error.strerror}", where=str(where), remedy=setting
        ) from None
    try:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= deadline:
                    raise InfraError(
                        f"another process {doing} ({_holder(handle)})",
                        where=str(where),
                        remedy="wait until it ends, or end it",
                    ) from None
                time.sleep(0.05)
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": utc_now()}
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(holder).encode(), 0)
        yield
    finally:
        os.close(handle)


def _holder(handle: int) -> str:
    try:
        holder = json.loads(os.pread(handle, 4096, 0))
        return f"pid {holder['pid']} on {holder['host']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "it has not said who it is yet"
