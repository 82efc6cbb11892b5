"""How long a point takes and what it costs, before it is measured: past runs, else stated assumptions.

Estimates feed the plan's table, the budget, the window and the progress line. They are never shown
as results and are no part of any digest.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from isoline.catalog.facts import load_catalog
from isoline.catalog.prices import Rates

if TYPE_CHECKING:
    from isoline.datasets.schema import Dataset
    from isoline.recipes.schema import Recipe
    from isoline.recipes.topology import Topology
    from isoline.results.bundles.records import PlanLaunch
    from isoline.sweeps.planning.schema import Scenario

ASSUMED_OVERHEAD_S = 18.0
"""Harness, warm-up and canary of one point."""

ASSUMED_LAUNCH_S = 5.0
ASSUMED_LOAD_BYTES_PER_S = 2e9
"""Weights from a local disk."""

ASSUMED_COMPILE_S = 300.0
"""Graphs and kernels of a server on accelerators."""

ASSUMED_CPU_PREFILL_TPS = 300.0
ASSUMED_CPU_DECODE_TPS = 70.0
ASSUMED_TURN = (60, 24)
"""Uncached input and output tokens of a trace's turn on a CPU."""

ASSUMED_USER_TPS = 40.0
"""Speed of one user on accelerators, where nothing is known; a fleet's first run corrects it."""

ASSUMED_AGENTIC_S = 1800.0
"""A trace whose turns are not known is replayed for this long."""


@dataclass(frozen=True)
class Past:
    """Durations of earlier measurements, seconds, by point id and by launch digest (start to ready)."""

    points: Mapping[str, float] = field(default_factory=dict)
    launches: Mapping[str, float] = field(default_factory=dict)


def point_s(scenario: Scenario, dataset: Dataset, concurrency: int, sku: str) -> float:
    """A rough duration of one point, seconds, from stated assumptions."""
    if sku != "cpu":
        return round(ASSUMED_OVERHEAD_S + _accelerated(scenario, dataset, concurrency), 1)
    if scenario.kind == "fixed_length" and scenario.requests and scenario.isl and scenario.osl:
        count = scenario.requests.at(concurrency)
        tokens_in, tokens_out = scenario.isl, scenario.osl
    else:
        count = dataset.turns or 1
        tokens_in, tokens_out = ASSUMED_TURN
    work = count * (tokens_in / ASSUMED_CPU_PREFILL_TPS + tokens_out / ASSUMED_CPU_DECODE_TPS)
    return round(ASSUMED_OVERHEAD_S + work, 1)


def _accelerated(scenario: Scenario, dataset: Dataset, concurrency: int) -> float:
    if scenario.kind == "fixed_length" and scenario.requests and scenario.osl:
        waves = scenario.requests.at(concurrency) / concurrency
        return waves * scenario.osl / ASSUMED_USER_TPS
    if dataset.turns is None:
        return ASSUMED_AGENTIC_S
    return dataset.turns / concurrency * ASSUMED_TURN[1] / ASSUMED_USER_TPS


def launch_s(recipe: Recipe, topology: Topology) -> float:
    """A rough time from start to ready, seconds: weights by size, compilation by assumption."""
    if recipe.sku == "cpu":
        return ASSUMED_LAUNCH_S
    model = load_catalog().models[recipe.model]
    sizes = [
        float(item.bytes or (item.size_gb or 0) * 1e9)
        for item in model.checkpoints_at(recipe.precision.weights).values()
        if item.bytes or item.size_gb
    ]
    size = max(sizes, default=float(model.parameters_total or 0))
    return round(ASSUMED_COMPILE_S + size / ASSUMED_LOAD_BYTES_PER_S, 1)


@dataclass(frozen=True)
class Terms:
    """What a plan is priced and timed by; it changes the budget and no digest.

    :param rates: what accelerators cost.
    :param lanes: pool -> launches in flight at once; one where a pool is not named.
    """

    rates: Rates | None = None
    lanes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Use:
    """What launches take of one pool. ``wall_s``: each in the first free lane, in the plan's order."""

    sku: str
    gpu_s: float = 0.0
    wall_s: float = 0.0


def pool_use(launches: Iterable[PlanLaunch], lanes: Mapping[str, int] = {}) -> dict[str, Use]:
    """Pool -> what the launches take of it, in the plan's order."""
    found: dict[str, Use] = {}
    busy: dict[str, list[float]] = {}
    for launch in launches:
        before = found.get(launch.pool) or Use(str(launch.points[0].curve["sku"]))
        ends = busy.setdefault(launch.pool, [0.0] * lanes.get(launch.pool, 1))
        seconds = launch.estimate_s
        heapq.heapreplace(ends, ends[0] + seconds)
        found[launch.pool] = Use(before.sku, before.gpu_s + seconds * launch.gpus, max(ends))
    return found


def budget_of(launches: Iterable[PlanLaunch], terms: Terms) -> dict[str, Any]:
    """``budget`` of a plan (DESIGN 5.9): GPU-minutes, dollars and wall time, in all and for each pool.

    ``usd`` is null as soon as one SKU has no price, and ``note`` says so: a part is not the whole.
    """
    rates = terms.rates
    use = pool_use(launches, terms.lanes)
    pools: list[dict[str, Any]] = []
    exact: list[float | None] = []
    for name, one in use.items():
        exact.append(usd := rates.usd(one.sku, one.gpu_s / 60) if rates else None)
        pools.append(
            {
                "pool": name,
                "sku": one.sku,
                "gpu_minutes": round(one.gpu_s / 60, 1),
                "usd": None if usd is None else round(usd, 2),
                "wall_minutes": round(one.wall_s / 60, 1),
            }
        )
    unknown = list(dict.fromkeys(row["sku"] for row in pools if row["usd"] is None))
    note = f"no price for {', '.join(unknown)}" if rates else "no price list"
    return {
        "gpu_minutes": round(sum(one.gpu_s for one in use.values()) / 60, 1),
        "usd": None if unknown else round(sum(usd or 0.0 for usd in exact), 2),
        "pools": pools,
        "prices": {"list": rates.version, "dated": rates.dated, "tier": rates.tier} if rates else None,
        "note": note if unknown else "",
    }
