"""All runs of a curve, with what may explain a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from isoline.results.warehouse.file import open_reader
from isoline.results.warehouse.timeline import pseudonym, timeline_points


def test_every_published_run_with_its_notes(tmp_path: Path, support: Callable[[str], ModuleType]) -> None:
    """Oldest first, try-outs left out, notes from the lock, None where there is no lock."""
    made = support("small_warehouse")
    (tmp_path / "results").mkdir()
    rows = [made.point(made.run_id(night), 1, 10.0, 100.0) for night in (2, 0, 1)]
    rows.append(made.point(made.run_id(3, "tryout"), 1, 10.0, 1.0))
    made.fill(tmp_path, rows, [made.lock_row(rows[0], "sha256:a", "host-1", "570")])
    con = open_reader(tmp_path / "results" / "warehouse.duckdb")
    try:
        found = timeline_points(con, sku="h200")
        assert timeline_points(con, sku="b200").empty
        with pytest.raises(TypeError, match="no filter"):
            timeline_points(con, image="x")
    finally:
        con.close()
    assert found["run_id"].tolist() == [made.run_id(night) for night in range(3)]
    last = found.iloc[2]
    notes = [last[f"note_{name}"] for name in ("image", "engine", "driver", "node", "client")]
    assert notes == ["sha256:a", "1.0", "570", pseudonym("host-1"), "0.13.0"]
    assert found.iloc[0]["note_node"] is None
