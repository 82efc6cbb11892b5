"""``isoline reproduce`` through the command line, without a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isoline.cli.main import run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_a_dry_run(project: Any, store: Path, measured: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """--dry-run names the lock and prints the command; nothing is started or written."""
    folder, point = measured(store)
    before = sorted(store.rglob("*"))
    assert run(["reproduce", point.point_id, "--store", str(store), "--dry-run"]) == 0
    head, command = capsys.readouterr().out.splitlines()
    assert head == f"# from the lock of run {folder.name}, attempt 1"
    assert command.startswith("{python} {script} --model {model_path}")
    assert sorted(store.rglob("*")) == before
    assert not (project.root / ".isoline").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "isoline reproduce: missing argument"),
        (["nothing"], "no attempt at point 'nothing'; `isoline sweep status` shows point ids"),
        (["..", "--dry-run"], "no attempt at point '..'"),
        (["nothing", "--run", "yesterday"], "no such run: yesterday"),
        (["nothing", "--dryrun"], "did you mean --dry-run?"),
    ],
)
def test_wrong_input_is_one_line(
    project: Any, store: Path, measured: Any, capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    """A wrong point, run or option is one line that says what to do, with exit code 1."""
    measured(store)
    assert run(["reproduce", *argv, "--store", str(store)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_dataset_that_has_changed(
    project: Any, store: Path, measured: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be run again as it was is exit code 3, with the revision to go back to."""
    _, point = measured(store)
    project.edit("datasets/canary-smollm2.yaml", "max_tokens: 16", "max_tokens: 17")
    assert run(["reproduce", point.point_id, "--store", str(store), "--dry-run"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"is not the one of the lock; check out revision {'f' * 40}")
