"""``isoline frontier`` on a small warehouse: selection, formats, readings and errors."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from isoline.cli.main import run
from isoline.results.warehouse.file import insert, open_reader, open_writer
from isoline.results.warehouse.ingest import ingest
from isoline.results.warehouse.schema import BY_NAME
from isoline.settings import load_settings

OLD = "20260101T000000Z-demo-aaaaaa"
NEW = "20260102T000000Z-demo-bbbbbb"


def run_row(run_id: str, sweep: str = "demo") -> dict[str, Any]:
    started = datetime.strptime(run_id[:15], "%Y%m%dT%H%M%S")
    return {
        **dict.fromkeys(BY_NAME["runs"].names),
        "run_id": run_id,
        "sweep": sweep,
        "started_at": started,
    }


def point(run_id: str, concurrency: int, x: float | None, y: float | None, **more: Any) -> dict[str, Any]:
    values = {
        **dict.fromkeys(BY_NAME["points"].names),
        "run_id": run_id,
        "point_id": f"m.tp1.short.c{concurrency}.r1.{run_id[-6:]}",
        "point_digest": f"d{concurrency}",
        "got": True,
        "sweep": "demo",
        "recipe_id": "m/llamacpp-cpu-q4_1",
        "model": "m",
        "sku": "cpu",
        "engine": "llamacpp",
        "weight_precision": "q4_1",
        "scenario": "short",
        "scenario_version": 1,
        "scenario_kind": "fixed_length",
        "topology": "tp1",
        "gpus": 1,
        "concurrency": concurrency,
        "repetition": 1,
        "kind": "measured",
        "source": "own",
        "curve_key": "k1",
        "verdict": "valid",
        "reasons": [],
        "marks": ["unverified"],
        "accuracy_state": "not_run",
        "official": True,
        "window": "full",
        "interactivity_p50_tps": x,
        "total_tps_per_gpu": y,
    }
    assert not set(more) - set(values)
    return {**values, **more}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose warehouse holds a complete old run and an incomplete newer one."""
    for name in ("recipes", "sweeps"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("ISOLINE_PROJECT", str(tmp_path))
    for name in ("ISOLINE_STORE", "ISOLINE_WAREHOUSE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def fill(project: Path, *points: dict[str, Any], runs: tuple[str, ...] = (OLD, NEW)) -> None:
    with open_writer(project / "results" / "warehouse.duckdb") as con:
        insert(con, BY_NAME["runs"], BY_NAME["runs"].rows(run_row(name) for name in runs))
        insert(con, BY_NAME["points"], BY_NAME["points"].rows(points))


@pytest.fixture
def filled(project: Path) -> Path:
    """Points at concurrency 1, 4 and 8; 4 is dominated; the newer run broke off."""
    fill(
        project,
        point(OLD, 1, 60.0, 100.0),
        point(OLD, 4, 15.0, 150.0),
        point(OLD, 8, 20.0, 200.0),
        point(NEW, 1, 61.0, 101.0),
        point(NEW, 4, None, None, verdict="infra_error", official=False, reasons=["client_died"]),
        point(NEW, 8, None, None, verdict=None, got=False, official=False, window=None),
    )
    return project


def call(*argv: str) -> int:
    """Run the command as the program does; its exit code."""
    return run(["frontier", *argv])


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    assert call(*argv, "--format", "json") == 0
    return json.loads(capsys.readouterr().out)


def test_shows_the_newest_complete_run_and_says_of_the_newer_one(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The official snapshot comes from one complete run; the incomplete newer run is named."""
    (curve,) = document(capsys)
    assert (curve["run_id"], curve["complete"], curve["newer_incomplete_run"]) == (OLD, True, NEW)
    assert [(p["concurrency"], p["frontier"]) for p in curve["points"]] == [(1, True), (4, False), (8, True)]
    assert curve["points"][0]["marks"] == ["unverified"]


@pytest.mark.parametrize("argv", [("--run", "newest"), ("--run", NEW), ("--sweep", "demo")])
def test_run_and_sweep_show_an_incomplete_run_as_it_is(
    filled: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]
) -> None:
    """Asked for by name the broken run is shown, with null for what was not measured."""
    (curve,) = document(capsys, *argv)
    assert (curve["run_id"], curve["complete"]) == (NEW, False)
    assert [(p["verdict"], p["y"]) for p in curve["points"]] == [
        ("valid", 101),
        ("infra_error", None),
        ("missing", None),
    ]


def test_readings_at_given_values(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--at reads the frontier: at the value or faster, at the edge, and not reached."""
    (curve,) = document(capsys, "--at", "10,20,30,60.5")
    assert [(r["step"], r["step_state"]) for r in curve["readings"]] == [
        (200, "at_edge"),
        (200, "ok"),
        (100, "ok"),
        (None, "not_reached"),
    ]
    assert 100 < curve["readings"][2]["estimate"] < 200


def test_table_is_for_people(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table names the curve, its run, each point and the readings."""
    assert call("--at", "30,99") == 0
    text = capsys.readouterr().out
    assert "m · cpu · llamacpp · q4_1 · short v1" in text
    assert "3 points, 2 on the frontier" in text
    assert f"A newer run of this curve is incomplete: {NEW}" in text
    assert "not reached" in text
    assert "tp1 c1" in text


def test_csv_holds_points_or_readings(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CSV is one table: the points, or with --at the readings."""
    assert call("--format", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["concurrency"] for row in rows] == ["1", "4", "8"]
    assert call("--format", "csv", "--at", "30") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["at"], row["step"]) for row in rows] == [("30.0", "100.0")]


def test_other_axes(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An axis of which these points have no value gives no frontier instead of zeros."""
    (curve,) = document(capsys, "--x", "ttft_p50_ms")
    assert not any(p["frontier"] for p in curve["points"])
    assert {p["x"] for p in curve["points"]} == {None}
    assert curve["readings"] == []


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("--model", "n"), "known: m"),
        (("--engine", "lamacpp"), "did you mean llamacpp?"),
        (("--sweep", "nightly"), "known: demo"),
        (("--run", OLD[:-1] + "b"), "did you mean"),
        (("--x", "nonsense"), "unknown metric"),
        (("--at", "20,fast"), "not a number: 'fast'"),
        (("--at", "nan"), "not a number"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_1(
    filled: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], text: str
) -> None:
    """Unknown names get the nearest known one, on one line."""
    assert call(*argv) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err
    assert len(captured.err.strip().splitlines()) == 1


def test_empty_and_absent_warehouses_say_how_to_fill_them(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a warehouse, or without a run in it, the remedy is named."""
    assert call() == 1
    assert "isoline results ingest" in capsys.readouterr().err
    fill(project, runs=())
    assert call() == 1
    assert "isoline sweep run demo" in capsys.readouterr().err


def test_without_a_complete_run_it_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """When every run broke off, nothing is shown as official, and the way to see it is named."""
    fill(project, point(NEW, 1, None, None, verdict="infra_error", official=False))
    assert call() == 1
    assert "--run newest" in capsys.readouterr().err


def test_sealed_bundles_give_within_run_intervals(
    project: Path, bundles: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """From sealed bundles through ingest to the table: one repetition has its within-run interval."""
    plan = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1), bundles.PointDef(4)])])
    settings = load_settings()
    run_folder = bundles.make_run(settings.store, plan)
    ingest(settings)
    (curve,) = document(capsys)
    assert len(curve["points"]) == 2
    for row in curve["points"]:
        assert row["y_interval"] == row["x_interval"] == "within_run"
        assert row["y_low"] <= row["y"] <= row["y_high"]
    for path in run_folder.glob("*/*/requests.parquet"):
        path.unlink()  # thinned
    (curve,) = document(capsys)
    assert {row["y_interval"] for row in curve["points"]} == {None}


