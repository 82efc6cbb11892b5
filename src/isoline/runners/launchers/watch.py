"""The watch over a running server: sees it die, stall or restart, and us stand still; keeps telemetry.

Two threads. One looks at the process ten times a second and judges; the other asks the server's own
counters once a second while a guard is active, so that a server that answers nothing (SIGSTOP) cannot
hold up the first.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from isoline.runners.engines.base import PROGRESS, EngineCallError
from isoline.runners.launchers.exits import reason_of_exit
from isoline.runners.launchers.interface import Server
from isoline.runners.telemetry.table import Sample, write_samples

POLL_S = 0.1
SCRAPE_S = 1.0
SCRAPE_TIMEOUT_S = 2.0
PAUSE_S = 10.0
"""A longer gap between two looks means that we stood still (SIGSTOP, a suspended machine)."""

RATE_SPAN_S = 15.0
STOP_JOIN_S = 5.0


@dataclass(frozen=True)
class Event:
    """Something that ends or spoils a measurement. ``code`` is a reason code; ``t_ns`` epoch nanoseconds."""

    code: str
    detail: str
    t_ns: int
    phase: str


@dataclass(frozen=True)
class Live:
    """What is known now, for progress lines. None = not known."""

    counters: Mapping[str, float]
    output_tps: float | None
    running: float | None
    waiting: float | None


@dataclass
class StallClock:
    """When did the server last show progress? Pure: it is told the time (seconds, one clock).

    An idle server (nothing running, nothing waiting) is not stalled; one that does not answer is.
    """

    since: float
    seen: dict[str, float] = field(default_factory=dict)

    def tell(self, now: float, counters: Mapping[str, float]) -> str | None:
        """Note fresh counters. Returns a line when a counter went backwards: the server started anew."""
        back = None
        if counters.get("running") == 0 and counters.get("waiting") == 0:
            self.since = now
        for name in PROGRESS:
            value = counters.get(name)
            if value is None:
                continue
            before = self.seen.get(name)
            if before is not None and value < before:
                back = f"its counter {name} fell from {before:.0f} to {value:.0f}"
            if before != value:
                self.since = now
            self.seen[name] = value
        return back

    def restart(self, now: float) -> None:
        """Begin to count anew; what was seen stays known."""
        self.since = now


def summed(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Counters of several workers as those of one: by name, added up."""
    total: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            total[name] = total.get(name, 0.0) + value
    return total


