"""What each night of a series says: ok, improved, regressed, suspicious, ... (DESIGN 5.10). Pure.

:func:`judge` walks many series at once through their nights; :func:`trend_of` is the same for one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from isoline.analysis.frontier import sign
from isoline.analysis.noise import Bools, Constants, Floats, History, Ints, night_of, noise

State = Literal["missing_data", "invalid", "insufficient_data", "ok", "suspicious", "improved", "regressed"]

MISSING, INVALID, INSUFFICIENT, OK, SUSPICIOUS, IMPROVED, REGRESSED = range(7)
STATES: tuple[State, ...] = (
    "missing_data",
    "invalid",
    "insufficient_data",
    "ok",
    "suspicious",
    "improved",
    "regressed",
)
"""By the codes of :class:`Judged`."""


@dataclass(frozen=True)
class Nights:
    """S series over T nights; every array has the shape (S, T).

    :param value: mean of the night's valid repetitions; NaN without one.
    :param n: how many.
    :param spread: as in :class:`isoline.analysis.noise.Night`.
    :param again_value: mean of the re-measurements of the same night; NaN where none was or will be
        made. They are looked at only where the rules ask for them.
    :param again_n: how many.
    :param again_spread: their spread.
    :param node: small whole numbers from 0.
    :param segment: rises with each accepted change.
    :param measured: whether anything came back: tells ``invalid`` from ``missing_data``.
    """

    value: Floats
    n: Floats
    spread: Floats
    again_value: Floats
    again_n: Floats
    again_spread: Floats
    node: Ints
    segment: Ints
    measured: Bools


@dataclass(frozen=True)
class Judged:
    """What :func:`judge` found; arrays of shape (S, T). Shares; NaN where there is none.

    :param state: codes, see :data:`STATES`.
    :param asked: whether the rules asked for a re-measurement.
    :param change: of the night's value from the baseline without the node's effect; above 0: larger.
    :param baseline: in the unit of the value, for the night's node.
    """

    state: Ints
    asked: Bools
    value: Floats
    n: Floats
    change: Floats
    threshold: Floats
    baseline: Floats
    cv: Floats


def judge(nights: Nights, better: str, constants: Constants = Constants()) -> Judged:
    """The state of each night of each series, in the order of time.

    A night outside the threshold is ``suspicious``; it is ``regressed`` (or ``improved``) when the valid
    night before was outside on the same side, or when its re-measurement confirms it alone. What makes a
    night suspicious must not confirm it, so the re-measurement counts without the values before. A regression
    stays open until ``calm`` nights in a row are inside. Nights of open changes, and suspicious ones until
    the next night clears them, are neither in the baseline nor in the CV.

    :param better: ``max`` or ``min``; improvements are confirmed by a second night only, because a
        re-measurement costs machine time and nobody is woken by good news.
    """
    direction = sign(better)
    shape = nights.value.shape
    codes = int(nights.node.max(initial=0)) + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.log(nights.value)
    valid = np.isfinite(log) & (nights.n > 0)
    past = History(log, nights.n.copy(), nights.spread.copy(), nights.node, nights.segment, valid.copy())
    walk = _Walk(shape)
    for night in range(shape[1]):
        _one_night(night, nights, past, walk, valid[:, night], direction, codes, constants)
    return replace(walk.result, value=np.exp(past.log), n=past.n)


class _Walk:
    """What is carried from night to night, for S series, and the result so far."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        series = shape[0]
        self.side = np.zeros(series, dtype=np.int64)  # of the valid night before: -1 worse, 0, +1 better
        self.before = np.full(series, -1, dtype=np.int64)  # which night that was
        self.open = np.zeros(series, dtype=np.int64)  # -1: a regression is open, +1: an improvement
        self.calm = np.zeros(series, dtype=np.int64)
        self.segment = np.full(series, -1, dtype=np.int64)
        empty = [np.full(shape, np.nan) for _ in range(6)]
        self.result = Judged(np.full(shape, MISSING, dtype=np.int64), np.zeros(shape, dtype=np.bool_), *empty)


