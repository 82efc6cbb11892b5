"""Retention: raw files and request tables go by their class, the tables and the proof stay."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.documents import DocumentError
from isoline.errors import IncompleteError, InfraError, InputError
from isoline.results.arrivals.bring import bring
from isoline.results.bundles import bundle
from isoline.results.bundles.thin import ThinReport, thin
from isoline.results.foreign.store import Said
from isoline.results.metrics.rederive import rederive
from isoline.results.warehouse.file import open_reader, write_lock
from isoline.results.warehouse.ingest import ingest
from isoline.results.warehouse.maintain import rebuild, verify
from isoline.results.warehouse.schema import TABLES
from isoline.settings import Settings, load_settings
from isoline.sweeps.state.logs import find_logs

RULES = Path(__file__).parents[2] / "results" / "retention.yaml"
RUN = "20261201T020000Z-demo-aaaaaa"
OTHER = "20261202T020000Z-demo-bbbbbb"
KEY = "a123456789abcdef"
RAW = {"aiperf/inputs.json": b"{}", "aiperf/logs/x.log": b"x" * 1000, "accuracy/canary.json": b"[]"}


def later(days: float) -> datetime:
    """The moment that many days from now: bundles of a test are sealed today."""
    return datetime.now(UTC) + timedelta(days=days)


def content(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, ordered."""
    con = open_reader(path)
    try:
        return {t.name: con.execute(f'SELECT * FROM "{t.name}" ORDER BY ALL').fetchall() for t in TABLES}
    finally:
        con.close()


def files(settings: Settings) -> dict[str, bytes]:
    """Every file of the store."""
    paths = sorted(path for path in settings.store.rglob("*") if path.is_file())
    return {path.relative_to(settings.store).as_posix(): path.read_bytes() for path in paths}


def totals(report: ThinReport) -> dict[str, int]:
    """How many files go, by class."""
    found: dict[str, int] = {}
    for gone in report.gone:
        found[gone.retention_class] = found.get(gone.retention_class, 0) + gone.files
    return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, bundles: Any) -> Path:
    """Two runs of two points each with raw files, ingested, and the project's own rules."""
    folder = tmp_path_factory.mktemp("template")
    for name in ("recipes", "sweeps", "results"):
        (folder / name).mkdir()
    results = folder / "results"
    settings = load_settings(folder, store=results / "store", warehouse=results / "warehouse.duckdb")
    shutil.copyfile(RULES, results / "retention.yaml")
    plan = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1), bundles.PointDef(4)])])
    raw = bundles.Outcome(extra_files=RAW)
    for run in (RUN, OTHER):
        bundles.make_run(settings.store, plan, run, {(1, 1): [raw], (4, 1): [raw]})
    assert not ingest(settings).quarantined
    return results


@pytest.fixture
def old(template: Path, settings: Settings) -> Settings:
    """A copy of it that the test may change."""
    shutil.copytree(template, settings.project / "results", dirs_exist_ok=True)
    return settings


def test_each_class_goes_in_its_time(old: Settings) -> None:
    """Nothing goes before 90 days, raw files then, request tables after 400, and never what tables need."""
    before, tables = files(old), content(old.warehouse)
    assert thin(old, now=later(89)).files == 0
    assert files(old) == before
    raw = thin(old, now=later(91))
    assert totals(raw) == {"raw": 2 * (2 * 3 + 1)}
    assert raw.bytes == sum(len(data) for name, data in before.items() if name not in files(old))
    assert not any("aiperf" in name or name.endswith(".log") for name in files(old))
    assert sum(name.endswith("requests.parquet") for name in files(old)) == 4
    assert verify(old) == []
    assert totals(thin(old, now=later(401))) == {"requests": 4}
    left = files(old)
    assert not any(name.endswith("requests.parquet") for name in left)
    for kept in ("plan.json", "point.json", "lock.json", "launch.json", "_run/environment.json"):
        names = {name for name in before if name.endswith(kept)}
        assert names and {name: left[name] for name in names} == {name: before[name] for name in names}
    assert sum(name.endswith("telemetry.parquet") for name in left) == 2  # of the launches: a table
    assert verify(old) == []
    assert ingest(old).runs == []
    rebuild(old)
    assert content(old.warehouse) == tables


