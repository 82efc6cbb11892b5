"""Curves that a run only adds to: whole, marked, put together from nothing else, and gone with their base."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isoline.results.warehouse.file import open_reader
from isoline.results.warehouse.ingest import ingest
from isoline.results.warehouse.maintain import rebuild, verify
from isoline.results.warehouse.schema import TABLES
from isoline.results.warehouse.snapshots import snapshot_points
from isoline.settings import Settings

A, B, C = (f"2026120{day}T020000Z-demo-aaaaa{day}" for day in (1, 2, 3))
SHORT = 12  # requests: too few for a steady window


def curve(bundles: Any, *levels: int, **launch: Any) -> Any:
    points = [bundles.PointDef(level) for level in levels]
    return bundles.make_plan([(bundles.LaunchDef(**launch), points)])


def frame(settings: Settings, **of: Any) -> Any:
    con = open_reader(settings.warehouse)
    try:
        return snapshot_points(con, **of)
    finally:
        con.close()


@pytest.fixture
def added(bundles: Any, settings: Settings) -> Any:
    """Run A has c1 and c2; run B adds c4. ``added(outcomes of A, outcomes of B)`` seals both."""

    def make(first: Any = None, second: Any = None, **more: Any) -> Path:
        bundles.make_run(settings.store, curve(bundles, 1, 2), A, first)
        plan = bundles.grow(curve(bundles, 1, 2, 4), A, {1: A, 2: A})
        return bundles.make_run(settings.store, plan.model_copy(update=more), B, second)

    return make


def test_the_curve_is_the_base_and_what_was_added(settings: Settings, added: Any, ask: Any) -> None:
    """The snapshot has one curve of three points, all of run B; only the new one is marked."""
    added()
    report = ingest(settings)
    assert report.quarantined == []
    points = frame(settings)
    assert list(points["concurrency"]) == [1, 2, 4]
    assert set(points["run_id"]) == {B} and all(points["curve_complete"]) and all(points["official"])
    assert list(points["measured_in"]) == [A, A, B]
    assert [list(marks) for marks in points["marks"]] == [[], [], ["added"]]
    both = ask("SELECT run_id, total_tps_per_gpu, bundle_path FROM points WHERE concurrency = 2 ORDER BY 1")
    assert both[0][1:] == both[1][1:]
    assert ask("SELECT expected, got, complete FROM runs WHERE run_id = ?", [B]) == [(1, 1, True)]
    assert ask("SELECT DISTINCT run_id, base_run_id, measured_in FROM reused") == [(B, A, A)]
    assert ask("SELECT count(*) FROM attempts") == [(3,)]
    assert len(frame(settings, run=A)) == 2


def test_base_of_a_base(bundles: Any, settings: Settings, added: Any) -> None:
    """Run C adds to what B had added to: four points of three days, the later ones marked."""
    added()
    plan = bundles.grow(curve(bundles, 1, 2, 4, 8), B, {1: A, 2: A, 4: B})
    bundles.make_run(settings.store, plan, C)
    assert ingest(settings).quarantined == []
    points = frame(settings)
    assert list(points["measured_in"]) == [A, A, B, C]
    assert [list(marks) for marks in points["marks"]] == [[], [], ["added"], ["added"]]


def test_an_addition_that_failed_leaves_the_curve_of_its_base(
    bundles: Any, settings: Settings, added: Any
) -> None:
    """After a fault of the machine the base's curve stays official; an invalid point is shown."""
    added(second={(4, 1): bundles.Outcome(reasons=("server_killed",))})
    ingest(settings)
    points = frame(settings)
    assert set(points["run_id"]) == {A} and set(points["newer_incomplete_run"]) == {B}
    shutil.rmtree(next(settings.store.glob(f"*/*/*/{B}")))
    added_again = bundles.grow(curve(bundles, 1, 2, 4), A, {1: A, 2: A})
    bundles.make_run(settings.store, added_again, B, {(4, 1): bundles.Outcome(reasons=("server_died",))})
    ingest(settings)
    assert list(frame(settings)["verdict"]) == ["valid", "valid", "invalid"]


