"""``isoline history`` and ``isoline results accept-change`` on a month of nights with one true step."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from isoline.cli.main import run
from isoline.results.decisions.accepted import load_accepted

CURVE = "aaaa000000000001"
STEP = 24


@pytest.fixture
def month(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, support: Callable[[str], ModuleType]
) -> ModuleType:
    """30 nights of one curve, three repetitions; 8 % slower from night 24 on, with a new image."""
    made = support("small_warehouse")
    for name in ("recipes", "sweeps", "results"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("ISOLINE_PROJECT", str(tmp_path))
    points, locks = [], []
    for night in range(30):
        level = 0.92 if night >= STEP else 1.0
        for c, x, y in ((1, 60.0, 500.0), (8, 30.0, 2000.0)):
            for r in range(3):
                wobble = 1 + 0.01 * ((night * 7 + r * 5 + c) % 5 - 2) / 2
                row = made.point(made.run_id(night), c, x, y * level * wobble, repetition=r + 1)
                if night == 12:
                    row.update(verdict="invalid", official=False, total_tps_per_gpu=None)
                points.append(row)
                locks.append(
                    made.lock_row(row, "sha256:new" if night >= STEP else "sha256:old", "secret-host")
                )
    points.append(made.point(made.run_id(29, "tryout"), 8, 30.0, 1.0))
    made.fill(tmp_path, points, locks)
    made.root = tmp_path
    return made


def series(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    assert run(["history", *argv, "--format", "json"]) == 0, capsys.readouterr().err
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_readings_over_time(month: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """The step is regressed from its second night on, and the image is named as what changed there."""
    one, *_ = series(capsys, "--curve", CURVE, "--at", "40")
    assert (one["at"], one["reading"], one["metric"]) == (40, "estimate", "total_tps_per_gpu")
    states = [night["state"] for night in one["nights"]]
    assert states[12] == "invalid"
    assert set(states[8:12] + states[13:STEP]) == {"ok"}
    assert states[STEP:30] == ["suspicious", *["regressed"] * 5]
    (step,) = one["changes"]
    assert step["run_id"] == month.run_id(STEP)
    assert step["change"] == pytest.approx(-0.08, abs=0.005)
    assert (step["better"], step["accepted"]) == (False, False)
    assert step["explained"] == {"image": {"old": "sha256:old", "new": "sha256:new"}}


def test_points_are_the_evidence(month: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """Series of points, with the node under a pseudonym."""
    found = series(capsys, "--of", "points")
    assert [one["series_key"] for one in found] == [f"{CURVE}.tp1.c1", f"{CURVE}.tp1.c8"]
    notes = found[0]["nights"][0]["notes"]
    assert notes["node"].startswith("node-")
    assert "secret" not in json.dumps(found)
    assert notes["client"] == "0.13.0"


def test_table_csv_and_check(month: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """The table ends in the steps; --check tells a regression by exit code 2."""
    assert run(["history", "--at", "40", "--last", "3"]) == 0
    text = capsys.readouterr().out
    assert text.count("regressed") == 3
    assert f"step at {month.run_id(STEP)}: -8" in text
    assert "image sha256:old -> sha256:new" in text
    assert run(["history", "--at", "40", "--format", "csv", "--check"]) == 2
    said = capsys.readouterr()
    assert len(list(csv.DictReader(io.StringIO(said.out)))) == 30
    assert "1 of 1 series are regressed" in said.err


def test_accepting_a_change_starts_the_baseline_anew(
    month: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file keeps its comments, a dry run changes nothing, and a second time is refused."""
    path = month.root / "results" / "accepted-changes.yaml"
    path.write_text("# reviewed like code\nschema_version: 1\naccepted_changes: []\n", encoding="utf-8")
    argv = ["results", "accept-change", CURVE, "--from", month.run_id(STEP)]
    argv += ["--reason", "new default of the engine, agreed", "--reviewer", "perf-team"]
    before = path.read_bytes()
    assert run([*argv, "--dry-run"]) == 0
    assert path.read_bytes() == before
    assert "would add" in capsys.readouterr().out
    assert run(argv) == 0
    capsys.readouterr()
    assert path.read_text(encoding="utf-8").startswith("# reviewed like code\n")
    (change,) = load_accepted(month.root)
    assert (change.curve_key, change.from_run_id) == (CURVE, month.run_id(STEP))
    assert run(argv) == 1
    assert "accepted from" in capsys.readouterr().err
    one, *_ = series(capsys, "--at", "40")
    assert {night["state"] for night in one["nights"][STEP:30]} == {"insufficient_data"}
    assert one["changes"][0]["accepted"] is True


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["history", "--sku", "h20"], "did you mean h200"),
        (
            ["results", "accept-change", "ffff", "--from", "x", "--reason", "long enough", "--reviewer", "r"],
            "no curve",
        ),
        (
            ["results", "accept-change", CURVE, "--from", "x", "--reason", "long enough", "--reviewer", "r"],
            "did not",
        ),
        (
            ["results", "accept-change", CURVE, "--from", "RUN", "--reason", "short", "--reviewer", "r"],
            "reason",
        ),
    ],
)
def test_mistakes_are_one_line(
    month: ModuleType, capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    """A curve, run or reason that is none is told in one line with a remedy."""
    assert run([month.run_id(STEP) if word == "RUN" else word for word in argv]) == 1
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
