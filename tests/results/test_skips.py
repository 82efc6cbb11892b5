"""Points without an attempt: why, from what the run said at its end and from its starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isoline.results.bundles.records import SkippedRecord
from isoline.results.judging.skips import check_skipped
from isoline.results.warehouse.file import open_reader
from isoline.results.warehouse.ingest import ingest
from isoline.settings import Settings, load_settings


@pytest.fixture
def plan(bundles: Any) -> Any:
    """Two launches of two points."""
    two = [bundles.PointDef(1), bundles.PointDef(4)]
    other = bundles.LaunchDef(recipe_id="m/other", args=("--parallel", "4"))
    return bundles.make_plan([(bundles.LaunchDef(), two), (other, two)])


def rows(settings: Settings, sql: str) -> list[tuple[Any, ...]]:
    """Rows of the warehouse."""
    con = open_reader(settings.warehouse)
    try:
        return con.execute(sql).fetchall()
    finally:
        con.close()


def test_the_cause_that_the_run_said_counts(
    plan: Any, bundles: Any, settings: Settings, tmp_path: Path
) -> None:
    """The last word counts; what nobody said is missing; the run's row counts both; nothing comes twice."""
    full = load_settings(settings.project, store=tmp_path / "store", warehouse=tmp_path / "w.duckdb")
    run = bundles.seal_plan(full.store, plan)
    first, second = (launch.points for launch in plan.launches)
    bundles.seal_skipped(run, {first[0].point_id: "budget", first[1].point_id: "budget"})
    bundles.seal_skipped(run, {first[0].point_id: "window_closed", second[0].point_id: "breaker"}, number=2)
    assert ingest(full).ingested == 3
    assert ingest(full).ingested == 0
    found = dict(rows(full, "SELECT point_id, missing_cause FROM points"))
    assert found[first[0].point_id] == "window_closed"
    assert found[first[1].point_id] == "missing"
    assert found[second[0].point_id] == "breaker"
    assert rows(full, "SELECT expected, got, skipped, missing FROM runs") == [(4, 0, 2, 2)]
    assert rows(full, "SELECT count(*) FROM skips") == [(4,)]


def test_a_later_failed_start_is_newer_knowledge(
    plan: Any, bundles: Any, settings: Settings, tmp_path: Path
) -> None:
    """A start that failed before the run ended gives way to what the run said; a later one does not."""
    full = load_settings(settings.project, store=tmp_path / "store", warehouse=tmp_path / "w.duckdb")
    run = bundles.seal_plan(full.store, plan)
    one, two = plan.launches
    names = {launch.points[0].point_id: "budget" for launch in plan.launches}
    bundles.seal_launch(run, one, reasons=("launch_failed",))  # in the first five minutes of the run
    bundles.seal_skipped(run, names)  # an hour after its begin
    ingest(full)
    found = dict(rows(full, "SELECT point_id, missing_cause FROM points"))
    assert found[one.points[0].point_id] == "budget"
    assert found[one.points[1].point_id] == "launch_failed"
    assert found[two.points[1].point_id] == "missing"


def test_what_contradicts_itself_is_refused(
    plan: Any, bundles: Any, settings: Settings, tmp_path: Path
) -> None:
    """Of another run, or of another number: quarantine with the reason; its causes do not count."""
    full = load_settings(settings.project, store=tmp_path / "store", warehouse=tmp_path / "w.duckdb")
    run = bundles.seal_plan(full.store, plan)
    point = plan.launches[0].points[0].point_id
    folder = bundles.seal_skipped(run, {point: "budget"}, run_id="20261201T020000Z-demo-bbbbbb")
    (bad,) = ingest(full).quarantined
    assert bad.kind == "skipped"
    assert "run_id is '20261201T020000Z-demo-bbbbbb'" in bad.reason
    assert rows(full, "SELECT skipped, missing FROM runs") == [(0, 4)]
    record = SkippedRecord.model_validate_json((folder / "skipped.json").read_bytes())
    checked = check_skipped(record, run_id=record.run_id, folder="7", planned={point})
    assert checked == ["number is 1, expected 7"]


def test_unknown_points_and_causes_are_refused(
    plan: Any, bundles: Any, settings: Settings, tmp_path: Path
) -> None:
    """Only planned points, and only the causes that there are."""
    full = load_settings(settings.project, store=tmp_path / "store", warehouse=tmp_path / "w.duckdb")
    run = bundles.seal_plan(full.store, plan)
    bundles.seal_skipped(run, {"nobody": "budget"})
    bundles.seal_skipped(run, {plan.launches[0].points[0].point_id: "mood"}, number=2)
    reasons = [bad.reason for bad in ingest(full).quarantined]
    assert "point nobody is not in the plan" in reasons[0]
    assert "unknown cause 'mood'" in reasons[1]
