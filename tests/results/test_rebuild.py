"""The warehouse is a function of the store: rebuilt, in any order, after any kill, it is the same."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isoline.errors import InfraError, InputError
from isoline.results.foreign.store import Said, keep
from isoline.results.warehouse.file import open_reader, open_writer
from isoline.results.warehouse.ingest import ingest
from isoline.results.warehouse.maintain import rebuild, verify
from isoline.results.warehouse.schema import TABLES
from isoline.settings import Settings, load_settings

RUNS = [f"2026120{day}T020000Z-demo-aaaaa{day}" for day in range(1, 5)]


FOREIGN = {"model_id": "openai/gpt-oss-120b", "completed": 9, "num_prompts": 9, "median_ttft_ms": 5.0}
FOREIGN |= {"total_output_tokens": 90, "request_throughput": 1.0, "median_tpot_ms": 2.0, "max_concurrency": 1}


def content(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, ordered."""
    con = open_reader(path)
    try:
        return {
            table.name: con.execute(f'SELECT * FROM "{table.name}" ORDER BY ALL').fetchall()
            for table in TABLES
        }
    finally:
        con.close()


@pytest.fixture
def store(bundles: Any, tmp_path: Path) -> Path:
    """A store with all that can happen: retries, a bad bundle, a missing point, an incomplete run."""
    folder = tmp_path / "full-store"
    plan = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1), bundles.PointDef(4)])])
    killed = bundles.Outcome(reasons=("server_killed",))
    bundles.make_run(folder, plan, RUNS[0])
    bundles.make_run(folder, plan, RUNS[1], {(4, 1): [killed, bundles.GOOD]})
    held = bundles.make_run(folder, plan, RUNS[2], {(4, 1): None})
    bundles.seal_skipped(held, {plan.launches[0].points[1].point_id: "breaker"})
    bad = bundles.make_run(folder, plan, RUNS[3])
    (next(bad.glob("*.c1.*")) / "1" / "lock.json").write_text("{}")
    return folder


def overrides(settings: Settings) -> None:
    """One withdrawal."""
    (settings.project / "results" / "overrides.yaml").write_text(
        f"schema_version: 1\noverrides:\n  - run_id: {RUNS[0]}\n    action: withdraw\n"
        "    reason: the node ran another job\n    reviewer: maintainer\n    dated: '2026-12-02'\n"
    )


def test_rebuild_gives_the_same_content(store: Path, settings: Settings, tmp_path: Path) -> None:
    """Bundles that come in one by one, in any order, give the tables that a rebuild gives."""
    sealed = [path.parent for path in store.rglob("MANIFEST.json")]
    foreign = tmp_path / "foreign.json"
    foreign.write_text(json.dumps(FOREIGN))
    for seed in range(3):
        grown = load_settings(
            settings.project, store=tmp_path / f"grown{seed}", warehouse=tmp_path / f"grown{seed}.duckdb"
        )
        order = list(sealed)
        random.Random(seed).shuffle(order)
        for step, folder in enumerate(order):
            shutil.copytree(folder, grown.store / folder.relative_to(store))
            if step % 3 == seed % 3:
                ingest(grown)
        overrides(grown)
        keep(grown.store, [foreign], Said())
        ingest(grown)
        target = tmp_path / f"rebuilt{seed}.duckdb"
        report = rebuild(grown, target)
        assert content(grown.warehouse) == content(target)
        assert len(report.quarantined) == 1
    tables = content(target)
    empty = {name for name, rows in tables.items() if not rows}
    assert empty <= {"prices", "accuracy", "reused"}, "the comparison must compare something"


def test_rebuild_in_place_and_beside(store: Path, settings: Settings, tmp_path: Path) -> None:
    """In place the old warehouse is replaced; another file that has content is left alone."""
    full = load_settings(settings.project, store=store)
    ingest(full)
    before = content(full.warehouse)
    with open_writer(full.warehouse) as con:
        con.execute("DELETE FROM points")
    rebuild(full)
    assert content(full.warehouse) == before
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        rebuild(full, taken)
    assert taken.read_text() == "mine"
    with open_writer(full.warehouse), pytest.raises(InfraError, match="another process writes"):
        rebuild(full)
    assert rebuild(full, tmp_path / "new.duckdb", dry_run=True).ingested > 0
    assert not (tmp_path / "new.duckdb").exists()


def test_a_store_that_is_not_there_empties_no_warehouse(
    store: Path, settings: Settings, tmp_path: Path
) -> None:
    """A misspelt store is told; the warehouse stays as it was."""
    ingest(settings)
    before = content(settings.warehouse)
    with pytest.raises(InputError, match="no store there; nothing was changed"):
        rebuild(replace(settings, store=tmp_path / "typo"))
    assert content(settings.warehouse) == before


