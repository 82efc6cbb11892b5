"""The warehouse as Parquet files: typed, the same bytes for the same content, whole or not at all."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isoline.errors import InfraError, InputError
from isoline.results.publishing import export as module
from isoline.results.publishing.export import MARKER, export
from isoline.results.publishing.parquet import ROW_GROUP, write_parquet
from isoline.results.warehouse.ingest import ingest
from isoline.results.warehouse.maintain import rebuild
from isoline.results.warehouse.schema import BY_NAME, TABLES
from isoline.settings import Settings

RUNS = ("20261201T020000Z-demo-aaaaaa", "20261202T020000Z-demo-bbbbbb")


@pytest.fixture
def filled(bundles: Any, settings: Settings) -> Settings:
    """A warehouse with two runs of two points."""
    plan = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1), bundles.PointDef(4)])])
    for run in RUNS:
        bundles.make_run(settings.store, plan, run)
    ingest(settings)
    return settings


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_table_with_its_types_and_rows(filled: Settings, ask: Any, tmp_path: Path) -> None:
    """Each table is a file with the warehouse's types, and holds exactly its rows; null stays null."""
    done = export(filled, tmp_path / "out")
    assert [item.table for item in done.record.tables] == [table.name for table in TABLES]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        MARKER,
        *(f"{table.name}.parquet" for table in TABLES),
    }
    for table in TABLES:
        path = tmp_path / "out" / f"{table.name}.parquet"
        read = pq.read_table(path)
        assert read.schema.equals(table.arrow)
        rows = duckdb.sql(f"SELECT * FROM '{path}' ORDER BY ALL").fetchall()
        assert rows == ask(f'SELECT * FROM "{table.name}" ORDER BY ALL')
    points = pq.read_table(tmp_path / "out" / "points.parquet").to_pylist()
    assert len(points) == 4 and points[0]["missing_cause"] is None
    assert json.loads((tmp_path / "out" / MARKER).read_text())["kind"] == "isoline-export"


def test_the_same_warehouse_gives_the_same_bytes(filled: Settings, bundles: Any, tmp_path: Path) -> None:
    """Again, from a rebuilt warehouse, and from one that was filled in another order: not a byte differs."""
    export(filled, tmp_path / "first")
    export(filled, tmp_path / "again")
    other = replace(filled, warehouse=filled.project / "other.duckdb")
    for run in sorted(filled.store.glob("*/*/*/*"), reverse=True):
        ingest(other, [run])
    export(other, tmp_path / "other")
    rebuild(filled)
    export(filled, tmp_path / "rebuilt")
    first = contents(tmp_path / "first")
    assert all(contents(tmp_path / name) == first for name in ("again", "other", "rebuilt"))
    bundles.make_run(filled.store, bundles.make_plan(), "20261203T020000Z-demo-cccccc")
    ingest(filled)
    changed = export(filled, tmp_path / "again")
    assert changed.replaced
    was = json.loads(first[MARKER])["warehouse_digest"]
    assert changed.record.warehouse_digest != was


def test_how_rows_were_cut_does_not_show(tmp_path: Path) -> None:
    """Batches of any size give the same file, and row groups of one size."""
    table = pa.table({"a": list(range(2 * ROW_GROUP + 17))})
    rng = random.Random(7)
    for number in range(3):
        left, parts = table, []
        while left.num_rows:
            size = rng.randint(1, 60_000) if number else left.num_rows
            parts.append(left.slice(0, size))
            left = left.slice(size)
        write_parquet(tmp_path / f"{number}", table.schema, parts)
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    assert [pq.ParquetFile(tmp_path / "0").metadata.row_group(i).num_rows for i in range(3)] == [
        ROW_GROUP,
        ROW_GROUP,
        17,
    ]


def test_some_tables(filled: Settings, tmp_path: Path) -> None:
    """Only the tables that are named are written; a name that is no table is one line."""
    export(filled, tmp_path / "out", ["points", "runs"])
    assert sorted(contents(tmp_path / "out")) == [MARKER, "points.parquet", "runs.parquet"]
    with pytest.raises(InputError, match="no table 'pints'; known: runs"):
        export(filled, tmp_path / "out", ["pints"])


def test_a_folder_of_somebody_else_is_refused(filled: Settings, tmp_path: Path) -> None:
    """A folder with other files, a file, a link or an export with something beside it stays as it is."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("x")
    export(filled, tmp_path / "good")
    (tmp_path / "link").symlink_to(tmp_path / "good")
    (tmp_path / "forged").mkdir()
    (tmp_path / "forged" / MARKER).write_text('{"kind": "isoline-export"}')
    export(filled, tmp_path / "mixed")
    (tmp_path / "mixed" / "notes.txt").write_text("mine")
    for name in ("home", "file", "link", "forged", "mixed"):
        with pytest.raises(InputError, match="no export of ours; nothing was changed"):
            export(filled, tmp_path / name)
    assert (tmp_path / "home" / "thesis.tex").read_text() == "years of work"
    assert (tmp_path / "mixed" / "notes.txt").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert not export(filled, tmp_path / "empty").replaced


def test_whole_or_not_at_all(filled: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export that breaks leaves the former one, and nothing beside it."""
    export(filled, tmp_path / "out")
    before = contents(tmp_path / "out")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_record", full)
    with pytest.raises(InfraError, match="No space left on device"):
        export(filled, tmp_path / "out")
    assert contents(tmp_path / "out") == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")] == []


def test_a_dry_run_writes_nothing(filled: Settings, tmp_path: Path) -> None:
    """It says rows and digests as they would be, and makes not even the folder above."""
    said = export(filled, tmp_path / "deep" / "out", dry_run=True)
    assert not (tmp_path / "deep").exists()
    assert said.record == export(filled, tmp_path / "deep" / "out").record
    assert {item.table for item in said.record.tables} == set(BY_NAME)
