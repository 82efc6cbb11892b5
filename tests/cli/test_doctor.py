"""``isoline doctor``."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from isoline.cli.main import run


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool | None
    detail: str
    remedy: str
    required: bool


FINE = Check("python", True, "3.12.1", "", True)
ABSENT = Check("podman", None, "", "apt-get install podman", False)
SMALL = Check("shm", False, "1 MB", "", False)
MISSING = Check("weights", False, "not fetched", "make setup", True)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """A project as working folder, on a machine whose checks are this list."""
    found: list[Check] = []
    module = ModuleType("isoline.runners.doctor")
    module.checks = lambda settings: found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "isoline.runners.doctor", module)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "sweeps").mkdir()
    monkeypatch.chdir(tmp_path)
    return found


def test_a_machine_with_all_that_is_required_is_fine(
    machine: list[Check], capsys: pytest.CaptureFixture[str]
) -> None:
    """What is optional may be absent; the table tells ok, absent and missing apart, with the remedy."""
    machine += [FINE, ABSENT, SMALL]
    assert run(["doctor"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[2:]}
    assert lines["python"].split()[1] == "ok"
    assert lines["podman"].split()[1] == "absent"
    assert lines["podman"].endswith("apt-get install podman")
    assert lines["shm"].split()[1] == "missing"


def test_a_missing_required_part_exits_4(machine: list[Check], capsys: pytest.CaptureFixture[str]) -> None:
    """What the demo needs and lacks is named on the last line, with exit code 4."""
    machine += [FINE, MISSING]
    assert run(["doctor"]) == 4
    captured = capsys.readouterr()
    assert "missing" in captured.out
    assert captured.err.startswith("isoline: missing: weights;")
    assert len(captured.err.splitlines()) == 1


def test_json_carries_every_field(machine: list[Check], capsys: pytest.CaptureFixture[str]) -> None:
    """A script gets state, whether it is required, detail and remedy; what does not apply is null."""
    machine += [FINE, MISSING]
    assert run(["doctor", "--format", "json"]) == 4
    assert json.loads(capsys.readouterr().out) == [
        {"check": "python", "state": "ok", "required": True, "detail": "3.12.1", "remedy": None},
        {
            "check": "weights",
            "state": "missing",
            "required": True,
            "detail": "not fetched",
            "remedy": "make setup",
        },
    ]


def test_outside_a_project_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a project there are no settings to check: wrong input, not a crash."""
    monkeypatch.chdir(tmp_path)
    assert run(["doctor"]) == 1
