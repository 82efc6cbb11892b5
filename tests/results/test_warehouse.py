"""The warehouse file: one writer that says who it is, readers that never notice it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from isoline.errors import InfraError, InputError
from isoline.results.warehouse import file as warehouse
from isoline.results.warehouse import schema
from isoline.results.warehouse.file import open_reader, open_writer, read_copy_path
from isoline.results.warehouse.ingest import ingest
from isoline.settings import Settings

HOLD = """
import sys, time
from pathlib import Path
from isoline.results.warehouse.file import open_writer
with open_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A place for a warehouse."""
    return tmp_path / "warehouse.duckdb"


def test_second_writer_is_told_who_the_first_one_is(path: Path) -> None:
    """The lock names pid, host and time in one line, and is gone when its process is killed."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(InfraError, match=rf"pid {holder.pid} on .+ since 20\d\d-") as caught,
            open_writer(path),
        ):
            pass
        assert caught.value.exit_code == 4
        assert "\n" not in caught.value.line()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with open_writer(path, wait_s=5) as con:
            assert con.execute("SELECT count(*) FROM points").fetchone() == (0,)
    finally:
        holder.kill()
        holder.wait()
        if holder.stdout is not None:
            holder.stdout.close()


def test_writer_waits_when_asked(path: Path) -> None:
    """With a waiting time the second writer comes in as soon as the first one has ended."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    holder.stdout.readline()
    before = time.monotonic()
    subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {holder.pid}"]).wait()
    with open_writer(path, wait_s=20):
        assert time.monotonic() - before < 15
    holder.wait()
    holder.stdout.close()


def test_reader_without_a_warehouse_is_told_what_to_do(path: Path) -> None:
    """No warehouse yet is one line with the remedy."""
    with pytest.raises(InputError, match="isoline results ingest"):
        open_reader(path)


def test_reader_keeps_its_copy_and_a_new_one_sees_more(path: Path) -> None:
    """An open reader is not disturbed by a write; one opened later in the same process sees it."""
    row = "INSERT INTO prices VALUES ('2026-12', 'list', true, 'h200', 3.5, 'a page', '2026-12-01')"
    with open_writer(path) as con:
        con.execute(row)
    old = open_reader(path)
    with open_writer(path) as con:
        con.execute(row)
    new = open_reader(path)
    counts = [con.execute("SELECT count(*) FROM prices").fetchone() for con in (old, new)]
    assert counts == [(1,), (2,)]
    with pytest.raises(duckdb.Error):
        new.execute(row)
    old.close()
    new.close()


def test_failed_write_leaves_nothing(path: Path) -> None:
    """An exception inside a transaction rolls all of it back, and the copy shows what was before."""
    with pytest.raises(RuntimeError), open_writer(path) as con, warehouse.transaction(con):
        con.execute(
            "INSERT INTO prices VALUES ('2026-12', 'list', true, 'h200', 3.5, 'a page', '2026-12-01')"
        )
        raise RuntimeError
    con = open_reader(path)
    assert con.execute("SELECT count(*) FROM prices").fetchone() == (0,)
    con.close()


def test_copy_that_was_lost_is_made_again(path: Path) -> None:
    """A missing or old copy is replaced even when nothing new was written."""
    with open_writer(path):
        pass
    read_copy_path(path).unlink()
    with open_writer(path):
        pass
    open_reader(path).close()
    before = read_copy_path(path).stat().st_ino
    with open_writer(path):
        pass
    assert read_copy_path(path).stat().st_ino == before


def test_new_columns_come_in_and_old_rows_stay(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warehouse of an older set of columns follows the schema, with nulls in what is new."""
    old = schema.BY_NAME["prices"]
    fewer = schema.Table("prices", old.columns[:2], by_run=False)
    with monkeypatch.context() as patch:
        tables = tuple(fewer if table is old else table for table in schema.TABLES)
        patch.setattr(warehouse, "TABLES", tables)
        with open_writer(path) as con:
            con.execute("INSERT INTO prices VALUES ('list', 'h200')")
    with open_writer(path) as con:
        names = [row[0] for row in con.execute("DESCRIBE prices").fetchall()]
        assert names == old.names
        assert con.execute("SELECT * FROM prices").fetchall() == [
            ("list", "h200", *[None] * (len(old.names) - 2))
        ]


