"""Decisions on shares: paired right and wrong answers, and many decisions at once. Pure.

The interval of one share is :func:`isoline.analysis.intervals.wilson`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest


def mcnemar(only_first: int, only_second: int) -> float:
    """McNemar's exact two-sided p: do two configurations answer the same questions equally well?

    :param only_first: questions that only the first one got right.
    :param only_second: questions that only the second one got right.
    :returns: p; 1 where they never differ. Questions on which both agree say nothing.
    :raises ValueError: for a count below 0.
    """
    if only_first < 0 or only_second < 0:
        raise ValueError("counts are not below 0")
    differing = only_first + only_second
    if differing == 0:
        return 1.0
    return float(binomtest(only_first, differing, 0.5).pvalue)


def mcnemar_of(first: ArrayLike, second: ArrayLike) -> float:
    """:func:`mcnemar` of two answer sheets.

    :param first: shape (n,), whether each question was answered rightly.
    :param second: likewise, the same questions in the same order.
    :raises ValueError: when the sheets are of two lengths.
    """
    one, two = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if one.ndim != 1 or one.shape != two.shape:
        raise ValueError("both sheets answer the same questions, one row each")
    return mcnemar(int((one & ~two).sum()), int((two & ~one).sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p values, in the order given: reject where one is at most alpha.

    The chance of even one false rejection among all is then at most alpha, whatever they have in common.

    :raises ValueError: for what is no probability; a missing one must not make the others look better.
    """
    values = [float(value) for value in p_values]
    if any(not 0 <= value <= 1 or math.isnan(value) for value in values):
        raise ValueError("p values are between 0 and 1")
    adjusted = [0.0] * len(values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = highest
    return adjusted
