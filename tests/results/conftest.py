"""Fixtures of the results tests: the bundle factory and an empty project."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from isoline.results.warehouse import Connection, open_reader
from isoline.settings import Settings, load_settings

SUPPORT = Path(__file__).parent.parent / "support"


def _by_path(name: str) -> ModuleType:
    full = f"isoline_test_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, SUPPORT / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
    return sys.modules[full]


@pytest.fixture(scope="session")
def bundles() -> Any:
    """The factory of sealed bundles, tests/support/bundles.py."""
    return _by_path("bundles")


@pytest.fixture(scope="session")
def tables() -> ModuleType:
    """Per-request tables from short descriptions, tests/support/tables.py."""
    return _by_path("tables")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of an empty project of this test's own."""
    for name in ("ISOLINE_STORE", "ISOLINE_WAREHOUSE", "ISOLINE_STATE", "ISOLINE_QUERY_TIMEOUT_S"):
        monkeypatch.delenv(name, raising=False)
    for folder in ("recipes", "sweeps", "results"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("ISOLINE_PROJECT", str(tmp_path))
    return load_settings(tmp_path)


@pytest.fixture
def ask(settings: Settings) -> Any:
    """Ask the read copy: SQL in, list of tuples out."""

    def run(sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        con: Connection = open_reader(settings.warehouse)
        try:
            return con.execute(sql, values or []).fetchall()
        finally:
            con.close()

    return run
