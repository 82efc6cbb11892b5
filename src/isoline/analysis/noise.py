"""How much a series scatters, and what tonight may differ before it means something (DESIGN 5.10). Pure.

Everything works on many series at once: arrays are (series, nights), so that the simulation that
justifies the constants runs the very code that judges real nights. Values are compared as logarithms:
a node that is 1 % slower is 1 % slower at each level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from isoline.settings import Settings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_MEDIAN = math.pi / 2
"""Variance of a median over that of a mean, for many normal values."""


@dataclass(frozen=True)
class Constants:
    """The constants of the trend; settings of the project (``trend_*``), with the reason in DESIGN 5.10.

    :param min_change: share; a smaller change never counts.
    :param factor: how many standard errors a night's value may differ.
    :param confirm_factor: likewise, a re-measurement that shall confirm alone.
    :param window: nights behind baseline and CV.
    :param min_nights: nights in the segment below which there is no baseline.
    :param few: with fewer repetitions than these a suspect night is measured again.
    :param more: how often it is then measured.
    :param node_nights: nights that a node must have in the window for a change on it to be more than
        suspicious: else the node itself may be the change.
    :param calm: nights in a row inside the threshold that end a regression.
    """

    min_change: float = 0.025
    factor: float = 2.3
    confirm_factor: float = 2.8
    window: int = 20
    min_nights: int = 7
    few: int = 3
    more: int = 5
    node_nights: int = 3
    calm: int = 2


def constants_of(settings: Settings) -> Constants:
    """The constants with what the project's settings say."""
    return Constants(
        min_change=settings.trend_min_change,
        factor=settings.trend_factor,
        confirm_factor=settings.trend_confirm_factor,
        window=settings.trend_window,
        min_nights=settings.trend_min_nights,
    )


@dataclass(frozen=True)
class Night:
    """The valid repetitions of one night: ``value`` is their mean (NaN without any).

    ``spread`` is the sum of squared deviations from the mean over the squared mean.
    """

    value: float
    n: int
    spread: float


def night_of(values: Sequence[float]) -> Night:
    """One night from its valid repetitions; what is not finite and above 0 is left out."""
    found = np.array([value for value in values if math.isfinite(value) and value > 0])
    if not found.size:
        return Night(math.nan, 0, 0.0)
    mean = float(found.mean())
    return Night(mean, int(found.size), float((((found - mean) / mean) ** 2).sum()))


@dataclass(frozen=True)
class History:
    """What is known of S series before tonight; arrays of shape (S, t).

    :param log: logarithm of the night values, NaN where there is none.
    :param n: repetitions behind each.
    :param spread: as in :class:`Night`.
    :param node: small whole numbers; a series without known nodes has 0 everywhere.
    :param segment: whole numbers that rise with each accepted change.
    :param usable: valid nights that may be a base: outside of regressions and open suspicions.
    """

    log: Floats
    n: Floats
    spread: Floats
    node: Ints
    segment: Ints
    usable: Bools

    def before(self, night: int) -> History:
        """The nights before ``night``."""
        return History(*(part[:, :night] for part in vars(self).values()))


