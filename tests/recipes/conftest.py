"""Copies of the project's own YAML, plans of single recipes and golden files, for the tests of recipes."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

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
def planning() -> Any:
    """Plans of single recipes, tests/support/planning.py."""
    return _by_path("planning")


@pytest.fixture(scope="session")
def golden() -> Callable[[str, str], None]:
    """``golden(name, text)`` compares with ``golden/<name>.txt``; ISOLINE_WRITE_GOLDEN=1 writes it."""
    folder = Path(__file__).parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / f"{name}.txt"
        if os.environ.get("ISOLINE_WRITE_GOLDEN") == "1":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        wanted = path.read_text(encoding="utf-8") if path.is_file() else ""
        assert text == wanted, f"{path.name} differs; if it should: ISOLINE_WRITE_GOLDEN=1, and read the diff"

    return compare
