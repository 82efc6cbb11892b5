"""Port leases: two runs on one machine never take the same port.

A lease is a file ``<state>/ports/<port>`` that names the owner's token. It lasts as long as the
owner's record; a lease without a record is stale.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Collection
from pathlib import Path

from filelock import FileLock

from isoline.errors import InfraError

FIRST = 20000
LAST = 29999
"""Below the kernel's usual range for outgoing connections (32768 and up), so that no client of ours
or of others holds one by accident."""


def _folder(state: Path) -> Path:
    folder = state / "ports"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now (``SO_REUSEADDR`` as servers have it, never ``REUSEPORT``)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _is_stale(state: Path, lease: Path) -> bool:
    try:
        token = lease.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return True
    return not (state / "owners" / f"{token}.json").exists()


def lease(state: Path, token: str, host: str, *, avoid: Collection[int] = ()) -> int:
    """Lease a free port for the owner ``token``, whose record must exist already.

    :param avoid: ports that were tried in vain.
    :raises InfraError: when none of the range is free.
    """
    folder = _folder(state)
    with FileLock(folder / ".lock", timeout=60):
        start = random.randrange(FIRST, LAST + 1)  # spreads users of different state folders
        span = LAST - FIRST + 1
        for step in range(span):
            port = FIRST + (start - FIRST + step) % span
            path = folder / str(port)
            if port in avoid or (path.exists() and not _is_stale(state, path)) or not is_free(host, port):
                continue
            path.write_text(token, encoding="ascii")
            return port
    raise InfraError(f"no port from {FIRST} to {LAST} is free on {host}", remedy="end what listens there")


def holder(state: Path, port: int) -> str | None:
    """The token that holds a port, or None."""
    path = _folder(state) / str(port)
    return None if _is_stale(state, path) else path.read_text(encoding="ascii", errors="replace").strip()


def release_all(state: Path, token: str) -> None:
    """Give back every port of an owner."""
    folder = state / "ports"
    if not folder.is_dir():
        return
    for name in os.listdir(folder):  # noqa: PTH208
        path = folder / name
        if name.isdigit():
            try:
                mine = path.read_text(encoding="ascii", errors="replace").strip() == token
            except OSError:
                continue
            if mine:
                path.unlink(missing_ok=True)


def stale(state: Path) -> list[int]:
    """Leased ports whose owner has no record any more."""
    folder = state / "ports"
    names = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208
    return sorted(int(name) for name in names if name.isdigit() and _is_stale(state, folder / name))


def drop_stale(state: Path) -> None:
    """Remove leases whose owner has no record any more."""
    folder = state / "ports"
    if not folder.is_dir():
        return
    with FileLock(folder / ".lock", timeout=60):
        for path in folder.iterdir():
            if path.name.isdigit() and _is_stale(state, path):
                path.unlink(missing_ok=True)