def test_one_window_for_the_whole_curve(bundles: Any, settings: Settings, added: Any) -> None:
    """When the new point has no steady window, the reused ones are shown in the full one too."""
    added(second={(4, 1): bundles.Outcome(requests=SHORT)})
    ingest(settings)
    assert set(frame(settings, run=A)["window"]) == {"steady"}
    assert set(frame(settings)["window"]) == {"full"}


def test_the_base_s_checks_count(bundles: Any, settings: Settings, added: Any) -> None:
    """A failed check at a reused point withholds what was added, as it would in one run."""
    added(first={(2, 1): bundles.Outcome(accuracy_state="failed")})
    ingest(settings)
    points = frame(settings)
    assert list(points["official"]) == [False, False, False]
    assert points["unofficial_why"].iloc[2] == "accuracy not run here, and not passed at concurrency 2"


@pytest.mark.parametrize(("state", "is_official"), [("passed", True), ("failed", False)])
def test_a_reused_twin_counts(bundles: Any, settings: Settings, state: str, is_official: bool) -> None:
    """A twin that was measured elsewhere still decides about the timed points that were not."""
    timed = (bundles.LaunchDef(), [bundles.PointDef(1)])
    twin = (
        bundles.LaunchDef(args=("--accept", "all"), weight_precision="f16", twin_of="a launch"),
        [bundles.PointDef(1)],
    )
    whole = bundles.make_plan([timed, twin])
    outcome = bundles.Outcome(accuracy_state=state)
    bundles.make_run(settings.store, bundles.make_plan([twin]), A, {(1, 1): outcome})
    (elsewhere,) = whole.launches[1].points
    reused = bundles.Reused(
        point_id=elsewhere.point_id, run_id=A, attempt=1, accuracy=[], curve_key=elsewhere.curve_key
    )
    plan = whole.model_copy(update={"launches": whole.launches[:1], "reused": [reused]})
    bundles.make_run(settings.store, plan, B)
    assert ingest(settings).quarantined == []
    assert list(frame(settings, run=B)["official"]) == [is_official]
    shutil.rmtree(next(settings.store.glob(f"*/*/*/{A}")))
    ingest(settings)
    assert list(frame(settings, run=B)["official"]) == [True]  # no check is known, and none was planned


FORGED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a run that is not there": (
        lambda plan: [item.update(run_id="20261130T020000Z-demo-cccccc") for item in plan["reused"]],
        "is reused from another attempt than that of its curve",
    ),
    "a base that is not there": (
        lambda plan: plan["additions"][0].update(base_run_id="20261130T020000Z-demo-cccccc"),
        "which the store does not have",
    ),
    "a later run": (
        lambda plan: plan["additions"][0].update(base_run_id=C),
        "which is no earlier run",
    ),
    "itself": (lambda plan: plan["additions"][0].update(base_run_id=B), "which is no earlier run"),
    "a path": (
        lambda plan: plan["additions"][0].update(base_run_id="../../x"),
        "which is no earlier run",
    ),
    "another attempt": (lambda plan: plan["reused"][0].update(attempt=2), "has no attempt 2 at it"),
    "another curve": (
        lambda plan: plan["reused"][0].update(curve_key="0" * 16),
        "is not taken over as it is",
    ),
    "no mark": (lambda plan: plan["additions"].clear(), "its additions are not what this run adds"),
    "half a mark": (
        lambda plan: plan["additions"][0]["point_ids"].clear(),
        "its additions are not what this run adds",
    ),
    "marked twice": (lambda plan: plan["additions"].append(plan["additions"][0]), "is added to twice"),
    "a point twice": (lambda plan: plan["reused"].append(plan["reused"][0]), "is reused twice"),
    "a base of another sweep": (lambda plan: plan.update(sweep="other"), "is no run of this sweep to add to"),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_plan_is_refused(bundles: Any, settings: Settings, added: Any, what: str) -> None:
    """What the base does not have exactly so is refused with one line, and none of the run gets in."""
    change, reason = FORGED[what]
    run = added()

    def forge(content: dict[str, Any]) -> None:
        change(content)
        content["plan_digest"] = bundles.plan_digest(content)

    bundles.edit(run / "_run", "plan.json", forge)
    report = ingest(settings)
    by_path = {bad.path: bad.reason for bad in report.quarantined}
    assert reason in by_path[(run / "_run").relative_to(settings.store).as_posix()]
    assert len(by_path) == 3  # its launch and its point have no plan
    assert set(frame(settings)["run_id"]) == {A}
    assert any(reason in problem.problem for problem in verify(settings))


