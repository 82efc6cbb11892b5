"""The cost family: dollars and rated energy of a reading of throughput (DESIGN 5.3). Pure.

Nothing here is ever interpolated: a reading of throughput comes first, and cost is computed from it. What
has no price or power, or read as zero, has no cost: None, never 0 and never infinite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isoline.analysis.intervals import Interval, as_row
from isoline.catalog.prices import Rates
from isoline.catalog.skus import Sku
from isoline.errors import InputError
from isoline.results.metrics.registry import FROM_READINGS, METRICS, FromReading, Metric

Row = dict[str, Any]


@dataclass(frozen=True)
class CostBasis:
    """What one GPU of a SKU costs and draws.

    :param usd_per_gpu_hour: None: no price is known.
    :param all_in_kw: its share of everything in the data centre; None: unknown.
    :param prices: version of the price list, such as ``2026-10``; None without one.
    :param tier: the tier of it.
    """

    usd_per_gpu_hour: float | None = None
    all_in_kw: float | None = None
    prices: str | None = None
    tier: str | None = None


def basis_of(sku: str, rates: Rates | None, skus: Mapping[str, Sku]) -> CostBasis:
    """The basis of a SKU from the prices that count and the catalog."""
    known = skus.get(sku)
    power = known.power.all_in_kw if known is not None and known.power is not None else None
    if rates is None:
        return CostBasis(all_in_kw=power)
    return CostBasis(rates.usd_per_gpu_hour.get(sku), power, rates.version, rates.tier)


def known_metric(name: str) -> Metric:
    """A metric of the registry, stored or made of a reading.

    :raises InputError: for an unknown name.
    """
    if name in METRICS:
        return METRICS[name]
    if name in FROM_READINGS:
        return FROM_READINGS[name].metric
    raise InputError(f"unknown metric {name!r}", remedy="docs/metrics.md names them all")


def read_as(name: str) -> str:
    """The stored metric that has to be read to show ``name``: itself, or what it is made of."""
    known_metric(name)
    return FROM_READINGS[name].of if name in FROM_READINGS else name


def value_of(name: str, reading: float | None, basis: CostBasis) -> float | None:
    """``name`` for a reading of :func:`read_as` ``(name)``, in the unit of the registry.

    :returns: None where the reading, the price or the power is unknown, or where a division by zero would be.
    """
    if name not in FROM_READINGS:
        known_metric(name)
        return reading
    made = FROM_READINGS[name]
    rate = basis.usd_per_gpu_hour if made.needs == "usd" else basis.all_in_kw
    if reading is None or rate is None or not math.isfinite(reading) or reading <= 0 or rate <= 0:
        return None
    return _value(made, reading, rate)


def _value(made: FromReading, reading: float, rate: float) -> float:
    match made.metric.name:
        case "total_tokens_per_usd":
            return reading * 3600 / rate
        case "total_tps_per_mw":
            return reading * 1000 / rate
        case "usd_per_session":
            return rate / reading
        case name if name.startswith("usd_per_m_"):
            return rate / (reading * 0.0036)
        case name if name.startswith("rated_j_per_"):
            return rate * 1000 / reading
        case name:
            raise KeyError(name)  # a row of the registry without its formula: our own mistake


def shown_as(name: str, rows: Sequence[Row], basis: CostBasis) -> list[Row]:
    """Rows of a curve, or its readings, with ``name`` in the place of the throughput that it is made of.

    :param rows: of :func:`isoline.analysis.curves.curve_table` or ``curve_readings``, with
        :func:`read_as` ``(name)`` as y. The frontier stays: within one curve cost is a function of it.
    :param basis: of the curve's SKU.
    """
    made = []
    for row in rows:
        new = {**row, "y_metric": name}
        for column in ("y", "step", "estimate"):
            if column in row:
                new[column] = value_of(name, row[column], basis)
        if row.get("y_low") is not None:
            was = Interval(row["y_low"], row["y_high"], row["y_interval"], row["n"])
            new |= as_row(interval_of(name, was, basis), "y")
        made.append(new)
    return made


def interval_of(name: str, interval: Interval | None, basis: CostBasis) -> Interval | None:
    """The interval of ``name`` from that of the reading; ends change places where more is less."""
    if interval is None:
        return None
    ends = [value_of(name, end, basis) for end in (interval.low, interval.high)]
    found = [end for end in ends if end is not None]
    if len(found) < 2:
        return None
    return Interval(min(found), max(found), interval.label, interval.n)
