"""Intervals, each labelled with what it says (DESIGN 5.3). Pure; seeded, so that they repeat."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

DRAWS = 2000
WITHIN_DRAWS = 400
"""Fewer for ``within_run``: it is computed for display, while somebody waits."""

CONFIDENCE = 0.95
_Z = 1.959963984540054  # two-sided 95 % quantile of the normal distribution

Label = Literal["within_run", "range", "bootstrap_95", "wilson_95"]


@dataclass(frozen=True)
class Interval:
    """``low`` to ``high`` in the unit of the value; ``n`` repetitions, requests or questions.

    ``within_run`` (95 % over the requests of one repetition) says nothing about other runs and is
    never used for a trend; ``range`` is minimum and maximum; ``bootstrap_95`` is over repetitions.
    """

    low: float
    high: float
    label: Label
    n: int


def _percentiles(draws: NDArray[np.float64]) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def over_repetitions(values: ArrayLike, *, seed: int = 0) -> Interval | None:
    """The interval of a point's value over its valid repetitions.

    2 to 4: minimum and maximum; 5 or more: 95 % bootstrap of the median; fewer: None (one
    repetition has only its ``within_run`` interval).

    :param values: shape (n,); values that are not finite are left out.
    """
    found = np.asarray(values, dtype=np.float64)
    found = found[np.isfinite(found)]
    if found.size < 2:
        return None
    if found.size < 5:
        return Interval(float(found.min()), float(found.max()), "range", int(found.size))
    generator = np.random.default_rng(seed)
    chosen = generator.integers(0, found.size, size=(DRAWS, found.size))
    low, high = _percentiles(np.median(found[chosen], axis=1))
    return Interval(low, high, "bootstrap_95", int(found.size))


def within_run(
    values: ArrayLike,
    statistic: Callable[[NDArray[np.float64]], float],
    *,
    concurrency: int,
    seed: int = 0,
    draws: int = WITHIN_DRAWS,
) -> Interval | None:
    """The interval of a statistic inside one repetition: bootstrap over waves of requests.

    Requests that run together disturb each other, so whole waves are drawn and not single
    requests: ``concurrency`` neighbours are one block; the last one may be shorter.

    :param values: shape (n,) or (n, k), one row a request, in the order in which they were sent.
    :param statistic: from rows of ``values`` to one number; NaN where it has none.
    :returns: None with fewer than 2 waves, or where the statistic has no value.
    """
    rows = np.asarray(values, dtype=np.float64)
    if concurrency < 1:
        raise ValueError("concurrency must be at least 1")
    waves = [rows[start : start + concurrency] for start in range(0, len(rows), concurrency)]
    if len(waves) < 2:
        return None
    generator = np.random.default_rng(seed)
    results = np.empty(draws)
    for draw in range(draws):
        chosen = generator.integers(0, len(waves), size=len(waves))
        results[draw] = statistic(np.concatenate([waves[index] for index in chosen]))
    if not np.isfinite(results).all():
        return None
    low, high = _percentiles(results)
    return Interval(low, high, "within_run", len(rows))


def wilson(correct: int, n: int) -> Interval | None:
    """Wilson's 95 % score interval of a share; None without a question.

    :raises ValueError: unless 0 <= correct <= n.
    """
    if not 0 <= correct <= n:
        raise ValueError(f"{correct} of {n} is not a share")
    if n == 0:
        return None
    share = correct / n
    scale = 1 + _Z**2 / n
    centre = (share + _Z**2 / (2 * n)) / scale
    half = _Z / scale * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    low = 0.0 if correct == 0 else centre - half  # exact ends, free of rounding
    high = 1.0 if correct == n else centre + half
    return Interval(low, high, "wilson_95", n)


def rate(tokens_and_seconds: NDArray[np.float64]) -> float:
    """Statistic for :func:`within_run`: sum of column 0 over sum of column 1 (a throughput)."""
    tokens, seconds = tokens_and_seconds.sum(axis=0)
    return float(tokens / seconds) if seconds > 0 else math.nan


def percentile(q: float) -> Callable[[NDArray[np.float64]], float]:
    """Statistic for :func:`within_run`: the percentile ``q`` (0 to 100), linear interpolation."""

    def of(values: NDArray[np.float64]) -> float:
        finite = values[np.isfinite(values)]
        return float(np.percentile(finite, q)) if finite.size else math.nan

    return of


def as_row(interval: Interval | None, prefix: str) -> dict[str, Any]:
    """``<prefix>_low``, ``<prefix>_high`` and ``<prefix>_interval`` (the label); null without one."""
    return {
        f"{prefix}_low": interval.low if interval else None,
        f"{prefix}_high": interval.high if interval else None,
        f"{prefix}_interval": interval.label if interval else None,
    }


def cut_waves(times: ArrayLike, tokens: ArrayLike, start: float) -> NDArray[np.float64]:
    """Rows for :func:`within_run` with :func:`rate`: tokens of a request and seconds since the one before.

    The seconds sum to the window (``start`` to the last completion), so that the statistic of all
    rows is the throughput itself.

    :param times: seconds, completion of each request; any order.
    :param tokens: tokens of each request.
    :param start: seconds, begin of the window.
    :returns: shape (n, 2), in the order of completion.
    """
    order = np.argsort(np.asarray(times, dtype=np.float64), kind="stable")
    ends = np.asarray(times, dtype=np.float64)[order]
    gaps = np.diff(ends, prepend=start)
    return np.column_stack((np.asarray(tokens, dtype=np.float64)[order], gaps))
