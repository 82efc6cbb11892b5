"""A point run again from its lock."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


def test_reproduce_compares_and_refuses_other_data(tiny: Any) -> None:
    """Old, new and ratio of each number; a later change of the recipe is ignored, of the dataset refused."""
    tiny.sweep("once", {"scenario": "tiny-chat", "concurrency": [2]})
    tiny.sweep_run("once")
    (point_id,) = tiny.attempts(tiny.the_run())
    kept = tiny.digests()
    tiny.recipe(threads_batch=2)  # the lock decides, not the recipe as it is now

    done = tiny.run("reproduce", point_id, "--format", "json")
    assert done.code == 0, done.err
    rows = {row["metric"]: row for row in done.json()}
    total = rows["total_tps_per_gpu"]
    assert total["ratio"] == pytest.approx(total["new"] / total["old"], rel=1e-3)
    assert 1 / 3 < total["ratio"] < 3
    assert rows["cache_hit_share"]["ratio"] == pytest.approx(1, abs=0.1), "the same prompts, the same hits"
    first, second = tiny.runs()
    assert list(tiny.attempts(second)) == [point_id], "the same identity"
    old, new = (json.loads((run / point_id / "1" / "lock.json").read_text()) for run in (first, second))
    assert old["launch"]["argv"] == new["launch"]["argv"] and old["point"]["seed"] == new["point"]["seed"]
    assert kept.items() <= tiny.digests().items()
    shown = tiny.run("reproduce", point_id, "--dry-run")
    assert shown.code == 0 and "--threads-batch 1" in shown.out

    lines = (tiny.project / "datasets" / "tiny-chat.jsonl").read_text().splitlines()
    tiny.dataset("tiny-chat", "demo-chat", lines[:1], sessions=1, turns=2)
    refused = tiny.run("reproduce", point_id)
    assert refused.code == 3
    (line,) = refused.err.strip().splitlines()
    assert "'tiny-chat' is not the one of the lock" in line
    assert len(tiny.runs()) == 2
