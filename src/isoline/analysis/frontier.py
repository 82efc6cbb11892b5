"""The frontier of a curve: its non-dominated points for two axes (DESIGN 5.3). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isoline.errors import InputError

Better = Literal["max", "min"]

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


def sign(better: str) -> float:
    """+1 where more is better, -1 where less is.

    :raises InputError: for anything else, so that a metric without a direction gets no frontier.
    """
    if better == "max":
        return 1.0
    if better == "min":
        return -1.0
    raise InputError(
        f"no frontier over an axis without a better direction ({better!r})",
        remedy="choose a metric where 'max' or 'min' is better",
    )


def frontier(
    x: ArrayLike,
    y: ArrayLike,
    *,
    x_better: str = "max",
    y_better: str = "max",
    ties: Sequence[ArrayLike] = (),
) -> Indices:
    """Indices of the non-dominated points, in the order of ascending x.

    A point is dominated when another one is at least as good on both axes and better on one.
    A point with NaN or an infinity on an axis is never on the frontier and dominates nothing.
    Of points that are equal on both axes exactly one is kept: the one with the smallest first
    key in ``ties``, then the second and so on, then the smallest index. O(n log n).

    :param x: shape (n,).
    :param y: shape (n,).
    :param ties: keys of shape (n,), smaller is kept; for a curve: concurrency, then GPU count.
    :raises ValueError: when the shapes differ.
    """
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    keys = [np.asarray(key) for key in ties]
    if xs.ndim != 1 or any(other.shape != xs.shape for other in (ys, *keys)):
        raise ValueError("x, y and ties must be one-dimensional and of one length")
    usable = np.flatnonzero(np.isfinite(xs) & np.isfinite(ys))
    gain_x, gain_y = sign(x_better) * xs[usable], sign(y_better) * ys[usable]
    # lexsort takes its last key first: best x, then best y, then the tie keys; it is stable.
    order = np.lexsort((*(key[usable] for key in reversed(keys)), -gain_y, -gain_x))
    best = gain_y[order]
    before = np.concatenate(([-np.inf], np.maximum.accumulate(best)[:-1])) if best.size else best
    kept: Indices = usable[order[best > before]]
    return kept[::-1] if x_better == "max" else kept


def medians(
    values: ArrayLike, groups: Sequence[Any], valid: ArrayLike | None = None
) -> tuple[list[Any], Floats, NDArray[np.int64]]:
    """Coordinates of points: the median over the valid repetitions of each.

    A repetition counts only where all of its coordinates are finite, so that the coordinates of
    one point always come from the same repetitions.

    :param values: shape (n, k): n repetitions with k coordinates.
    :param groups: n hashable keys; equal keys are repetitions of one point.
    :param valid: shape (n,), which repetitions are valid; None: all.
    :returns: the m keys in the order of their first appearance; medians, shape (m, k), NaN where
        no repetition counts; the number of repetitions that count, shape (m,).
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != len(groups):
        raise ValueError("values must have one row for each group key")
    allowed = np.ones(len(groups), bool) if valid is None else np.asarray(valid, dtype=bool)
    counts_in = np.logical_and(np.isfinite(table).all(axis=1), allowed)
    rows: dict[Any, list[int]] = {}
    for index, key in enumerate(groups):
        members = rows.setdefault(key, [])
        if counts_in[index]:
            members.append(index)
    middle = np.full((len(rows), table.shape[1]), np.nan)
    for position, members in enumerate(rows.values()):
        if len(members) == 1:  # most points: the median of one is itself
            middle[position] = table[members[0]]
        elif members:
            middle[position] = np.median(table[members], axis=0)
    return list(rows), middle, np.array([len(members) for members in rows.values()], dtype=np.int64)


def require_one_curve(
    curve_keys: Iterable[Any], windows: Iterable[Any] = (), run_ids: Iterable[Any] = ()
) -> None:
    """Refuse points that have no common frontier: two curves, two windows or two runs.

    :raises InputError: naming what is mixed.
    """
    for what, values in (("curves", curve_keys), ("windows", windows), ("runs", run_ids)):
        found = sorted({str(value) for value in values})
        if len(found) > 1:
            raise InputError(
                f"one frontier is one curve, but {len(found)} {what} are mixed: {', '.join(found[:4])}",
                remedy="select one of them",
            )


@dataclass(frozen=True)
class Frontier:
    """The frontier of one curve, in ascending x. ``ids`` name the points, parallel to ``x``.

    Made by :func:`frontier_of`, which guarantees what the readings rely on: finite, strictly
    ascending x, and y strictly worse with each better x.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    ids: tuple[str, ...]
    x_better: Better
    y_better: Better


def frontier_of(
    x: ArrayLike,
    y: ArrayLike,
    ids: Sequence[str],
    *,
    x_better: Better = "max",
    y_better: Better = "max",
    ties: Sequence[ArrayLike] = (),
) -> Frontier:
    """The :class:`Frontier` of points; parameters as in :func:`frontier`."""
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(ids) != xs.size:
        raise ValueError("one id for each point")
    kept = frontier(xs, ys, x_better=x_better, y_better=y_better, ties=ties)
    return Frontier(
        x=tuple(xs[kept].tolist()),
        y=tuple(ys[kept].tolist()),
        ids=tuple(ids[index] for index in kept),
        x_better=x_better,
        y_better=y_better,
    )
