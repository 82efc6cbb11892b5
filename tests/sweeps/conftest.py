"""Copies of the project's own YAML, for the tests of sweeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from isoline.results.bundles.records import Plan
from isoline.sweeps.planning.plan import make_plan
from isoline.sweeps.planning.schema import load_sweep
from isoline.sweeps.planning.sources import read_sources


@pytest.fixture
def planned(project: Any) -> Callable[..., Plan]:
    """``planned(sweep="demo")`` makes the plan of a sweep of the copied project."""

    def make(sweep: str = "demo") -> Plan:
        document = load_sweep(project.root, sweep)
        return make_plan(read_sources(project.root, document), {"rev": None, "dirty": None})

    return make
