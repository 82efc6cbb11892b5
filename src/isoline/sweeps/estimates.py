"""How long a point takes and what it costs, before it is measured: past runs, else stated assumptions.

Estimates feed the plan's table, the budget, the window and the progress line. They are never shown
as results and are no part of any digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from isoline.catalog.facts import load_catalog

if TYPE_CHECKING:
    from isoline.datasets.schema import Dataset
    from isoline.recipes.schema import Recipe
    from isoline.recipes.topology import Topology
    from isoline.sweeps.schema import Scenario

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
