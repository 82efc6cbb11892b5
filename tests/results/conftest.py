"""Fixtures of the results tests: the bundle factory and an empty project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isoline.results.warehouse import Connection, open_reader
from isoline.settings import Settings, load_settings


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
