"""What a click or a choice makes of the page's state. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from isoline.dashboard.choices import SELECTABLE
from isoline.dashboard.state import PageState
from isoline.results.metrics.registry import METRICS

SNAPSHOT = "snapshot"
"""The value of the run control for the official snapshot (no ``run`` in the address)."""


def metric_of(family: str, statistic: str, among: tuple[str, ...] = SELECTABLE) -> str | None:
    """The metric of a family with a statistic; where the family lacks it, its p50 or first one."""
    members = [METRICS[name] for name in among if METRICS[name].family == family]
    for wanted in (statistic, "p50"):
        for metric in members:
            if metric.statistic == wanted:
                return metric.name
    return members[0].name if members else None


def _with(state: PageState, field: str, value: Any) -> PageState:
    changed: dict[str, Any] = {field: value}
    return replace(state, **changed)


def _axis_family(axis: str) -> Callable[[PageState, PageState, Any], PageState]:
    def change(chosen: PageState, shown: PageState, value: Any) -> PageState:
        now = getattr(shown, axis)
        statistic = METRICS[now].statistic if now in METRICS else ""
        return _with(chosen, axis, metric_of(str(value), statistic) or now)

    return change


def _axis_statistic(axis: str) -> Callable[[PageState, PageState, Any], PageState]:
    def change(chosen: PageState, shown: PageState, value: Any) -> PageState:
        now = getattr(shown, axis)
        family = METRICS[now].family if now in METRICS else ""
        return _with(chosen, axis, metric_of(family, str(value)) or now)

    return change


def _many(field: str) -> Callable[[PageState, PageState, Any], PageState]:
    def change(chosen: PageState, shown: PageState, value: Any) -> PageState:
        return _with(replace(chosen, point=None), field, tuple(sorted(str(item) for item in value or ())))

    return change


def _model(chosen: PageState, shown: PageState, value: Any) -> PageState:
    # What was chosen under another model may not exist under this one; only axes and run stay.
    return PageState(model=str(value), run=chosen.run, x=chosen.x, y=chosen.y, official=chosen.official)


def _scenario(chosen: PageState, shown: PageState, value: Any) -> PageState:
    # The axes go back to the defaults of the new scenario's kind.
    return replace(chosen, model=shown.model, scenario=str(value), x=None, y=None, point=None)


def _run(chosen: PageState, shown: PageState, value: Any) -> PageState:
    return replace(chosen, run=None if value in (None, SNAPSHOT) else str(value), point=None)


def _official(chosen: PageState, shown: PageState, value: Any) -> PageState:
    return replace(chosen, official=bool(value))


def _graph_click(chosen: PageState, shown: PageState, value: Any) -> PageState:
    points = (value or {}).get("points") or [{}]
    custom = points[0].get("customdata")
    return replace(chosen, point=str(custom[1])) if custom else chosen


def _row_click(chosen: PageState, shown: PageState, value: Any) -> PageState:
    # Rows that are redrawn lose their selection: an empty one is not a choice.
    return replace(chosen, point=str(value[0]["point_id"])) if value else chosen


def _close(chosen: PageState, shown: PageState, value: Any) -> PageState:
    return replace(chosen, point=None)


CHANGES: dict[str, Callable[[PageState, PageState, Any], PageState]] = {
    "model.value": _model,
    "scenario.value": _scenario,
    "precision.value": _many("precisions"),
    "sku.value": _many("skus"),
    "engine.value": _many("engines"),
    "run.value": _run,
    "x-family.value": _axis_family("x"),
    "x-statistic.value": _axis_statistic("x"),
    "y-family.value": _axis_family("y"),
    "y-statistic.value": _axis_statistic("y"),
    "official.value": _official,
    "graph.clickData": _graph_click,
    "grid.selectedRows": _row_click,
    "close-panel.n_clicks": _close,
}
"""For each input of the page: (what the address says, what is shown, the new value) -> new address."""
