from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from isoline.analysis.curves import frontier_rows
from isoline.analysis.readings import step_reading
from isoline.dashboard.board import view_of
from isoline.dashboard.config import Look
from isoline.dashboard.data import Source
from isoline.dashboard.figure import build_figure
from isoline.dashboard.view import View


def _drawn_value(line: dict[str, Any], at: float) -> float:
    """What a reader sees at ``at`` on the drawn line: an independent reading of its shape."""
    xs, ys = line["x"], line["y"]
    for index in range(len(xs) - 1):
        if xs[index] < at < xs[index + 1]:
            return ys[index + 1] if line["line"]["shape"] == "vh" else ys[index]
    raise AssertionError(f"{at} is not between two points")


@pytest.mark.parametrize(
    "query",
    ["", "?x=ttft_p50_ms", "?x=ttft_p90_ms&y=e2el_p50_ms", "?x=interactivity_p90_tps&y=tpot_p50_ms"],
)
def test_the_drawn_line_is_the_step_reading(query: str, source: Source, look: Look) -> None:
    """Half-way between two points the line shows what the step reading gives, for each direction."""
    view = view_of(query, source, look.palette)
    lines = {trace["name"]: trace for trace in build_figure(view)["data"] if trace["mode"] == "lines"}
    checked = 0
    for curve in view.curves:
        frontier = frontier_rows([row.data for row in curve.rows])
        for left, right in zip(frontier.x, frontier.x[1:], strict=False):
            at = (left + right) / 2
            assert _drawn_value(lines[curve.label], at) == step_reading(frontier, at).value
            checked += 1
    assert checked or not lines


def _markers(view: View) -> dict[str, dict[str, Any]]:
    found = {}
    for trace in build_figure(view)["data"]:
        for index, custom in enumerate(trace.get("customdata", [])):
            marker = {name: trace["marker"][name][index] for name in ("symbol", "opacity")}
            found[custom[1]] = marker | {"x": trace["x"][index], "y": trace["y"][index]}
    return found


def test_marks_say_partial_unofficial_and_dominated(source: Source, look: Look) -> None:
    """Partial is hollow, not official has a dot, off the frontier is faded, invalid is not drawn."""
    view = view_of("?sku=cpu", source, look.palette)
    marks = {row.topology: _markers(view).get(row.point_id) for row in view.rows if row.topology != "tp1"}
    assert marks["tp1-bad"] is None
    assert marks["tp1-part"] is not None and "-open" in marks["tp1-part"]["symbol"]
    assert marks["tp1-new"] is not None and marks["tp1-new"]["symbol"].endswith("-dot")
    assert marks["tp1-slow"] is not None and marks["tp1-slow"]["opacity"] < 0.5
    best = next(row for row in view.rows if row.topology == "tp1" and row.concurrency == 1)
    assert _markers(view)[best.point_id]["opacity"] == 1.0


def test_missing_values_are_not_drawn(source: Source, look: Look) -> None:
    """With an axis that nobody has, nothing is drawn, no point at 0; the empty picture says why."""
    figure = build_figure(view_of("?x=ttft_p99_ms", source, look.palette))
    assert figure["data"] == []
    (said,) = figure["layout"]["annotations"]
    lines = said["text"].split("<br>")
    assert " ".join(lines).startswith("Nothing here says its time to first token p99.")
    assert all(len(line) <= 34 for line in lines), "a phone shows all of it"
    assert build_figure(view_of("", source, look.palette))["layout"]["annotations"] == []


def test_the_figure_is_one_that_plotly_accepts(source: Source, look: Look) -> None:
    """Every property name and value passes plotly's own validation."""
    point = view_of("", source, look.palette).rows[0].point_id
    go.Figure(build_figure(view_of(f"?point={point}", source, look.palette)))


def test_hostile_names_are_escaped(
    warehouse_path: Path, make_point: Any, make_warehouse: Any, look: Look
) -> None:
    """A name with a script in it reaches the picture as text only."""
    evil = "<script>alert(1)</script>"
    make_warehouse(warehouse_path, [make_point(1, topology=evil, curve={"engine": evil})])
    figure = build_figure(view_of("", Source(warehouse_path, 10.0), look.palette))
    shown = [text for trace in figure["data"] for text in (trace["name"], *trace.get("hovertext", []))]
    assert shown
    assert not any("<script" in text for text in shown)
    assert "&lt;script" in json.dumps(shown)
