"""Values read off a frontier at a given x: step (official) and estimate (DESIGN 5.3). Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.interpolate import PchipInterpolator

from isoline.analysis.frontier import Frontier, sign
from isoline.errors import InputError

Kind = Literal["step", "estimate"]
State = Literal["ok", "at_edge", "not_reached"]


@dataclass(frozen=True)
class Reading:
    """A value read off a frontier.

    :param value: in the unit of y; None where there is none.
    :param kind: ``step``: measured at ``at`` or better; ``estimate``: interpolated.
    :param state: ``not_reached``: no point is as good as ``at``. ``at_edge``: ``at`` is worse than
        the worst x that was measured; a step is attained there all the same, an estimate is None.
    :param point_id: the point that a step was read from; None for estimates.
    :param at: the x that was asked for.
    """

    value: float | None
    kind: Kind
    state: State
    point_id: str | None
    at: float


def _check(at: float) -> None:
    if not math.isfinite(at):
        raise InputError(f"a reading needs a finite x, not {at}")


def step_reading(curve: Frontier, at: float) -> Reading:
    """The best y among the points whose x is ``at`` or better.

    :raises InputError: when ``at`` is not finite.
    """
    _check(at)
    better_x, better_y = sign(curve.x_better), sign(curve.y_better)
    enough = [i for i, x in enumerate(curve.x) if better_x * x >= better_x * at]
    if not enough:
        return Reading(None, "step", "not_reached", None, at)
    best = max(enough, key=lambda i: better_y * curve.y[i])
    beyond = all(better_x * x > better_x * at for x in curve.x)
    return Reading(curve.y[best], "step", "at_edge" if beyond else "ok", curve.ids[best], at)


def estimate_reading(curve: Frontier, at: float) -> Reading:
    """Monotone interpolation (PCHIP) in log-log between the two ends; never outside of them.

    Points at or below zero on an axis have no logarithm: the ends are those of the points above.

    :raises InputError: when ``at`` is not finite.
    """
    _check(at)
    pairs = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if x > 0 and y > 0]
    better = sign(curve.x_better)
    if not pairs or all(better * x < better * at for x, _ in pairs):
        return Reading(None, "estimate", "not_reached", None, at)
    if all(better * x > better * at for x, _ in pairs):
        return Reading(None, "estimate", "at_edge", None, at)
    right = next(i for i, (x, _) in enumerate(pairs) if x >= at)
    if pairs[right][0] == at:
        return Reading(pairs[right][1], "estimate", "ok", None, at)
    ends = sorted((pairs[right - 1][1], pairs[right][1]))
    value = min(max(_pchip(pairs, at), ends[0]), ends[1])  # rounding must not leave the neighbours
    return Reading(value, "estimate", "ok", None, at)


def _pchip(pairs: list[tuple[float, float]], at: float) -> float:
    log_x, log_y = np.log([x for x, _ in pairs]), np.log([y for _, y in pairs])
    apart = np.concatenate(([True], np.diff(log_x) > 0))  # two x of one logarithm: keep the first
    if apart.sum() < 2:
        return pairs[0][1]
    return float(np.exp(PchipInterpolator(log_x[apart], log_y[apart], extrapolate=False)(math.log(at))))


def ratio(new: Reading, old: Reading) -> float | None:
    """``new / old``; None where one of them has no value or the old one is 0.

    :raises InputError: when one is a step and the other an estimate, or they were read at two x.
    """
    if new.kind != old.kind:
        raise InputError(
            f"a ratio of a {new.kind} and a {old.kind} reading compares two different things",
            remedy="read both in the same way",
        )
    if new.at != old.at:
        raise InputError(f"a ratio needs one x, not {new.at:g} and {old.at:g}")
    if new.value is None or old.value is None or old.value == 0:
        return None
    return new.value / old.value
