"""A run that lies elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from isoline.results.bundles.bundle import run_folder


@pytest.fixture
def elsewhere(tmp_path: Path, bundles: Any) -> Path:
    """Another store, with one run of two points."""
    plan = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1), bundles.PointDef(4)])])
    bundles.make_run(tmp_path / "elsewhere", plan)
    return tmp_path / "elsewhere"


@pytest.fixture
def run(elsewhere: Path, bundles: Any) -> Path:
    """The folder of that run."""
    folder = run_folder(elsewhere, bundles.RUN_ID)
    shutil.rmtree(folder / ".work", ignore_errors=True)
    return folder
