"""Ingest: what lands, what is refused, and that doing it again changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isoline.errors import InputError
from isoline.results.warehouse.ingest import ingest
from isoline.results.warehouse.maintain import rebuild
from isoline.settings import Settings

SECOND = "20261202T020000Z-demo-bbbbbb"


@pytest.fixture
def plan(bundles: Any) -> Any:
    """A plan of one launch at concurrency 1 and 4."""
    return bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1), bundles.PointDef(4)])])


def attempt_of(run: Path, concurrency: int, attempt: int = 1) -> Path:
    """The folder of an attempt."""
    return next(run.glob(f"*.c{concurrency}.r1.*/{attempt}"))


def withdraw(settings: Settings, run_id: str, point_id: str | None) -> Path:
    """Write an overrides file that withdraws one point, or a run."""
    lines = [
        "schema_version: 1",
        "overrides:",
        f"  - run_id: {run_id}",
        f"    point_id: {point_id or 'null'}",
        "    action: withdraw",
        "    reason: the node ran another job at that time",
        "    reviewer: maintainer",
        "    dated: '2026-12-02'",
    ]
    file = settings.project / "results" / "overrides.yaml"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_everything_lands_once(bundles: Any, settings: Settings, plan: Any, ask: Any) -> None:
    """The first ingest brings every bundle in, the second one adds nothing."""
    bundles.make_run(settings.store, plan)
    first = ingest(settings)
    before = ask("SELECT * FROM metrics ORDER BY ALL")
    second = ingest(settings)
    assert (first.ingested, first.unchanged, first.quarantined) == (4, 0, [])
    assert (second.ingested, second.unchanged, second.runs) == (0, 4, [])
    assert ask("SELECT * FROM metrics ORDER BY ALL") == before
    assert ask("SELECT count(*), count(total_tps_per_gpu) FROM points WHERE verdict = 'valid'") == [(2, 2)]


def test_point_row_says_what_the_bundle_says(bundles: Any, settings: Settings, plan: Any, ask: Any) -> None:
    """Headline columns are the metrics of the headline window, identity is that of the plan."""
    bundles.make_run(settings.store, plan)
    ingest(settings)
    names = bundles.headline_names()
    for name in names:
        wrong = ask(
            "SELECT count(*) FROM points p JOIN metrics m ON p.run_id = m.run_id AND p.point_id = m.point_id "
            f'AND m."window" = p."window" AND m.name = ? WHERE p.{name} IS DISTINCT FROM m.value',
            [name],
        )
        assert wrong == [(0,)], name
    ((model, kind, gpus, seed, version),) = ask(
        "SELECT model, scenario_kind, gpus, seed, engine_version FROM points WHERE concurrency = 4"
    )
    assert (model, kind, gpus, seed) == ("smollm2-135m-instruct", "fixed_length", 1, 4001)
    assert version == "2026.10"


def test_new_attempt_updates_the_point(bundles: Any, settings: Settings, plan: Any, ask: Any) -> None:
    """The last attempt counts, all are kept, and the other points stay as they were."""
    killed = bundles.Outcome(reasons=("server_killed",))
    run = bundles.make_run(settings.store, plan, outcomes={(4, 1): killed})
    ingest(settings)
    counting = "SELECT counting_attempt, attempts, verdict FROM points WHERE concurrency = 4"
    assert ask(counting) == [(1, 1, "infra_error")]
    assert ask("SELECT complete FROM runs") == [(False,)]
    launch = plan.launches[0]
    bundles.seal_attempt(run, launch, launch.points[1], attempt=2)
    report = ingest(settings)
    assert (report.ingested, report.unchanged) == (1, 4)
    assert ask(counting) == [(2, 2, "valid")]
    assert ask("SELECT complete FROM runs") == [(True,)]
    assert ask("SELECT count(*) FROM attempts") == [(3,)]


def test_last_attempt_counts_even_when_worse(bundles: Any, settings: Settings, plan: Any, ask: Any) -> None:
    """There is no best-of: a valid attempt is replaced by a later invalid one; the tenth beats the ninth."""
    died = bundles.Outcome(reasons=("server_died",))
    bundles.make_run(settings.store, plan, outcomes={(4, 1): [bundles.GOOD] * 9 + [died]})
    ingest(settings)
    assert ask("SELECT counting_attempt, verdict, official FROM points WHERE concurrency = 4") == [
        (10, "invalid", False)
    ]


def test_missing_points_are_counted_by_cause(bundles: Any, settings: Settings, plan: Any, ask: Any) -> None:
    """An expected point without an attempt is a row with nulls and a cause, never a zero."""
    run = bundles.seal_plan(settings.store, plan)
    ingest(settings)
    assert ask("SELECT expected, got, missing, skipped, complete FROM runs") == [(2, 0, 2, 0, False)]
    assert ask("SELECT DISTINCT got, verdict, total_tps_per_gpu, missing_cause, official FROM points") == [
        (False, None, None, "missing", False)
    ]
    bundles.seal_launch(run, plan.launches[0], reasons=["launch_timeout"])
    ingest(settings)
    assert ask("SELECT missing, skipped FROM runs") == [(0, 2)]
    assert ask("SELECT DISTINCT missing_cause FROM points") == [("launch_failed",)]


def test_points_after_an_interruption_are_no_alert(
    bundles: Any, settings: Settings, plan: Any, ask: Any
) -> None:
    """When a person ended the run, points without an attempt are skipped, not missing."""
    bundles.make_run(
        settings.store, plan, outcomes={(1, 1): bundles.Outcome(reasons=("interrupted",)), (4, 1): None}
    )
    ingest(settings)
    assert ask("SELECT cancelled, skipped, missing FROM runs") == [(1, 1, 0)]
    assert ask("SELECT missing_cause FROM points WHERE concurrency = 4") == [("cancelled_run",)]


def test_window_is_full_for_the_whole_curve_when_one_point_lacks_steady(
    bundles: Any, settings: Settings, plan: Any, ask: Any
) -> None:
    """One point without a usable steady window puts every point of its curve into the full window."""
    bundles.make_run(settings.store, plan, outcomes={(4, 1): bundles.Outcome(requests=12)})
    bundles.make_run(settings.store, plan, SECOND)
    ingest(settings)
    assert ask('SELECT DISTINCT run_id, "window" FROM points ORDER BY 1') == [
        (bundles.RUN_ID, "full"),
        (SECOND, "steady"),
    ]


def test_unsealed_work_is_not_seen(bundles: Any, settings: Settings, plan: Any, ask: Any) -> None:
    """A folder without a manifest, and the run's own scratch, are never ingested."""
    run = bundles.make_run(settings.store, plan)
    (attempt_of(run, 4) / "MANIFEST.json").unlink()
    shutil.copytree(attempt_of(run, 1), run / ".work" / "1")
    report = ingest(settings)
    assert report.quarantined == []
    assert ask("SELECT got FROM points ORDER BY concurrency") == [(True,), (False,)]


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for part in parents:
            content = content[int(part)] if part.isdigit() else content[part]  # type: ignore[call-overload]
        content[last] = value

    return change


