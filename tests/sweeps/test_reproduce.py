"""Reproduce: the plan comes from the lock alone, and the comparison invents nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isoline.errors import IncompleteError, InputError
from isoline.results.bundles.bundle import attempts
from isoline.results.bundles.checks import check_plan
from isoline.results.bundles.records import MetricRow
from isoline.settings import load_settings
from isoline.sweeps.execution.reproduce import COMPARED, find_original, prepare, side_by_side
from isoline.sweeps.state.runs import read_point

RECIPE = "recipes/smollm2-135m/llamacpp-cpu-q4_1.yaml"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_the_plan_is_the_lock_s(project: Any, store: Path, measured: Any) -> None:
    """Identity, seed, rules and arguments come from the lock, though recipe and scenario changed since."""
    folder, point = measured(store)
    project.edit(RECIPE, "threads: 2", "threads: 1")
    project.edit("sweeps/scenarios/demo-short.yaml", "osl: 48", "osl: 64")
    original = find_original(store, point.point_id, None)
    assert original.run_id == folder.name
    prepared, scenarios, datasets = prepare(load_settings(project.root), original)
    (launch,) = prepared.plan.launches
    assert launch.points == [point]
    assert "--threads 2" in " ".join(launch.argv)
    assert scenarios["demo-short"].osl == 48
    assert set(datasets) == {"synthetic-text", "canary-smollm2"}
    assert (prepared.plan.sweep, prepared.run) == ("reproduce", None)
    assert check_plan(prepared.plan) == []


def test_other_questions_or_text_are_refused(project: Any, store: Path, measured: Any) -> None:
    """A dataset that is not the lock's is refused with the revision to go back to."""
    _, point = measured(store)
    project.edit("datasets/canary-smollm2.yaml", "max_tokens: 16", "max_tokens: 20")
    with pytest.raises(
        IncompleteError, match=r"canary-smollm2.* not the one of the lock.*check out revision ffff"
    ):
        prepare(load_settings(project.root), find_original(store, point.point_id, None))


def test_what_is_no_point(store: Path, measured: Any) -> None:
    """An unknown point or run, and words that are paths, are told in one line."""
    folder, point = measured(store)
    for name in ("nothing", "", ".", "..", "../x", f"{point.point_id}/1"):
        with pytest.raises(InputError, match="no attempt at point"):
            find_original(store, name, None)
    with pytest.raises(InputError, match="no such run"):
        find_original(store, point.point_id, "20260101T000000Z-demo-000000")
    assert find_original(store, point.point_id, folder.name).run_id == folder.name


def test_a_lock_of_another_form(project: Any, store: Path, measured: Any, bundles: Any) -> None:
    """A lock that lacks something, or cannot be read, is one line and no traceback."""
    folder, point = measured(store)
    place = folder / point.point_id / "1"
    bundles.edit(place, "lock.json", lambda lock: lock["resolved"].pop("pool"))
    with pytest.raises(InputError, match=r"is not of this version: 'pool'"):
        prepare(load_settings(project.root), find_original(store, point.point_id, None))
    (place / "lock.json").write_text("{}")
    with pytest.raises(InputError, match="its lock cannot be read"):
        find_original(store, point.point_id, None)


def test_runs_of_reproduce_are_no_original(store: Path, measured: Any, bundles: Any) -> None:
    """A point that was reproduced is reproduced from its first measurement, unless the run is named."""
    folder, point = measured(store)
    plan = json.loads((folder / "_run" / "plan.json").read_text())
    from isoline.results.bundles.checks import plan_digest
    from isoline.results.bundles.records import Plan

    plan["sweep"] = "reproduce"
    plan["plan_digest"] = plan_digest(plan)
    again = bundles.make_run(store, Plan.model_validate(plan), "20261205T020000Z-reproduce-abcdef")
    assert find_original(store, point.point_id, None).run_id == folder.name
    assert find_original(store, point.point_id, again.name).run_id == again.name


def test_old_new_and_ratio(store: Path, measured: Any) -> None:
    """Each compared number stands with its ratio; where one is null or 0 there is no ratio."""
    folder, point = measured(store)
    old = read_point(attempts(folder, point.point_id)[-1])

    def but(name: str, value: float | None) -> Any:
        rows = [row for row in old.metrics if row.name != name]
        return old.model_copy(
            update={"metrics": [*rows, MetricRow(name=name, window="full", value=value, unit="x")]}
        )

    rows = {row["metric"]: row for row in side_by_side(old, old)}
    assert list(rows) == ["verdict", *COMPARED]
    assert rows["verdict"] == {"metric": "verdict", "old": "valid", "new": "valid", "ratio": None}
    assert rows["ttft_p50_ms"]["ratio"] == 1.0
    name = "output_tps_per_gpu"
    compared = {row["metric"]: row for row in side_by_side(but(name, 50.0), but(name, 55.0))}
    assert (compared[name]["old"], compared[name]["new"], compared[name]["ratio"]) == (50.0, 55.0, 1.1)
    for before, after in ((None, 5.0), (5.0, None), (0.0, 5.0)):
        row = {row["metric"]: row for row in side_by_side(but(name, before), but(name, after))}[name]
        assert (row["old"], row["new"], row["ratio"]) == (before, after, None)
