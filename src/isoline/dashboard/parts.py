"""The parts of the page that depend on the view: options, notes, counts, key, links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from isoline.dashboard.changes import SNAPSHOT
from isoline.dashboard.choices import FAMILIES, family_title, metric_title
from isoline.dashboard.config import Preset
from isoline.dashboard.layout import aria
from isoline.dashboard.numbers import moment
from isoline.dashboard.state import PageState, to_query
from isoline.dashboard.view import NEWEST, View
from isoline.results.metrics.registry import METRICS, Metric

_KEPT_RUNS = 100

ONE_VALUE = "one"
"""Value of the statistic control where a metric has one value only (an empty one shows nothing)."""

Options = list[dict[str, str]]


def options(values: Sequence[str]) -> Options:
    """Options whose label is their value."""
    return [{"label": value, "value": value} for value in values]


def run_options(runs: Sequence[str], chosen: str | None) -> Options:
    """The snapshot, the newest runs, then the last 100 runs by id; the chosen one always."""
    listed = list(runs[:_KEPT_RUNS])
    if chosen not in (None, NEWEST, *listed):
        listed.append(str(chosen))
    return [
        {"label": "Snapshot: newest complete run of each curve", "value": SNAPSHOT},
        {"label": "Newest run of each curve, complete or not", "value": NEWEST},
        *options(listed),
    ]


def axis_options(view: View, metric: Metric) -> tuple[Options, Options]:
    """(families, statistics of the shown family) that have a value in the selection."""
    names = dict.fromkeys((*view.choices.metrics, metric.name))
    families = {METRICS[name].family for name in names}
    order = [family for family in FAMILIES if family in families]
    order += sorted(families - set(order))
    statistics = [METRICS[name].statistic for name in names if METRICS[name].family == metric.family]
    ranked = sorted(set(statistics), key=lambda text: (text == "mean", text))
    return (
        [{"label": family_title(family), "value": family} for family in order],
        [{"label": text or "one value", "value": text or ONE_VALUE} for text in ranked],
    )


def notes(view: View) -> list[html.P]:
    """What was ignored, then what else must be known."""
    ignored = [f"Ignored: {text}" for text in view.ignored]
    return [html.P(text) for text in (*ignored, *view.notes)]


def counts(view: View) -> list[Any]:
    """The counts line: expected, got, by verdict, missing by cause, quarantine."""
    count = view.counts
    parts = [f"{count.expected} points expected", f"{count.got} measured"]
    parts += [f"{number} {name.replace('_', ' ')}" for name, number in count.verdicts]
    parts.append(f"{count.missing} missing")
    if count.causes:
        parts.append("causes: " + ", ".join(f"{name} ({number})" for name, number in count.causes))
    if count.off_axes:
        parts.append(f"{count.off_axes} without a value on these axes, not drawn")
    rows = "row" if count.quarantined == 1 else "rows"
    parts.append(f"{count.quarantined} {rows} in quarantine")
    troubled = (
        count.got < count.expected or count.quarantined or dict(count.verdicts).get("valid", 0) < count.got
    )
    return [html.Span(" · ".join(parts), className="troubled" if troubled else "")]


def picture_title(view: View) -> str:
    """One line above the picture: what against what, of which model in which scenario."""
    y, x = metric_title(view.y.name).split(" (")[0], metric_title(view.x.name).split(" (")[0]
    windows = sorted({curve.window for curve in view.curves if curve.window})
    window = f", {' and '.join(windows)} window" if windows else ""
    return f"{y} against {x[:1].lower()}{x[1:]}: {view.state.model}, {view.state.scenario}{window}"


_SHAPES = {
    "circle": "●",
    "square": "■",
    "diamond": "◆",
    "triangle-up": "▲",
    "triangle-down": "▼",
    "pentagon": "⬟",
    "star": "★",
    "hexagon": "⬢",
    "star-diamond": "✦",
}


def key(view: View) -> list[Any]:
    """What colours, lines and marks mean; only what is in the picture."""
    parts: list[Any] = [
        html.Span(
            [
                html.Span(
                    _SHAPES.get(curve.shape, "●"),
                    style={"color": curve.colour},
                    **aria({"aria-hidden": "true"}),
                ),
                f" {curve.label}",
            ],
            className="key-curve",
        )
        for curve in view.curves
    ]
    drawn = [row for row in view.rows if row.x is not None and row.y is not None]
    side = "this value or more" if view.x.better == "max" else "this value or less"
    parts.append(html.Span(f"line: step frontier (best measured at {side} on the horizontal axis)"))
    if any(not row.on_frontier for row in drawn):
        parts.append(html.Span("faded: not on the frontier"))
    if any(row.verdict == "partial" for row in drawn):
        parts.append(html.Span("hollow: partial"))
    if any(not row.official for row in drawn):
        parts.append(html.Span("dot inside: not official"))
    return parts


def preset_links(presets: Sequence[Preset], shown: PageState) -> list[Any]:
    """A link for each preset; model, scenario, filters and run stay."""
    links: list[Any] = []
    for preset in presets:
        base = PageState(
            model=shown.model,
            scenario=shown.scenario,
            precisions=shown.precisions,
            skus=shown.skus,
            engines=shown.engines,
            run=shown.run,
            official=shown.official,
        )
        query = to_query(base)
        more = "&".join(f"{name}={value}" for name, value in preset.query.items())
        href = query + ("&" if query and more else "?" if more else "") + more
        links.append(dcc.Link(preset.title, href=href or "/", title=preset.help))
    return links


def footer(view: View) -> list[Any]:
    """When the data was brought in, and what it is."""
    if view.updated_at is None:
        return []
    return [
        html.Span(f"Data of {moment(view.updated_at)}. "),
        html.Span("Points are medians over valid repetitions. Every number is defined in docs/metrics.md."),
    ]


def empty_page(has_runs: bool) -> list[Any]:
    """What stands in the place of the picture when there is nothing to show."""
    if has_runs:
        return [
            html.H2("Nothing to show here"),
            html.P("No point fits these filters. Take some of them away."),
        ]
    steps = [
        ("make demo", "measures a small real model on this machine, then fills this page"),
        ("isoline sweep run demo", "measures only"),
        ("isoline results ingest", "brings what was measured into the warehouse"),
    ]
    return [
        html.H2("There is nothing here yet"),
        html.P("This page fills when something was measured and ingested:"),
        html.Ul([html.Li([html.Code(command), f" — {text}"]) for command, text in steps]),
    ]