BAD_POINTS: dict[str, tuple[str, Callable[[dict[str, Any]], None], str]] = {
    "other run": ("point.json", _set("run_id", SECOND), "run_id"),
    "other point": ("point.json", _set("point_id", "x"), "point_id"),
    "other attempt": ("point.json", _set("attempt", 2), "attempt"),
    "other point digest": ("point.json", _set("point_digest", "0" * 64), "point_digest"),
    "other launch": ("point.json", _set("launch_digest", "0" * 64), "launch_digest"),
    "foreign launch id": ("point.json", _set("launch_id", "0000000000-1"), "launch_id"),
    "unknown key": ("point.json", _set("later_field", 1), "later_field"),
    "newer schema": ("point.json", _set("schema_version", 2), "schema_version"),
    "unknown verdict": ("point.json", _set("verdict", "great"), "verdict"),
    "verdict without reason": ("point.json", _set("verdict", "invalid"), "its reasons give valid"),
    "reason without verdict": (
        "point.json",
        _set("reasons", [{"code": "server_died"}]),
        "its reasons give invalid",
    ),
    "unknown reason": ("point.json", _set("reasons", [{"code": "tired"}]), "tired"),
    "measured nothing": ("point.json", _set("counts.completed", 0), "0 completed"),
    "valid with failures": ("point.json", _set("counts.failed", 3), "3 failed"),
    "not a number": ("point.json", _set("metrics.0.value", float("nan")), "nan"),
    "seconds for milliseconds": ("point.json", _set("metrics.0.unit", "s"), "'s'"),
    "two values under one name": (
        "point.json",
        lambda content: content["metrics"].append({**content["metrics"][0], "value": 1.0}),
        "twice",
    ),
    "unknown accuracy state": ("point.json", _set("accuracy_state", "fine"), "fine"),
    "time without a zone": ("point.json", _set("started_at", "2026-12-01T02:00:00"), "zone"),
    "lock of another point": ("lock.json", _set("point.point_id", "x"), "lock.json"),
    "lock of another run": ("lock.json", _set("run_id", SECOND), "lock.json"),
    "wrong kind of bundle": ("MANIFEST.json", _set("kind", "launch"), "kind"),
}


