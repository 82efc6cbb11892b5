"""The picture: points and the step frontier of each curve, as a plotly figure in plain dicts. Pure."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from typing import Any

from isoline.dashboard.choices import metric_title
from isoline.dashboard.numbers import number
from isoline.dashboard.view import Curve, Row, View
from isoline.results.metrics.registry import Metric

_FADED = 0.35
_MARKER_SIZE = 11
_MAX_LABELS = 24
_MAX_DECISIONS = 3
_HOVER_WIDTH = 90
_NARROW = 34
"""Letters of a line that a phone shows whole inside the picture."""


def line_shape(x_better: str) -> str:
    """The plotly line shape of the step reading, for points in ascending x.

    "At x or faster": with x to be maximised a value holds from its point to the left, down to the
    next slower point, so the line first goes up or down and then right (``vh``). With x to be
    minimised it holds to the right (``hv``).
    """
    return "vh" if x_better == "max" else "hv"


def symbol(shape: str, row: Row) -> str:
    """Marker of a point: hollow = partial; a dot inside = not official."""
    return shape + ("-open" if row.verdict == "partial" else "") + ("" if row.official else "-dot")


def _hover(view: View, curve: Curve, row: Row) -> str:
    def line(name: str, value: str) -> str:
        return f"{html.escape(name)}: <b>{html.escape(value)}</b>"

    parts = [
        f"<b>{html.escape(curve.label)}</b>",
        line("concurrency", number(row.concurrency)) + f" · {html.escape(row.topology)} · {_gpus(row.gpus)}",
        line(metric_title(view.y.name), number(row.y)),
        line(metric_title(view.x.name), number(row.x)),
    ]
    if row.repetitions > 1:
        parts.append(f"median of {row.repetitions} repetitions")
    states = [row.verdict, "official" if row.official else "not official", *row.marks]
    if row.on_frontier:
        states.append("on the frontier")
    parts.append(html.escape(" · ".join(states)))
    parts += [html.escape(shortened(text)) for text in row.decisions[:_MAX_DECISIONS]]
    return "<br>".join(parts)


def shortened(text: str) -> str:
    """A text that fits a hover label; the panel of the point has all of it."""
    return text if len(text) <= _HOVER_WIDTH else text[: _HOVER_WIDTH - 1] + "…"


def _gpus(count: int | None) -> str:
    return "GPU count unknown" if count is None else f"{count} GPU" + ("" if count == 1 else "s")


def _drawn(curve: Curve) -> list[Row]:
    return [row for row in curve.rows if row.x is not None and row.y is not None]


def _frontier_trace(view: View, curve: Curve, rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": html.escape(curve.label),
        "x": [row.x for row in rows],
        "y": [row.y for row in rows],
        "line": {
            "shape": line_shape(view.x.better or "max"),
            "color": curve.colour,
            "dash": curve.line,
            "width": 2,
        },
        "hoverinfo": "skip",
    }


def _marker_trace(view: View, curve: Curve, rows: Sequence[Row], labels: bool) -> dict[str, Any]:
    solid = [row.on_frontier for row in rows]
    return {
        "type": "scatter",
        "mode": "markers+text" if labels else "markers",
        "name": html.escape(curve.label),
        "x": [row.x for row in rows],
        "y": [row.y for row in rows],
        "text": [
            f"c{row.concurrency}" if on and row.concurrency is not None else ""
            for row, on in zip(rows, solid, strict=True)
        ],
        "textposition": "top right",
        "textfont": {"size": 11},
        "cliponaxis": False,
        "customdata": [[row.run_id, row.point_id] for row in rows],
        "hovertext": [_hover(view, curve, row) for row in rows],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {
            "color": curve.colour,
            "size": _MARKER_SIZE,
            "symbol": [symbol(curve.shape, row) for row in rows],
            "opacity": [1.0 if on else _FADED for on in solid],
            "line": {"width": 1.5, "color": [_edge(curve, row) for row in rows]},
        },
    }


def _edge(curve: Curve, row: Row) -> str:
    # The dot of a "-dot" marker takes the colour of the line; on a filled marker it must differ.
    return curve.colour if row.verdict == "partial" or row.official else "#ffffff"


def _ring(rows: Sequence[Row], point: str | None) -> list[dict[str, Any]]:
    chosen = [row for row in rows if point is not None and point in row.members]
    if not chosen:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [row.x for row in chosen],
            "y": [row.y for row in chosen],
            "hoverinfo": "skip",
            "marker": {
                "symbol": "circle-open",
                "size": 22,
                "color": "#1f2a37",
                "line": {"width": 2},
            },
        }
    ]


_ARROWS = {("x", "max"): "→", ("x", "min"): "←", ("y", "max"): "↑", ("y", "min"): "↓"}


def _axis(axis: str, metric: Metric) -> dict[str, Any]:
    arrow = _ARROWS.get((axis, metric.better or ""))
    title = metric_title(metric.name) + (f"  {arrow} better" if arrow else "")
    return {
        "title": {"text": html.escape(title), "standoff": 8, "font": {"size": 13}},
        "rangemode": "tozero",
        "automargin": True,
        "gridcolor": "#e6e9ee",
        "zeroline": False,
        "linecolor": "#9aa4b2",
        "showline": True,
        "ticks": "outside",
        "tickcolor": "#9aa4b2",
    }


def _nothing(view: View) -> dict[str, Any]:
    """Why the picture is empty, in its middle."""
    rows = view.rows
    lacking = [
        metric_title(metric.name).split(" (")[0]
        for metric, values in ((view.y, [row.y for row in rows]), (view.x, [row.x for row in rows]))
        if all(value is None for value in values)
    ]
    text = "No point of this selection"
    if rows and lacking:
        text = f"Nothing here says its {' or its '.join(name[0].lower() + name[1:] for name in lacking)}"
    elif rows:
        text = "No point here has a value on both axes"
    lines = textwrap.wrap(f"{text}. Choose other axes or another selection.", _NARROW)
    return {
        "text": "<br>".join(html.escape(line) for line in lines),
        "xref": "paper",
        "yref": "paper",
        "x": 0.5,
        "y": 0.5,
        "showarrow": False,
        "font": {"size": 14, "color": "#5b6675"},
    }


def build_figure(view: View) -> dict[str, Any]:
    """The figure of a view. A point without a value on an axis is not drawn, never drawn at 0."""
    traces: list[dict[str, Any]] = []
    everything = [row for curve in view.curves for row in _drawn(curve)]
    labels = sum(row.on_frontier for row in everything) <= _MAX_LABELS
    for curve in view.curves:
        rows = _drawn(curve)
        best = sorted((row for row in rows if row.on_frontier), key=lambda row: row.x or 0.0)
        if len(best) > 1:
            traces.append(_frontier_trace(view, curve, best))
        if rows:
            traces.append(_marker_trace(view, curve, rows, labels))
    traces += _ring(everything, view.state.point)
    annotations = [] if everything else [_nothing(view)]
    layout: dict[str, Any] = {
        "xaxis": _axis("x", view.x),
        "yaxis": _axis("y", view.y),
        "margin": {"l": 8, "r": 24, "t": 24, "b": 8},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "#1f2a37"},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "bgcolor": "#ffffff", "font": {"color": "#1f2a37"}},
        "annotations": annotations,
        "clickmode": "event",
        "dragmode": "pan",
        "showlegend": False,  # the key under the picture says it, and wraps on a phone
        # Zoom survives a change of filter, not a change of axes.
        "uirevision": f"{view.x.name}|{view.y.name}|{view.state.scenario}",
    }
    return {"data": traces, "layout": layout}
