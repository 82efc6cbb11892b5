"""The watch sees death, stalls, restarts and our own absence."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from isoline.runners.launchers import watch as watch_module
from isoline.runners.launchers.interface import LaunchSpec, Server, Staged
from isoline.runners.launchers.process import ProcessLauncher
from isoline.runners.launchers.watch import Event, StallClock, Watch
from isoline.runners.telemetry.table import TELEMETRY_SCHEMA

Watched = Callable[..., tuple[Server, Watch]]
Eventually = Callable[..., None]


@pytest.fixture
def watched(
    launcher: ProcessLauncher,
    spec_of: Callable[..., LaunchSpec],
    staged: Staged,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Watched]:
    """A ready fake server with faults, and a watch that looks at it ten times a second."""
    monkeypatch.setattr(watch_module, "SCRAPE_TIMEOUT_S", 0.3)
    made: list[tuple[Server, Watch]] = []

    def make(*faults: str, pause_s: float = 10.0) -> tuple[Server, Watch]:
        server = launcher.start(spec_of(*faults), staged)
        watch = Watch(server, pause_s=pause_s, scrape_s=0.1)
        made.append((server, watch))
        launcher.ready(server)
        watch.start()
        return made[-1]

    yield make
    for server, watch in made:
        watch.close()
        launcher.stop(server)


def first_event(watch: Watch, seconds: float) -> Event:
    until = time.monotonic() + seconds
    while watch.event() is None:
        assert time.monotonic() < until, "no event in time"
        time.sleep(0.01)
    found = watch.event()
    assert found
    return found


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGABRT, "server_died"), (signal.SIGSEGV, "server_died"), (signal.SIGKILL, "server_killed")],
)
def test_death_is_seen_within_two_seconds(watched: Watched, number: int, code: str) -> None:
    """The end of a server is seen in time and blamed on the right side."""
    server, watch = watched("moving")
    with watch.guard("load", 30.0):
        os.kill(server.pid, number)
        event = first_event(watch, 2.0)
    assert (event.code, event.phase) == (code, "load")
    assert signal.Signals(number).name in event.detail
    assert watch.why_stop() == code


def test_frozen_process_is_a_stall(watched: Watched) -> None:
    """A server under SIGSTOP answers nothing and is stalled past the deadline, not before."""
    server, watch = watched("moving")
    with watch.guard("load", 1.0):
        time.sleep(0.5)
        assert watch.event() is None
        began = time.monotonic()
        os.kill(server.pid, signal.SIGSTOP)
        event = first_event(watch, 5.0)
    assert event.code == "stalled"
    assert 0.8 < time.monotonic() - began < 3.0


def test_standing_counters_are_a_stall(watched: Watched) -> None:
    """A server that answers but makes no progress with a request in flight is stalled."""
    _, watch = watched("frozen")
    with watch.guard("load", 0.8):
        assert first_event(watch, 4.0).code == "stalled"


def test_progress_and_idleness_are_no_stall(watched: Watched) -> None:
    """Neither growing counters nor an idle server that waits for the client raise an event."""
    for fault in ("moving", "idle"):
        _, watch = watched(fault)
        with watch.guard("load", 0.5):
            time.sleep(1.5)
        assert watch.event() is None


def test_no_guard_no_stall(watched: Watched) -> None:
    """Outside a guarded phase a server may stand still."""
    _, watch = watched("frozen")
    time.sleep(0.7)
    with watch.guard("load", 0.5):
        pass
    time.sleep(0.7)
    assert watch.event() is None


def test_counter_that_falls_is_a_restart(watched: Watched) -> None:
    """A counter that goes backwards means that the server started anew under the load."""
    server, watch = watched("moving")
    with watch.guard("load", 30.0):
        time.sleep(0.5)
        (server.spec.scratch / "backwards").touch()
        assert first_event(watch, 3.0).code == "server_restarted"


def test_own_absence_is_noticed_and_not_blamed_on_the_server(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A jump of the clock past the tolerance is our pause; the stall clock begins anew."""
    jump = 0.0
    real = watch_module._clock
    monkeypatch.setattr(watch_module, "_clock", lambda: real() + jump)
    _, watch = watched("frozen", pause_s=3.0)
    with watch.guard("load", 20.0):
        time.sleep(0.4)
        jump = 60.0
        assert first_event(watch, 3.0).code == "orchestrator_paused"
        time.sleep(0.4)
        assert [event.code for event in watch.events()] == ["orchestrator_paused"]
    taken = watch.take_paused()
    assert taken and taken.code == "orchestrator_paused"
    assert watch.event() is None and watch.take_paused() is None


def test_our_own_stop_is_no_event(launcher: ProcessLauncher, watched: Watched) -> None:
    """A server that we stopped did not die."""
    server, watch = watched()
    launcher.stop(server)
    time.sleep(0.5)
    assert watch.event() is None


def test_live_numbers_and_telemetry(watched: Watched, tmp_path: Path, eventually: Eventually) -> None:
    """Progress shows tokens per second; the samples land in Parquet, sliced by time."""
    _, watch = watched("moving")
    assert watch.live().output_tps is None
    began = time.time_ns()
    with watch.guard("load", 30.0):
        eventually(lambda: watch.live().output_tps is not None)
        time.sleep(0.5)
        live = watch.live()
    assert live.running == 1 and live.waiting == 0
    assert live.output_tps == pytest.approx(1000, rel=0.2)
    watch.close()
    path = tmp_path / "telemetry.parquet"
    assert watch.write_telemetry(path) > 0
    table = pq.read_table(path)
    assert table.schema.equals(TELEMETRY_SCHEMA)
    names = set(table.column("name").to_pylist())
    assert {"engine.output_tokens", "process.rss_bytes", "process.cpu_s"} <= names
    assert watch.write_telemetry(path, to_ns=began - 10**10) == 0
    assert pq.read_table(path).num_rows == 0


def test_stall_clock_is_told_the_time() -> None:
    """The stall clock moves on progress and on idleness, stands otherwise, and tells a fall."""
    clock = StallClock(since=0.0)
    assert clock.tell(1.0, {"running": 1, "waiting": 0, "steps": 5}) is None
    assert clock.since == 1.0
    clock.tell(2.0, {"running": 1, "waiting": 0, "steps": 5})
    assert clock.since == 1.0
    clock.tell(3.0, {"running": 1, "waiting": 0, "steps": 5, "output_tokens": 1})
    assert clock.since == 3.0
    clock.tell(4.0, {"running": 0, "waiting": 0, "steps": 5, "output_tokens": 1})
    assert clock.since == 4.0
    clock.tell(5.0, {"running": 0, "waiting": 1, "steps": 5, "output_tokens": 1})
    assert clock.since == 4.0
    assert clock.tell(6.0, {"steps": 1}) == "its counter steps fell from 5 to 1"
