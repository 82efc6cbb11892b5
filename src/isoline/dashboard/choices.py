"""Which values a reader can choose from, given the rows; and the reader's choice made complete. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from isoline.dashboard.state import Known, PageState
from isoline.results.metrics.registry import AXES, HEADLINE, METRICS

FAMILIES: dict[str, str] = {
    "total_tps_per_gpu": "Total throughput per GPU",
    "output_tps_per_gpu": "Output throughput per GPU",
    "input_tps_per_gpu": "Input throughput per GPU",
    "uncached_input_tps_per_gpu": "Uncached input throughput per GPU",
    "cached_input_tps_per_gpu": "Cached input throughput per GPU",
    "sessions_per_gpu_hour": "Sessions per GPU-hour",
    "goodput_rps": "Goodput",
    "goodput_rps_per_gpu": "Goodput per GPU",
    "request_rps": "Completed requests per second",
    "interactivity": "Interactivity (1 / time per output token)",
    "e2e_interactivity": "End-to-end interactivity",
    "ttft": "Time to first token",
    "tpot": "Time per output token",
    "itl": "Inter-token latency",
    "e2el": "End-to-end latency",
    "ttfot": "Time to first token after reasoning",
    "icl": "Inter-chunk latency",
    "cache_hit_share": "Cache hit share",
    "failed_share": "Failed share",
    "input_tokens": "Input tokens per request",
    "output_tokens": "Output tokens per request",
    "reasoning_tokens": "Reasoning tokens per request",
    "in_flight": "Requests in flight",
    "window_s": "Length of the window",
}
"""Names for people, by metric family, in the order of the lists. Families that are not here follow."""


def family_title(family: str) -> str:
    """The family's name for people."""
    return FAMILIES.get(family, family.replace("_", " "))


def metric_title(name: str) -> str:
    """A metric's name for people with its unit, for axes: ``Interactivity p50 (tokens/s/user)``."""
    metric = METRICS[name]
    title = family_title(metric.family).split(" (")[0]
    statistic = f" {metric.statistic}" if metric.statistic else ""
    return f"{title}{statistic} ({metric.unit})"


SELECTABLE: tuple[str, ...] = tuple(name for name in HEADLINE if METRICS[name].better is not None)
"""What an axis can be: typed columns of which one direction is better. Others have no frontier."""


@dataclass(frozen=True)
class Choices:
    """What can be chosen: values by control. ``metrics`` are names that have a value somewhere."""

    models: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    skus: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()


def _distinct(values: Iterable[object]) -> tuple[str, ...]:
    return tuple(sorted({str(value) for value in values if not pd.isna(value)}))  # type: ignore[call-overload]


def known_values(frame: pd.DataFrame, runs: Sequence[str]) -> Known:
    """What the address may name, given all rows of the snapshot or run."""
    columns = {
        "model": "model",
        "scenario": "scenario",
        "precision": "weight_precision",
        "sku": "sku",
        "engine": "engine",
        "point": "point_id",
    }
    values = {key: _distinct(frame[column]) if len(frame) else () for key, column in columns.items()}
    return Known({**values, "run": tuple(runs), "x": SELECTABLE, "y": SELECTABLE})


def _richest(frame: pd.DataFrame, column: str) -> str | None:
    """The value with most to see: official points, then points with a value on both axes, then any."""
    if frame.empty:
        return None
    drawn = pd.Series(False, index=frame.index)
    for kind, rows in frame.groupby("scenario_kind", dropna=False):
        axes = AXES.get(str(kind), AXES["fixed_length"])
        if axes.x in rows and axes.y in rows:
            drawn[rows.index] = rows[axes.x].notna() & rows[axes.y].notna()
    official = frame["official"].fillna(False).astype(bool)
    worth = pd.DataFrame({"of": frame[column], "official": official & drawn, "drawn": drawn, "all": True})
    sums = worth.groupby("of").sum().sort_index()
    return str(sums.sort_values(["official", "drawn", "all"], ascending=False, kind="stable").index[0])


def complete(state: PageState, frame: pd.DataFrame) -> tuple[PageState, Choices, list[str]]:
    """Fill in what was not chosen, and correct what does not go together.

    Model and scenario are always exactly one: points of different ones share no picture. The
    default is the one with most to see. Axes default to those of the scenario's kind.

    :param frame: all rows of the snapshot or run.
    :return: the complete state, what can be chosen beside it, and a note for each correction.
    """
    if frame.empty:
        return state, Choices(), []
    notes: list[str] = []
    models = _distinct(frame["model"])
    model = state.model or _richest(frame, "model")
    of_model = frame[frame["model"] == model]
    scenarios = _distinct(of_model["scenario"])
    scenario = state.scenario
    if scenario is None or scenario not in scenarios:
        if scenario is not None:
            notes.append(f"{model} was not measured in the scenario {scenario}.")
        scenario = _richest(of_model, "scenario")
    rows = of_model[of_model["scenario"] == scenario]
    found = {
        "precisions": _distinct(rows["weight_precision"]),
        "skus": _distinct(rows["sku"]),
        "engines": _distinct(rows["engine"]),
    }
    kept: dict[str, Any] = {}
    for field, values in found.items():
        chosen: tuple[str, ...] = getattr(state, field)
        kept[field] = tuple(value for value in chosen if value in values)
        for value in chosen:
            if value not in values:
                notes.append(f"{value} was not measured with {model} in {scenario}.")
    default = AXES.get(str(rows["scenario_kind"].iloc[0]), AXES["fixed_length"])
    resolved = replace(
        state, model=model, scenario=scenario, x=state.x or default.x, y=state.y or default.y, **kept
    )
    metrics = tuple(name for name in SELECTABLE if name in rows and rows[name].notna().any())
    return resolved, Choices(models=models, scenarios=scenarios, metrics=metrics, **found), notes


def narrow(frame: pd.DataFrame, state: PageState) -> pd.DataFrame:
    """The rows of a complete state, all verdicts."""
    if frame.empty:
        return frame
    keep = (frame["model"] == state.model) & (frame["scenario"] == state.scenario)
    for column, chosen in (
        ("weight_precision", state.precisions),
        ("sku", state.skus),
        ("engine", state.engines),
    ):
        if chosen:
            keep &= frame[column].isin(chosen)
    if state.official:
        keep &= frame["official"].fillna(False).astype(bool)
    return frame[keep]
