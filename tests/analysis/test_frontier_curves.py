"""Frontier and readings on recorded public curves, against the definition point by point."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import pytest

from isoline.analysis.frontier import frontier, frontier_of
from isoline.analysis.readings import estimate_reading, step_reading

AXES = [
    ("interactivity_p50", "max", "total_tps_per_gpu", "max"),
    ("ttft_p50_s", "min", "total_tps_per_gpu", "max"),
    ("interactivity_p50", "max", "ttft_p50_s", "min"),
]


@pytest.fixture(scope="module")
def curves(project_root: Path) -> dict[str, list[dict[str, str]]]:
    """The recorded curves, by name."""
    path = project_root.parent / "shared/data/curves/curves.csv"
    if not path.exists():
        pytest.skip("the recorded curves are not beside the project (../shared/data/curves/curves.csv)")
    found = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            found[row["curve"]].append(row)
    return found


@pytest.mark.parametrize(("x_name", "x_better", "y_name", "y_better"), AXES)
def test_frontier_and_steps_equal_the_definition(
    curves: dict[str, list[dict[str, str]]], x_name: str, x_better: str, y_name: str, y_better: str
) -> None:
    """For three pairs of axes every kept point is unbeaten, every other one beaten, and steps and
    estimates agree at the points themselves."""
    assert len(curves) == 37
    by_x, by_y = (1 if better == "max" else -1 for better in (x_better, y_better))
    for rows in curves.values():
        points = [(by_x * float(row[x_name]), by_y * float(row[y_name])) for row in rows]
        unbeaten = {p for p in points if not any(q[0] >= p[0] and q[1] >= p[1] and q != p for q in points)}
        x, y = [by_x * p[0] for p in points], [by_y * p[1] for p in points]
        kept = frontier(
            x, y, x_better=x_better, y_better=y_better, ties=([int(r["concurrency"]) for r in rows],)
        )
        assert {points[i] for i in kept} == unbeaten
        assert len(kept) == len(unbeaten)
        curve = frontier_of(x, y, [r["concurrency"] for r in rows], x_better=x_better, y_better=y_better)  # type: ignore[arg-type]
        for at, value in zip(curve.x, curve.y, strict=True):
            assert step_reading(curve, at).value == value == estimate_reading(curve, at).value
