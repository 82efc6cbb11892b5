"""Work that neither ends nor listens ends with the program."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from isoline.cli.bounded import bounded
from isoline.errors import InputError


def program(body: str) -> tuple[int, str, float]:
    """Run a small program: exit code, standard error, seconds."""
    code = f"import time\nfrom isoline.cli.bounded import bounded\n{body}\nprint('not reached')"
    before = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == ""
    return done.returncode, done.stderr, time.monotonic() - before


def test_what_ends_by_itself_is_passed_on() -> None:
    """A value comes back, an error is raised as it was."""
    assert bounded(lambda: 7, 5.0) == 7

    def fail() -> int:
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        bounded(fail, 5.0)


def test_what_does_not_listen_ends_with_the_program() -> None:
    """After the limit and a moment to listen it is over, with one line and the code of wrong input."""
    code, said, took = program("bounded(lambda: time.sleep(50), 0.1)")
    assert (code, said) == (
        1,
        "isoline: the query took longer than 0.1 s and did not stop by itself; narrow it\n",
    )
    assert took < 30


def test_what_eats_the_machine_ends_with_the_program() -> None:
    """More memory than the limit ends it long before the time does."""
    code, said, took = program(
        "bounded(lambda: (b'x' * 200_000_000, time.sleep(50)), 50, max_bytes=150_000_000)"
    )
    assert (code, said) == (1, "isoline: the query took more than 0.15 GB of memory; narrow it\n")
    assert took < 30
