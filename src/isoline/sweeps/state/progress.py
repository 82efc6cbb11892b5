"""What a person sees while a run works: phase, point n of N, tokens/s, time left."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from isoline.results.bundles.records import PlanPoint, PointRecord


def duration(seconds: float) -> str:
    """``45 s``, ``3 min 05 s``, ``2 h 10 min``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def point_name(point: PlanPoint) -> str:
    """Short name of a point for a line of progress."""
    repetition = f" r{point.repetition}" if point.repetition > 1 else ""
    return f"{point.scenario} c{point.concurrency}{repetition}"


class Estimator:
    """Time left: the plan's estimates, scaled by how long the points done so far really took."""

    LEAST_SHARE = 0.1
    """Of its estimate a running point has at least this share left: until it is done it is not over."""

    def __init__(self, estimates: dict[str, float]) -> None:
        self._left = dict(estimates)
        self._estimated = 0.0
        self._took = 0.0

    def done(self, point_id: str, took_s: float) -> None:
        """A point is over."""
        self._estimated += self._left.pop(point_id, 0.0)
        self._took += took_s

    def left_s(self, running: Mapping[str, float] = {}, lanes: int = 1) -> float:
        """Seconds left.

        :param running: points in flight -> seconds of them that are over.
        :param lanes: how many points may be in flight together.
        """
        scale = self._took / self._estimated if self._estimated else 1.0
        left = {point_id: scale * estimate for point_id, estimate in self._left.items()}
        for point_id in running.keys() & left.keys():
            whole = left[point_id]
            left[point_id] = max(whole - running[point_id], self.LEAST_SHARE * whole)
        return max([sum(left.values()) / lanes, *left.values()], default=0.0)


class TokenRate:
    """Output tokens/s since the load began, from the server's own counter.

    Since it began and not over the last seconds: llama.cpp counts a request's tokens when it ends,
    so a short span shows 0 and then a jump. The clock runs from when the server first had work.
    """

    def __init__(self) -> None:
        self._base: tuple[float, float] | None = None

    def tell(self, now: float, tokens: float | None, running: float | None) -> float | None:
        """Note the counter at a time (seconds, one clock); the rate so far, None until there is one."""
        if tokens is None:
            return None
        if self._base is None or (tokens == self._base[1] and not running):
            self._base = (now, tokens)
        began, before = self._base
        return (tokens - before) / (now - began) if tokens > before and now > began else None


class Line:
    """The line of one launch. Get it from :meth:`Progress.line`; end it by :meth:`close`."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress = progress
        self.name = name
        self.text = ""
        self._phase = ""
        self._rate = TokenRate()
        self._said = 0.0
        self.point: PlanPoint | None = None
        self.point_began = 0.0

    def begin(self, point: PlanPoint) -> None:
        """The next point begins; one that is tried again keeps its number."""
        self._progress.number(point)
        self.point, self.point_began = point, time.monotonic()
        self._rate = TokenRate()

    def phase(self, name: str) -> None:
        """A phase begins."""
        self._phase = name
        self._show("", is_new=True)

    def load(self, done: int, total: int, output_tokens: float | None, running: float | None = None) -> None:
        """How far the load is: requests done, and the server's counters of tokens and of open requests."""
        if done == 0 and not running:
            self._rate = TokenRate()  # what was counted so far is the load generator's own warm-up
        output_tps = self._rate.tell(time.monotonic(), output_tokens, running)
        rate = f", {output_tps:.0f} tokens/s" if output_tps is not None else ""
        self._show(f" {done}/{total} requests{rate}", is_new=False)

    def end(self, record: PointRecord, headline: str) -> None:
        """The point is over."""
        took = time.monotonic() - self.point_began
        if self.point is not None:
            why = "".join(f"; {note.code}: {note.detail}" for note in record.reasons)
            where = self._progress.where(self.point)
            self._progress.done(self.point, took)
            self.point = None
            self._progress.say(
                f"{self._prefix}{where}: {record.verdict.value}{headline} ({duration(took)}){why}"
            )

    def close(self) -> None:
        """The launch is over."""
        self._progress.drop(self)

    @property
    def _prefix(self) -> str:
        return f"{self.name}: " if self._progress.lanes > 1 else ""

    def _show(self, detail: str, *, is_new: bool) -> None:
        now = time.monotonic()
        where = f"{self._progress.where(self.point)} " if self.point else ""
        left = duration(self._progress.left_s(now))
        self.text = f"{self._prefix}{where}{self._phase}{detail}, about {left} left"
        if self._progress.is_live:
            self._progress.refresh()
        elif is_new or now - self._said >= self._progress.EVERY_S:
            self._said = now
            self._progress.say(self.text)


class Progress:
    """Lines of progress, one for each launch in flight. Its methods may be called by any thread.

    On a terminal the lines move; elsewhere there is a line for each phase and each 10 s.

    :param total: points that are due; ``estimates`` by point id, seconds.
    :param lanes: launches that may be in flight together.
    """

    EVERY_S = 10.0

    def __init__(
        self, total: int, estimates: dict[str, float], stream: TextIO | None = None, lanes: int = 1
    ) -> None:
        self.console = Console(file=stream or sys.stderr, highlight=False, soft_wrap=True)
        self.total = total
        self.lanes = lanes
        self.estimator = Estimator(estimates)
        self._numbers: dict[str, int] = {}
        self._lines: list[Line] = []
        self._lock = threading.RLock()
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._live = Live(console=self.console, transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def is_live(self) -> bool:
        """Whether lines move."""
        return self._live is not None

    def say(self, text: str) -> None:
        """A line that stays."""
        with self._lock:
            self.console.print(text, markup=False)

    def line(self, name: str) -> Line:
        """The line of a launch that starts."""
        made = Line(self, name)
        with self._lock:
            self._lines.append(made)
        return made

    def drop(self, line: Line) -> None:
        """A launch is over."""
        with self._lock:
            self._lines = [item for item in self._lines if item is not line]
        self.refresh()

    def number(self, point: PlanPoint) -> int:
        """Which of the due points this is, in the order in which they begin."""
        with self._lock:
            return self._numbers.setdefault(point.point_id, len(self._numbers) + 1)

    def where(self, point: PlanPoint) -> str:
        """``[3/7] demo-short c4``."""
        return f"[{self.number(point)}/{self.total}] {point_name(point)}"

    def done(self, point: PlanPoint, took_s: float) -> None:
        """A point is over."""
        with self._lock:
            self.estimator.done(point.point_id, took_s)

    def left_s(self, now: float) -> float:
        """Seconds left, at a time of the monotonic clock."""
        with self._lock:
            running = {item.point.point_id: now - item.point_began for item in self._lines if item.point}
            return self.estimator.left_s(running, self.lanes)

    def refresh(self) -> None:
        """Draw the moving lines anew."""
        if self._live is not None:
            with self._lock:
                rows = [Text(item.text, no_wrap=True, overflow="ellipsis") for item in self._lines]
                self._live.update(Group(*rows), refresh=True)
