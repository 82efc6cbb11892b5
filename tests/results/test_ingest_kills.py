"""SIGKILL of an ingest at any moment: the warehouse opens, nothing is half there, the same command ends."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isoline.results.arrivals.admit import ROOM
from isoline.results.warehouse.file import open_reader, open_writer, read_copy_path
from isoline.results.warehouse.maintain import verify
from isoline.results.warehouse.schema import TABLES
from isoline.settings import Settings, load_settings

ROWS = 200
RUNS = 4
KILLS_IN_A_ROW = 3

# What `isoline results ingest` does with an archive, a file of others and the runs of the store.
INGEST = """
import sys
from pathlib import Path
from isoline.results.arrivals.bring import bring
from isoline.results.foreign.store import Said
from isoline.results.warehouse.ingest import ingest
from isoline.settings import load_settings
import duckdb
settings = load_settings(Path(sys.argv[1]))
print("go", flush=True)
bring(settings.store, sys.argv[2:], Said(), wait_s=20)
print("brought", flush=True)
ingest(settings, wait_s=20)
print("done", flush=True)
"""


@dataclass
class Work:
    """A project before its ingest, what is to be ingested, and what comes of it undisturbed."""

    start: Path
    given: list[str]
    tables: dict[str, list[tuple[Any, ...]]]
    files: dict[str, bytes]
    seconds: float


def content(settings: Settings) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, in order."""
    con = open_reader(settings.warehouse)
    try:
        return {
            table.name: con.execute(f'SELECT * FROM "{table.name}" ORDER BY ALL').fetchall()
            for table in TABLES
        }
    finally:
        con.close()


def files_of(store: Path) -> dict[str, bytes]:
    """Every file of the store, hidden ones too, but the lock."""
    return {
        path.relative_to(store).as_posix(): path.read_bytes()
        for path in store.rglob("*")
        if path.is_file() and path.name != f"{ROOM}.lock"
    }


def start(project: Path, given: Sequence[str]) -> subprocess.Popen[str]:
    """Begin an ingest in a process of its own; returns as soon as it is about to touch anything."""
    argv = [sys.executable, "-c", INGEST, str(project), *given]
    running = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stdout.readline() == "go\n"
    return running


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, bundles: Any) -> Work:
    """Runs in the store, as many in an archive, and a file of rows of which some are bad."""
    folder = tmp_path_factory.mktemp("kills")
    project = folder / "start"
    for name in ("recipes", "sweeps", "results"):
        (project / name).mkdir(parents=True)
    plan = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1), bundles.PointDef(2)])])
    for number in range(RUNS):
        where = project / "results" / "store" if number % 2 else folder / "job"
        bundles.make_run(where, plan, f"202612{number + 1:02d}T020000Z-demo-aaaaa{number}")
    with tarfile.open(folder / "job.tar.gz", "w:gz") as made:
        made.add(folder / "job", "job")
    row = {"hw": "b200", "infmax_model_prefix": "gptoss", "framework": "vllm", "precision": "fp4", "tp": 8}
    row |= {"isl": 1024, "osl": 1024, "tput_per_gpu": 1000.0, "median_tpot": 0.01}
    lines = [
        json.dumps(row | {"conc": number + 1, "framework": "vllm" if number % 100 else "newengine"})
        for number in range(ROWS)
    ]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    given = [str(folder / "job.tar.gz"), str(folder / "rows.jsonl")]
    whole = folder / "whole"
    shutil.copytree(project, whole)
    running = start(whole, given)
    begin = time.monotonic()
    assert running.wait(120) == 0
    seconds = time.monotonic() - begin
    if running.stdout is not None:
        running.stdout.close()
    settings = load_settings(whole)
    found = content(settings)
    assert len(found["points"]) == 2 * RUNS + ROWS - ROWS // 100
    assert len(found["quarantine"]) == ROWS // 100
    return Work(project, given, found, files_of(settings.store), seconds)


def check_whole(settings: Settings, work: Work) -> str:
    """The warehouse opens, each run in it is all there, so is each bundle of the store. Returns how far."""
    if read_copy_path(settings.warehouse).exists():
        seen = content(settings)
        check_runs(seen, work)
    with open_writer(settings.warehouse, wait_s=20):
        pass
    now = content(settings)
    check_runs(now, work)
    assert [problem for problem in verify(settings) if "note" not in problem.problem] == []
    for name, data in files_of(settings.store).items():
        if not name.startswith(f"{ROOM}/") and not name.endswith(".part"):
            assert work.files[name] == data, name
    return f"{len(now['runs'])} of {RUNS + 1} runs"


def check_runs(seen: dict[str, list[tuple[Any, ...]]], work: Work) -> None:
    """Of each run either every row of every table is there, or none."""
    runs = {row[0] for row in seen["runs"]} | {row[0] for row in seen["points"]}
    for table in TABLES:
        if not table.by_run:
            continue
        at = table.names.index("run_id")
        expected = [row for row in work.tables[table.name] if row[at] in runs]
        assert seen[table.name] == expected, table.name


def kill_at(work: Work, folder: Path, moments: Sequence[float]) -> list[str]:
    """Kill the ingest of a fresh project at each of these moments, one after the other; then let it end."""
    shutil.copytree(work.start, folder)
    settings = load_settings(folder)
    told = []
    for moment in moments:
        running = start(folder, work.given)
        time.sleep(moment)
        running.kill()
        said = running.communicate()[0].split()
        told.append(
            f"- {moment * 1e3:.0f} ms, {said[-1] if said else 'bringing'}: {check_whole(settings, work)}"
        )
    running = start(folder, work.given)
    out, _ = running.communicate(timeout=120)
    assert out.split() == ["brought", "done"]
    assert content(settings) == work.tables
    assert files_of(settings.store) == work.files
    assert {path.name for path in settings.warehouse.parent.iterdir()} == {
        "store",
        "warehouse.duckdb",
        "warehouse.duckdb.lock",
        "warehouse.read.duckdb",
    }
    shutil.rmtree(folder)
    return told


def kills(work: Work, folder: Path, count: int, seed: int) -> list[str]:
    """As many seeded kills, a few in a row on each project."""
    rng = random.Random(seed)
    told: list[str] = []
    while len(told) < count:
        moments = [rng.uniform(0, work.seconds) for _ in range(min(KILLS_IN_A_ROW, count - len(told)))]
        told += kill_at(work, folder / str(len(told)), moments)
    return told


@pytest.mark.timeout(300)
def test_killed_at_twelve_moments(work: Work, tmp_path: Path) -> None:
    """Twelve seeded kills: all that is seen afterwards is whole, and the same ingest ends with the same."""
    told = kills(work, tmp_path, 12, seed=5)
    assert len({line.partition(":")[2] for line in told}) > 1, told  # they hit more than one state


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_killed_at_fifty_moments(
    work: Work, tmp_path: Path, evidence: Callable[[str, Sequence[str]], Path]
) -> None:
    """The full form: fifty."""
    told = kills(work, tmp_path, 50, seed=50)
    head = f"SIGKILL of an ingest at {len(told)} seeded moments; all that was seen was whole:"
    evidence("ingest-kills", [head, "", *told])
