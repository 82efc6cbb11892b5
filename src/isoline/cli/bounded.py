"""Work that must not outlive its limit, in a program that does nothing else.

DuckDB looks at an interrupt between two pieces of work, and some pieces (one call that makes a text of
gigabytes) take minutes and memory of which its own limit knows nothing. Then the program ends itself.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psutil

from isoline.errors import InputError

T = TypeVar("T")

GRACE_S = 2.0
"""How long an interrupt may take to be heard."""
MAX_BYTES = 6 * 1000**3
"""Memory of the whole program: the query's own 2 GB, its answer as Python's values, and room."""


def bounded(work: Callable[[], T], limit_s: float, *, max_bytes: int = MAX_BYTES) -> T:
    """The value of ``work()``, which ends by itself after ``limit_s`` as a rule.

    Where it does not, or takes more memory than ``max_bytes``, one line is printed and the program ends
    with the exit code of wrong input: only for work that changes nothing.
    """
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    end = time.monotonic() + limit_s + GRACE_S
    me: Any = psutil.Process()
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.05)
            if me.memory_info().rss > max_bytes:
                _end(f"the query took more than {max_bytes / 1000**3:g} GB of memory")
            if time.monotonic() > end:
                _end(f"the query took longer than {limit_s:g} s and did not stop by itself")
    except KeyboardInterrupt:  # the thread would keep Python from ending
        print("isoline: interrupted", file=sys.stderr, flush=True)
        os._exit(130)
    if failed:
        raise failed[0]
    return found[0]


def _end(what: str) -> None:
    error = InputError(what, remedy="narrow it")
    print(f"isoline: {error.line()}", file=sys.stderr, flush=True)
    os._exit(error.exit_code)
