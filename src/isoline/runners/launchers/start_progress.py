"""Looks at a server while it starts: what its processes have read, what its logs say; the clock decides."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from isoline.runners.launchers.deadlines import (
    IoMeter,
    LogProgress,
    ReadyBudget,
    ReadyClock,
    TooLate,
    parse_io,
)

MAX_PIECE = 4 << 20
"""Of a log that grew by more since the last look only the end is read, bytes."""


STOOD_STILL_S = 60.0
"""More than the slowest look at a server takes: its last generation, and a question to each of its parts."""


def bytes_read(pids: Iterable[int]) -> dict[int, int]:
    """pid -> bytes read since its start; those that are gone or not ours to see are left out."""
    found = {}
    for pid in pids:
        with suppress(OSError):
            found[pid] = parse_io(Path(f"/proc/{pid}/io").read_text(encoding="ascii"))
    return found


class StartProgress:
    """The watchdog over one start.

    A time in which nobody looked, because this machine slept or Isoline was stopped, is not the server's.

    :param now: when it began, seconds of the clock that :meth:`tell` is given.
    """

    def __init__(self, engine: str, budget: ReadyBudget, now: float) -> None:
        self.clock = ReadyClock(budget, now)
        self._log = LogProgress(engine)
        self._meter = IoMeter()
        self._places: dict[Path, int] = {}
        self._has_log = False
        self._looked = now

    def follow(self, log: Path, offset: int) -> None:
        """Read this log too, from a byte on; one that is followed already goes on where it was.

        The file may appear later.
        """
        self._places.setdefault(log, offset)

    def tell(self, now: float, pids: Collection[int]) -> TooLate | None:
        """Look once; None: go on.

        :param pids: the server's processes on this machine; none: they run elsewhere.
        """
        if now - self._looked > STOOD_STILL_S:
            self.clock.forgive(now - self._looked)
        self._looked = now
        for path in self._places:
            self._read(path)
        seen = bytes_read(pids)
        total = self._meter.tell(seen) if seen else None
        return self.clock.tell(now, total, self._log if self._has_log else None)

    def _read(self, path: Path) -> None:
        with suppress(OSError), path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._places[path], size - MAX_PIECE))
            piece = log.read(MAX_PIECE)
            self._places[path] = log.tell()
            if piece:
                self._has_log = True
                self._log.feed(piece.decode(errors="replace"))
