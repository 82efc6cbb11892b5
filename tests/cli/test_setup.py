"""``isoline setup``, which make calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isoline.cli import setup as module
from isoline.cli.main import run
from isoline.errors import InfraError
from isoline.runners import envs
from isoline.settings import load_settings


@pytest.fixture
def in_project(project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The real project as working folder, with a state folder of the test's own."""
    monkeypatch.chdir(project_root)
    monkeypatch.setenv("ISOLINE_STATE", str(tmp_path))
    return tmp_path


def test_setup_prepares_all_that_the_cpu_recipes_need(in_project: Path) -> None:
    """The load generator comes first, then each engine and each weights file once."""
    names = [name for name, _ in module.planned_steps(load_settings())]
    assert names[0] == f"load generator AIPerf {envs.AIPERF_VERSION}"
    assert any(name.startswith("engine llamacpp (xllamacpp==") for name in names)
    assert any("SmolLM2-135M-Instruct.Q4_1.gguf (98 MB)" in name for name in names)
    assert len(names) == len(set(names))


def test_setup_shows_each_step_and_does_it_in_order(
    in_project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Progress is one line before each step, and a line at the end says how long it took."""
    done: list[str] = []
    steps: list[tuple[str, Callable[[], Any]]] = [
        (name, lambda n=name: done.append(n)) for name in ("one", "two")
    ]
    monkeypatch.setattr(module, "planned_steps", lambda settings: steps)
    assert run(["setup"]) == 0
    assert done == ["one", "two"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["setup 1/2: one", "setup 2/2: two"]
    assert lines[2].startswith("setup: ready in ")


def test_a_step_that_fails_ends_the_set_up(
    in_project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failing index is exit code 4 with its line, and no later step is tried."""

    def fail() -> None:
        raise InfraError("no network", remedy="try again")

    later: list[int] = []
    steps: list[tuple[str, Callable[[], Any]]] = [("one", fail), ("two", lambda: later.append(1))]
    monkeypatch.setattr(module, "planned_steps", lambda settings: steps)
    assert run(["setup"]) == 4
    assert later == []
    assert capsys.readouterr().err == "isoline: no network; try again\n"
