"""A limit on the memory of a child and all that it starts: a cgroup of its own, where the kernel lets us.

Both forms of the kernel's interface are used: version 1 (a hierarchy for memory alone, below our own
cgroup) and version 2 (one hierarchy, beside our own cgroup or at its top). Where neither can be written
(no root, a container's read-only mount) there is no limit, and the reason is told. Its path is kept in
``<state>/owners/<token>.cgroup`` from before it is made, so that what a dead orchestrator left is removed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from isoline.results.bundles.bundle import write_file

PREFIX = "isoline-"
REMOVE_S = 2.0
"""How long a cgroup may take to be empty: the kernel forgets ended processes a little later."""

_ESCAPE = re.compile(r"\\([0-7]{3})")
_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Place:
    """A folder that cgroups can be made in, and the files that limit one.

    ``limits`` in their order: the first must take the limit, others where they are there;
    ``events`` counts what the kernel killed.
    """

    folder: Path
    limits: tuple[tuple[str, str], ...]
    events: str


def places(own: str, mounts: str) -> list[Place]:
    """Where a cgroup for memory may be made, the nearest first. Pure.

    :param own: the content of ``/proc/self/cgroup``; ``mounts`` that of ``/proc/self/mounts``.
    """
    paths = {row.split(":", 2)[1]: row.split(":", 2)[2] for row in own.splitlines() if row.count(":") >= 2}
    found: list[Place] = []
    limits: tuple[tuple[str, str], ...]
    for row in mounts.splitlines():
        words = row.split()
        if len(words) < 4:
            continue
        top = Path(_ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), words[1]))
        if words[2] == "cgroup" and "memory" in words[3].split(","):
            mine = next((path for names, path in paths.items() if "memory" in names.split(",")), None)
            if mine is not None:
                limits = (("memory.limit_in_bytes", "{limit}"), ("memory.memsw.limit_in_bytes", "{limit}"))
                found.append(Place(_below(top, mine), limits, "memory.oom_control"))
        elif words[2] == "cgroup2" and "" in paths:
            limits = (("memory.max", "{limit}"), ("memory.swap.max", "0"), ("memory.oom.group", "1"))
            for folder in dict.fromkeys((_below(top, paths[""]).parent, top)):
                if folder == top or top in folder.parents:
                    found.append(Place(folder, limits, "memory.events"))
    return found


def _below(top: Path, path: str) -> Path:
    return top.joinpath(*[part for part in path.split("/") if part not in ("", "..", ".")])


def _here() -> list[Place]:
    with suppress(OSError):
        return places(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mounts").read_text())
    return []


@dataclass(frozen=True)
class Cgroup:
    """The cgroup of one child. ``why`` it has none; "" where it has."""

    path: Path | None
    events: str = ""
    why: str = ""

    @property
    def killed(self) -> bool:
        """Whether the kernel killed something in it, because of its limit."""
        if self.path is None:
            return False
        with suppress(OSError):
            return any(int(count) for count in _KILLS.findall((self.path / self.events).read_text()))
        return False


def make(owners: Path, token: str, limit_bytes: int) -> Cgroup:
    """A cgroup for a child that is about to be started.

    :param owners: the folder of owner records, where its path is kept.
    """
    why = "no cgroup hierarchy for memory is mounted"
    for place in _here():
        path = place.folder / f"{PREFIX}{token}"
        note = owners / f"{token}.cgroup"
        try:
            write_file(note, f"{path}\n".encode())
            with suppress(FileNotFoundError):
                path.rmdir()  # of a start before this one
            path.mkdir()
            for number, (name, value) in enumerate(place.limits):
                try:
                    (path / name).write_text(value.format(limit=limit_bytes))
                except OSError:
                    if number == 0:
                        raise
            return Cgroup(path, place.events)
        except OSError as error:
            why = f"{place.folder}: {error.strerror}"
            with suppress(OSError):
                path.rmdir()
            note.unlink(missing_ok=True)
    return Cgroup(None, why=why)


def remove(owners: Path, token: str) -> None:
    """Remove a child's cgroup, if it had one; it has to be empty by now."""
    note = owners / f"{token}.cgroup"
    for path in _noted(note):
        # Whatever the note says: nothing but an empty cgroup of this name goes.
        if path.name == f"{PREFIX}{token}" and path.is_absolute():
            until = time.monotonic() + REMOVE_S
            while path.exists() and time.monotonic() < until:
                try:
                    path.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.02)
    note.unlink(missing_ok=True)


def _noted(note: Path) -> Iterator[Path]:
    with suppress(OSError, UnicodeDecodeError):
        yield Path(note.read_text(encoding="utf-8").strip())