def test_a_second_time_nothing_goes(old: Settings) -> None:
    """Thinning again changes not one byte."""
    thin(old, now=later(401))
    after = files(old)
    assert thin(old, now=later(402)).gone == []
    assert files(old) == after


def test_a_tombstone_says_what_went(old: Settings) -> None:
    """Beside the bundle: path, digest, class, days and when of each file, over both thinnings."""
    before = files(old)
    thin(old, now=later(91))
    thin(old, now=later(401))
    stone = next(old.store.glob(f"*/*/*/{RUN}/*.c1.*/1.thinned.json"))
    said = {item["path"]: item for item in json.loads(stone.read_text())["files"]}
    assert set(said) == {*RAW, "requests.parquet"}
    place = stone.relative_to(old.store).as_posix().removesuffix(".thinned.json")
    for name, item in said.items():
        assert item["bytes"] == len(before[f"{place}/{name}"])
        assert item["class"] == ("requests" if name == "requests.parquet" else "raw")
    assert said["requests.parquet"]["days"] == 400
    assert said["aiperf/inputs.json"]["when"] < said["requests.parquet"]["when"]
    with pytest.raises(IncompleteError, match=r"requests\.parquet was thinned"):
        rederive(stone.with_name("1"))


def test_a_dry_run_says_the_same_and_changes_nothing(old: Settings) -> None:
    """What a dry run counts is what goes; nothing is written, no lock is taken."""
    before = files(old)
    with write_lock(old.warehouse):
        said = thin(old, now=later(401), dry_run=True)
    assert files(old) == before
    assert said.files == 2 * (2 * 4 + 1)
    assert thin(old, now=later(401)).gone == said.gone


def test_not_while_somebody_ingests(old: Settings) -> None:
    """While another process writes the warehouse nothing is removed."""
    before = files(old)
    with write_lock(old.warehouse), pytest.raises(InfraError, match="another process writes"):
        thin(old, now=later(401))
    assert files(old) == before


@pytest.mark.parametrize("decision", ["override", "baseline", "accepted", "flag"])
def test_what_a_decision_names_stays_whole(old: Settings, decision: str) -> None:
    """A run that an override, baseline, accepted change or alert names keeps its files, others do not."""
    who = 'reason: seen by hand there, dated: "2026-12-02"'
    lines = {
        "override": f"overrides: [{{run_id: {RUN}, action: annotate, reviewer: ops, {who}}}]",
        "baseline": f"baselines: [{{series_key: a.b, run_id: {RUN}, {who}}}]",
        "accepted": f"accepted_changes: [{{curve_key: {KEY}, from_run_id: {RUN}, reviewer: ops, {who}}}]",
    }
    names = {"override": "overrides", "baseline": "baselines", "accepted": "accepted-changes"}
    if decision in lines:
        path = old.project / "results" / f"{names[decision]}.yaml"
        path.write_text(f"schema_version: 1\n{lines[decision]}\n")
    before = files(old)
    report = thin(old, now=later(401), held=[RUN] if decision == "flag" else [])
    assert [run for run, _ in report.held] == [RUN]
    assert {gone.run_id for gone in report.gone} == {OTHER}
    left = files(old)
    assert all(left[name] == data for name, data in before.items() if RUN in name)


def test_what_is_in_quarantine_stays_whole(old: Settings) -> None:
    """A bundle that the warehouse refuses could be mended, and derived again, only while it is whole."""
    point = next(old.store.glob(f"*/*/*/{RUN}/*.c4.*/1"))
    (point / "lock.json").write_text("{}")
    assert len(rebuild(old).quarantined) == 1
    before = files(old)
    report = thin(old, now=later(401))
    assert [problem.path for problem in report.kept] == [point.relative_to(old.store).as_posix()]
    assert "quarantine" in report.kept[0].problem
    place = f"{report.kept[0].path}/"
    assert {n: d for n, d in files(old).items() if n.startswith(place)} == {
        n: d for n, d in before.items() if n.startswith(place)
    }


