"""Runs on disk: found again, opened, read, and cleared of wreckage."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from isoline.errors import IncompleteError, InputError
from isoline.results.bundles.bundle import (
    MANIFEST,
    attempts,
    bundle_digest,
    read_manifest,
    run_folders,
    sealed_bundles,
    verify,
)
from isoline.results.bundles.checks import check_launch, plan_digest
from isoline.results.bundles.records import Addition, LaunchRecord, Reused
from isoline.results.judging.reasons import Verdict
from isoline.sweeps.state import runs

OLD = "20261201T020000Z-demo-aaaaaa"
NEW = "20261202T020000Z-demo-bbbbbb"
OTHER = "20261203T020000Z-smoke-cccccc"
NOON = datetime(2026, 12, 2, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_started() -> None:
    """A run's start is in its id; anything else is no run id."""
    assert runs.started(NEW) == datetime(2026, 12, 2, 2, tzinfo=UTC)
    with pytest.raises(ValueError, match="not a run id"):
        runs.started("latest")


def test_a_part_is_not_continued_as_the_whole(bundles: Any, store: Path) -> None:
    """The same points, once as what changed and once as all that a sweep selects, are two runs."""
    plan = bundles.make_plan()
    part = plan.model_copy(update={"parts": [plan.launches[0].points[0].curve_key]})
    bundles.make_run(store, part, OLD)
    assert part.plan_digest == plan.plan_digest
    assert runs.find_run(store, part, None) is not None
    assert runs.find_run(store, plan, None) is None


def test_the_newest_equal_plan_goes_on(bundles: Any, store: Path) -> None:
    """The newest run of the sweep with an equal plan is continued; other sweeps and plans are passed."""
    plan = bundles.make_plan()
    bundles.make_run(store, plan, OLD)
    assert runs.find_run(store, plan, None) is not None
    bundles.make_run(store, plan, NEW)
    bundles.make_run(store, bundles.make_plan(sweep="smoke"), OTHER)
    found = runs.find_run(store, plan, None)
    assert found is not None
    assert found.run_id == NEW
    other = bundles.make_plan([(bundles.LaunchDef(args=("--parallel", "4")), [bundles.PointDef(1)])])
    assert runs.find_run(store, other, None) is None


def test_damage_in_one_run_stops_no_plan(bundles: Any, store: Path) -> None:
    """Durations come from what can be read; a damaged point or start of an old run counts as none."""
    plan = bundles.make_plan()
    folder = bundles.make_run(store, plan, OLD)
    whole = runs.past_durations(store)
    points = [point.point_id for launch in plan.launches for point in launch.points]
    assert sorted(whole.points) == sorted(points)
    assert list(whole.launches) == [plan.launches[0].launch_digest]
    (folder / points[0] / "1" / "point.json").write_text("{")
    for path in folder.glob("_launch/*/launch.json"):
        path.write_text("{")
    left = runs.past_durations(store)
    assert left.points == {name: took for name, took in whole.points.items() if name != points[0]}
    assert left.launches == {}


@pytest.mark.parametrize(("age_h", "is_found"), [(None, True), (10.0, True), (9.9, False)])
def test_a_run_may_be_too_old(bundles: Any, store: Path, age_h: float | None, is_found: bool) -> None:
    """Only a run that is young enough goes on; ten hours is ten hours."""
    plan = bundles.make_plan()
    bundles.make_run(store, plan, NEW)
    assert (runs.find_run(store, plan, age_h, now=NOON) is not None) is is_found


def test_what_is_no_run_is_passed(bundles: Any, store: Path) -> None:
    """Folders without a sealed or readable plan, and of other names, are not runs."""
    plan = bundles.make_plan()
    good = bundles.make_run(store, plan, OLD)
    (good.parent / "notes").mkdir()
    (good.parent / "20261201T030000Z-demo-dddddd" / ".work").mkdir(parents=True)
    broken = bundles.seal_plan(store, plan, "20261201T040000Z-demo-eeeeee")
    (broken / "_run" / "plan.json").write_text("{}")
    assert [run.run_id for run in runs.runs_newest_first(store)] == [OLD]
    assert list(runs.runs_newest_first(store, "smoke")) == []
    assert list(runs.runs_newest_first(store / "nowhere")) == []


