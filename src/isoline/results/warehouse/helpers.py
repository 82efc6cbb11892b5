"""Processes that read while one writes (DESIGN 5.6): the same function, part by part.

Helpers are programs of their own that are spoken to through pipes. When the one that started them dies,
they read the end of their input and end too.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from isoline.errors import InfraError

AHEAD = 32
"""Parts whose answers may wait for the one that asked: so much is held in memory, and no more."""


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Helpers:
    """Calls ``work(context, part)`` for parts, in as many processes as there are cores.

    :param work: ``module:function``.
    :param context: the first argument of each call.
    :param worth: whether there is enough to do: a helper costs half a second. Else, and with one core, this
        process does it all.
    """

    def __init__(self, work: str, context: Any, *, worth: bool) -> None:
        self._work, self._context = work, context
        count = cores() if worth and sys.executable else 1
        self._idle: queue.SimpleQueue[_Helper] = queue.SimpleQueue()
        self._all = [_Helper(work, context) for _ in range(count if count > 1 else 0)]
        for helper in self._all:
            self._idle.put(helper)
        self._pool = ThreadPoolExecutor(max(len(self._all), 1), thread_name_prefix="helpers")

    def map(self, parts: Iterable[Any]) -> Iterator[Any]:
        """What comes of each part, in their order; helpers go on with :data:`AHEAD` of them meanwhile.

        :raises InfraError: when a helper dies.
        :raises RuntimeError: what ``work`` raised there, as text.
        """
        if not self._all:
            call = _found(self._work)
            yield from (call(self._context, part) for part in parts)
            return
        asked: deque[Future[Any]] = deque()
        for part in parts:
            asked.append(self._pool.submit(self._ask, part))
            if len(asked) > AHEAD:
                yield asked.popleft().result()
        while asked:
            yield asked.popleft().result()

    def _ask(self, part: Any) -> Any:
        helper = self._idle.get()
        try:
            return helper.ask(part)
        finally:
            self._idle.put(helper)

    def __enter__(self) -> Helpers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        for helper in self._all:
            helper.end()


def _found(work: str) -> Any:
    module, _, name = work.partition(":")
    return getattr(importlib.import_module(module), name)


class _Helper:
    """A process that does one part after the other. It lives no longer than this one."""

    def __init__(self, work: str, context: Any) -> None:
        code = "from isoline.results.warehouse.helpers import serve; serve()"
        argv = [sys.executable, "-P", "-c", code]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._first: Any = (work, context)

    def _send(self, value: Any) -> None:
        assert self._process.stdin is not None
        pickle.dump(value, self._process.stdin, protocol=5)
        self._process.stdin.flush()

    def ask(self, part: Any) -> Any:
        assert self._process.stdout is not None
        try:
            if self._first is not None:
                self._send(self._first)
                self._first = None
            self._send(part)
            is_done, answer = pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise InfraError(
                f"a process that reads for this one died (exit code {self._process.wait()})",
                remedy="is there memory enough? then try again",
            ) from None
        if not is_done:
            raise RuntimeError(f"in a process that reads for this one:\n{answer}")
        return answer

    def end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # of a helper that died: what it was told is left
                    pipe.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def serve() -> None:
    """The helper: parts in on standard input, what comes of them out on standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us is told, and ends us
    # What a part gives is kept until it is sent; to look through it all the while took a seventh of the time.
    gc.set_threshold(200_000)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed must not get between the answers
    with sys.stdin.buffer as asked, answers:
        try:
            work, context = pickle.load(asked)
            call = _found(work)
            while True:
                part = pickle.load(asked)
                try:
                    answer = (True, call(context, part))
                except Exception:
                    answer = (False, traceback.format_exc())
                pickle.dump(answer, answers, protocol=5)
                answers.flush()
        except (EOFError, BrokenPipeError):
            return
