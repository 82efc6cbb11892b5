"""Reads the warehouse's read copy. The only place of the dashboard that knows a database.

The copy is replaced as a whole after each ingest. Each request looks at the file; when it is
another one, everything is read anew. A connection lives for one query: an open one would keep
showing the file that was replaced.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pandas as pd

from isoline.errors import InfraError
from isoline.results.warehouse.asof import moment_of, travel
from isoline.results.warehouse.file import Connection, open_reader, read_copy_path
from isoline.results.warehouse.snapshots import decision_lines, run_ids, snapshot_points

T = TypeVar("T")

_KEPT_RUNS = 8

Stamp = tuple[int, int, int]
"""(inode, modification time in ns, bytes) of the read copy."""


@dataclass(frozen=True)
class Board:
    """What the page is made of at one moment.

    :param points: the snapshot's rows of the table ``points``.
    :param runs: run ids, newest first.
    :param quarantined: rows in quarantine.
    :param updated_at: when the read copy was made; None when there is none.
    """

    points: pd.DataFrame = field(default_factory=pd.DataFrame)
    runs: tuple[str, ...] = ()
    quarantined: int = 0
    updated_at: datetime | None = None


@dataclass(frozen=True)
class PointDetail:
    """Everything about one point in one run, for its panel. Rows are dicts by column name.

    ``imported`` says where it is from; None for our own points. ``decisions``: what people decided, a line
    each.
    """

    point: dict[str, Any]
    details: tuple[str, ...]
    canary: dict[str, Any] | None
    metrics: tuple[dict[str, Any], ...]
    accuracy: tuple[dict[str, Any], ...]
    phases: tuple[dict[str, Any], ...]
    lock: dict[str, Any] | None
    imported: dict[str, Any] | None = None
    decisions: tuple[str, ...] = ()


class Source:
    """The read copy of one warehouse, for many threads.

    :param warehouse: the DuckDB file that ingest writes; its read copy is what is opened.
    :param timeout_s: limit of one query, seconds.
    """

    def __init__(self, warehouse: Path, timeout_s: float) -> None:
        self._warehouse = warehouse
        self._path = read_copy_path(warehouse)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._stamp: Stamp | None = None
        self._board = Board()
        self._runs: dict[tuple[str | None, str | None], pd.DataFrame] = {}

    def board(self) -> Board:
        """The newest content; an empty board when nothing was ever ingested.

        :raises InfraError: when the read copy cannot be read or a query takes too long.
        """
        with self._lock:
            self._refresh()
            return self._board

    def run_points(self, run: str | None, as_of: str | None = None) -> pd.DataFrame:
        """The points of one run, with ``newest`` of the newest run of each curve, with None the snapshot.

        :param as_of: a day, a time or a run: as it was then (:mod:`isoline.results.warehouse.asof`).
        :raises InputError: for what is no moment.
        :raises InfraError: as :meth:`board`.
        """
        with self._lock:
            self._refresh()
            if self._stamp is None:
                return pd.DataFrame()
            key = run, as_of
            if key not in self._runs:
                frame = self._ask(lambda con: _points(con, run, as_of))
                if len(self._runs) >= _KEPT_RUNS:
                    self._runs.pop(next(iter(self._runs)))
                self._runs[key] = frame
            return self._runs[key]

    def detail(self, run_id: str, point_id: str) -> PointDetail | None:
        """Everything about one point in one run, its counting attempt; None when there is no such row.

        :raises InfraError: as :meth:`board`.
        """
        with self._lock:
            self._refresh()
            if self._stamp is None:
                return None
            return self._ask(lambda con: _detail(con, run_id, point_id))

    def _refresh(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        # The stamp is kept only after all was read: a failed reading is tried again.
        board = Board() if stamp is None else self._ask(lambda con: _board(con, stamp))
        self._board, self._stamp, self._runs = board, stamp, {}

    def _ask(self, question: Callable[[Connection], T]) -> T:
        con = open_reader(self._warehouse, locked_down=True)
        timer = threading.Timer(self._timeout_s, con.interrupt)
        timer.daemon = True
        timer.start()
        try:
            return question(con)
        except duckdb.InterruptException as error:
            raise InfraError(
                f"a query took longer than {self._timeout_s:g} s",
                where=self._path.name,
                remedy="raise ISOLINE_QUERY_TIMEOUT_S",
            ) from error
        except duckdb.Error as error:
            raise InfraError(
                f"the read copy cannot be read: {_first_line(error)}",
                where=self._path.name,
                remedy="run `isoline results rebuild`",
            ) from error
        finally:
            timer.cancel()
            con.close()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _rows(con: Connection, sql: str, values: list[Any]) -> tuple[dict[str, Any], ...]:
    result = con.execute(sql, values)
    names = [column[0] for column in result.description or ()]
    return tuple(dict(zip(names, row, strict=True)) for row in result.fetchall())


def _points(con: Connection, run: str | None, as_of: str | None) -> pd.DataFrame:
    if as_of is not None:
        travel(con, moment_of(con, as_of))
    return snapshot_points(con, run=run)


def _board(con: Connection, stamp: Stamp) -> Board:
    quarantined = con.execute("select count(*) from quarantine").fetchone()
    return Board(
        points=snapshot_points(con),
        runs=tuple(run_ids(con)),
        quarantined=int(quarantined[0]) if quarantined else 0,
        updated_at=datetime.fromtimestamp(stamp[1] / 1e9, tz=UTC),
    )


def _detail(con: Connection, run_id: str, point_id: str) -> PointDetail | None:
    key: list[Any] = [run_id, point_id]
    found = _rows(con, "select * from points where run_id = ? and point_id = ?", key)
    if not found:
        return None
    point = found[0]
    of_attempt = "where run_id = ? and point_id = ? and attempt = ?"
    this = [point["measured_in"], point_id, point["counting_attempt"]]
    attempts = _rows(con, f"select reason_details, canary from attempts {of_attempt}", this)
    locks = _rows(con, f"select lock from locks {of_attempt}", this)
    return PointDetail(
        point=point,
        details=tuple(attempts[0]["reason_details"] or ()) if attempts else (),
        canary=_json(attempts[0]["canary"]) if attempts else None,
        metrics=_rows(con, f'select name, "window", value, unit, n, note from metrics {of_attempt}', this),
        accuracy=_rows(con, f"select * from accuracy {of_attempt} order by task, concurrency", this),
        phases=_rows(
            con,
            f"select name, duration_s, outcome from phases {of_attempt} order by started_at, name",
            this,
        ),
        lock=_json(locks[0]["lock"]) if locks else None,
        imported=next(iter(_rows(con, "select * from imports where run_id = ? and point_id = ?", key)), None),
        decisions=tuple(decision_lines(con)(run_id, point["measured_in"], point_id)),
    )


def _json(text: str | None) -> dict[str, Any] | None:
    value = json.loads(text) if text else None
    return value if isinstance(value, dict) else None
