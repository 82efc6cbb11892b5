"""Copies of the project's own YAML, for the tests of sweeps."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from isoline.results.records import Plan
from isoline.sweeps.plan import make_plan
from isoline.sweeps.schema import load_sweep
from isoline.sweeps.sources import read_sources

SUPPORT = Path(__file__).parent.parent / "support"


def _by_path(name: str) -> ModuleType:
    full = f"isoline_test_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, SUPPORT / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
    return sys.modules[full]


@pytest.fixture
def project(tmp_path: Path, project_root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of the project's YAML, and the folder that the test stands in."""
    root = tmp_path / "project"
    copied = _by_path("project").copy_project(project_root, root)
    monkeypatch.chdir(root)
    return copied


@pytest.fixture(scope="session")
def bundles() -> Any:
    """The factory of sealed bundles, tests/support/bundles.py."""
    return _by_path("bundles")


@pytest.fixture(scope="session")
def planning() -> Any:
    """Plans of single recipes, tests/support/planning.py."""
    return _by_path("planning")


@pytest.fixture
def planned(project: Any) -> Callable[..., Plan]:
    """``planned(sweep="demo")`` makes the plan of a sweep of the copied project."""

    def make(sweep: str = "demo") -> Plan:
        document = load_sweep(project.root, sweep)
        return make_plan(read_sources(project.root, document), {"rev": None, "dirty": None})

    return make


@pytest.fixture
def measured(project: Any, bundles: Any) -> Any:
    """``measured(store)`` seals a run of the demo with a real lock: (its folder, the point)."""
    module = _by_path("locks")
    return lambda store, sweep="demo": module.measured_run(project.root, store, bundles, sweep)