@pytest.mark.parametrize("case", BAD_POINTS)
def test_a_contradiction_is_quarantined_and_the_rest_lands(
    case: str, bundles: Any, settings: Settings, plan: Any, ask: Any
) -> None:
    """One bundle that contradicts itself or its place goes to quarantine with its reason, alone."""
    name, change, word = BAD_POINTS[case]
    run = bundles.make_run(settings.store, plan)
    folder = attempt_of(run, 4)
    if name == "MANIFEST.json":
        manifest = folder / name
        manifest.write_text(manifest.read_text().replace('"kind": "point"', '"kind": "launch"'))
    else:
        bundles.edit(folder, name, change)
    report = ingest(settings)
    assert [bad.kind for bad in report.quarantined] == ["point"]
    ((path, reason),) = ask("SELECT path, reason FROM quarantine")
    assert path.endswith(f"{folder.parent.name}/1")
    assert word in reason
    assert ask("SELECT concurrency, verdict FROM points ORDER BY 1") == [(1, "valid"), (4, None)]


def test_changed_bytes_are_quarantined_and_a_repair_lands(
    bundles: Any, settings: Settings, plan: Any, ask: Any
) -> None:
    """A flipped byte in any file of a bundle refuses it; the next ingest takes the repaired file."""
    run = bundles.make_run(settings.store, plan)
    table = attempt_of(run, 4) / "requests.parquet"
    good = table.read_bytes()
    table.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert "requests.parquet: sha256" in ingest(settings).quarantined[0].reason
    again = ingest(settings)
    assert (again.ingested, len(again.quarantined), again.runs) == (0, 1, [])
    table.write_bytes(good)
    repaired = ingest(settings)
    assert (repaired.ingested, repaired.quarantined) == (1, [])
    assert ask("SELECT count(*) FROM quarantine") == [(0,)]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b'{"schema_version": 1}', b"[" * 100_000])
def test_unreadable_manifest_is_quarantined(
    content: bytes, bundles: Any, settings: Settings, plan: Any, ask: Any
) -> None:
    """A manifest that is empty, cut off, not text or nested too deep refuses its bundle alone."""
    run = bundles.make_run(settings.store, plan)
    (attempt_of(run, 4) / "MANIFEST.json").write_bytes(content)
    assert len(ingest(settings).quarantined) == 1
    assert ask("SELECT got FROM runs") == [(1,)]


def test_valid_without_its_requests_is_quarantined(
    bundles: Any, settings: Settings, plan: Any, ask: Any
) -> None:
    """What counts must be derivable again: no request table, or other columns, refuses a valid attempt."""
    run = bundles.make_run(settings.store, plan)
    (attempt_of(run, 4) / "requests.parquet").unlink()
    bundles.reseal(attempt_of(run, 4))
    shutil.copy(next(run.glob("_launch/*/telemetry.parquet")), attempt_of(run, 1) / "requests.parquet")
    bundles.reseal(attempt_of(run, 1))
    reasons = sorted(bad.reason for bad in ingest(settings).quarantined)
    assert "other columns" in reasons[0]
    assert "without requests.parquet" in reasons[1]


PLAN_CHANGES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "sweep": (_set("sweep", "other"), "plan_digest"),
    "argument": (_set("launches.0.identity.argv", ["serve"]), "launch_digest"),
    "concurrency": (_set("launches.0.points.0.concurrency", 2), "its fields give the id"),
    "curve": (_set("launches.0.points.0.curve.sku", "h200"), "curve_key"),
    "scenario": (_set("launches.0.points.0.identity.scenario.version", 2), "point_digest"),
}


