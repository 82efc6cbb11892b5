"""From sealed bundles through the real ingest to the page's rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isoline.dashboard.board import view_of
from isoline.dashboard.config import Look
from isoline.dashboard.data import Source
from isoline.dashboard.figure import build_figure
from isoline.dashboard.panel import point_panel
from isoline.dashboard.table import table_rows, view_csv, view_json
from isoline.errors import InputError
from isoline.results.warehouse.ingest import ingest
from isoline.settings import Settings


def test_what_was_sealed_is_what_is_shown(settings: Settings, bundles: Any, look: Look) -> None:
    """A run of four points with one that died: three on the page with numbers, one with its reason."""
    plan = bundles.make_plan()
    bundles.make_run(settings.store, plan, outcomes={(8, 1): bundles.Outcome(reasons=("server_died",))})
    ingest(settings)
    source = Source(settings.warehouse, 10.0)
    view = view_of("", source, look.palette)
    assert (view.counts.expected, view.counts.got) == (4, 4)
    assert dict(view.counts.causes) == {"server_died": 1}
    drawn = [row for row in view.rows if row.x is not None]
    assert sorted(row.concurrency for row in drawn) == [1, 2, 4]
    assert any(row.on_frontier for row in drawn)
    for row in view.rows:
        detail = source.detail(row.run_id, row.point_id)
        assert detail is not None and detail.lock is not None
        point_panel(detail, [], internal=True)
        assert detail.canary is not None


def test_a_decision_is_on_the_label_the_table_and_the_panel(
    settings: Settings, bundles: Any, look: Look
) -> None:
    """Why a point is withdrawn is said wherever it is shown, as text and never as markup."""
    run = bundles.make_run(settings.store, bundles.make_plan())
    point = next(run.glob("*.c4.*")).name
    reason = "the <b>fan</b> was broken " + "all night " * 20
    folder = settings.project / "results"
    folder.mkdir(exist_ok=True)
    (folder / "overrides.yaml").write_text(
        f"schema_version: 1\noverrides:\n  - run_id: {run.name}\n    point_id: {point}\n"
        f"    action: withdraw\n    reason: {reason}\n    reviewer: ops\n    dated: '2026-12-09'\n"
    )
    ingest(settings)
    source = Source(settings.warehouse, 10.0)
    view = view_of("", source, look.palette)
    labels = [text for trace in build_figure(view)["data"] for text in trace.get("hovertext", ())]
    (label,) = [text for text in labels if "withdrawn: " in text]
    assert "&lt;b&gt;fan&lt;/b&gt; was broken" in label
    assert "concurrency: <b>4</b>" in label and label.endswith("…")
    assert [row["concurrency"] for row in table_rows(view) if "fan" in row["why"]] == [4]
    assert view_csv(view).count("fan") == 1
    shown = view_json(view, frontier_only=False)["curves"][0]["points"]
    assert [bool(row["decisions"]) for row in shown] == [row["concurrency"] == 4 for row in shown]
    detail = source.detail(run.name, point)
    assert detail is not None
    panel = json.dumps(
        point_panel(detail, [], internal=False).to_plotly_json(), default=lambda x: x.to_plotly_json()
    )
    assert "(ops, 2026-12-09)" in panel


def test_the_points_of_an_earlier_day(settings: Settings, bundles: Any) -> None:
    """The data layer gives the snapshot as it was, beside the one of now."""
    runs = [f"2026120{day}T020000Z-demo-aaaaa{day}" for day in (1, 2)]
    for name in runs:
        bundles.make_run(settings.store, bundles.make_plan(), name)
    ingest(settings)
    source = Source(settings.warehouse, 10.0)
    assert set(source.run_points(None)["run_id"]) == {runs[1]}
    assert set(source.run_points(None, "2026-12-01")["run_id"]) == {runs[0]}
    assert source.run_points(runs[1], "2026-12-01").empty
    with pytest.raises(InputError, match="no day, time or run"):
        source.run_points(None, "yesterday")


def test_a_newer_run_that_is_not_shown_is_named(settings: Settings, bundles: Any, look: Look) -> None:
    """One that broke off, and one that meant only a part of the curve, each in its own words."""
    plan = bundles.make_plan()
    part = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(4)])])
    part = part.model_copy(update={"parts": [part.launches[0].points[0].curve_key]})
    runs = [f"2026120{day}T020000Z-demo-aaaaa{day}" for day in (1, 2, 3)]
    bundles.make_run(settings.store, plan, runs[0])
    bundles.make_run(settings.store, plan, runs[1], {(4, 1): None})
    ingest(settings)
    source = Source(settings.warehouse, 10.0)
    assert view_of("", source, look.palette).notes == (
        f"A newer run is not complete and not shown: {runs[1]}.",
    )
    bundles.make_run(settings.store, part, runs[2])
    ingest(settings)
    (note,) = view_of("", source, look.palette).notes
    assert note == f"A newer run measured only a part of a curve and is not shown: {runs[2]}."
