"""The tables of DESIGN 5.6: each is there, each is filled, and the page and the help name it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from isoline.cli.results import app
from isoline.results.foreign.store import Said, keep
from isoline.results.warehouse.ingest import ingest
from isoline.results.warehouse.schema import BY_NAME
from isoline.settings import Settings

DESIGNED = "points attempts metrics launches runs accuracy telemetry events quarantine overrides prices"
DESIGNED += " recipes imports"
RUNS = [f"2026120{day}T020000Z-demo-aaaaa{day}" for day in range(1, 4)]


def test_every_table_of_the_design_is_filled(
    bundles: Any, settings: Settings, ask: Any, project_root: Path
) -> None:
    """Nights with trouble, one that adds to it, a foreign file, a decision and a price list fill them all."""
    plan = bundles.make_plan()
    points = [point.point_id for _, point in bundles.points_of(plan)]
    run = bundles.make_run(
        settings.store,
        plan,
        RUNS[0],
        {(2, 1): bundles.Outcome(reasons=("server_died",)), (4, 1): bundles.Outcome(accuracy_state="passed")},
    )
    other = bundles.make_run(settings.store, plan, RUNS[1], {(8, 1): None})
    bundles.seal_skipped(other, {points[-1]: "budget"})
    (other / points[0] / "1" / "point.json").write_text("{}")
    launch = [
        (bundles.LaunchDef(recipe_id="other/llamacpp-cpu-f16", weight_precision="f16"), [bundles.PointDef(1)])
    ]
    base = bundles.make_plan(launch)
    bundles.make_run(settings.store, base, RUNS[2])
    grown = bundles.make_plan([(launch[0][0], [bundles.PointDef(1), bundles.PointDef(2)])])
    bundles.make_run(
        settings.store, bundles.grow(grown, RUNS[2], {1: RUNS[2]}), RUNS[2].replace("03T", "04T")
    )
    (settings.project / "results" / "overrides.yaml").write_text(
        f"schema_version: 1\noverrides:\n  - run_id: {run.name}\n    action: annotate\n"
        "    reason: the first night of it\n    reviewer: ops\n    dated: '2026-12-02'\n"
    )
    prices = settings.project / "dashboard" / "prices" / "2026-10.yaml"
    prices.parent.mkdir(parents=True)
    prices.write_text((project_root / "dashboard" / "prices" / "2026-10.yaml").read_text())
    row = {"hw": "b200", "model": "openai/gpt-oss-120b", "framework": "vllm", "precision": "fp4", "isl": 1024}
    row |= {"osl": 1024, "tp": 8, "conc": 4, "median_tpot": 0.01, "tput_per_gpu": 100.0}
    file = settings.project / "agg.json"
    file.write_text(json.dumps([row]))
    keep(settings.store, [file], Said())
    ingest(settings)
    assert set(DESIGNED.split()) <= set(BY_NAME)
    counts = {name: ask(f"SELECT count(*) FROM {name}")[0][0] for name in BY_NAME}
    assert [name for name, count in counts.items() if not count] == []


def test_events_are_in_time_and_say_what_went_wrong(bundles: Any, settings: Settings, ask: Any) -> None:
    """A run reads from start to end; a reason stands before the end that it explains."""
    plan = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1), bundles.PointDef(4)])])
    bundles.make_run(settings.store, plan, RUNS[0], {(4, 1): bundles.Outcome(reasons=("server_died",))})
    ingest(settings)
    found = ask("SELECT what, code FROM events WHERE point_id LIKE '%.c4.%' ORDER BY rowid")
    assert found == [("attempt_started", None), ("reason", "server_died"), ("attempt_ended", "invalid")]
    launch = ask("SELECT what, code, detail FROM events WHERE point_id IS NULL ORDER BY rowid")
    assert launch == [
        ("launch_started", None, "smollm2-135m/llamacpp-cpu-q4_1"),
        ("launch_ended", "valid", None),
    ]
    times = [moment for (moment,) in ask("SELECT happened_at FROM events ORDER BY rowid")]
    assert times == sorted(times) and len(times) == 7


def test_page_and_help_name_every_table(project_root: Path) -> None:
    """What a person may ask is what there is."""
    page = (project_root / "docs" / "warehouse.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(BY_NAME)
    shown = CliRunner().invoke(app, ["query", "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    text = " ".join(shown.split())
    for name in BY_NAME:
        assert re.search(rf"\b{name}\b", text), name
