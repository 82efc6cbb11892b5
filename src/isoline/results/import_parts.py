"""Foreign files in parts, and processes that read them: parse in parallel, one writes (DESIGN 5.6).

A part is some whole files, or some lines of a large file of lines. What comes of a part does not depend
on how the rest was cut. Helpers are programs of their own that are spoken to through pipes: when the one
that started them dies, they read the end of their input and end too.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isoline.errors import InfraError
from isoline.results.import_store import Note
from isoline.results.importers.foreign import ForeignPoint
from isoline.results.importers.recognise import is_lines, lines_of, read_lines, row_kind_of

PART_BYTES = 4 * 1024**2
"""About what a part is of. Fewer bytes in all are read by this process: a helper costs half a second."""

Files = Sequence[tuple[Path, Note | None]]


@dataclass(frozen=True)
class Part:
    """Some of the work.

    :ivar files: kept files with their notes; the one file that ``lines`` are of.
    :ivar lines: bytes of whole lines; None for whole files.
    :ivar first: how many rows of the file are before them.
    :ivar usual: whose data the file is, for rows that do not tell.
    """

    files: Files
    lines: bytes | None = None
    first: int = 0
    usual: str = "unknown"


def cut(targets: Files, source_of: Callable[[str, ForeignPoint], str]) -> Iterator[Part]:
    """All files in parts, in their order.

    :param source_of: whose data a point of a format is.
    """
    small: list[tuple[Path, Note | None]] = []
    size = 0
    for target, note in targets:
        try:
            bytes_ = target.stat().st_size
        except OSError:
            bytes_ = 0  # it is read, and refused, where all are
        lines = list(_cut_lines(target, note, source_of)) if note and bytes_ > PART_BYTES else []
        if lines:
            if small:
                yield Part(small)
            yield from lines
            small, size = [], 0
            continue
        small.append((target, note))
        size += bytes_
        if size > PART_BYTES:
            yield Part(small)
            small, size = [], 0
    if small:
        yield Part(small)


def _cut_lines(target: Path, note: Note, source_of: Callable[[str, ForeignPoint], str]) -> Iterator[Part]:
    """A large file of lines in parts; nothing where it must be read whole."""
    if not is_lines(note.names[0]) or note.parts:
        return
    try:
        content = target.read_bytes()
    except OSError:
        return
    if hashlib.sha256(content).hexdigest() != target.name:
        return
    lines = lines_of(content)
    kind = row_kind_of(lines, note.forced)
    if kind is None:
        return
    points = (row for n, line in enumerate(lines) for row in read_lines([line], n, note.forced))
    usual = next((source_of(kind, row) for row in points if isinstance(row, ForeignPoint)), "unknown")
    first, held, size = 0, [], 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size > PART_BYTES:
            yield Part([(target, note)], b"\n".join(held), first, usual)
            first, held, size = first + len(held), [], 0
    if held:
        yield Part([(target, note)], b"\n".join(held), first, usual)


# --- helpers ----------------------------------------------------------------------------------


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_parts(work: str, parts: Sequence[Part], context: Any, here: Callable[[Part], Any]) -> list[Any]:
    """What comes of each part, in their order; by helpers where there are several and more than one core.

    :param work: ``module:function`` that a helper calls with ``context`` and a part.
    :param here: the same in this process.
    :raises InfraError: when a helper dies.
    """
    count = min(cores(), len(parts))
    if count < 2:
        return [here(part) for part in parts]
    with ExitStack() as stack:
        pool = ThreadPoolExecutor(count, thread_name_prefix="parts")
        stack.callback(pool.shutdown, cancel_futures=True)
        mine = threading.local()

        def ask(part: Part) -> Any:
            if not hasattr(mine, "helper"):
                mine.helper = _Helper(work, context)
                stack.callback(mine.helper.end)
            return mine.helper.ask(part)

        return list(pool.map(ask, parts))


class _Helper:
    """A process that does one part after the other. It lives no longer than this one."""

    def __init__(self, work: str, context: Any) -> None:
        code = "from isoline.results.import_parts import serve; serve()"
        argv = [sys.executable, "-P", "-c", code]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._send((work, context))

    def _send(self, value: Any) -> None:
        assert self._process.stdin is not None
        pickle.dump(value, self._process.stdin, protocol=5)
        self._process.stdin.flush()

    def ask(self, part: Part) -> Any:
        assert self._process.stdout is not None
        try:
            self._send(part)
            return pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            code = self._process.poll()
            raise InfraError(
                f"a process that reads files of others died (exit code {code})",
                where=str(part.files[0][0]),
                remedy="is there memory enough? then try again",
            ) from None

    def end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def serve() -> None:
    """The helper: parts in on standard input, what comes of them out on standard output."""
    import importlib

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us is told, and ends us
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed must not get between the answers
    with sys.stdin.buffer as asked, answers:
        try:
            work, context = pickle.load(asked)
            module, _, name = work.partition(":")
            call = getattr(importlib.import_module(module), name)
            while True:
                pickle.dump(call(context, pickle.load(asked)), answers, protocol=5)
                answers.flush()
        except (EOFError, BrokenPipeError):
            return
