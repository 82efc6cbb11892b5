"""Whose doing the end of a server was."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from isoline.runners.launchers.exits import exit_status, log_tail, reason_of_exit
from isoline.runners.launchers.interface import ExitStatus, PhaseFailedError


@pytest.mark.parametrize(
    "number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE]
)
def test_own_signals_are_deaths(number: int) -> None:
    """A signal that comes out of the server's own doing is the engine's fault."""
    assert reason_of_exit(exit_status(-number)) == "server_died"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_outside_signals_are_kills(number: int) -> None:
    """A signal that only others send is the machine's fault, also as a shell reports it."""
    assert reason_of_exit(exit_status(-number)) == "server_killed"
    assert reason_of_exit(exit_status(128 + number)) == "server_killed"


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_any_exit_code_is_a_death(code: int) -> None:
    """A server that ends by itself died, even with exit code 0."""
    assert exit_status(code) == ExitStatus(code, None)
    assert reason_of_exit(exit_status(code)) == "server_died"


def test_exit_status_has_code_or_signal() -> None:
    """Exit code and signal are never both given."""
    assert exit_status(-6) == ExitStatus(None, 6)
    assert exit_status(None) == ExitStatus(None, None)
    assert exit_status(-6).text() == "signal 6 (SIGABRT)"
    assert exit_status(3).text() == "exit code 3"


def test_log_tail_begins_at_offset(tmp_path: Path) -> None:
    """The tail of a second start holds nothing of the first."""
    log = tmp_path / "log"
    log.write_text("old line\nnew line\nlast\n")
    assert log_tail(log, offset=9) == "new line\nlast"
    assert log_tail(log, lines=1) == "last"
    assert log_tail(tmp_path / "absent") == ""


def test_phase_failure_takes_its_exit_code_from_the_reason() -> None:
    """A failure of the machine exits with 4, one of the engine with 3; both are one line with a remedy."""
    assert PhaseFailedError("server_killed", "x").exit_code == 4
    failed = PhaseFailedError("launch_failed", "ended by\nexit code 3", where="launch l-1")
    assert failed.exit_code == 3
    assert failed.line() == "launch l-1: launch_failed: ended by exit code 3; read the server log"