def test_damage_is_not_thinned_away(old: Settings) -> None:
    """A file that is not what was sealed stays, is told of, and `verify` finds it as before."""
    point = next(old.store.glob(f"*/*/*/{RUN}/*.c4.*/1"))
    (point / "requests.parquet").write_bytes(b"other")
    (point / "aiperf" / "inputs.json").unlink()
    report = thin(old, now=later(401))
    assert sorted(item.problem for item in report.kept) == [
        "aiperf/inputs.json: missing",
        "requests.parquet: not what was sealed",
    ]
    assert (point / "requests.parquet").read_bytes() == b"other"
    problems = [item.problem for item in verify(old)]
    assert any("requests.parquet: sha256" in line for line in problems)
    assert "aiperf/inputs.json: missing" in problems


def test_a_link_leads_nowhere(old: Settings, tmp_path: Path) -> None:
    """A folder of a bundle that was replaced by a link is left alone, and so is what it leads to."""
    point = next(old.store.glob(f"*/*/*/{RUN}/*.c4.*/1"))
    aside = tmp_path / "precious"
    (point / "aiperf").rename(aside)
    (point / "aiperf").symlink_to(aside)
    report = thin(old, now=later(91))
    assert {item.problem for item in report.kept} == {
        "aiperf/inputs.json: not a plain file of the bundle",
        "aiperf/logs/x.log: not a plain file of the bundle",
    }
    assert (aside / "logs" / "x.log").is_file()


