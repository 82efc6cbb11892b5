"""Read-only SQL by anybody, with a time limit and no way out of the warehouse."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import duckdb

from isoline.errors import InputError
from isoline.results.warehouse.asof import moment_at, open_at
from isoline.settings import Settings

READS = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
MAX_MEMORY = "2GB"
MAX_CELLS = 5_000_000
"""Values in a result. Above it an answer is no answer, and Python would take gigabytes to hold it."""
BATCH_ROWS = 10_000


@dataclass(frozen=True)
class QueryResult:
    """Column names in order (made unique), and one dict for each row."""

    columns: list[str]
    rows: list[dict[str, Any]]


def query(
    settings: Settings, sql: str, *, timeout_s: float | None = None, as_of: str | None = None
) -> QueryResult:
    """Run one reading statement (SELECT, FROM, WITH, VALUES, DESCRIBE, SHOW, SUMMARIZE, EXPLAIN).

    It sees the read copy of the warehouse and nothing else: no files, no network, no settings.

    :param timeout_s: limit in seconds; None: the setting ``query_timeout_s``.
    :param as_of: a day, a time or a run: the tables as they were then (:mod:`.asof`).
    :raises InputError: for SQL that is wrong, is no reading, is more than one statement,
        takes longer than the limit, or gives more than :data:`MAX_CELLS` values.
    """
    limit = settings.query_timeout_s if timeout_s is None else timeout_s
    if not 0 < limit <= threading.TIMEOUT_MAX:
        raise InputError(f"not a number of seconds above 0: {limit:g}", where="query timeout")
    _check(sql)
    moment = moment_at(settings.warehouse, as_of)
    con = open_at(settings.warehouse, moment, locked_down=True, max_memory=MAX_MEMORY)
    done = threading.Event()

    def interrupt() -> None:
        if not done.wait(limit):
            con.interrupt()
        while not done.wait(0.05):  # one that comes between two pieces of work is not heard
            con.interrupt()

    timer = threading.Thread(target=interrupt, daemon=True)
    timer.start()
    try:
        result = con.execute(sql)
        columns = _unique([str(column[0]) for column in result.description or ()])
        most = MAX_CELLS // max(len(columns), 1)
        rows: list[dict[str, Any]] = []
        while batch := result.fetchmany(BATCH_ROWS):
            rows += [dict(zip(columns, row, strict=True)) for row in batch]
            if len(rows) > most:
                raise InputError(
                    f"more than {most} rows of {len(columns)} columns", where="query", remedy="add a LIMIT"
                )
        return QueryResult(columns, rows)
    except duckdb.InterruptException:
        raise InputError(
            f"the query took longer than {limit:g} s",
            remedy="narrow it, or raise ISOLINE_QUERY_TIMEOUT_S",
        ) from None
    except duckdb.Error as error:
        raise InputError(_first_lines(error), where="query") from None
    finally:
        done.set()
        timer.join()
        con.close()


def _check(sql: str) -> None:
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise InputError(_first_lines(error), where="query") from None
    if len(statements) != 1:
        raise InputError(f"one statement is expected, not {len(statements)}", where="query")
    try:
        kind = statements[0].type
    except ValueError:  # one that the Python package has no name for
        kind = None
    if kind not in READS:
        raise InputError(
            f"only reading is possible here, not {kind.name if kind else 'this'}",
            where="query",
            remedy="results change through `isoline results ingest` and results/overrides.yaml",
        )


def _unique(names: list[str]) -> list[str]:
    """Names made unique by a suffix: a row as a dict must not lose a column."""
    seen: set[str] = set()
    unique = []
    for name in names:
        candidate, n = name, 1
        while candidate in seen:
            n += 1
            candidate = f"{name}_{n}"
        seen.add(candidate)
        unique.append(candidate)
    return unique


def _first_lines(error: Exception) -> str:
    """DuckDB's message without the drawing of where in the query it is."""
    lines = [
        line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("LINE ")
    ]
    return " ".join(line for line in lines if set(line) != {"^"})
