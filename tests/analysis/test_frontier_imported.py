"""Frontiers of imported curves, for any pair of axes, against every point compared with every other."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from isoline.analysis.curves import curve_groups, curve_table
from isoline.results.foreign.store import Said, keep
from isoline.results.metrics.registry import HEADLINE, METRICS
from isoline.results.warehouse.file import open_reader
from isoline.results.warehouse.ingest import ingest
from isoline.results.warehouse.snapshots import snapshot_points
from isoline.settings import load_settings

Row = dict[str, Any]


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory, project_root: Path) -> pd.DataFrame:
    """Every point of the public files beside the project."""
    shared = project_root.parent / "shared" / "data"
    if not shared.is_dir():
        pytest.skip("the public result files are not beside the project (../shared/data)")
    project = tmp_path_factory.mktemp("imported")
    for name in ("recipes", "sweeps", "results"):
        (project / name).mkdir()
    settings = load_settings(project, store=project / "store", warehouse=project / "w.duckdb")
    keep(settings.store, [shared / "results", shared / "made_up"], Said())
    ingest(settings, [])
    con = open_reader(settings.warehouse)
    try:
        return snapshot_points(con)
    finally:
        con.close()


def gains(row: Row) -> tuple[float, float]:
    """The coordinates of a point, more is better on both."""
    signs = [1.0 if METRICS[row[axis]].better == "max" else -1.0 for axis in ("x_metric", "y_metric")]
    return signs[0] * row["x"], signs[1] * row["y"]


def last(value: int | None) -> float:
    """What is unknown comes after what is known."""
    return math.inf if value is None else value


def unbeaten(rows: list[Row]) -> set[str]:
    """The frontier by its definition: O(n²); of equal points the lower concurrency, then fewer GPUs."""
    kept = set()
    for row in rows:
        mine = gains(row)
        others = [gains(other) for other in rows]
        beaten = any(x >= mine[0] and y >= mine[1] and (x, y) != mine for x, y in others)
        twins = [other for other, place in zip(rows, others, strict=True) if place == mine]
        first = min(twins, key=lambda twin: (last(twin["concurrency"]), last(twin["gpus"])))
        if not beaten and first is row:
            kept.add(row["point_id"])
    return kept


def test_frontiers_of_imported_curves_are_those_of_the_definition(points: pd.DataFrame) -> None:
    """Each pair of metrics that has a better direction and values; each curve; directions of the registry."""
    names = [name for name in HEADLINE if METRICS[name].better and points[name].notna().sum() > 20]
    assert len(names) > 12
    compared = several = 0
    for x, y in itertools.combinations(names, 2):
        for rows in curve_groups(curve_table(points, x, y)).values():
            usable = [row for row in rows if row["n"]]
            assert all(math.isfinite(row["x"]) and math.isfinite(row["y"]) for row in usable)
            assert {row["point_id"] for row in rows if row["frontier"]} == unbeaten(usable), (x, y)
            compared += len(usable) > 1
            several += sum(row["frontier"] for row in rows) not in (1, len(usable))
    assert compared > 100
    assert several > 100  # neither all points nor one: the rule decided