@dataclass(frozen=True)
class Noise:
    """Baseline and noise of S series for tonight; arrays of shape (S,), ``node_*`` of (S, nodes).

    :param cv: coefficient of variation of a single measurement (share); NaN where it is unknown.
    :param df: degrees of freedom behind it.
    :param baseline: logarithm; NaN with fewer than ``min_nights`` nights in the segment.
    :param baseline_nights: nights behind the baseline.
    :param baseline_n: single measurements behind it.
    :param node_effect: how far each node is above or below the others (logarithm).
    :param node_variance: what is uncertain in it.
    :param node_seen: nights of the window on each node.
    """

    cv: Floats
    df: Floats
    baseline: Floats
    baseline_nights: Ints
    baseline_n: Floats
    node_effect: Floats
    node_variance: Floats
    node_seen: Ints

    def threshold(self, n: Floats | float, node: Ints, factor: float, min_change: float) -> Floats:
        """How far (share) a mean of ``n`` repetitions on ``node`` may be from the baseline; NaN: unknown.

        ``max(min_change, factor standard errors)``. The error has three parts: the night's own mean,
        the baseline, and the node's effect. ``factor`` is meant for a CV that is known; Student's t
        widens it by the degrees of freedom that there are.
        """
        cv2 = self.cv**2
        # The quantile is dear, and the degrees of freedom are few different numbers.
        known, where = np.unique(np.nan_to_num(self.df, nan=0.0), return_inverse=True)
        quantiles = np.asarray(t.isf(norm.sf(factor), np.maximum(known, 1)), dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = cv2 / n + _MEDIAN * cv2 / self.baseline_n + _pick(self.node_variance, node)
            found = np.maximum(min_change, quantiles[where] * np.sqrt(variance))
        limit: Floats = np.where((self.df >= 1) & np.isfinite(self.baseline), found, np.nan)
        return limit

    def change(self, log: Floats, node: Ints) -> Floats:
        """How far (share, above or below 0) values are from the baseline, without the node's effect."""
        found: Floats = np.expm1(log - _pick(self.node_effect, node) - self.baseline)
        return found


def _pick(table: NDArray[np.generic], node: Ints) -> Floats:
    chosen: Floats = np.take_along_axis(table, node[:, None], axis=1)[:, 0].astype(np.float64)
    return chosen


def last_nights(usable: Bools, window: int) -> Bools:
    """Of each row the last ``window`` that are true."""
    counted = np.cumsum(usable[:, ::-1], axis=1)[:, ::-1]
    found: Bools = usable & (counted <= window)
    return found


def noise(history: History, segment: Ints, nodes: int, constants: Constants) -> Noise:
    """Baseline, CV and node effects of each series for a night in ``segment``, shape (S,).

    CV: of single measurements about the mean of their segment and node, over the last nights of all
    segments. Baseline: median of the night values of this segment, each without its node's effect.
    Node effects are shrunk to what the data supports: to nothing where nodes differ no more than chance.

    :param nodes: how many numbers ``node`` takes.
    """
    keep = last_nights(history.usable, constants.window)
    weight = np.where(keep, history.n, 0.0)
    log = np.where(keep, history.log, 0.0)
    total = weight.sum(axis=1)
    on_node = [np.where(history.node == code, weight, 0.0) for code in range(nodes)]
    behind = np.stack([part.sum(axis=1) for part in on_node], axis=1)
    effect = np.zeros((len(log), nodes))
    segments = [history.segment == number for number in np.unique(history.segment)]
    level = np.zeros_like(log)
    for _ in range(3 if nodes > 1 and len(segments) > 1 else 1):  # segment and node are not balanced
        free = log - np.take_along_axis(effect, history.node, axis=1)
        for chosen in segments:
            mean = _mean(free, np.where(chosen, weight, 0.0))
            level = np.where(chosen, mean[:, None], level)
        effect = np.stack([_mean(log - level, part) for part in on_node], axis=1)
    residual = log - level - np.take_along_axis(effect, history.node, axis=1)
    used_segments = sum((np.where(chosen, weight, 0.0).sum(axis=1) > 0).astype(int) for chosen in segments)
    used_nodes = (behind > 0).sum(axis=1)
    df = total - used_segments - np.maximum(used_nodes - 1, 0)
    squares = np.where(keep, history.spread, 0.0).sum(axis=1) + (weight * residual**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        cv2 = np.where(df > 0, squares / df, np.nan)
    effect, variance = _shrunk(effect, behind, total, cv2)
    here = keep & (history.segment == segment[:, None])
    nights = here.sum(axis=1)
    free = log - np.take_along_axis(effect, history.node, axis=1)
    baseline = np.where(nights >= constants.min_nights, _median(free, here), np.nan)
    return Noise(
        cv=np.sqrt(cv2),
        df=df,
        baseline=baseline,
        baseline_nights=nights,
        baseline_n=np.where(here, weight, 0.0).sum(axis=1),
        node_effect=effect,
        node_variance=variance,
        node_seen=np.stack([(keep & (history.node == code)).sum(axis=1) for code in range(nodes)], axis=1),
    )


def _mean(values: Floats, weight: Floats) -> Floats:
    """Weighted means of rows; 0 where nothing has weight."""
    total = weight.sum(axis=1)
    found: Floats = np.divide((values * weight).sum(axis=1), total, out=np.zeros_like(total), where=total > 0)
    return found


def _median(values: Floats, chosen: Bools) -> Floats:
    """Medians of the chosen ones of each row; NaN where there is none (sort puts the others last)."""
    count = chosen.sum(axis=1)
    if values.shape[1] == 0:
        return np.full(len(values), np.nan)
    ordered = np.sort(np.where(chosen, values, np.inf), axis=1)
    low = np.take_along_axis(ordered, np.maximum((count - 1) // 2, 0)[:, None], axis=1)[:, 0]
    high = np.take_along_axis(ordered, np.minimum(count // 2, values.shape[1] - 1)[:, None], axis=1)[:, 0]
    with np.errstate(invalid="ignore"):
        found: Floats = np.where(count > 0, (low + high) / 2, np.nan)
    return found


def _shrunk(effect: Floats, behind: Floats, total: Floats, cv2: Floats) -> tuple[Floats, Floats]:
    """Node effects drawn towards 0 by what is noise in them, and the variance that is left."""
    if effect.shape[1] == 1:
        return np.zeros_like(effect), np.zeros_like(effect)
    nodes = (behind > 0).sum(axis=1)
    known = np.nan_to_num(cv2)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = total - (behind**2).sum(axis=1) / total
        between = ((behind * effect**2).sum(axis=1) - (nodes - 1) * known) / apart
        between = np.where((nodes > 1) & (between > 0), between, 0.0)[:, None]
        own = known[:, None] / behind  # infinite for a node that was never seen
        share = np.where(between > 0, between / (between + own), 0.0)
    # A node that was never seen has no effect that is known, and all of the variance.
    return effect * share, between * (1 - share)
