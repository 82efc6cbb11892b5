"""Starting, proving, resetting and stopping a server as a process."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from isoline.errors import InputError
from isoline.runners.launchers.interface import LaunchSpec, PhaseFailedError, Server, Staged, StoppedError
from isoline.runners.launchers.kinds import launcher_for
from isoline.runners.launchers.parts import Part, fill_words
from isoline.runners.launchers.process import ProcessLauncher
from isoline.runners.machine import ports, proc
from isoline.runners.ownership import owners
from isoline.settings import Settings

SpecOf = Callable[..., LaunchSpec]


def session(server: Server) -> list[int]:
    return [item.pid for item in proc.all_procs() if item.sid == server.pid and item.state != "Z"]


def test_whole_life(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf, tmp_path: Path
) -> None:
    """Start, ready, reset, stop and collect: nothing is left but the log and the facts for the lock."""
    server = start(spec_of())
    readiness = launcher.ready(server)
    assert (readiness.tokens, readiness.text, readiness.port_tries) == (5, "aaaaa", 1)
    assert proc.read_environ(server.pid)[owners.LABEL] == server.main.owner.token
    proof = launcher.reset(server)
    assert (proof.slots, proof.tokens_erased) == (2, 20)
    outcome = launcher.stop(server)
    assert outcome.status.signal == signal.SIGTERM
    assert outcome.was_running and not outcome.killed
    assert session(server) == []
    assert owners.all_owners(launcher.state) == []
    assert ports.holder(launcher.state, server.port) is None
    assert not server.spec.scratch.exists()
    assert launcher.stop(server) is outcome
    lock = launcher.collect(server, tmp_path / "bundle")
    assert (tmp_path / "bundle" / "server.log").read_text() == "listening\n"
    assert '"parallel": 1' in (tmp_path / "bundle" / "effective_args.json").read_text()
    assert lock["argv"][-2:] == ["--port", str(server.port)]
    assert lock["packages"] == {"fake": "1"}


def test_environment_is_the_recipes(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable of the person's shell does not reach the server, one of the recipe does."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    server = start(spec_of())
    launcher.ready(server)
    found = proc.read_environ(server.pid)
    assert "OMP_NUM_THREADS" not in found
    assert found["FAKE_SCRATCH"] == str(server.spec.scratch)
    assert found["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("fault", "code", "detail"),
    [
        ("exit3", "launch_failed", "exit code 3"),
        ("abort", "launch_failed", "SIGABRT"),
        ("killed", "server_killed", "SIGKILL"),
        ("wrong_count", "not_generating", "5 tokens were asked for, 4 came"),
        ("no_usage", "not_generating", "without usage"),
        ("no_text", "not_generating", "no text came"),
        ("slots2", "args_not_effective", "--parallel: asked 1, the server has 2 slots"),
        ("always_taken", "port_in_use", "5 ports in a row"),
    ],
)
def test_start_failures_have_their_reason(
    launcher: ProcessLauncher,
    start: Callable[..., Server],
    spec_of: SpecOf,
    fault: str,
    code: str,
    detail: str,
) -> None:
    """Each way to fail before being ready gives its own reason code and says what was seen."""
    with pytest.raises(PhaseFailedError) as failed:
        launcher.ready(start(spec_of(fault)))
    assert failed.value.code == code
    assert detail in failed.value.detail


def test_failure_brings_the_logs_end(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf
) -> None:
    """A launch that failed shows the last lines of its log."""
    with pytest.raises(PhaseFailedError) as failed:
        launcher.ready(start(spec_of("exit3")))
    assert failed.value.log_tail == "something is broken"


@pytest.mark.parametrize("fault", ["sleep", "unhealthy"])
def test_deadline_of_readiness(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf, fault: str
) -> None:
    """A server that never says it is up is given up at its deadline."""
    began = time.monotonic()
    with pytest.raises(PhaseFailedError) as failed:
        launcher.ready(start(spec_of(fault, ready_s=1.0)))
    assert failed.value.code == "launch_timeout"
    assert time.monotonic() - began < 4


def test_waits_end_on_request(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf
) -> None:
    """An interrupt ends the wait for readiness and the wait for rest at once."""
    with pytest.raises(StoppedError, match="ctrl-c"):
        launcher.ready(start(spec_of("sleep")), should_stop=lambda: "ctrl-c")
    busy = start(spec_of("busy", name="l-2"))
    launcher.ready(busy)
    with pytest.raises(StoppedError):
        launcher.reset(busy, should_stop=lambda: "ctrl-c")


def test_taken_port_leads_to_another(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf
) -> None:
    """A server whose port was taken when it bound it is started again on another one."""
    server = start(spec_of("taken"))
    first = server.port
    readiness = launcher.ready(server)
    assert readiness.port_tries == 2 and server.port != first
    assert ports.holder(launcher.state, first) is None
    assert ports.holder(launcher.state, server.port) == server.main.owner.token
    assert server.notes == [f"port {first} was taken by somebody else"]


def test_somebody_else_on_the_port(
    launcher: ProcessLauncher, spec_of: SpecOf, staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When somebody grabs the leased port between lease and bind, ours moves and theirs is not measured."""
    real = launcher.spawn
    with socket.socket() as thief:

        def grab(server: Server, part: Part) -> None:
            if not thief.getsockname()[1]:
                thief.bind(("127.0.0.1", part.port))
                thief.listen()
            real(server, part)

        monkeypatch.setattr(launcher, "spawn", grab)
        server = launcher.start(spec_of(), staged)
        try:
            assert launcher.ready(server).port_tries == 2
            assert server.port != thief.getsockname()[1]
        finally:
            launcher.stop(server)


