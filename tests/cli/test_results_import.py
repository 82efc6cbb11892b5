"""``isoline results import``, ``replay`` and ``ingest`` of what others published: words and exit codes."""

from __future__ import annotations

import json
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
