"""Steps in the history of a series, and what changed there (DESIGN 5.10). Pure.

For people who look back, not for the alert of tonight: a step found here may be of last month. First
PELT (``ruptures``) proposes, then each proposal has to stand a t test and the smallest change that counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ruptures
from numpy.typing import ArrayLike
from scipy.stats import t

from isoline.analysis.frontier import Floats

MAX_P = 0.001
MIN_CHANGE = 0.025
_SMALLEST = 3  # nights in a segment: one wild night and its neighbour are no level
_PENALTY = 3.0  # times ln n: about 3 % of flat series of 60 nights get a proposal


@dataclass(frozen=True)
class Change:
    """A step.

    :param index: of the first night at the new level.
    :param before: median of the nights between the change before and this one.
    :param after: median of the nights up to the next change.
    :param change: share, ``after / before - 1``.
    :param p: of Student's t between the two sides.
    :param explained: what differs between the last night before and the first after: name -> (old, new).
    """

    index: int
    before: float
    after: float
    change: float
    p: float
    explained: Mapping[str, tuple[Any, Any]]


def change_points(
    values: ArrayLike,
    notes: Sequence[Mapping[str, Any]] = (),
    *,
    max_p: float = MAX_P,
    min_change: float = MIN_CHANGE,
) -> list[Change]:
    """The steps of one series of night values, in the order of time.

    :param values: shape (n,), above 0; nights without a value (NaN) are passed over.
    :param notes: n dicts of what may explain a step (image, engine, driver, node, client); a name
        that one of the two nights lacks explains nothing.
    :raises ValueError: when there are notes, but not one for each value.
    """
    every = np.asarray(values, dtype=np.float64)
    if notes and len(notes) != every.size:
        raise ValueError("one note for each value")
    places = np.flatnonzero(np.isfinite(every) & (every > 0))
    found = every[places]
    if found.size < 2 * _SMALLEST:
        return []
    edges = _confirmed(np.log(found), _proposed(np.log(found)), max_p, min_change)
    changes = []
    for left, edge, right in zip(edges, edges[1:], edges[2:], strict=False):
        before, after = float(np.median(found[left:edge])), float(np.median(found[edge:right]))
        changes.append(
            Change(
                index=int(places[edge]),
                before=before,
                after=after,
                change=after / before - 1,
                p=_p(np.log(found[left:edge]), np.log(found[edge:right])),
                explained=differences(notes[places[edge - 1]], notes[places[edge]]) if notes else {},
            )
        )
    return changes


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What both know and what is not the same: name -> (old, new)."""
    both = [name for name in old if name in new]
    return {
        name: (old[name], new[name])
        for name in both
        if old[name] is not None and new[name] is not None and old[name] != new[name]
    }


def _proposed(log: Floats) -> list[int]:
    """Edges by PELT, both ends included. The noise is that of neighbours, which a step hardly touches."""
    steps = np.diff(log)
    sigma = float(np.median(np.abs(steps - np.median(steps)))) * 1.4826 / math.sqrt(2)
    if sigma == 0:
        # Half of the neighbours are equal: nearly constant, so that each move stands out.
        sigma = max(float(np.std(steps)) / math.sqrt(2), 1e-12)
    search = ruptures.Pelt(model="l2", min_size=_SMALLEST, jump=1).fit((log / sigma)[:, None])
    return [0, *search.predict(pen=_PENALTY * math.log(log.size))]


def _confirmed(log: Floats, edges: list[int], max_p: float, min_change: float) -> list[int]:
    """Take the weakest edge away until all stand; each time the sides grow and are looked at anew."""
    kept = list(edges)
    while len(kept) > 2:
        weak: list[tuple[float, int]] = []
        for index in range(1, len(kept) - 1):
            left, right = log[kept[index - 1] : kept[index]], log[kept[index] : kept[index + 1]]
            p = _p(left, right)
            size = abs(math.expm1(float(right.mean() - left.mean())))
            if p > max_p or size < min_change:
                weak.append((p if p > max_p else max_p, index))
        if not weak:
            break
        del kept[max(weak)[1]]
    return kept


def _p(left: Floats, right: Floats) -> float:
    """Student's t, two-sided, one variance for both sides."""
    df = left.size + right.size - 2
    squares = float(((left - left.mean()) ** 2).sum() + ((right - right.mean()) ** 2).sum())
    if df < 1:
        return 1.0
    gap = abs(float(right.mean() - left.mean()))
    error = math.sqrt(squares / df * (1 / left.size + 1 / right.size))
    if error == 0:
        return 0.0 if gap > 0 else 1.0
    return float(2 * t.sf(gap / error, df))