def test_parallel_launches_take_different_ports(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf
) -> None:
    """Four launches at once get four ports and are all ready."""
    with ThreadPoolExecutor(4) as pool:
        servers = list(pool.map(lambda n: start(spec_of(name=f"l-{n}")), range(4)))
        list(pool.map(launcher.ready, servers))
    assert len({server.port for server in servers}) == 4


@pytest.mark.parametrize("fault", ["stubborn", "child"])
def test_stop_leaves_nothing(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf, fault: str
) -> None:
    """A server that ignores SIGTERM, and a child of its own that does, are killed at the deadline."""
    server = start(spec_of(fault, stop_s=0.5))
    launcher.ready(server)
    began = time.monotonic()
    outcome = launcher.stop(server)
    assert time.monotonic() - began < 6
    assert outcome.killed == (fault == "stubborn")
    assert session(server) == []


def test_stopped_server_is_stopped(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf
) -> None:
    """A server under SIGSTOP ends on stop, without waiting for the deadline."""
    server = start(spec_of(stop_s=20.0))
    launcher.ready(server)
    os.kill(server.pid, signal.SIGSTOP)
    assert launcher.stop(server).took_s < 5


def test_stop_after_death_keeps_how_it_ended(
    launcher: ProcessLauncher,
    start: Callable[..., Server],
    spec_of: SpecOf,
    eventually: Callable[..., None],
) -> None:
    """Stopping a dead server cleans up and reports how it had ended."""
    server = start(spec_of())
    launcher.ready(server)
    os.kill(server.pid, signal.SIGABRT)
    eventually(lambda: server.ended() is not None)
    outcome = launcher.stop(server)
    assert not outcome.was_running and outcome.status.signal == signal.SIGABRT


@pytest.mark.parametrize(
    ("fault", "detail"), [("busy", "1 running"), ("keeps", "20 tokens were still cached after erasing")]
)
def test_reset_that_cannot_be_proven_fails(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf, fault: str, detail: str
) -> None:
    """A server that does not come to rest, or keeps its cache, is not taken as reset."""
    spec = spec_of(fault)
    server = start(replace(spec, deadlines=replace(spec.deadlines, reset_s=0.5)))
    launcher.ready(server)
    with pytest.raises(PhaseFailedError) as failed:
        launcher.reset(server)
    assert failed.value.code == "reset_failed" and detail in failed.value.detail


def test_reset_of_a_dead_server_blames_the_server(
    launcher: ProcessLauncher,
    start: Callable[..., Server],
    spec_of: SpecOf,
    eventually: Callable[..., None],
) -> None:
    """A server that died between two points is reported as dead, not as unable to reset."""
    server = start(spec_of())
    launcher.ready(server)
    os.kill(server.pid, signal.SIGSEGV)
    eventually(lambda: server.ended() is not None)
    with pytest.raises(PhaseFailedError) as failed:
        launcher.reset(server)
    assert failed.value.code == "server_died"


def test_program_that_does_not_exist(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf
) -> None:
    """A command that cannot be run is a failed launch that names it."""
    spec = spec_of()
    words = replace(spec.main, argv=["/nonexistent/engine", "--port", "{port}"])
    server = start(replace(spec, deployment=replace(spec.deployment, workers=(words,))))
    with pytest.raises(PhaseFailedError) as failed:
        launcher.ready(server)
    assert failed.value.code == "launch_failed"
    assert "cannot run /nonexistent/engine" in failed.value.log_tail


def test_preflight_names_what_is_missing(
    launcher: ProcessLauncher,
    spec_of: SpecOf,
    staged: Staged,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full disk and a missing model are found before anything is started."""
    assert launcher.preflight(spec_of(), staged) == []
    monkeypatch.setattr("isoline.runners.launchers.deploy.LOG_ROOM", 1 << 62)
    found = launcher.preflight(spec_of(), replace(staged, model_path=tmp_path / "absent.gguf"))
    assert [problem.code for problem in found] == ["disk_full", "launch_failed"]
    assert "absent.gguf" in found[1].detail


def test_placeholders_leave_other_braces() -> None:
    """Known placeholders are filled; JSON in an argument stays as it is."""
    assert fill_words(['--x={port} {"a": {port}} {other}'], {"port": "1"}, {}) == ('--x=1 {"a": 1} {other}',)


def test_unknown_launcher_kind(settings: Settings) -> None:
    """A kind that does not exist is one line that names those that do."""
    with pytest.raises(InputError, match="no launcher of kind 'rocket'; known: container, endpoint"):
        launcher_for("rocket", settings)
    assert launcher_for("process", settings).kind == "process"


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf
) -> None:
    """The server has its own session, so the terminal's signals go to Isoline alone."""
    server = start(spec_of())
    found = proc.read_proc(server.pid)
    assert found and found.sid == server.pid != os.getsid(0)
