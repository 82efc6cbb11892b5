"""The past, lost points and decisions of people on the command line, from real bundles."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from isoline.cli.main import run
from isoline.results.warehouse.ingest import ingest
from isoline.settings import Settings, load_settings

RUNS = [f"2026120{day}T020000Z-demo-aaaaa{day}" for day in range(1, 5)]
FIRST = ["--model", "smollm2-135m-instruct", "--scenario", "demo-short"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """An empty project of this test's own."""
    for name in ("recipes", "sweeps", "results"):
        (tmp_path / name).mkdir()
    for name in ("ISOLINE_STORE", "ISOLINE_WAREHOUSE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ISOLINE_PROJECT", str(tmp_path))
    return load_settings(tmp_path)


@pytest.fixture
def nights(bundles: Any, project: Settings) -> Settings:
    """Concurrency 1, 4 and 8; the second night is twice as fast, and lacks concurrency 8."""
    many = [bundles.PointDef(c) for c in (1, 4, 8)]
    bundles.make_run(project.store, bundles.make_plan([(bundles.LaunchDef(), many)]), RUNS[0])
    less = bundles.make_plan([(bundles.LaunchDef(), many[:2])])
    bundles.make_run(project.store, less, RUNS[1], default=bundles.Outcome(speed=2.0))
    ingest(project)
    return project


def decide(project: Settings, run_id: str, point: str | None, action: str, dated: str) -> None:
    """Write one decision and ingest."""
    text = "schema_version: 1\noverrides:\n"
    text += f"  - run_id: {run_id}\n    point_id: {point or 'null'}\n    action: {action}\n"
    text += f"    reason: the fan was broken then\n    reviewer: ops\n    dated: '{dated}'\n"
    (project.project / "results" / "overrides.yaml").write_text(text)
    ingest(project)


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    """What a command says as JSON, and nothing on standard error."""
    assert run([*argv, "--format", "json"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    found: list[dict[str, Any]] = json.loads(said.out)
    return found


def test_frontier_of_an_earlier_day_is_what_it_was(
    nights: Settings, bundles: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is measured later, the same question about a day gives the same answer."""
    (then,) = document(capsys, "frontier", "--as-of", "2026-12-01")
    assert (then["run_id"], len(then["points"]), then["notes"]) == (RUNS[0], 3, [])
    (now,) = document(capsys, "frontier")
    assert (now["run_id"], len(now["points"])) == (RUNS[1], 2)
    bundles.make_run(nights.store, bundles.make_plan(), RUNS[2])
    ingest(nights)
    assert document(capsys, "frontier", "--as-of", "2026-12-01") == [then]
    assert document(capsys, "frontier", "--as-of", RUNS[1]) == [{**now, "as_of": RUNS[1]}]


def test_a_lost_point_is_a_note_and_a_line(nights: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """In frontier and target: notes in JSON, one line on standard error otherwise; only on its night."""
    line = f"Lost: tp1 c8, valid in {RUNS[0]}, is in {RUNS[1]} not planned"
    (curve,) = document(capsys, "frontier")
    assert curve["notes"] == [line]
    (row,) = document(capsys, "target", *FIRST, "--at", "20")
    assert row["notes"] == [line]
    for argv in (
        ["frontier"],
        ["frontier", "--format", "csv"],
        ["target", *FIRST, "--at", "20", "--format", "csv"],
    ):
        assert run(argv) == 0
        said = capsys.readouterr()
        assert said.err == f"note: {line}\n"
    assert run(["frontier", "--run", RUNS[1]]) == 0
    assert capsys.readouterr().err == ""
    assert run(["frontier", "--as-of", RUNS[0]]) == 0
    assert capsys.readouterr().err == ""


def test_compare_and_target_of_an_earlier_day(nights: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """Readings are those of the runs of then."""
    at = ["--at", "20"]
    for command in (["compare", "sku=cpu", "sku=cpu", *at], ["target", *FIRST, *at]):
        (then,) = document(capsys, *command, "--as-of", "2026-12-01")
        (now,) = document(capsys, *command)
        assert (RUNS[0] in json.dumps(then), RUNS[1] in json.dumps(then)) == (True, False)
        assert RUNS[1] in json.dumps(now)
    assert then["value"] < now["value"]  # the second night is twice as fast


def test_history_of_an_earlier_day_has_its_nights(
    nights: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Later nights are not there, and a day before the first one is one line."""
    argv = ["history", "--of", "points"]
    assert {len(one["nights"]) for one in document(capsys, *argv)} == {1, 2}
    assert {len(one["nights"]) for one in document(capsys, *argv, "--as-of", "2026-12-01")} == {1}
    assert run([*argv, "--as-of", "2026-11-30"]) == 1
    assert "no published run matches" in capsys.readouterr().err
    assert run(["frontier", "--as-of", "2026-11-30"]) == 1
    assert "no run was finished by 2026-11-30" in capsys.readouterr().err


def test_sql_of_an_earlier_day(nights: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """Every table is of then under its name, the one of now under the warehouse's."""
    sql = 'select (select count(*) from points) as "then", (select count(*) from warehouse.points) as "now"'
    assert document(capsys, "results", "query", sql, "--as-of", "2026-12-01") == [{"then": 3, "now": 5}]
    assert document(capsys, "results", "query", sql) == [{"then": 5, "now": 5}]


def test_points_that_a_run_took_over_are_told_apart(
    nights: Settings, bundles: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """`measured_in = run_id` counts each measurement once, as `results query --help` says."""
    whole = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(c) for c in (1, 4, 16)])])
    grown = bundles.grow(whole, RUNS[1], {1: RUNS[1], 4: RUNS[1]})
    bundles.make_run(nights.store, grown, RUNS[2])
    assert ingest(nights).quarantined == []
    sql = "select count(*) as n, count(*) filter (measured_in = run_id) as own from points"
    assert document(capsys, "results", "query", sql) == [{"n": 8, "own": 6}]
    assert run(["results", "query", "--help"]) == 0
    assert "measured_in = run_id" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("action", "word"), [("withdraw", "withdrawn"), ("annotate", "note")])
