"""Copies of the project's own YAML, plans of single recipes and golden files, for the tests of recipes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


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
