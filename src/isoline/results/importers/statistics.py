"""Statistics of foreign files under our names: units, percentiles, and which way they point. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import isfinite
from typing import Any

from isoline.results.importers.foreign import ForeignPoint, number
from isoline.results.metrics.registry import METRICS, PERCENTILES

NAMES: dict[str, tuple[str, ...]] = {
    "mean": ("mean", "avg"),
    "p50": ("median", "p50"),
    **{f"p{percentile}": (f"p{percentile}",) for percentile in PERCENTILES if percentile != 50},
}
"""Our statistics, and what others call them."""


def flat(row: Mapping[str, Any], metric: str, suffix: str = "") -> dict[str, float]:
    """Statistics that are keys of their own (``median_ttft``, ``p99_ttft_ms``), by our names."""
    found: dict[str, float] = {}
    for key, ours in _keys(metric, suffix):
        value = row.get(key)
        if value is None or ours in found:
            continue
        if type(value) is not float or not isfinite(value):  # rows by the thousand have plain numbers
            value = number(value)
        if value is not None:
            found[ours] = value
    return found


@cache
def _keys(metric: str, suffix: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"{name}_{metric}{suffix}", ours) for ours, names in NAMES.items() for name in names)


def nested(block: Any) -> dict[str, float]:
    """Statistics of a mapping such as ``{mean, p50, p90}``, or guidellm's with ``percentiles``."""
    if not isinstance(block, Mapping):
        return {}
    inner = block.get("percentiles")
    return _chosen({**(inner if isinstance(inner, Mapping) else {}), **block})


def _chosen(found: Mapping[str, Any]) -> dict[str, float]:
    chosen = {}
    for ours, names in NAMES.items():
        values = [value for name in names if (value := number(found.get(name))) is not None]
        if values:
            chosen[ours] = values[0]
    return chosen


def put_times(point: ForeignPoint, family: str, statistics: Mapping[str, float], to_ms: float) -> None:
    """Times of one family in milliseconds. What is 0 was not measured, and stays null.

    :param to_ms: 1000 for seconds, 1 for milliseconds.
    """
    for statistic, value in statistics.items():
        if value > 0:
            point.values[_time(family, statistic)] = value * to_ms
        else:
            _note(point, f"{family}: 0 is no time; left out")


@cache
def _time(family: str, statistic: str) -> str:
    return f"{family}_{statistic}_ms"


_INTERACTIVITY = tuple((n, f"tpot_p{n}_ms", f"interactivity_p{n}_tps", f"p{n}") for n in PERCENTILES)


def put_interactivity(point: ForeignPoint, stated: Mapping[str, float]) -> None:
    """``interactivity_pXX_tps`` from the TPOT that is there, else from the file's own percentiles.

    In public files pXX of interactivity is either 1/pXX of TPOT (the slow tail, as ours), or the
    percentile of the reciprocals (the fast tail). They are told apart by their order: the slow
    tail falls with XX, TPOT rises. A mean or deviation of a reciprocal means nothing and is dropped.
    """
    for _, tpot_name, name, _ in _INTERACTIVITY:
        tpot = point.values.get(tpot_name)
        if tpot is not None:
            point.values[name] = 1000 / tpot
    found = {n: stated[name] for n, _, _, name in _INTERACTIVITY if name in stated and stated[name] > 0}
    if not found:
        return
    points_fast = _rises(found)
    if points_fast:
        _note(point, "interactivity: its percentiles are of the fast tail; those above p50 are left out")
    elif len(found) == 1 and 50 not in found:
        _note(point, "interactivity: one percentile alone does not say which tail it is of; left out")
        return
    for percentile, value in found.items():
        name = f"interactivity_p{percentile}_tps"
        if percentile == 50 or not points_fast:  # a median is the same from both ends
            had = point.values.get(name)
            if had is None:
                point.values[name] = value
            elif abs(had - value) > 0.05 * had:
                _note(point, f"{name}: the file says {value:.6g}, 1/TPOT is {had:.6g}; 1/TPOT counts")


def _rises(found: Mapping[int, float]) -> bool:
    ordered = [found[percentile] for percentile in sorted(found)]
    return len(ordered) > 1 and ordered[-1] > ordered[0]


def put_e2e_interactivity(point: ForeignPoint, seconds_per_token: Mapping[str, float]) -> None:
    """``e2e_interactivity_pXX_tps`` from percentiles of (latency in s / output tokens)."""
    for percentile in PERCENTILES:
        value = seconds_per_token.get(f"p{percentile}")
        if value is not None and value > 0:
            point.values[f"e2e_interactivity_p{percentile}_tps"] = 1 / value


def put(point: ForeignPoint, name: str, value: Any, factor: float = 1.0) -> None:
    """One metric, where its value is a number."""
    found = number(value)
    if found is not None:
        point.values[name] = found * factor


def drop_thin_percentiles(point: ForeignPoint) -> None:
    """Percentiles of too few requests: pXX only where n >= 1/(1 - XX/100) (DESIGN 5.2).

    Where the file does not say how many completed, nothing is dropped.
    """
    n = point.completed
    if n is None:
        return
    for name in list(point.values):
        statistic = METRICS[name].statistic
        if statistic.startswith("p") and n < -(-100 // (100 - int(statistic[1:]))):
            del point.values[name]
            _note(point, f"{statistic}: of {n} requests it says nothing; left out")


def _note(point: ForeignPoint, line: str) -> None:
    if line not in point.notes:
        point.notes.append(line)