def _clock() -> float:
    """Seconds on a clock that also counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Watch:
    """The watch over one server. Make it by ``Launcher.watch``; end it by :meth:`close`.

    ``devices`` gives the samples of the machine's devices in a span, where somebody takes them.

    Not to be used after the server was started again.
    """

    def __init__(self, server: Server, *, pause_s: float = PAUSE_S, scrape_s: float = SCRAPE_S) -> None:
        self.devices: Callable[[int | None, int | None], list[Sample]] = lambda from_ns, to_ns: []
        self._server = server
        self._pause_s = pause_s
        self._scrape_s = scrape_s
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._events: list[Event] = []
        self._samples: list[Sample] = []
        self._counters: dict[str, float] = {}
        self._tokens: deque[tuple[float, float]] = deque()
        self._guards: list[tuple[str, float]] = []
        self._stall = StallClock(since=_clock())
        self._clocks: dict[str, StallClock] = {}
        self._threads = [
            threading.Thread(target=self._look, name="isoline-watch", daemon=True),
            threading.Thread(target=self._scrape, name="isoline-scrape", daemon=True),
        ]

    def start(self) -> None:
        """Begin to watch."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the watch; what it gathered stays readable. May be called twice."""
        self._ended.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(STOP_JOIN_S)

    @contextmanager
    def guard(self, phase: str, stall_s: float) -> Iterator[None]:
        """While the block runs the server must show progress at least every ``stall_s`` seconds."""
        with self._lock:
            self._guards.append((phase, stall_s))
            self._stall.restart(_clock())
        try:
            yield
        finally:
            with self._lock:
                self._guards.remove((phase, stall_s))

    def event(self) -> Event | None:
        """The first event so far, or None."""
        with self._lock:
            return self._events[0] if self._events else None

    def events(self) -> list[Event]:
        """All events so far, in order."""
        with self._lock:
            return list(self._events)

    def take_paused(self) -> Event | None:
        """Take an ``orchestrator_paused`` out, if there is one: it spoils one attempt, not the server."""
        with self._lock:
            for event in self._events:
                if event.code == "orchestrator_paused":
                    self._events.remove(event)
                    return event
        return None

    def why_stop(self) -> str | None:
        """For ``should_stop``: the code of the first event, or None."""
        event = self.event()
        return event.code if event else None

    def live(self) -> Live:
        """Latest counters and output tokens/s over the last seconds."""
        with self._lock:
            counters = dict(self._counters)
            rate = None
            if len(self._tokens) >= 2:
                (t0, n0), (t1, n1) = self._tokens[0], self._tokens[-1]
                rate = (n1 - n0) / (t1 - t0) if t1 > t0 else None
        return Live(counters, rate, counters.get("running"), counters.get("waiting"))

    def write_telemetry(self, path: Path, *, from_ns: int | None = None, to_ns: int | None = None) -> int:
        """Write the samples of [from_ns, to_ns] as Parquet, those of the devices too. Returns how many."""
        with self._lock:
            samples = list(self._samples)
        samples += self.devices(from_ns, to_ns)
        return write_samples(path, samples, from_ns=from_ns, to_ns=to_ns)

    def _report(self, code: str, detail: str) -> None:
        with self._lock:
            if any(event.code == code for event in self._events):
                return
            phase = self._guards[-1][0] if self._guards else ""
            self._events.append(Event(code, detail, time.time_ns(), phase))

    def _look(self) -> None:
        last = _clock()
        while not self._ended.wait(POLL_S):
            now = _clock()
            gap = now - last
            last = now
            if gap > self._pause_s:
                # Before anything else: what looks like a stall now is our own absence.
                with self._lock:
                    self._stall.restart(now)
                self._report("orchestrator_paused", f"Isoline stood still for {gap:.1f} s")
            if self._server.stopping:
                return
            ended = self._server.ended()
            if ended is not None:
                part, status = ended
                if not self._server.stopping:
                    who = "the server" if len(self._server.parts) == 1 else part.name
                    self._report(reason_of_exit(status), f"{who} ended by {status.text()}")
                return
            with self._lock:
                stall_s = min((seconds for _, seconds in self._guards), default=None)
                still_s = now - self._stall.since
            if stall_s is not None and still_s > stall_s and self._server.can_count:
                self._report("stalled", f"no progress in the server's counters for {still_s:.1f} s")

    def _scrape(self) -> None:
        while not self._ended.wait(self._scrape_s):
            if self._server.ended() is not None:
                return
            self._sample_process()
            with self._lock:
                guarded = bool(self._guards)
            if not guarded:
                continue
            asked = _clock()
            rows = self._ask()
            t_ns = time.time_ns()
            back = None
            with self._lock:
                for name, counters in rows.items():
                    fell = self._clocks.setdefault(name, StallClock(since=asked)).tell(asked, counters)
                    if fell:
                        back = fell if len(rows) == 1 else f"{name}: {fell}"
                    prefix = "engine" if len(self._server.workers) == 1 else f"engine.{name}"
                    self._samples += [
                        Sample(t_ns, f"{prefix}.{key}", value) for key, value in counters.items()
                    ]
                # Prefill rests while decode works, so progress is that of all together; one that does
                # not answer makes no progress, and its missing numbers are no change either.
                if len(rows) == len(self._server.workers):
                    self._counters = summed(rows.values())
                    self._stall.tell(asked, self._counters)
                if "output_tokens" in self._counters:
                    self._tokens.append((asked, self._counters["output_tokens"]))
                    while asked - self._tokens[0][0] > RATE_SPAN_S:
                        self._tokens.popleft()
            if back:
                self._report("server_restarted", back)

    def _ask(self) -> dict[str, dict[str, float]]:
        """The counters of each worker that answers; no answer is no progress: the stall clock runs on."""
        rows = {}
        for part in self._server.workers:
            with contextlib.suppress(EngineCallError):
                rows[part.name] = self._server.adapter.counters(part.url, SCRAPE_TIMEOUT_S)
        return rows

    def _sample_process(self) -> None:
        """Memory and CPU seconds of all processes in the server's session."""
        rss_bytes = 0
        cpu_s = 0.0
        count = 0
        for pid in self._server.pids():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                times = process.cpu_times()
                rss_bytes += process.memory_info().rss
                cpu_s += times.user + times.system
                count += 1
        if count:
            t_ns = time.time_ns()
            with self._lock:
                self._samples += [
                    Sample(t_ns, "process.rss_bytes", float(rss_bytes)),
                    Sample(t_ns, "process.cpu_s", cpu_s),
                    Sample(t_ns, "process.count", float(count)),
                ]