def test_decisions_are_shown_with_reason_and_reviewer(
    nights: Settings, capsys: pytest.CaptureFixture[str], action: str, word: str
) -> None:
    """In the tables of frontier and compare, in their JSON; before their date they are not there."""
    point = next(path.name for path in nights.store.glob(f"*/*/*/{RUNS[1]}/*.c4.*"))
    decide(nights, RUNS[1], point, action, "2026-12-09")
    line = f"{word}: the fan was broken then (ops, 2026-12-09)"
    (curve,) = document(capsys, "frontier")
    shown = {
        row["concurrency"]: (row["decisions"], row["frontier"], row["official"]) for row in curve["points"]
    }
    assert shown == {1: ([], True, True), 4: ([line], action != "withdraw", action != "withdraw")}
    assert run(["frontier"]) == 0
    assert f"tp1 c4: {line}" in capsys.readouterr().out.splitlines()
    (compared,) = document(capsys, "compare", "sku=cpu", "sku=cpu", "--at", "20")
    assert compared["a"]["decisions"] == [{"topology": "tp1", "concurrency": 4, "decision": line}]
    assert run(["compare", "sku=cpu", "sku=cpu", "--at", "20"]) == 0
    assert f"B: tp1 c4: {line}" in capsys.readouterr().out.splitlines()
    (before,) = document(capsys, "frontier", "--as-of", "2026-12-08")
    assert [(row["decisions"], row["official"]) for row in before["points"]] == [([], True)] * 2


def test_a_decision_about_a_whole_run_is_one_line(
    nights: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not one for each of its points; the CSV has it in every row."""
    decide(nights, RUNS[1], None, "annotate", "2026-12-09")
    assert run(["frontier"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "broken" in line]
    assert lines == ["all points: note: the fan was broken then (ops, 2026-12-09)"]
    assert run(["frontier", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert all("fan was broken" in row["decisions"] for row in rows)


def test_a_part_of_a_curve_is_said(
    nights: Settings, bundles: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """What measured only a part is named under the whole curve, and is no night of its readings."""
    some = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(16)])])
    key = some.launches[0].points[0].curve_key
    bundles.make_run(nights.store, some.model_copy(update={"parts": [key]}), RUNS[2])
    ingest(nights)
    assert run(["frontier"]) == 0
    assert f"A newer run measured only a part of this curve: {RUNS[2]}" in capsys.readouterr().out
    (curve,) = document(capsys, "frontier", "--run", RUNS[2])
    assert (curve["complete"], curve["notes"]) == (False, ["This run measured only a part of the curve."])
    found = document(capsys, "history", "--at", "20")
    assert [night["run_id"] for night in found[0]["nights"]] == RUNS[:2]
