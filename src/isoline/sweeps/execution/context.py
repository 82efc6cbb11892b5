"""What a run needs besides its plan: settings, rules, datasets, and how it is told to stop."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from isoline.catalog.pools import Pool
from isoline.datasets.schema import Dataset
from isoline.errors import InfraError
from isoline.runners.launchers.deadlines import PastLoad
from isoline.runners.staging.tokenizer import TokenizerInfo
from isoline.settings import Settings
from isoline.sweeps.planning.schema import Scenario


@dataclass(frozen=True)
class Client:
    """The load generator as it is on this machine."""

    aiperf_bin: Path
    version: str


ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a run to end: Ctrl-C, an orderly shutdown, a terminal that was closed."""


class Stop:
    """Tells every wait of a run to end. Set by one of :data:`ASKING`; a second one ends at once.

    :param parent: one whose wish counts too: a launch can be stopped alone, or with its run.
    """

    def __init__(self, parent: Stop | None = None) -> None:
        self._event = threading.Event()
        self._parent = parent

    def set(self) -> None:
        """Ask the run to end as soon as it can do so cleanly."""
        self._event.set()

    def why(self) -> str | None:
        """``interrupted`` once it is set; the form that ``should_stop`` has everywhere."""
        if self._event.is_set() or (self._parent is not None and self._parent.why()):
            return "interrupted"
        return None

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """While the block runs SIGINT, SIGTERM and SIGHUP ask for the end; the second one insists."""

        def handle(number: int, frame: FrameType | None) -> None:
            if self._event.is_set():
                raise KeyboardInterrupt
            self._event.set()

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # `nohup` ignores SIGHUP on purpose.
        asking = [n for n in ASKING if n != signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]
        before = {number: signal.signal(number, handle) for number in asking}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)


@dataclass(frozen=True)
class Context:
    """Everything that executing a plan needs and the plan does not hold."""

    settings: Settings
    scenarios: Mapping[str, Scenario]
    datasets: Mapping[str, Dataset]
    client: Client
    pool: Pool
    stop: Stop
    fingerprint: Mapping[str, Any]
    past_loads: Sequence[PastLoad] = ()  # how fast launches of the pool got ready
    tokenizers: dict[str, TokenizerInfo] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """Where servers listen."""
        return self.pool.host

    @property
    def launcher(self) -> str:
        """The kind of launcher."""
        return self.pool.launcher

    @property
    def client_profile(self) -> str:
        """How the load generator runs beside the engine."""
        return self.pool.client_profile


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: BaseException) -> bool:
    """Whether an error says that the disk, a quota or a file-size limit is exhausted."""
    return isinstance(error, OSError) and error.errno in FULL


UNUSABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT)


@contextmanager
def folder_is_usable(folder: Path, setting: str) -> Iterator[None]:
    """Turn a folder that is read-only, somebody else's or no folder into one clear line.

    :raises InfraError: for any of the errors in :data:`UNUSABLE`.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in UNUSABLE:
            raise
        raise InfraError(
            f"cannot be written: {error.strerror}",
            where=str(error.filename or folder),
            remedy=f"{setting} names another folder",
        ) from error


FULL_WORDS = ("No space left on device", "File too large", "Disk quota exceeded")
LOG_END_BYTES = 200_000


def full_disk_line(log: Path) -> str | None:
    """The words of a full disk in the end of a program's log; None when there are none."""
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - LOG_END_BYTES, 0))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return None
    return next((words for words in FULL_WORDS if words in text), None)


def disk_full(detail: str, where: Path) -> InfraError:
    """The one line for a full disk. Nothing of it counts as an attempt: the same command goes on later."""
    return InfraError(
        f"disk_full: {detail}; nothing half is sealed",
        where=str(where),
        remedy="free space and run the same command again: it goes on where it was",
    )


@contextmanager
def full_disk_is_clear(store: Path) -> Iterator[None]:
    """Turn a full disk into one clear line.

    :raises InfraError: for any of the errors that :func:`is_full` knows.
    """
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise disk_full(f"{error.strerror} while a bundle was written", store) from error
        raise