def test_any_metric_with_a_direction_is_an_axis(
    project: Path, bundles: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one that is no column of points: read from the attempt's own window; without values it is null."""
    settings = load_settings(project)
    bundles.make_run(settings.store, bundles.make_plan())
    ingest(settings)
    (curve,) = document(capsys, "--x", "interactivity_p50_tps", "--y", "icl_p50_ms")
    assert (curve["x_metric"], curve["y_metric"]) == ("interactivity_p50_tps", "icl_p50_ms")
    sql = """SELECT p.concurrency, m.value FROM points p JOIN metrics m USING (run_id, point_id)
        WHERE m.name = 'icl_p50_ms' AND m."window" = p."window" """
    con = open_reader(settings.warehouse)
    wanted = dict(con.execute(sql).fetchall())
    con.close()
    assert {row["concurrency"]: row["y"] for row in curve["points"]} == wanted
    assert len(wanted) == 4
    # Both are better with fewer requests in flight: one point beats the others.
    assert [row["concurrency"] for row in curve["points"] if row["frontier"]] == [1]
    (empty,) = document(capsys, "--y", "j_per_input_token")
    assert [(row["y"], row["frontier"]) for row in empty["points"]] == [(None, False)] * 4


def test_cost_is_made_of_the_throughput_of_each_point(
    project: Path, project_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The frontier is that of the throughput; prices are those of a day; cost is never x."""
    folder = project / "dashboard" / "prices"
    folder.mkdir(parents=True)
    for name in ("2026-04.yaml", "2026-10.yaml"):
        (folder / name).write_text((project_root / "dashboard" / "prices" / name).read_text())
    fill(project, point(OLD, 1, 60.0, 100.0, sku="h200"), point(OLD, 8, 20.0, 200.0, sku="h200"), runs=(OLD,))
    (curve,) = document(capsys, "--y", "usd_per_m_total_tokens", "--at", "20,40")
    assert (curve["y_metric"], curve["prices"], curve["tier"]) == (
        "usd_per_m_total_tokens",
        "2026-10",
        "hyperscaler",
    )
    assert [row["y"] for row in curve["points"]] == pytest.approx([1.22 / 0.36, 1.22 / 0.72])
    assert [row["frontier"] for row in curve["points"]] == [True, True]
    assert [row["step"] for row in curve["readings"]] == pytest.approx([1.22 / 0.72, 1.22 / 0.36])
    throughput = document(capsys, "--at", "20,40")[0]["readings"]
    for row, other in zip(curve["readings"], throughput, strict=True):
        assert row["estimate"] == pytest.approx(1.22 / (0.0036 * other["estimate"]))
    assert call("--x", "usd_per_m_total_tokens") == 1
    assert "vertical axis only" in capsys.readouterr().err
    (unknown,) = document(capsys, "--y", "usd_per_session")
    assert [row["y"] for row in unknown["points"]] == [None, None]
