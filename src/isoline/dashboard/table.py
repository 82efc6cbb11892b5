"""The table twin of the picture: the same rows, for the grid, the CSV and the JSON. Pure."""

from __future__ import annotations

import csv
import io
from typing import Any

from isoline.dashboard.choices import metric_title
from isoline.dashboard.numbers import plain
from isoline.dashboard.view import Curve, Row, View
from isoline.results.identity import CURVE_FIELDS


def table_row(curve: Curve, row: Row) -> dict[str, Any]:
    """One row of the grid. Absent numbers are None."""
    data = row.data
    return {
        "id": f"{row.run_id}|{row.point_id}",
        "curve": curve.label,
        "concurrency": row.concurrency,
        "topology": row.topology,
        "gpus": row.gpus,
        "x": plain(row.x),
        "y": plain(row.y),
        "ttft_p50_ms": plain(data["ttft_p50_ms"]),
        "frontier": "yes" if row.on_frontier else "",
        "verdict": row.verdict.replace("_", " "),
        "official": "yes" if row.official else "no",
        "why": ", ".join((*data["reasons"], *row.marks, *data["why"], *row.decisions)),
        "accuracy": ", ".join(data["accuracy"]).replace("_", " "),
        "n": f"{row.repetitions} of {data['repetitions']}",
        "interval": _interval(data),
        "recipe": data["recipe_id"],
        "run_id": row.run_id,
        "point_id": row.point_id,
    }


def _interval(data: dict[str, Any]) -> str:
    low, high = data.get("y_low"), data.get("y_high")
    if low is None or high is None:
        return ""
    return f"{low:.4g} to {high:.4g} ({str(data['y_interval']).replace('_', ' ')})"


def table_rows(view: View) -> list[dict[str, Any]]:
    """The rows of the grid, curve after curve."""
    return [table_row(curve, row) for curve in view.curves for row in curve.rows]


_NUMBER = {"function": "params.value == null ? '–' : d3.format(',.4~r')(params.value)"}


def column_definitions(view: View) -> list[dict[str, Any]]:
    """AG Grid's columns. Every cell is text or a number; none is rendered as HTML or Markdown."""

    def column(field: str, title: str, width: int, **more: Any) -> dict[str, Any]:
        return {"field": field, "headerName": title, "width": width, "headerTooltip": title, **more}

    def numeric(field: str, title: str, width: int = 130) -> dict[str, Any]:
        return column(field, title, width, type="rightAligned", valueFormatter=_NUMBER)

    several = len(view.curves) > 1
    return [
        column("concurrency", "Concurrency", 128, type="rightAligned", pinned="left"),
        numeric("y", metric_title(view.y.name), 175),
        numeric("x", metric_title(view.x.name), 150),
        *([column("curve", "Curve", 190)] if several else []),
        *(
            []
            if "ttft_p50_ms" in (view.x.name, view.y.name)
            else [numeric("ttft_p50_ms", "TTFT p50 (ms)", 105)]
        ),
        column("frontier", "On frontier", 95),
        column("verdict", "Verdict", 105),
        column("official", "Official", 90),
        column("accuracy", "Accuracy", 110),
        column("n", "Repetitions", 120),
        column("interval", f"Interval of {metric_title(view.y.name)}", 190),
        column("why", "Reasons and marks", 210),
        column("topology", "Topology", 110),
        column("gpus", "GPUs", 80, type="rightAligned"),
        column("recipe", "Recipe", 260),
        column("run_id", "Run", 250),
        column("point_id", "Point", 420),
    ]


def view_csv(view: View) -> str:
    """The rows as CSV: metric names with their units as header, "" for null, lists with blanks.

    A cell that a spreadsheet would take for a formula gets a quote in front of it.
    """
    buffer = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for curve in view.curves:
        for row in curve.rows:
            cells = _csv_row(curve, row, view.x.name, view.y.name)
            if writer is None:
                writer = csv.DictWriter(buffer, list(cells), lineterminator="\n")
                writer.writeheader()
            writer.writerow({name: _cell(value) for name, value in cells.items()})
    return buffer.getvalue()


def _csv_row(curve: Curve, row: Row, x: str, y: str) -> dict[str, Any]:
    data = row.data
    cells = {"curve": curve.label, "curve_key": curve.key, "run_id": row.run_id, "window": curve.window}
    cells |= {name: data[name] for name in ("recipe_id", "topology", "gpus", "concurrency")}
    for axis, metric in (("y", y), ("x", x)):
        cells[metric] = data[axis]
        cells |= {f"{metric}_{part}": data[f"{axis}_{part}"] for part in ("low", "high", "interval")}
    cells |= {name: data[name] for name in ("n", "repetitions", "verdict", "official", "frontier")}
    names = ("accuracy", "reasons", "marks", "decisions", "why", "point_id", "point_ids")
    cells |= {name: data[name] for name in names}
    return cells


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        value = " ".join(str(item) for item in value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value


def view_json(view: View, *, frontier_only: bool) -> dict[str, Any]:
    """The view as JSON: the selection, then each curve with its points.

    :param frontier_only: only points on the frontier, in ascending x, else all points.
    """
    state, counts = view.state, view.counts
    curves = []
    for curve in view.curves:
        rows = [row for row in curve.rows if row.on_frontier or not frontier_only]
        if frontier_only:
            rows.sort(key=lambda row: row.x or 0.0)
        first = curve.rows[0].data
        curves.append(
            {
                "curve_key": curve.key,
                "label": curve.label,
                **{name: plain(first[name]) for name in CURVE_FIELDS},
                "run_id": curve.run_id,
                "window": curve.window,
                "points": [_json_row(row) for row in rows],
            }
        )
    return {
        "schema_version": 1,
        "selection": {
            "model": state.model,
            "scenario": state.scenario,
            "precision": list(state.precisions),
            "sku": list(state.skus),
            "engine": list(state.engines),
            "run": state.run,
            "official": state.official,
        },
        "axes": {
            axis: {"metric": metric.name, "unit": metric.unit, "better": metric.better}
            for axis, metric in (("x", view.x), ("y", view.y))
        },
        "counts": {
            "expected": counts.expected,
            "got": counts.got,
            **dict(counts.verdicts),
            "missing": counts.missing,
            "causes": dict(counts.causes),
            "without_value_on_axes": counts.off_axes,
            "quarantined": counts.quarantined,
        },
        "notes": [*view.ignored, *view.notes],
        "updated_at": plain(view.updated_at),
        "curves": curves,
    }


_OF_CURVE = frozenset(
    {*CURVE_FIELDS, "curve_key", "run_id", "window", "scenario_kind", "x_metric", "y_metric"}
)


def _json_row(row: Row) -> dict[str, Any]:
    return {name: plain(value) for name, value in row.data.items() if name not in _OF_CURVE}