@pytest.mark.parametrize("case", PLAN_CHANGES)
def test_plan_that_is_not_its_digests_refuses_its_run_alone(
    case: str, bundles: Any, settings: Settings, plan: Any, ask: Any
) -> None:
    """Every digest and key of a plan is computed again; a wrong one refuses the run, not the others."""
    from isoline.results.bundles.checks import plan_digest

    change, word = PLAN_CHANGES[case]

    def both(content: dict[str, Any]) -> None:
        change(content)
        if case != "sweep":
            content["plan_digest"] = plan_digest(content)

    run = bundles.make_run(settings.store, plan)
    bundles.make_run(settings.store, plan, SECOND)
    bundles.edit(run / "_run", "plan.json", both)
    report = ingest(settings)
    assert {bad.kind for bad in report.quarantined} == {"run", "launch", "point"}
    assert word in next(bad.reason for bad in report.quarantined if bad.kind == "run")
    assert ask("SELECT run_id FROM runs") == [(SECOND,)]


def test_one_point_planned_twice_is_an_error(bundles: Any, settings: Settings, plan: Any) -> None:
    """Two entries under one key are refused, never last-wins."""
    from isoline.results.bundles.checks import plan_digest

    def twice(content: dict[str, Any]) -> None:
        content["launches"][0]["points"].append(content["launches"][0]["points"][0])
        content["plan_digest"] = plan_digest(content)

    run = bundles.make_run(settings.store, plan)
    bundles.edit(run / "_run", "plan.json", twice)
    assert "planned twice" in ingest(settings).quarantined[0].reason


def test_attempt_without_plan_is_refused(bundles: Any, settings: Settings, plan: Any) -> None:
    """Without a sealed plan nobody knows what was expected: nothing of the run lands."""
    run = bundles.make_run(settings.store, plan)
    shutil.rmtree(run / "_run")
    report = ingest(settings)
    assert report.ingested == 0
    assert {bad.reason for bad in report.quarantined} == {"its run has no usable plan (_run)"}


def test_copy_of_a_run_under_another_day_does_not_replace_it(
    bundles: Any, settings: Settings, plan: Any, ask: Any
) -> None:
    """A run's folder that is not where its id says is refused; the run itself stays."""
    run = bundles.make_run(settings.store, plan)
    shutil.copytree(run, settings.store / "2026" / "12" / "31" / run.name)
    for _ in range(2):
        report = ingest(settings)
        assert len(report.quarantined) == 4
        assert ask("SELECT valid FROM runs") == [(2,)]


def test_point_outside_the_plan_is_refused(bundles: Any, settings: Settings, plan: Any) -> None:
    """An attempt at a point that was never expected is refused."""
    other = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(16)])])
    run = bundles.make_run(settings.store, plan)
    bundles.seal_attempt(run, other.launches[0], other.launches[0].points[0])
    assert "not in the plan" in ingest(settings).quarantined[0].reason


def test_overrides_withdraw_and_come_back(bundles: Any, settings: Settings, plan: Any, ask: Any) -> None:
    """A withdrawal takes effect without a new bundle, is shown with its reason, and can be taken back."""
    run = bundles.make_run(settings.store, plan)
    bundles.make_run(settings.store, plan, SECOND)
    ingest(settings)
    point = attempt_of(run, 4).parent.name
    file = withdraw(settings, run.name, point)
    report = ingest(settings)
    assert report.runs == []  # no bundle changed
    shown = "SELECT official, unofficial_why, marks FROM points WHERE concurrency = 4 ORDER BY run_id"
    assert ask(shown) == [(False, "withdrawn", ["withdrawn"]), (True, None, [])]
    assert ask("SELECT action, reviewer FROM overrides") == [("withdraw", "maintainer")]
    file.write_text("schema_version: 1\noverrides: []\n")
    ingest(settings)
    assert ask(shown) == [(True, None, []), (True, None, [])]
    assert ask("SELECT count(*) FROM overrides") == [(0,)]


def test_override_of_another_store_s_run_is_said(bundles: Any, settings: Settings, plan: Any) -> None:
    """The file goes with the project, a store does not: its run may be in another one."""
    run = bundles.make_run(settings.store, plan)
    withdraw(settings, "20250101T020000Z-nightly-cccccc", None)
    (line,) = ingest(settings).warnings
    assert line.startswith("results/overrides.yaml: the store has no run 20250101T020000Z-nightly-cccccc")
    assert run.name in line


