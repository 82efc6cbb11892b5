"""What a person sees while a run works: phase, point n of N, tokens/s, time left."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from rich.console import Console
from rich.status import Status

from isoline.results.records import PlanPoint, PointRecord


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

    def left_s(self, running: str | None = None, running_s: float = 0.0) -> float:
        """Seconds left, ``running_s`` of the point ``running`` being over."""
        scale = self._took / self._estimated if self._estimated else 1.0
        left = {point_id: scale * estimate for point_id, estimate in self._left.items()}
        if running is not None and running in left:
            whole = left[running]
            left[running] = max(whole - running_s, self.LEAST_SHARE * whole)
        return sum(left.values())


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


class Progress:
    """Lines of progress. On a terminal the last line moves; elsewhere a line each phase and each 10 s.

    :param total: points that are due; ``estimates`` by point id, seconds.
    """

    EVERY_S = 10.0

    def __init__(self, total: int, estimates: dict[str, float], stream: TextIO | None = None) -> None:
        self.console = Console(file=stream or sys.stderr, highlight=False, soft_wrap=True)
        self.total = total
        self.number = 0
        self.estimator = Estimator(estimates)
        self._status: Status | None = None
        self._point: PlanPoint | None = None
        self._phase = ""
        self._point_began = time.monotonic()
        self._rate = TokenRate()
        self._said = 0.0

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._status = self.console.status("")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self.console.print(text, markup=False)

    def begin(self, point: PlanPoint) -> None:
        """The next point begins."""
        self.number += 1
        self._point, self._point_began = point, time.monotonic()
        self._rate = TokenRate()

    def again(self) -> None:
        """The same point is tried again: it keeps its number."""
        self.number -= 1

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
        took = time.monotonic() - self._point_began
        if self._point is not None:
            self.estimator.done(self._point.point_id, took)
            why = "".join(f"; {note.code}: {note.detail}" for note in record.reasons)
            self.say(
                f"[{self.number}/{self.total}] {point_name(self._point)}: {record.verdict.value}"
                f"{headline} ({duration(took)}){why}"
            )
        self._point = None

    def _show(self, detail: str, *, is_new: bool) -> None:
        now = time.monotonic()
        running = now - self._point_began if self._point else 0.0
        point_id = self._point.point_id if self._point else None
        left = duration(self.estimator.left_s(point_id, running))
        where = f"[{self.number}/{self.total}] {point_name(self._point)} " if self._point else ""
        text = f"{where}{self._phase}{detail}, about {left} left"
        if self._status is not None:
            self._status.update(text)
        elif is_new or now - self._said >= self.EVERY_S:
            self._said = now
            self.say(text)