def test_other_columns_make_every_run_anew(
    store: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a change of the derivation an ordinary ingest gives what a rebuild gives."""
    from isoline.results.warehouse import ingest as module

    full = load_settings(settings.project, store=store)
    with monkeypatch.context() as patch:
        patch.setattr(module, "derivation", lambda: "older")
        ingest(full)
    with open_writer(full.warehouse) as con:
        con.execute("UPDATE points SET total_tps_per_gpu = NULL")
    ingest(full)
    con = open_reader(full.warehouse)
    assert con.execute("SELECT count(*) FROM points WHERE got AND total_tps_per_gpu IS NULL").fetchone() == (
        0,
    )
    con.close()


def test_run_that_left_the_store_is_said(store: Path, settings: Settings) -> None:
    """A store that is not there empties nothing by itself: the rows stay, with a warning."""
    full = load_settings(settings.project, store=store)
    ingest(full)
    shutil.rmtree(next(store.rglob(RUNS[0])))
    assert f"first {RUNS[0]}" in ingest(full).warnings[0]
    con = open_reader(full.warehouse)
    assert con.execute("SELECT count(*) FROM runs").fetchone() == (4,)
    con.close()


def test_verify_names_each_problem(bundles: Any, settings: Settings) -> None:
    """Every difference of the store is one line: changed, missing, added, unsealed, contradicting, gone."""
    run = bundles.make_run(settings.store)
    ingest(settings)
    assert verify(settings) == []
    first, second, third, fourth = sorted(run.glob("smollm2*/1"))
    (first / "point.json").write_bytes(b"{}")
    (first / "lock.json").unlink()
    (first / "extra").write_text("x")
    (second / "MANIFEST.json").unlink()
    bundles.edit(third, "point.json", lambda content: content.update(attempt=7))
    shutil.rmtree(fourth)
    lines = {(problem.path.split(".demo-short.")[1], problem.problem) for problem in verify(settings)}
    words = sorted(f"{path[:2]} {text}" for path, text in lines)
    expected = [
        ("c1", "extra: not in the manifest"),
        ("c1", "lock.json: missing"),
        ("c1", "point.json: sha256"),
        ("c2", "in the warehouse, but not in the store"),
        ("c2", "no MANIFEST.json"),
        ("c4", "attempt is '7'"),
        ("c4", "a sealed bundle was changed"),
        ("c8", "in the warehouse, but not in the store"),
    ]
    for path, text in expected:
        assert any(line.startswith(path) and text in line for line in words), (path, text, words)
    assert len(words) == len(expected)


# An ingest that ends itself by SIGKILL a little after its n-th call of the database (0: never), and prints
# how many calls there were.
INGEST = """
import os, signal, sys, threading
from pathlib import Path
import duckdb
from isoline.results.warehouse import ingest as ingest_module
from isoline.results.warehouse.ingest import ingest
from isoline.settings import load_settings

project, store, warehouse, last, delay_s = sys.argv[1:]
calls = 0
connect = duckdb.connect

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

class Counting:
    def __init__(self, con):
        self.con = con

    def __getattr__(self, name):
        global calls
        calls += 1
        if calls == int(last):
            timer = threading.Timer(float(delay_s), kill)
            timer.daemon = True
            timer.start() if float(delay_s) else kill()
        return getattr(self.con, name)

duckdb.connect = lambda *args, **kwargs: Counting(connect(*args, **kwargs))
ingest_module.AT_ONCE = 2  # runs in a transaction: several transactions, to be killed between
ingest(load_settings(Path(project), store=store, warehouse=warehouse))
print(calls)
"""

KILLS = 12


def test_killed_ingest_leaves_nothing_half(bundles: Any, settings: Settings, tmp_path: Path) -> None:
    """SIGKILL at seeded moments: the warehouse opens, every run in it is whole, a second try completes."""
    store = tmp_path / "store"
    plan = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1), bundles.PointDef(2)])])
    first = bundles.make_run(store, plan, RUNS[0])
    for name in [f"202611{day:02d}T020000Z-demo-bbbb{day:02d}" for day in range(1, 7)]:
        other = bundles.run_folder(store, name)
        shutil.copytree(first, other)
        for path in [*other.rglob("point.json"), *other.rglob("launch.json"), *other.rglob("lock.json")]:
            bundles.edit(path.parent, path.name, lambda content, name=name: content.update(run_id=name))
        manifest = other / "_run" / "MANIFEST.json"
        manifest.write_text(manifest.read_text().replace(RUNS[0], name))

    foreign = tmp_path / "foreign.json"
    foreign.write_text(json.dumps([FOREIGN, FOREIGN | {"max_concurrency": 2, "model_id": "nobody/knows"}]))
    keep(store, [foreign], Said())

    def run(warehouse: Path, last: int = 0, delay_s: float = 0.0) -> subprocess.CompletedProcess[str]:
        what = [settings.project, store, warehouse, last, delay_s]
        argv = [sys.executable, "-c", INGEST, *map(str, what)]
        return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)

    whole = tmp_path / "whole.duckdb"
    calls = int(run(whole).stdout)
    wanted = content(whole)
    assert len(wanted["runs"]) == 8

    rng = random.Random(5)
    killed, seen = 0, set()
    for number in range(KILLS):
        path = tmp_path / f"killed{number}.duckdb"
        # One moment in each twelfth of the ingest; every other one in the middle of a statement.
        moment = 1 + int((number + rng.random()) * calls / KILLS)
        killed += run(path, moment, number % 2 * rng.uniform(0.0, 0.01)).returncode == -signal.SIGKILL
        with open_writer(path):  # opens, recovers, and makes a copy of what is there
            pass
        half = content(path)
        seen.add(len(half["runs"]))
        runs = {row[0] for row in half["runs"]}
        for table in TABLES:
            if table.by_run:
                expected = [row for row in wanted[table.name] if row[table.names.index("run_id")] in runs]
                assert half[table.name] == expected, (number, table.name)
        ingest(load_settings(settings.project, store=store, warehouse=path))
        assert content(path) == wanted
        assert not list(tmp_path.glob(f".{path.stem}*.part*")), "a killed writer's scratch is cleaned up"
    assert killed >= KILLS - 2, "a kill may come too late only at the very end"
    assert len(seen) > 2, f"the moments must fall into the middle of ingests: {sorted(seen)}"