def test_what_is_not_the_whole_base_is_refused(bundles: Any, settings: Settings) -> None:
    """A curve of a part of its base, of a try-out, or with a concurrency that is there already is refused."""
    bundles.make_run(settings.store, curve(bundles, 1, 2), A)
    part = bundles.grow(curve(bundles, 1, 4), A, {1: A})
    bundles.make_run(settings.store, part, B)
    assert "is not taken over as it is" in ingest(settings).quarantined[0].reason
    shutil.rmtree(next(settings.store.glob(f"*/*/*/{B}")))
    again = [bundles.PointDef(1), bundles.PointDef(2), bundles.PointDef(2, 2)]
    grown = bundles.grow(bundles.make_plan([(bundles.LaunchDef(), again)]), A, {1: A, 2: A})
    one_more = bundles.make_plan([(bundles.LaunchDef(), again)]).launches[0].points[2]
    launch = bundles.make_plan().launches[0].model_copy(update={"points": [one_more]})
    mark = bundles.Addition(curve_key=one_more.curve_key, base_run_id=A, point_ids=[one_more.point_id])
    forged = grown.model_copy(update={"launches": [launch], "additions": [mark], "reused": grown.reused[:2]})
    bundles.make_run(settings.store, forged, B)
    assert "is no concurrency that its curve lacked" in ingest(settings).quarantined[0].reason
    bundles.edit(
        next(settings.store.glob(f"*/*/*/{A}")) / "_run", "plan.json", lambda plan: plan.update(publish=False)
    )
    assert "is no run of this sweep to add to" in ingest(settings).quarantined[0].reason


def test_there_is_no_best_of(bundles: Any, settings: Settings, added: Any) -> None:
    """An attempt that did not count any more when the run began, or is not valid, is not taken over."""
    added(first={(1, 1): [bundles.GOOD, bundles.GOOD]})
    assert "where attempt 2 counted already" in ingest(settings).quarantined[0].reason
    shutil.rmtree(settings.store)
    added(first={(1, 1): bundles.Outcome(reasons=("server_died",))})
    assert "is not valid" in ingest(settings).quarantined[0].reason


def withdraw(settings: Settings, run_id: str) -> None:
    (settings.project / "results" / "overrides.yaml").write_text(
        f"schema_version: 1\noverrides:\n  - run_id: {run_id}\n    action: withdraw\n"
        "    reason: the node ran another job\n    reviewer: maintainer\n    dated: '2026-12-02'\n"
    )


def content(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    con = open_reader(path)
    try:
        return {t.name: con.execute(f'SELECT * FROM "{t.name}" ORDER BY ALL').fetchall() for t in TABLES}
    finally:
        con.close()


def test_what_happens_to_the_base_happens_to_the_curve(
    bundles: Any, settings: Settings, added: Any, tmp_path: Path
) -> None:
    """A withdrawal, damage or loss of the base reaches the run that added to it, as in a rebuild."""
    run = added()
    ingest(settings)

    def same() -> None:
        target = tmp_path / "rebuilt.duckdb"
        rebuild(settings, target)
        assert content(settings.warehouse) == content(target)
        target.unlink()

    same()
    assert ingest(settings).runs == []
    withdraw(settings, A)
    ingest(settings, [run])
    assert [list(marks) for marks in frame(settings, run=B)["marks"]] == [
        ["withdrawn"],
        ["withdrawn"],
        ["added"],
    ]
    ingest(settings)
    same()
    (settings.project / "results" / "overrides.yaml").unlink()
    base = next(settings.store.glob(f"*/*/*/{A}"))
    bundles.edit(next(base.glob("*.c1.*/1")), "lock.json", lambda lock: lock.update(run_id=B))
    ingest(settings)
    assert list(frame(settings, run=B)["got"]) == [False, True, True]
    assert not frame(settings, run=B)["curve_complete"].any()
    same()
    shutil.rmtree(base)
    report = ingest(settings)
    assert "which the store does not have" in report.quarantined[0].reason
    assert frame(settings).empty or set(frame(settings)["run_id"]) == {A}
