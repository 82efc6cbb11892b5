from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isoline.dashboard.data import Source
from isoline.errors import InfraError
from isoline.results.warehouse.file import read_copy_path

Maker = Callable[..., Any]


def test_a_new_ingest_is_seen_without_a_restart(
    warehouse_path: Path, make_point: Maker, make_warehouse: Maker
) -> None:
    """Nothing, then one point, then two: the same source shows each."""
    source = Source(warehouse_path, 10.0)
    assert source.board().points.empty
    make_warehouse(warehouse_path, [make_point(1)])
    assert len(source.board().points) == 1
    make_warehouse(warehouse_path, [make_point(1), make_point(2)])
    assert len(source.board().points) == 2


def test_an_unchanged_copy_is_not_read_again(source: Source) -> None:
    """Two looks at the same file give the very same board."""
    assert source.board() is source.board()


def test_a_broken_copy_is_one_clear_error_and_the_next_good_one_is_read(
    warehouse_path: Path, make_point: Maker, make_warehouse: Maker
) -> None:
    """A damaged file raises an error with a remedy; nothing sticks."""
    warehouse_path.parent.mkdir(parents=True)
    read_copy_path(warehouse_path).write_bytes(b"not a database")
    source = Source(warehouse_path, 10.0)
    with pytest.raises(InfraError, match="rebuild"):
        source.board()
    read_copy_path(warehouse_path).unlink()
    make_warehouse(warehouse_path, [make_point(1)])
    assert len(source.board().points) == 1


def test_a_query_that_takes_too_long_is_ended(warehouse_path: Path, source: Source) -> None:
    """A query beyond the limit is interrupted and says how to raise it."""
    slow = Source(warehouse_path, 0.2)
    begin = time.monotonic()
    with pytest.raises(InfraError, match="ISOLINE_QUERY_TIMEOUT_S"):
        slow._ask(
            lambda con: con.execute("select count(*) from range(10000000000) a, range(1000) b").fetchall()
        )
    assert time.monotonic() - begin < 10


def test_the_source_cannot_write(source: Source) -> None:
    """The connection refuses a change, and files and settings too."""
    for sql in ("delete from points", "copy points to 'x.csv'", "set enable_external_access = true"):
        with pytest.raises(InfraError):
            source._ask(lambda con, sql=sql: con.execute(sql).fetchall())


def test_the_detail_of_a_point_is_its_counting_attempt(source: Source) -> None:
    """Metrics, accuracy, phases, canary and lock come with the row; an unknown point gives None."""
    row = source.board().points.iloc[0]
    detail = source.detail(row["run_id"], row["point_id"])
    assert detail is not None
    assert detail.point["point_id"] == row["point_id"]
    assert [phase["name"] for phase in detail.phases] == ["reset", "warmup", "load", "canary"]
    assert detail.canary is not None and detail.canary["correct"] == 1
    assert detail.lock is not None
    assert {metric["name"] for metric in detail.metrics} >= {"ttft_p50_ms", "total_tps_per_gpu"}
    assert source.detail("no such run", row["point_id"]) is None


def test_many_threads_read_while_ingests_go_on(
    warehouse_path: Path, make_point: Maker, make_warehouse: Maker
) -> None:
    """Readers in eight threads see one or the other content whole, never an error."""
    make_warehouse(warehouse_path, [make_point(1)])
    source = Source(warehouse_path, 10.0)
    seen: set[int] = set()
    failures: list[Exception] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            try:
                seen.add(len(source.board().points))
            except Exception as error:  # any failure is what the test is about
                failures.append(error)
                return

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for count in (2, 1, 2):
        make_warehouse(warehouse_path, [make_point(c) for c in range(1, count + 1)])
        time.sleep(0.2)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert seen == {1, 2}