def test_reader_of_an_older_copy_is_told_what_to_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy without the columns of today is one line with the remedy, not a missing column later."""
    old = schema.BY_NAME["runs"]
    fewer = schema.Table("runs", old.columns[:-1])
    with monkeypatch.context() as patch:
        patch.setattr(warehouse, "TABLES", (fewer,))
        with open_writer(path):
            pass
    with pytest.raises(InfraError, match=r"an older Isoline made it \(.*no table accuracy") as caught:
        open_reader(path)
    assert "isoline results ingest" in caught.value.line()
    with open_writer(path):
        pass
    open_reader(path).close()


def test_warehouse_of_a_newer_isoline_is_refused(path: Path) -> None:
    """An unknown migration step is an error, not a guess."""
    with open_writer(path) as con:
        con.execute("INSERT INTO migrations VALUES ('9999_later')")
    with pytest.raises(InputError, match="9999_later"), open_writer(path):
        pass


def test_file_that_is_no_warehouse_is_one_line(path: Path) -> None:
    """A damaged file is an error with a remedy, and is left as it is."""
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(InfraError, match="cannot open the warehouse") as caught, open_writer(path):
        pass
    assert "\n" not in caught.value.line()
    assert path.read_bytes().startswith(b"not a database")


def test_misspelt_column_is_an_error() -> None:
    """A row with a name that is no column never becomes a null."""
    with pytest.raises(KeyError, match="teir"):
        schema.BY_NAME["prices"].rows([{"teir": "list"}])


# Reads whole runs until told to stop; prints how often it looked, what was wrong, and the most runs seen.
READ = """
import json, sys
from pathlib import Path
from isoline.results.warehouse.file import open_reader
looks, wrong, most = 0, [], 0
while not Path(sys.argv[2]).exists():
    try:
        con = open_reader(Path(sys.argv[1]))
        rows = con.execute(
            "SELECT r.run_id, r.expected, count(p.point_id), count(p.total_tps_per_gpu) "
            "FROM runs r LEFT JOIN points p USING (run_id) GROUP BY ALL"
        ).fetchall()
        con.close()
    except Exception as error:
        wrong.append(repr(error))
        break
    looks += 1
    most = max(most, len(rows))
    wrong += [row for row in rows if not row[1] == row[2] == row[3] == 2]
print(json.dumps([looks, wrong, most]))
"""


def test_readers_at_full_speed_during_ingests(bundles: Any, settings: Settings, tmp_path: Path) -> None:
    """Several reader processes meet no lock error and no half-seen run while runs come in."""
    plan = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1), bundles.PointDef(2)])])
    ingest(settings)
    stop = tmp_path / "stop"
    argv = [sys.executable, "-c", READ, str(settings.warehouse), str(stop)]
    readers = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    count = 8
    try:
        for number in range(count):
            bundles.make_run(settings.store, plan, f"202612{number + 1:02d}T020000Z-demo-aaaaa{number}")
            ingest(settings)
        time.sleep(1.0)
    finally:
        stop.touch()
        answers = [json.loads(reader.communicate(timeout=60)[0]) for reader in readers]
    assert [wrong for _, wrong, _ in answers] == [[], [], []]
    assert all(looks > 5 for looks, _, _ in answers)
    assert all(most == count for _, _, most in answers)


def test_lock_file_is_no_part_of_the_content(path: Path) -> None:
    """The lock file names the last writer and is kept; it never blocks by being there."""
    for _ in range(2):
        with open_writer(path):
            assert f'"pid": {os.getpid()}' in path.with_name("warehouse.duckdb.lock").read_text()
