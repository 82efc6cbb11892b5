"""``isoline results``: what it prints and how it ends."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, bundles: Any) -> Path:
    """A project with one good run of two points and one run with a bad bundle."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("recipes", "sweeps", "results"):
        (folder / name).mkdir()
    plan = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1), bundles.PointDef(4)])])
    bundles.make_run(folder / "results" / "store", plan)
    return folder


def isoline(project: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the real command in the project."""
    code = "import sys; from isoline.cli.main import main; sys.argv = ['isoline', *sys.argv[1:]]; main()"
    argv = [sys.executable, "-c", code, "results", *args]
    return subprocess.run(argv, cwd=project, capture_output=True, text=True, check=False)


def test_the_way_of_a_result(project: Path) -> None:
    """Ingest, ask, verify, break one bundle, see it refused with exit code 3, repair it, rebuild."""
    asked = isoline(project, "query", "select 1")
    assert (asked.returncode, "no warehouse yet" in asked.stderr) == (1, True)
    first = isoline(project, "ingest", "--format", "json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)[0]["ingested"] == 4
    question = "select count(*) n from points where verdict='valid'"
    assert json.loads(isoline(project, "query", question, "--format", "json").stdout) == [{"n": 2}]
    assert isoline(project, "query", question, "--format", "csv").stdout == "n\n2\n"
    assert isoline(project, "verify").returncode == 0

    lock = next(project.glob("results/store/*/*/*/*/*.c4.*/1/lock.json"))
    good = lock.read_bytes()
    lock.write_bytes(good + b" ")
    bad = isoline(project, "verify", "--format", "json")
    assert bad.returncode == 3
    assert "lock.json: sha256" in json.loads(bad.stdout)[0]["problem"]
    refused = isoline(project, "rebuild")
    assert refused.returncode == 3
    assert "1 quarantined" in refused.stdout
    assert "1 bundle is in quarantine" in refused.stderr
    lock.write_bytes(good)
    repaired = isoline(project, "ingest")
    assert repaired.returncode == 0, repaired.stderr
    assert repaired.stdout == "ingested 1 bundles, 3 unchanged, 0 quarantined\n"


def test_bad_sql_is_one_line(project: Path) -> None:
    """A mistake in SQL is one line on standard error, exit code 1, and nothing on standard output."""
    result = isoline(project, "query", "selec")
    assert (result.returncode, result.stdout) == (1, "")
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_named_store_that_is_not_there_is_no_empty_one(project: Path) -> None:
    """A misspelt --store is refused; a check of nothing must not read as a check that passed."""
    for verb in ("ingest", "verify", "rebuild"):
        done = isoline(project, verb, "--store", "results/stroe")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("isoline: results/stroe: no such folder; ")


def test_a_warehouse_that_cannot_be_written_is_one_line(project: Path) -> None:
    """A place where no file can be made is the machine's fault, told in one line without a report."""
    (project / "file").write_text("")
    done = isoline(project, "ingest", "--warehouse", "file/x.duckdb")
    assert done.returncode == 4
    assert "the warehouse cannot be written there" in done.stderr


def test_a_time_limit_is_above_zero(project: Path) -> None:
    """A limit of zero or less is refused, not taken as no limit."""
    for wrong in ("0", "-3", "nan"):
        done = isoline(project, "query", "select 1", "--timeout", wrong)
        assert (done.returncode, "not a number of seconds above 0" in done.stderr) == (1, True)


def test_an_archive_of_a_job_comes_in_and_a_bad_one_is_counted(project: Path, tmp_path: Path) -> None:
    """One archive lands, a hostile and a damaged bundle beside it are refused, counted and exit code 3."""
    store = project / "results" / "store"
    run = next(store.glob("*/*/*/*"))
    good, spoilt, hostile = tmp_path / "job.tar.gz", tmp_path / "spoilt.tar", tmp_path / "evil.zip"
    with tarfile.open(good, "w:gz") as made:
        made.add(run, run.name)
    with tarfile.open(spoilt, "w") as made:
        for path in sorted(run.rglob("*")):
            info = made.gettarinfo(path, f"{run.name}/{path.relative_to(run)}")
            data = path.read_bytes() if path.is_file() else b""
            changed = data[:-1] + b"?" if path.name == "server.log" else data
            made.addfile(info, io.BytesIO(changed) if path.is_file() else None)
    with zipfile.ZipFile(hostile, "w") as archive:
        archive.writestr("../../evil.json", "{}")
    other = tmp_path / "other"
    for name in ("recipes", "sweeps", "results"):
        (other / name).mkdir(parents=True)
    tried = isoline(other, "ingest", str(good), "--dry-run")
    assert tried.returncode == 0, tried.stderr
    assert "would take in 4 new bundles" in tried.stdout
    assert list((other / "results").iterdir()) == []
    done = isoline(other, "ingest", str(spoilt), str(hostile))
    assert done.returncode == 3
    assert "took in 3 new bundles; 0 were there already, 2 refused" in done.stdout
    assert "2 refused, not in the store" in done.stderr
    assert not (tmp_path / "evil.json").exists() and not (other.parent / "evil.json").exists()
    mended = isoline(other, "ingest", str(good), "--format", "json")
    assert mended.returncode == 0, mended.stderr
    (row,) = json.loads(mended.stdout)
    assert (row["bundles"], row["bundles_known"], row["refused"], row["ingested"]) == (1, 3, 0, 1)
    again = isoline(other, "ingest", str(good))
    assert (again.returncode, "took in 0 new bundles; 4 were there already" in again.stdout) == (0, True)
