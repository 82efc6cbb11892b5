"""``isoline results import``, ``replay`` and ``ingest`` of what others published: words and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROW: dict[str, Any] = {"hw": "b200", "model": "openai/gpt-oss-120b", "framework": "vllm", "precision": "fp4"}
ROW |= {"isl": 1024, "osl": 1024, "tp": 8, "tput_per_gpu": 100.0, "median_tpot": 0.01}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project beside a folder with two good rows and one of an unknown engine."""
    for name in ("recipes/_catalog", "sweeps", "results", "public"):
        (tmp_path / name).mkdir(parents=True)
    rows = [
        ROW | {"conc": 1},
        ROW | {"conc": 8, "median_tpot": 0.02, "tput_per_gpu": 400.0},
        ROW | {"conc": 16, "framework": "newengine"},
    ]
    (tmp_path / "public" / "agg.json").write_text(json.dumps(rows))
    return tmp_path


def isoline(project: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the real command in the project."""
    code = "import sys; from isoline.cli.main import main; sys.argv = ['isoline', *sys.argv[1:]]; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *args], cwd=project, capture_output=True, text=True, check=False
    )


def test_import_replay_and_frontier(project: Path) -> None:
    """Exit code 3 and how many while a name is unknown; one alias, a replay, and the curve is drawn."""
    first = isoline(project, "results", "import", "public")
    assert first.returncode == 3
    assert "kept 1 new files" in first.stdout
    assert "unknown_name: engine 'newengine'" in first.stdout
    assert first.stderr.startswith("isoline: 1 is in quarantine; add an alias")
    alias = "schema_version: 1\nsource: a test of imports\ndated: '2026-12-01'\nengines: {newengine: vllm}\n"
    (project / "recipes/_catalog/aliases.yaml").write_text(alias)
    replayed = isoline(project, "results", "replay", "--format", "json")
    assert replayed.returncode == 0, replayed.stderr
    document = json.loads(replayed.stdout)[0]
    assert (document["rows"], document["new"], document["quarantined"]) == ({"valid": 3}, 1, [])
    drawn = isoline(project, "frontier")
    assert drawn.returncode == 0, drawn.stderr
    assert "from inferencex" in drawn.stdout
    assert "run import-inferencex-public" in drawn.stdout


BENCH: dict[str, Any] = {
    "model_id": "openai/gpt-oss-120b",
    "completed": 99,
    "num_prompts": 99,
    "duration": 10.0,
}
BENCH |= {"total_input_tokens": 5000, "total_output_tokens": 9000, "median_tpot_ms": 10.0}


def test_an_open_loop_of_no_sku_is_shown(project: Path) -> None:
    """What has neither concurrency nor SKU does not stand in the way of the rest, nor of cost."""
    (project / "public" / "open.json").write_text(json.dumps(BENCH | {"request_rate": 2.0}))
    isoline(project, "results", "import", "public")
    for more in ((), ("--y", "usd_per_m_total_tokens")):
        shown = isoline(project, "frontier", *more)
        assert shown.returncode == 0, shown.stderr
        assert "vllm-bench" in shown.stdout and "from inferencex" in shown.stdout


def test_a_kept_file_that_is_gone_is_said_until_it_is_back(project: Path, tmp_path: Path) -> None:
    """By ingest and verify, as long as its note is there; then its points are there again."""
    isoline(project, "results", "import", "public")
    (kept,) = [path for path in (project / "results/store/imports").iterdir() if not path.suffix]
    kept.rename(tmp_path / "away")
    gone = isoline(project, "results", "ingest")
    assert gone.returncode == 3 and "gone; import it again" in gone.stdout
    verified = isoline(project, "results", "verify")
    assert verified.returncode == 3 and "the file is gone" in verified.stdout
    (tmp_path / "away").rename(kept)
    back = isoline(project, "results", "ingest", "--format", "json")
    assert [bad["reason"].partition(":")[0] for bad in json.loads(back.stdout)[0]["quarantined"]] == [
        "unknown_name"
    ]
    assert isoline(project, "results", "verify").returncode == 0


def test_a_file_name_that_is_no_utf8_stops_nothing(project: Path) -> None:
    """It lands under a name that can be written, and so do the others."""
    (project / "public" / os.fsdecode(b"\xff\xfebad.json")).write_text(json.dumps([ROW | {"conc": 32}]))
    done = isoline(project, "results", "import", "public", "--format", "json")
    assert json.loads(done.stdout)[0]["rows"] == {"valid": 3}, done.stderr


@pytest.mark.parametrize(
    "change", [{"conc": -16}, {"conc": 0}, {"conc": 2**40}, {"conc": 16.7}, {"isl": -1}, {"tp": 0}]
)
def test_a_load_that_nobody_asked_for_is_no_point(project: Path, change: dict[str, Any]) -> None:
    """A broken field does not look like one that is absent."""
    (project / "public" / "agg.json").write_text(json.dumps([ROW | {"conc": 1}, ROW | {"conc": 4} | change]))
    done = isoline(project, "results", "import", "public", "--format", "json")
    document = json.loads(done.stdout)[0]
    assert document["rows"] == {"valid": 1}
    assert [bad["reason"].partition(":")[0] for bad in document["quarantined"]] == ["not_a_point"]


def test_an_alias_of_no_model_is_refused(project: Path) -> None:
    """A misspelt target invents no model."""
    alias = "schema_version: 1\nsource: a test of imports\ndated: '2026-12-01'\nmodels: {mine: gpt-oss-12b}\n"
    (project / "recipes/_catalog/aliases.yaml").write_text(alias)
    refused = isoline(project, "results", "import", "public")
    assert refused.returncode == 1
    assert "'gpt-oss-12b' is no model of the catalog; did you mean 'gpt-oss-120b'" in refused.stderr


def test_ingest_takes_files_of_others(project: Path) -> None:
    """``results ingest PATH`` tells foreign files from the store's own folders; a dry run changes nothing."""
    dry = isoline(project, "results", "ingest", "public", "--dry-run")
    assert (dry.returncode, "would keep 1 new files" in dry.stdout) == (3, True)
    assert not (project / "results/store").exists()
    real = isoline(project, "results", "ingest", "public/agg.json", "--format", "json")
    assert real.returncode == 3
    assert json.loads(real.stdout)[0]["rows"] == {"valid": 2}
    assert "1 row is in quarantine" in isoline(project, "results", "ingest").stderr
    assert isoline(project, "results", "verify").returncode == 0


def test_wrong_words_are_one_line(project: Path) -> None:
    """Unknown formats and facts that cannot be given say what can."""
    for args, what in (
        (("--as", "nonsense"), "no format 'nonsense'"),
        (("--set", "speed=5"), "'speed' cannot be given"),
        (("--set", "gpus"), "not NAME=VALUE"),
    ):
        found = isoline(project, "results", "import", "public", *args)
        assert found.returncode == 1
        assert what in found.stderr
        assert len(found.stderr.splitlines()) == 1