def test_a_run_by_its_name(bundles: Any, store: Path) -> None:
    """A run is found by its id; an unknown one, and what is no id, say what to do."""
    bundles.make_run(store, run_id=OLD)
    assert runs.named_run(store, OLD).run_id == OLD
    for name in (NEW, "../../etc", ""):
        with pytest.raises(InputError, match="sweep status"):
            runs.named_run(store, name)


def test_a_new_run_is_sealed_before_anything_starts(bundles: Any, store: Path) -> None:
    """Plan and environment are sealed first; the plan that is read back is the plan that was written."""
    plan = bundles.make_plan()
    run = runs.new_run(store, plan, {"aiperf": "0.13.0"})
    assert verify(run.folder / "_run") == []
    again = runs.read_run(run.folder)
    assert again is not None
    assert again.plan == plan
    environment = json.loads((run.folder / "_run" / "environment.json").read_text())
    assert environment["aiperf"] == "0.13.0"
    assert abs(datetime.now(UTC) - runs.started(run.run_id)) < timedelta(minutes=1)


def test_a_new_run_that_cannot_be_sealed_leaves_nothing(
    bundles: Any, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the plan cannot be written there is no half run."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs, "write_record", full)
    with pytest.raises(OSError, match="No space"):
        runs.new_run(store, bundles.make_plan(), {})
    assert not [path for path in store.rglob("*") if path.is_file()]
    assert list(runs.runs_newest_first(store)) == []


def test_a_crash_while_a_run_is_opened_shows_no_run(bundles: Any, store: Path) -> None:
    """What a killed opening left is in no run folder, and is removed once it is old."""
    left = store / runs.OPENING / "20260101T000000Z-demo-abcdef"
    (left / ".work" / "_run.12345678").mkdir(parents=True)
    young = store / runs.OPENING / "20260101T000000Z-demo-123456"
    young.mkdir()
    os.utime(left, (0, 0))
    assert list(run_folders(store)) == []
    run = runs.new_run(store, bundles.make_plan(), {})
    assert list(run_folders(store)) == [run.folder]
    assert list((store / runs.OPENING).iterdir()) == [young]


def test_what_a_run_has(bundles: Any, store: Path) -> None:
    """Records and verdicts are those of the sealed attempts, in order; a finished run has nothing due."""
    plan = bundles.make_plan()
    infra = bundles.Outcome(reasons=("client_died",))
    bundles.make_run(store, plan, OLD, {(1, 1): [infra, bundles.GOOD], (2, 1): None})
    run = runs.named_run(store, OLD)
    found = list(runs.verdicts(run).values())
    assert found == [[Verdict.INFRA_ERROR, Verdict.VALID], [], [Verdict.VALID], [Verdict.VALID]]
    assert not runs.is_finished(run)
    for point in plan.launches[0].points:
        if point.concurrency == 2:
            bundles.seal_attempt(run.folder, plan.launches[0], point)
    assert runs.is_finished(run)


def test_an_attempt_that_cannot_be_read_is_told(bundles: Any, store: Path) -> None:
    """A broken point.json is one line with its path; it is nobody's valid measurement elsewhere."""
    plan = bundles.make_plan()
    folder = bundles.make_run(store, plan, OLD)
    broken = plan.launches[0].points[0].point_id
    (folder / broken / "1" / "point.json").write_text('{"verdict": "valid"}')
    with pytest.raises(IncompleteError, match=r"point\.json.*results verify"):
        runs.records(runs.named_run(store, OLD))
    ((run_id, found, *_),) = runs.measured_elsewhere(store, plan, None)
    assert run_id == OLD
    assert broken not in found
    assert len(found) == 3


def test_measured_elsewhere(bundles: Any, store: Path) -> None:
    """Each young enough run, newest first, with the counting attempt and the checks it has."""
    plan = bundles.make_plan()
    failed = bundles.Outcome(reasons=("canary_failed",))
    bundles.make_run(store, plan, OLD, {(1, 1): bundles.Outcome(accuracy_state="passed")})
    bundles.make_run(store, plan, NEW, {(1, 1): [bundles.GOOD, failed], (2, 1): None})
    first = plan.launches[0].points[0].point_id
    newer, older = runs.measured_elsewhere(store, plan, None)
    assert (newer[0], older[0]) == (NEW, OLD)
    assert (newer[1][first].attempt, newer[1][first].verdict) == (2, Verdict.INVALID)
    assert len(newer[1]) == 3
    assert older[1][first].accuracy == {"arithmetic"}
    assert [run.run_id for run in runs.measured_elsewhere(store, plan, 11, now=NOON)] == [NEW]
    other = bundles.make_plan([(bundles.LaunchDef(args=()), [bundles.PointDef(1)])])
    assert [run.found for run in runs.measured_elsewhere(store, other, None)] == [{}, {}]
    foreign = bundles.make_plan([(bundles.LaunchDef(model="other"), [bundles.PointDef(1)])])
    assert runs.measured_elsewhere(store, foreign, None) == []


def test_what_a_run_has_of_a_curve(bundles: Any, store: Path) -> None:
    """A curve that was added to holds what it took over, with the run that measured it; own runs are told."""
    plan = bundles.make_plan()
    (launch,) = plan.launches
    bundles.make_run(store, plan, OLD)
    *kept, new = launch.points
    key = new.curve_key
    reused = [
        Reused(point_id=p.point_id, run_id=OLD, attempt=1, accuracy=[], curve_key=p.curve_key) for p in kept
    ]
    changes = {"launches": [launch.model_copy(update={"points": [new]})], "reused": reused}
    addition = Addition(curve_key=key, base_run_id=OLD, point_ids=[new.point_id])
    grown = plan.model_copy(update=changes | {"additions": [addition]})
    bundles.make_run(store, grown, NEW)
    newer, older = runs.measured_elsewhere(store, plan, None)
    assert newer.curves[key] == {p.point_id: OLD for p in kept} | {new.point_id: NEW}
    assert set(older.curves[key].values()) == {OLD}
    assert newer.expected == older.expected == newer.curves[key].keys()
    assert newer.is_own and older.is_own and newer.found[new.point_id].pool == "local"
    foreign = plan.model_copy(update={"sweep": "other"})
    assert [run.is_own for run in runs.measured_elsewhere(store, foreign, None)] == [False, False]
    assert runs.measured_elsewhere(store, foreign, None, own_only=True) == []


def test_what_is_shown_nowhere_is_measured_again(bundles: Any, store: Path) -> None:
    """A try-out does not answer for a published sweep, nor does what people have withdrawn."""
    plan = bundles.make_plan()
    bundles.make_run(store, bundles.make_plan(publish=False), OLD)
    assert runs.find_run(store, plan, None) is None
    assert runs.measured_elsewhere(store, plan, None) == []
    try_out = bundles.make_plan(publish=False)
    assert [run.run_id for run in runs.measured_elsewhere(store, try_out, None)] == [OLD]
    bundles.make_run(store, plan, NEW)
    first = plan.launches[0].points[0].point_id
    assert runs.measured_elsewhere(store, plan, None, withdrawn={(NEW, None)}) == []
    ((_, found, *_),) = runs.measured_elsewhere(store, plan, None, withdrawn={(NEW, first)})
    assert first not in found
    assert len(found) == 3


def test_a_run_whose_reused_points_are_gone_is_not_continued(bundles: Any, store: Path) -> None:
    """A run that took its points from another one says nothing once that one left the store."""
    whole = bundles.make_plan()
    source = bundles.make_run(store, whole, OLD)
    reused = [
        Reused(point_id=point.point_id, run_id=OLD, attempt=1, accuracy=[])
        for point in whole.launches[0].points
    ]
    plan = whole.model_copy(update={"launches": [], "reused": reused})
    bundles.seal_plan(store, plan, NEW)
    found = runs.find_run(store, plan, None)
    assert found is not None
    assert found.run_id == NEW
    shutil.rmtree(source / reused[0].point_id)
    assert runs.find_run(store, plan, None) is None


def digests(run: Path) -> dict[str, str]:
    """Each sealed bundle with the digest of its content and the bytes of its manifest."""
    return {
        str(folder.relative_to(run)): bundle_digest(read_manifest(folder)) + (folder / MANIFEST).read_text()
        for folder in sealed_bundles(run)
    }


def test_wreckage_is_cleared(bundles: Any, store: Path) -> None:
    """A cut-off start keeps its log, half attempts go, and nothing that was sealed changes."""
    plan = bundles.make_plan()
    (launch,) = plan.launches
    folder = bundles.make_run(store, plan, OLD, {(8, 1): None})
    run = runs.named_run(store, OLD)
    before = digests(folder)
    prefix = launch.launch_digest[:10]
    cut_off = run.work / f"_launch~{prefix}-2.0a0a0a0a"
    cut_off.mkdir(parents=True)
    (cut_off / "server.log").write_text("listening\nthe last words")
    (cut_off / ".launch.json.0000.part").write_text("{")
    (cut_off / "link").symlink_to("/etc/hostname")
    (cut_off / MANIFEST).write_text("{}")  # ended between the manifest and the last step
    half = run.work / f"{launch.points[3].point_id}~1.0b0b0b0b"
    (half / "aiperf").mkdir(parents=True)
    (half / "point.json").write_text("{}")
    (run.work / "foreign").mkdir()
    (run.work / f"_launch~{prefix}-x.0c0c0c0c").mkdir()
    (run.work / f"_launch~{prefix}-1.0d0d0d0d").mkdir()  # the one that is sealed already
    (run.work / "journal.jsonl").write_text("{}\n")

    said = runs.clear_wreckage(run)

    assert [line for line in said if "sealed as cut off" in line] == [f"launch {prefix}-2: sealed as cut off"]
    assert len([line for line in said if "dropped" in line]) == 4
    assert [path.name for path in run.work.iterdir()] == ["journal.jsonl"]
    after = digests(folder)
    assert {name: after[name] for name in before} == before
    sealed = folder / "_launch" / f"{prefix}-2"
    assert set(after) - set(before) == {f"_launch/{prefix}-2"}
    assert verify(sealed) == []
    assert sorted(path.name for path in sealed.iterdir()) == [MANIFEST, "launch.json", "server.log"]
    assert (sealed / "server.log").read_text() == "listening\nthe last words"
    record = LaunchRecord.model_validate_json((sealed / "launch.json").read_bytes())
    assert check_launch(record, run_id=OLD, folder=f"{prefix}-2", plan=plan) == []
    assert record.verdict is Verdict.CANCELLED
    assert attempts(folder, launch.points[3].point_id) == []
    assert runs.clear_wreckage(run) == []
    assert runs.next_launch_number(run, launch) == 3


def test_a_start_that_had_told_its_end_keeps_its_word(bundles: Any, store: Path) -> None:
    """When launch.json was written and only the seal is missing, it is sealed as it stands."""
    plan = bundles.make_plan()
    (launch,) = plan.launches
    folder = bundles.seal_plan(store, plan, OLD)
    name = f"{launch.launch_digest[:10]}-1"
    told = bundles.seal_launch(folder, launch, reasons=("server_died",))
    run = runs.named_run(store, OLD)
    run.work.mkdir(exist_ok=True)
    was = (told / "launch.json").read_bytes()
    told.rename(run.work / f"_launch~{name}.0a0a0a0a")
    runs.clear_wreckage(run)
    assert (told / "launch.json").read_bytes() == was
    assert verify(told) == []


def test_a_run_without_scratch(bundles: Any, store: Path) -> None:
    """A run whose scratch folder is gone has no wreckage."""
    folder = bundles.seal_plan(store, bundles.make_plan(), OLD)
    run = runs.named_run(store, OLD)
    for path in sorted(folder.glob(".work/**/*"), reverse=True):
        path.rmdir()
    if run.work.exists():
        run.work.rmdir()
    assert runs.clear_wreckage(run) == []


def test_launch_numbers(bundles: Any, store: Path) -> None:
    """The next number is above every start that left a trace, in a bundle or in an attempt; never reused."""
    plan = bundles.make_plan()
    (launch,) = plan.launches
    folder = bundles.seal_plan(store, plan, OLD)
    run = runs.named_run(store, OLD)
    assert runs.next_launch_number(run, launch) == 1
    bundles.seal_launch(folder, launch, n=1)
    assert runs.next_launch_number(run, launch) == 2
    bundles.seal_attempt(folder, launch, launch.points[0], n=9)  # its launch bundle was lost
    assert runs.next_launch_number(run, launch) == 10
    (folder / "_launch" / f"{launch.launch_digest[:10]}-old").mkdir()
    (folder / "_launch" / "0123456789-77").mkdir()
    assert runs.next_launch_number(run, launch) == 10


def test_plans_of_the_factory_are_honest(bundles: Any) -> None:
    """The factory's plans carry the digest that their content gives, or these tests would prove nothing."""
    plan = bundles.make_plan()
    assert plan_digest(plan) == plan.plan_digest