@pytest.mark.parametrize("change", ["day", "sweep", "suffix"])
def test_misspelt_run_of_an_override_is_refused(
    change: str, bundles: Any, settings: Settings, plan: Any
) -> None:
    """A run that differs from one that is here in one of its three parts is that one, misspelt."""
    run = bundles.make_run(settings.store, plan)
    old, new = {"day": ("2026120", "2026121"), "sweep": ("demo", "dmeo"), "suffix": ("aaaaaa", "aaaaab")}[
        change
    ]
    withdraw(settings, run.name.replace(old, new), None)
    for call in (ingest, rebuild):
        with pytest.raises(InputError, match=r"results/overrides\.yaml:3") as caught:
            call(settings)
        assert f"did you mean '{run.name}'" in caught.value.line()


def test_unknown_point_of_an_override_is_refused(bundles: Any, settings: Settings, plan: Any) -> None:
    """A point that its run does not expect is refused with the nearest one, before anything changes."""
    run = bundles.make_run(settings.store, plan)
    point = attempt_of(run, 4).parent.name
    withdraw(settings, run.name, point[:-1] + ("0" if point[-1] != "0" else "1"))
    with pytest.raises(InputError, match=r"results/overrides\.yaml:4") as caught:
        ingest(settings)
    assert f"did you mean '{point}'" in caught.value.line()
    assert not settings.warehouse.exists()


def test_unreadable_decisions_stop_the_ingest(settings: Settings) -> None:
    """A decision file with a mistake is an error with its line: a withdrawal is never lost silently."""
    file = settings.project / "results" / "overrides.yaml"
    file.write_text("schema_version: 1\noverides: []\n")
    with pytest.raises(InputError, match=r"overrides\.yaml:2.*overides"):
        ingest(settings)


def test_accuracy_failure_withholds_neighbours(bundles: Any, settings: Settings, ask: Any) -> None:
    """A failed check at one concurrency withholds the unevaluated points around it in the tables."""
    points = [bundles.PointDef(c) for c in (1, 2, 4)]
    plan = bundles.make_plan([(bundles.LaunchDef(), points)])
    outcomes = {
        (1, 1): bundles.Outcome(accuracy_state="passed"),
        (4, 1): bundles.Outcome(accuracy_state="failed"),
    }
    bundles.make_run(settings.store, plan, outcomes=outcomes)
    ingest(settings)
    assert ask("SELECT concurrency, official FROM points ORDER BY 1") == [(1, True), (2, False), (4, False)]
    assert ask("SELECT state, correct FROM accuracy ORDER BY concurrency") == [("passed", 15), ("failed", 2)]


def test_paths_choose_runs(bundles: Any, settings: Settings, plan: Any, ask: Any) -> None:
    """A path ingests the run it lies in; a path outside the store is an error."""
    run = bundles.make_run(settings.store, plan)
    bundles.make_run(settings.store, plan, SECOND)
    ingest(settings)  # settles what every run is due once
    for other in (bundles.RUN_ID, SECOND):
        bundles.seal_launch(settings.store / "2026" / "12" / other[6:8] / other, plan.launches[0], n=2)
    report = ingest(settings, [attempt_of(run, 1)])
    assert report.runs == [run.name]
    assert ask("SELECT run_id, count(*) FROM launches GROUP BY 1 ORDER BY 1") == [(run.name, 2), (SECOND, 1)]
    with pytest.raises(InputError, match="not inside the store"):
        ingest(settings, [settings.project])
    with pytest.raises(InputError, match="no such folder"):
        ingest(settings, [settings.store / "2027"])


def test_dry_run_changes_nothing(bundles: Any, settings: Settings, plan: Any) -> None:
    """A dry run reports what would come in and leaves no file behind."""
    bundles.make_run(settings.store, plan)
    assert ingest(settings, dry_run=True).ingested == 4
    assert list(settings.warehouse.parent.glob("warehouse*")) == []


def test_hostile_names_stay_text(bundles: Any, settings: Settings, ask: Any) -> None:
    """A name that looks like SQL is stored as it is."""
    name = "x'); drop table points; --"
    plan = bundles.make_plan([(bundles.LaunchDef(model=name), [bundles.PointDef(1)])])
    bundles.make_run(settings.store, plan)
    assert ingest(settings).quarantined == []
    assert ask("SELECT model FROM points") == [(name,)]


def test_empty_store_makes_an_empty_warehouse(settings: Settings, ask: Any) -> None:
    """Nothing measured yet is no error."""
    assert ingest(settings).ingested == 0
    assert ask("SELECT count(*) FROM points") == [(0,)]