def _one_night(
    night: int,
    nights: Nights,
    past: History,
    walk: _Walk,
    valid: Bools,
    direction: float,
    codes: int,
    constants: Constants,
) -> None:
    node, segment = nights.node[:, night], nights.segment[:, night]
    rows = np.arange(len(node))
    # A change that was accepted closes what is open: the baseline starts anew.
    anew = segment != walk.segment
    walk.segment = segment.copy()
    for carried in (walk.side, walk.open, walk.calm):
        carried[anew] = 0
    history = past.before(night)
    pending = (walk.side != 0) & (walk.before >= 0)
    usable = history.usable.copy()
    usable[rows[pending], walk.before[pending]] = False
    found = noise(replace(history, usable=usable), segment, codes, constants)

    def side_of(log: Floats, n: Floats, factor: float) -> Ints:
        limit = found.threshold(n, node, factor, constants.min_change)
        gain = direction * found.change(log, node)
        with np.errstate(invalid="ignore"):
            return np.where(gain < -limit, -1, np.where(gain > limit, 1, 0)).astype(np.int64)

    side = np.where(valid, side_of(past.log[:, night], past.n[:, night], constants.factor), 0)
    few = nights.n[:, night] < constants.few
    asked = valid & few & (side < 0) & (walk.open == 0)
    again = asked & (nights.again_n[:, night] >= constants.more)
    with np.errstate(divide="ignore", invalid="ignore"):
        again_log = np.log(nights.again_value[:, night])
    confirmed = again & (side_of(again_log, nights.again_n[:, night], constants.confirm_factor) == side)
    _take_in(nights, past, night, again)
    side = np.where(again & ~confirmed, 0, side)
    known = found.node_seen[rows, node] >= constants.node_nights
    twice = (side != 0) & (side == walk.side)
    opened = np.where((confirmed | twice) & known, side, 0)

    inside = np.where(side != walk.open, walk.calm + 1, 0)
    walk.calm = np.where(valid & (walk.open != 0), inside, walk.calm)
    walk.open = np.where(walk.calm >= constants.calm, 0, walk.open)
    walk.open = np.where(opened != 0, opened, walk.open)
    walk.calm = np.where(walk.open == 0, 0, walk.calm)
    past.usable[:, night] = valid & (walk.open == 0)
    # The suspicious night before belongs to the change that tonight opened.
    first = (opened != 0) & twice & (walk.before >= 0)
    past.usable[rows[first], walk.before[first]] = False

    state = np.where(side != 0, SUSPICIOUS, OK)
    state = np.where(walk.open < 0, REGRESSED, np.where(walk.open > 0, IMPROVED, state))
    limit = found.threshold(past.n[:, night], node, constants.factor, constants.min_change)
    state = np.where(np.isfinite(limit), state, INSUFFICIENT)
    absent = np.where(nights.measured[:, night], INVALID, MISSING)
    result = walk.result
    result.state[:, night] = np.where(valid, state, absent)
    result.asked[:, night] = asked
    result.change[:, night] = np.where(valid, found.change(past.log[:, night], node), np.nan)
    result.threshold[:, night] = limit
    effect = np.take_along_axis(found.node_effect, node[:, None], axis=1)[:, 0]
    result.baseline[:, night] = np.exp(found.baseline + effect)
    result.cv[:, night] = found.cv
    walk.side = np.where(valid, side, walk.side)
    walk.before = np.where(valid, night, walk.before)


def _take_in(nights: Nights, past: History, night: int, again: Bools) -> None:
    """Where a night was measured again its value is the mean of all its repetitions."""
    n, more = nights.n[:, night], nights.again_n[:, night]
    first, second = nights.value[:, night], nights.again_value[:, night]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (first * n + second * more) / (n + more)
        squares = nights.spread[:, night] * first**2 + n * (first - mean) ** 2
        squares = squares + nights.again_spread[:, night] * second**2 + more * (second - mean) ** 2
        past.log[:, night] = np.where(again, np.log(mean), past.log[:, night])
        past.spread[:, night] = np.where(again, squares / mean**2, past.spread[:, night])
    past.n[:, night] = np.where(again, n + more, past.n[:, night])


@dataclass(frozen=True)
class SeriesNight:
    """One night of one series, as it was measured.

    :param key: names the night: a run id.
    :param values: the valid repetitions.
    :param again: the valid repetitions of a re-measurement in the same night.
    :param measured: whether any attempt came back, valid or not.
    :param node: pseudonym of the machine; None: unknown.
    :param notes: what may explain a step: image, engine, driver, node, client.
    """

    key: str
    values: tuple[float, ...] = ()
    again: tuple[float, ...] = ()
    measured: bool = False
    node: str | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NightState:
    """The trend of one night. Shares and values are None where there is none."""

    key: str
    state: State
    value: float | None
    n: int
    baseline: float | None
    change: float | None
    threshold: float | None
    cv: float | None
    remeasure: bool


def trend_of(
    nights: Sequence[SeriesNight],
    better: str,
    *,
    accepted: Sequence[str] = (),
    constants: Constants = Constants(),
) -> list[NightState]:
    """The state of each night of one series.

    :param nights: in the order of time.
    :param accepted: keys of the nights from which on an accepted change holds; the segment starts with
        the first night whose key is not smaller (run ids sort by time).
    """
    if not nights:
        return []
    codes = {name: code for code, name in enumerate(dict.fromkeys(night.node for night in nights))}
    first = [night_of(night.values) for night in nights]
    second = [night_of(night.again) for night in nights]
    judged = judge(
        Nights(
            value=np.array([[night.value for night in first]]),
            n=np.array([[float(night.n) for night in first]]),
            spread=np.array([[night.spread for night in first]]),
            again_value=np.array([[night.value for night in second]]),
            again_n=np.array([[float(night.n) for night in second]]),
            again_spread=np.array([[night.spread for night in second]]),
            node=np.array([[codes[night.node] for night in nights]], dtype=np.int64),
            segment=np.array(
                [[sum(key <= night.key for key in accepted) for night in nights]], dtype=np.int64
            ),
            measured=np.array([[night.measured or bool(night.values) for night in nights]]),
        ),
        better,
        constants,
    )
    return [
        NightState(
            key=night.key,
            state=STATES[judged.state[0, index]],
            value=_number(judged.value[0, index]),
            n=int(judged.n[0, index]),
            baseline=_number(judged.baseline[0, index]),
            change=_number(judged.change[0, index]),
            threshold=_number(judged.threshold[0, index]),
            cv=_number(judged.cv[0, index]),
            remeasure=bool(judged.asked[0, index]) and not night.again,
        )
        for index, night in enumerate(nights)
    ]


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
