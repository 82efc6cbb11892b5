"""The whole way with the real engine: plan, launch, load, seal, ingest, ask, measure again."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from isoline.results.metrics.rederive import differences
from isoline.results.warehouse.query import query
from isoline.settings import load_settings

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


def points(tiny: Any) -> dict[str, int]:
    """point id -> number of sealed attempts, over all runs."""
    found: dict[str, int] = {}
    for run in tiny.runs():
        for point_id, items in tiny.attempts(run).items():
            found[point_id] = found.get(point_id, 0) + len(items)
    return found


def test_measure_ask_and_measure_only_what_changed(
    tiny: Any, evidence: Callable[[str, Sequence[str]], Path]
) -> None:
    """Valid points, equal numbers everywhere, nothing measured twice; a new argument measures one launch."""
    tiny.scenario("tiny-other")  # a curve of its own: what is due is decided for whole curves
    also = {"tiny-other": {"concurrency": [2]}}
    other = tiny.recipe("other", scenarios=also, ubatch_size=256)

    def select(*levels: int) -> None:
        tiny.sweep(
            "tiny",
            {"concurrency": list(levels), "accuracy": {"tiny-sums": [4]}},
            {"scenario": "tiny-chat", "concurrency": [2]},
            {"recipes": [other], "scenario": "tiny-other", "concurrency": [2]},
            reuse={"from_other_runs": True},
        )

    select(1, 4)
    first = tiny.sweep_run("tiny")
    run = tiny.the_run()
    records = tiny.attempts(run)
    assert len(records) == 4
    assert all([item.verdict.value for item in items] == ["valid"] for items in records.values())
    assert tiny.processes() == {}

    assert tiny.run("results", "ingest").code == 0
    (row,) = tiny.query("select count(*) n from points where verdict='valid'")
    assert row == {"n": 4}
    for point_id, (record,) in records.items():
        (row,) = tiny.query(
            f"select total_tps_per_gpu, interactivity_p50_tps from points where point_id='{point_id}'"
        )
        values = {item.name: item.value for item in record.metrics if item.window == "full"}
        assert row["total_tps_per_gpu"] == pytest.approx(values["total_tps_per_gpu"])
        assert row["interactivity_p50_tps"] == pytest.approx(values["interactivity_p50_tps"])
    checked = [record for (record,) in records.values() if record.accuracy]
    assert [item.accuracy_state for item in checked] == ["passed"]
    for point_id in records:
        assert differences(run / point_id / "1") == []

    shown = tiny.run("frontier", "--sweep", "tiny")
    assert shown.code == 0 and "tiny-short" in shown.out
    found = tiny.run("sweep", "status", "--overhead", "--format", "json")
    assert found.code == 0
    (overhead,) = found.json()
    assert overhead["pairs"] == 2 and 0 < overhead["overhead_median_s"] < 3 * 12

    before = tiny.digests()
    again = tiny.sweep_run("tiny")
    assert "nothing was due" in again.out and again.took_s < 15
    tiny.recipe("other", comment="a changed comment measures nothing", scenarios=also, ubatch_size=256)
    assert "nothing was due" in tiny.sweep_run("tiny").out
    assert points(tiny) == dict.fromkeys(records, 1) and tiny.digests() == before

    tiny.recipe("other", scenarios=also, ubatch_size=128)
    changed = tiny.sweep_run("tiny")
    assert "1 measured now" in changed.out and "3 reused" in changed.out
    new = points(tiny)
    assert len(new) == 5 and set(new.values()) == {1}
    (added,) = new.keys() - records.keys()
    assert added.startswith("smollm2-135m.llamacpp-cpu-q4_1-other.")
    assert before.items() <= tiny.digests().items()

    select(1, 2, 4)  # one concurrency more: its point alone is due, and the curve has all three
    grown = tiny.sweep_run("tiny")
    assert "1 measured now" in grown.out and "4 reused" in grown.out
    assert len(points(tiny)) == 6 and set(points(tiny).values()) == {1}
    assert "nothing was due" in tiny.sweep_run("tiny").out
    assert before.items() <= tiny.digests().items()

    assert tiny.run("results", "ingest").code == 0
    (curve,) = tiny.run("frontier", "--scenario", "tiny-short", "--format", "json").json()
    drawn = {row["concurrency"]: (row["verdict"], "added" in row["marks"]) for row in curve["points"]}
    assert drawn == {1: ("valid", False), 2: ("valid", True), 4: ("valid", False)}
    assert curve["run_id"] == tiny.runs()[-1].name
    busy = {why for row in curve["points"] for why in row["why"]}
    assert all("other programs used" in why for why in busy)  # official, but on a machine that is shared
    tables = [
        "points",
        "attempts",
        "metrics",
        "runs",
        "launches",
        "accuracy",
        "phases",
        "telemetry",
        "locks",
        "reused",
    ]

    def content(warehouse: Path) -> list[list[str]]:
        settings = load_settings(tiny.project, warehouse=warehouse)
        return [sorted(map(str, query(settings, f"select * from {table}").rows)) for table in tables]

    rebuilt = tiny.root / "rebuilt.duckdb"
    assert tiny.run("results", "rebuild", "--to", str(rebuilt)).code == 0
    assert content(rebuilt) == content(tiny.project / "results" / "warehouse.duckdb")
    assert tiny.run("results", "verify").code == 0
    evidence(
        "e2e-tiny",
        [
            f"- 4 points measured in {first.took_s:.1f} s; again in {again.took_s:.1f} s, nothing measured",
            f"- harness overhead: {overhead['overhead_median_s']} s (median of {overhead['pairs']})",
        ],
    )
    assert re.search(r"4 valid", first.out)
