"""``isoline compare`` and ``isoline target`` on a small warehouse of three curves."""

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

H200, B200, OTHER = "aaaa000000000001", "bbbb000000000002", "cccc000000000003"


@pytest.fixture
def small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, support: Callable[[str], ModuleType], project_root: Path
) -> Path:
    """Two engines on h200 and one on b200, two repetitions each, and the project's price lists."""
    made = support("small_warehouse")
    for name in ("recipes", "sweeps", "results"):
        (tmp_path / name).mkdir()
    prices = tmp_path / "dashboard" / "prices"
    prices.mkdir(parents=True)
    (prices / "2026-10.yaml").write_text(
        (project_root / "dashboard/prices/2026-10.yaml").read_text(encoding="utf-8"), encoding="utf-8"
    )
    monkeypatch.setenv("ISOLINE_PROJECT", str(tmp_path))
    night = made.run_id(1)
    b200 = {"curve_key": B200, "sku": "b200", "recipe_id": "m/vllm-b200-fp8"}
    other = {"curve_key": OTHER, "engine": "sglang", "recipe_id": "m/sglang-h200-fp8"}
    points = [
        made.point(night, c, x * (1 + 0.01 * r), y * (1 + 0.02 * r), repetition=r + 1, **more)
        for more, scale in (({}, 1.0), (b200, 2.0), (other, 1.1))
        for c, x, y in ((1, 60.0, 500.0 * scale), (8, 30.0, 2000.0 * scale))
        for r in (0, 1)
    ]
    # The fastest of all, but its answers were wrong: never a target.
    points.append(
        made.point(night, 4, 45.0, 9000.0, official=False, accuracy_state="failed", topology="tp2", **other)
    )
    made.fill(tmp_path, points)
    return tmp_path


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    assert run([*argv, "--format", "json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_ratio_of_two_curves(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """b200 does twice of h200 at both x, with the range of two repetitions."""
    (found,) = document(capsys, "compare", "sku=b200", H200[:4], "--at", "30,50,90")
    assert (found["a"]["sku"], found["b"]["sku"], found["metric"]) == ("b200", "h200", "total_tps_per_gpu")
    assert found["differ"] == ["sku"]
    steps = [row for row in found["rows"] if row["kind"] == "step"]
    assert [row["ratio"] for row in steps] == [2.0, 2.0, None]
    assert (steps[0]["ratio_interval"], steps[2]["a_state"]) == ("range", "not_reached")
    assert steps[0]["ratio_low"] < 2 < steps[0]["ratio_high"]
    assert (found["epsilon_ab"], found["epsilon_ba"]) == (1.0, pytest.approx(2.0))


def test_cost_uses_the_dated_list(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Dollars of both sides come from one list and tier; the table names it."""
    argv = (
        "compare",
        "sku=b200",
        H200,
        "--at",
        "30",
        "--metric",
        "usd_per_m_total_tokens",
        "--tier",
        "rental",
    )
    (found,) = document(capsys, *argv)
    (step, _) = found["rows"]
    assert step["b"] == pytest.approx(2.05 / (2020 * 0.0036))
    assert step["ratio"] == pytest.approx(2.60 / 2.05 / 2)
    assert (found["a"]["prices"], found["a"]["tier"]) == ("2026-10", "rental")
    assert run([*argv]) == 0
    said = capsys.readouterr().out
    assert "prices: list 2026-10, rental" in said
    assert "they differ in: sku b200 and h200" in said


def test_csv_has_one_row_a_reading(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Round x are chosen where none is given; both kinds of reading are rows."""
    assert run(["compare", H200, OTHER, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["kind"] for row in rows} == {"step", "estimate"}
    assert {row["at"] for row in rows} == {"40.0", "50.0", "60.0"}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("sku=h200", B200), "names 2 curves"),
        (("sku=h200", B200), "add engine or recipe"),
        (("sku=h100", B200), "did you mean"),
        (("skus=h200", B200), "did you mean sku?"),
        (("dddd", B200), "no curve 'dddd'"),
        ((H200, B200, "--metric", "usd"), "unknown metric"),
        ((H200, B200, "--metric", "usd_per_session"), "A has no valid point with"),
    ],
)
def test_mistakes_are_one_line(
    small: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], words: str
) -> None:
    """A selector that names none or several curves says what would tell them apart."""
    assert run(["compare", *argv]) == 1
    assert words in capsys.readouterr().err


def test_target_is_official_and_says_what_beats_it(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The best official reading of each SKU; the fast point with wrong answers is none."""
    found = document(capsys, "target", "--model", "m", "--scenario", "short", "--at", "40")
    assert [(row["sku"], row["value"]) for row in found] == [
        ("b200", pytest.approx(1010)),
        ("h200", pytest.approx(555.5)),
    ]
    h200 = found[1]
    assert (h200["recipe_id"], h200["concurrency"]) == ("m/sglang-h200-fp8", 1)
    assert h200["label"] == "best of 2 (engine differ)"
    assert h200["to_beat"]["interactivity_p50_tps"] == {"at_least": 40}
    assert h200["to_beat"]["total_tps_per_gpu"] == {"above": pytest.approx(555.5 * 1.025)}
    assert h200["costs"]["usd_per_m_total_tokens"] == pytest.approx(1.22 / (555.5 * 0.0036))


def test_target_where_nothing_was_reached(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beyond the fastest point anything official would be the first: value and costs are null."""
    found = document(capsys, "target", "--model", "m", "--scenario", "short", "--at", "90", "--sku", "b200")
    assert (found[0]["value"], found[0]["state"], found[0]["recipe_id"]) == (None, "not_reached", None)
    assert found[0]["to_beat"]["total_tps_per_gpu"] == {"above": None}
    assert run(["target", "--model", "m", "--scenario", "short", "--at", "20,40"]) == 1
    assert "one value of x" in capsys.readouterr().err
