"""Measurement windows and how tokens are counted in them (DESIGN 5.3). Pure, on numpy arrays.

All times are seconds on one clock. Absent times are NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STEADY_SHARE = 0.9
"""A window is steady while at least this share of the asked requests (or lanes) is in flight."""

MIN_BRIDGE_S = 0.1
BRIDGE_SHARE = 0.05
"""A closed loop needs a moment to send the next request of a lane (the client's tick, a new
connection). A drop below the steady share that is no longer than ``max(MIN_BRIDGE_S, BRIDGE_SHARE
* median duration)`` does not end a steady window, as long as the mean in flight over the whole of
it still is at the steady share."""


@dataclass(frozen=True)
class Span:
    """From ``start`` to ``end``, seconds."""

    start: float
    end: float

    @property
    def length(self) -> float:
        """Length in seconds."""
        return self.end - self.start


def full_window(send: Floats, last_token: Floats) -> Span | None:
    """First send of a measured request to the last token of one; None when no token came."""
    sends = send[~np.isnan(send)]
    lasts = last_token[~np.isnan(last_token)]
    if not sends.size or not lasts.size:
        return None
    return Span(float(sends.min()), float(lasts.max()))


def in_flight(start: Floats, end: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """The number in flight as a step function: (times, count from each time to the next one).

    Intervals without an end or a start are left out. At equal times an end comes with a start, so
    that a lane which goes on at once makes no gap.
    """
    known = ~(np.isnan(start) | np.isnan(end)) & (end > start)
    moments = np.concatenate([start[known], end[known]])
    steps = np.concatenate([np.ones(known.sum(), np.int64), -np.ones(known.sum(), np.int64)])
    times, where = np.unique(moments, return_inverse=True)
    changes = np.zeros(times.size, np.int64)
    np.add.at(changes, where, steps)
    return times, np.cumsum(changes)


def mean_in_flight(start: Floats, end: Floats, span: Span) -> float:
    """Time-weighted mean number in flight over ``span``."""
    if span.length <= 0:
        return 0.0
    overlap = np.minimum(end, span.end) - np.maximum(start, span.start)
    return float(np.nansum(np.maximum(overlap, 0.0)) / span.length)


def loaded_spans(start: Floats, end: Floats, asked: int, bridge_s: float) -> list[Span]:
    """The spans in which at least 90 % of ``asked`` are in flight, drops up to ``bridge_s`` bridged."""
    times, counts = in_flight(start, end)
    enough = counts >= asked * STEADY_SHARE
    spans: list[Span] = []
    for index in np.flatnonzero(enough[:-1]):
        here = Span(float(times[index]), float(times[index + 1]))
        if spans and here.start - spans[-1].end <= bridge_s:
            spans[-1] = Span(spans[-1].start, here.end)
        else:
            spans.append(here)
    return spans


def bridge_s(start: Floats, end: Floats) -> float:
    """How long a drop may last without ending a steady window, seconds."""
    durations = (end - start)[~np.isnan(end - start)]
    median = float(np.median(durations)) if durations.size else 0.0
    return max(MIN_BRIDGE_S, BRIDGE_SHARE * median)


def steady_window(start: Floats, end: Floats, asked: int, bridge: float) -> Span | None:
    """The longest interval with at least 90 % of the ``asked`` requests (lanes) in flight.

    Bridged (see :data:`MIN_BRIDGE_S`) where the mean in flight allows it; strictly else.
    """
    for limit in (bridge, 0.0):
        spans = [
            span
            for span in loaded_spans(start, end, asked, limit)
            if mean_in_flight(start, end, span) >= asked * STEADY_SHARE - 1e-9
        ]
        if spans:
            return max(spans, key=lambda span: span.length)
    return None


def loaded_share(start: Floats, end: Floats, asked: int, bridge: float, span: Span) -> float:
    """The share of ``span`` in which at least 90 % of ``asked`` are in flight (drops bridged)."""
    if span.length <= 0:
        return 0.0
    total = 0.0
    for loaded in loaded_spans(start, end, asked, bridge):
        total += max(0.0, min(loaded.end, span.end) - max(loaded.start, span.start))
    return total / span.length


def input_tokens_in(span: Span, first: Floats, tokens: Floats) -> float:
    """Input tokens of a window: each request's count at its first token."""
    inside = (first >= span.start) & (first <= span.end)
    return float(np.nansum(tokens[inside]))


def output_tokens_in(span: Span, first: Floats, last: Floats, tokens: Floats) -> float:
    """Output tokens of a window: each request's are spread evenly from first to last token.

    Where first and last are one moment, all count at it.
    """
    length = last - first
    overlap = np.maximum(0.0, np.minimum(last, span.end) - np.maximum(first, span.start))
    inside = (first >= span.start) & (first <= span.end)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(length > 0, overlap / length, inside.astype(np.float64))
    return float(np.nansum(share * tokens))