def test_whoever_is_killed_is_completed(
    old: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Killed before or after any single step, the store verifies, and the next call gives the same store."""
    tables = content(old.warehouse)
    kept = tmp_path / "kept"
    shutil.copytree(old.store, kept)
    moment = later(401)

    class Killed(BaseException):
        pass

    def die_at(number: int) -> tuple[Callable[..., None], Callable[..., None]]:
        steps = iter(range(10_000))
        unlink, write = Path.unlink, bundle.write_file

        def count() -> None:
            if next(steps) == number:
                raise Killed

        def dying_unlink(path: Path, missing_ok: bool = False) -> None:
            count()
            unlink(path, missing_ok)
            count()

        def dying_write(path: Path, data: bytes) -> None:
            count()
            write(path, data)
            count()

        return dying_unlink, dying_write

    thin(old, now=moment)
    wanted = files(old)
    number = 0
    while True:
        shutil.rmtree(old.store)
        shutil.copytree(kept, old.store)
        unlink, write = die_at(number)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", unlink)
            patch.setattr(bundle, "write_file", write)
            try:
                thin(old, now=moment)
            except Killed:
                died = True
            else:
                died = False
        if number % 5 == 0:
            assert verify(old) == []
        thin(old, now=moment)
        assert files(old) == wanted
        if not died:
            break
        number += 3
    assert number > 30
    assert verify(old) == []
    rebuild(old)
    assert content(old.warehouse) == tables


def test_a_forged_tombstone_excuses_nothing(old: Settings) -> None:
    """What it names was sealed with that digest, is old enough, and is no file that tables need."""
    thin(old, now=later(401))
    stone = next(old.store.glob(f"*/*/*/{RUN}/*.c1.*/1.thinned.json"))
    point = stone.with_name("1")
    honest = json.loads(stone.read_text())
    lock = json.loads((point / "MANIFEST.json").read_text())["files"]
    lock = next(item for item in lock if item["path"] == "lock.json")

    def said(change: Callable[[dict[str, Any]], None]) -> list[str]:
        forged = json.loads(json.dumps(honest))
        change(forged)
        stone.write_text(json.dumps(forged))
        return [item.problem for item in verify(old) if item.path.endswith("/1") and RUN in item.path]

    assert said(lambda stone: None) == []
    for change, words in (
        (lambda s: s["files"][0].update(sha256="0" * 64), "not what the manifest names"),
        (lambda s: s["files"][0].update(when="2026-01-01T00:00:00Z"), "thinned within"),
        (lambda s: s["files"].append(s["files"][0]), "thinned twice"),
        (lambda s: s["files"].append({**s["files"][0], **lock}), "tables are made from it"),
        (lambda s: s.update(bundle_digest="0" * 64), "of another bundle"),
        (lambda s: s.update(extra=1), "unreadable tombstone"),
        (lambda s: s["files"][0].update(days=0), "unreadable tombstone"),
    ):
        assert any(words in line for line in said(change)), words
    stone.unlink()
    assert any("missing" in item.problem for item in verify(old))


def test_a_tombstone_without_its_bundle_is_found(old: Settings) -> None:
    """A bundle that somebody removed is not excused by its tombstone."""
    thin(old, now=later(91))
    point = next(old.store.glob(f"*/*/*/{RUN}/*.c1.*/1"))
    shutil.rmtree(point)
    problems = {item.problem for item in verify(old)}
    assert {"a tombstone without its bundle", "in the warehouse, but not in the store"} <= problems


def test_runs_that_gave_points_to_a_held_one_stay(bundles: Any, settings: Settings) -> None:
    """An override on a run that added to another's curve keeps that other one's files too."""
    shutil.copyfile(RULES, settings.project / "results" / "retention.yaml")
    whole = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1), bundles.PointDef(4)])])
    base = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1)])])
    bundles.make_run(settings.store, base, RUN)
    bundles.make_run(settings.store, bundles.grow(whole, RUN, {1: RUN}), OTHER)
    ingest(settings)
    report = thin(settings, now=later(401), held=[OTHER])
    assert [run for run, _ in report.held] == [RUN, OTHER]
    assert report.gone == []
    tables = content(settings.warehouse)
    assert thin(settings, now=later(401)).files == 4
    rebuild(settings)  # the later run's rows are made from the earlier one's thinned attempt too
    assert content(settings.warehouse) == tables
    assert verify(settings) == []


def test_wrong_rules_are_refused(old: Settings) -> None:
    """Rules that would let the tables' own files go, no rules, no store and no run id are one line each."""
    path = old.project / "results" / "retention.yaml"
    good = path.read_text()
    path.write_text("schema_version: 1\nclasses: {r: {what: x, files: [point.json], days: 3}}\n")
    with pytest.raises(DocumentError, match=r"class r lets point\.json go"):
        thin(old, now=later(401))
    path.write_text("schema_version: 1\nclasses: {r: {what: x, files: ['*'], days: 3}}\n")
    report = thin(old, now=later(10), dry_run=True)
    assert {gone.files for gone in report.gone} == {2 * 4 + 1}  # a wide pattern spares what tables need
    path.write_text(good)
    with pytest.raises(InputError, match="no run id"):
        thin(old, held=["yesterday"])
    with pytest.raises(InputError, match="no store there"):
        thin(replace(old, store=old.project / "none"))
    path.unlink()
    with pytest.raises(InputError, match="no rules of retention"):
        thin(old)


def test_thinned_bundles_come_from_stores_but_not_from_jobs(old: Settings, tmp_path: Path) -> None:
    """Another store's thinned run is taken in; an archive of a job hides nothing behind a tombstone."""
    thin(old, now=later(401))
    run = next(old.store.glob(f"*/*/*/{RUN}"))
    other = replace(old, store=tmp_path / "other", warehouse=tmp_path / "other.duckdb")
    other.store.mkdir()
    with tarfile.open(tmp_path / "job.tar", "w") as made:
        made.add(run, run.name)
    arrived, _ = bring(other.store, [str(tmp_path / "job.tar")], Said())
    assert {bad.reason for bad in arrived.refused} == {
        "a tombstone in an archive: thinned bundles come from stores alone"
    }
    arrived, _ = bring(other.store, [str(old.store)], Said())
    assert arrived.refused == []
    ingest(other)
    assert verify(other) == []
    assert content(other.warehouse) == content(old.warehouse)


def test_logs_that_were_thinned_are_said_to_be(old: Settings) -> None:
    """Whoever asks for a log learns that it is gone by the rules, not that it never was."""
    launch = next(old.store.glob(f"*/*/*/{RUN}/_launch/*")).name
    assert find_logs(old.store, launch)[1]
    thin(old, now=later(91))
    with pytest.raises(InputError, match=r"the logs of .* are gone: they were thinned"):
        find_logs(old.store, launch)
    with pytest.raises(InputError, match="no log of point or launch"):
        find_logs(old.store, "0123456789-1")
