"""SQL by anybody: reads the tables, cannot leave them, cannot run for ever."""

from __future__ import annotations

import time
from typing import Any

import pytest

from isoline.errors import InputError
from isoline.results.warehouse.ingest import ingest
from isoline.results.warehouse.query import query
from isoline.settings import Settings


@pytest.fixture
def filled(bundles: Any, settings: Settings) -> Settings:
    """A warehouse with one run of one point."""
    bundles.make_run(settings.store, bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1)])]))
    ingest(settings)
    return settings


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) n from points where verdict='valid'",
        "WITH p AS (FROM points) SELECT 1 AS n FROM p;",
        "values (1)",
        "-- a comment\nselect 1",
    ],
)
def test_reading_statements_run(filled: Settings, sql: str) -> None:
    """Everything that only reads gives rows as dicts."""
    result = query(filled, sql)
    assert [list(row.values()) for row in result.rows] == [[1]]


@pytest.mark.parametrize("sql", ["describe points", "show tables", "explain select 1", "summarize runs"])
def test_looking_around_runs(filled: Settings, sql: str) -> None:
    """The tables can be found out by SQL."""
    assert query(filled, sql).rows


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "select",
        "select 1; select 2",
        "drop table points",
        "delete from points",
        "insert into runs (run_id) values ('x')",
        "create table x (a int)",
        "copy points to 'out.csv'",
        "attach 'other.duckdb'",
        "install httpfs",
        "pragma database_list",
        "set threads = 1",
        "explain analyze delete from points",
        "select * from read_csv('/etc/hostname')",
        "select * from read_text('/etc/hostname')",
        "select * from '/etc/hostname'",
        "select * from glob('/*')",
        "from read_blob('/proc/self/environ')",
        "from read_json('/etc/hostname')",
        "from sniff_csv('/etc/hostname')",
        "from parquet_scan('s3://bucket/x.parquet')",
        "from read_csv('http://127.0.0.1:9/x.csv')",
        "from read_duckdb('other.duckdb')",
        "from duckdb_secrets()",
        "select getenv('HOME')",
        "create secret x (type s3)",
        "load json",
        "update extensions",
        "export database 'x'",
        "import database 'x'",
        "detach warehouse",
        "use memory",
        "begin",
        "checkpoint",
        "call pragma_version()",
        "prepare x as select 1",
        "comment on table points is 'x'",
        "with x as (insert into runs (run_id) values ('x') returning *) from x",
        "select * from filled",
        "select nothing_of_this_name from points",
    ],
)
def test_everything_else_is_one_line(filled: Settings, sql: str) -> None:
    """Writing, files, settings, local variables and mistakes are refused in one line, exit code 1."""
    with pytest.raises(InputError) as caught:
        query(filled, sql)
    assert "\n" not in caught.value.line()
    assert query(filled, "select count(*) n from points").rows == [{"n": 1}]


def test_time_limit(filled: Settings) -> None:
    """A query that would run for hours ends at its limit."""
    before = time.monotonic()
    with pytest.raises(InputError, match=r"longer than 0\.3 s"):
        query(
            filled,
            "select count(*) from range(100000000) a, range(100000000) b where a.range * b.range % 7 = 3",
            timeout_s=0.3,
        )
    assert time.monotonic() - before < 20


@pytest.mark.parametrize("limit_s", [1e-6, 1e-3, 0.02])
def test_a_limit_that_ends_before_the_work_begins(filled: Settings, limit_s: float) -> None:
    """A limit that is over while the query is still being prepared ends it too."""
    with pytest.raises(InputError, match="took longer than"):
        query(
            filled,
            "with recursive t(a) as (select 1 union all select a + 1 from t) select count(*) from t",
            timeout_s=limit_s,
        )


def test_memory_limit(filled: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that would eat the machine is refused instead of being spilled to its disk."""
    monkeypatch.setattr("isoline.results.warehouse.query.MAX_MEMORY", "100MB")
    with pytest.raises(InputError, match="Out of Memory"):
        query(filled, "select list(range) from range(2000000000)")


def test_columns_of_one_name_are_all_there(filled: Settings) -> None:
    """Two columns of the same name do not become one."""
    result = query(filled, "select 1 a, 2 a, 3 a_2")
    assert result.rows == [{"a": 1, "a_2": 2, "a_2_2": 3}]
    assert result.columns == ["a", "a_2", "a_2_2"]


def test_an_answer_that_is_too_long_is_refused(
    bundles: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result without end costs a line, not the machine's memory; one that fits comes whole."""
    bundles.make_run(settings.store, bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1)])]))
    ingest(settings)
    monkeypatch.setattr("isoline.results.warehouse.query.MAX_CELLS", 50_000)
    assert len(query(settings, "select * from range(25000)").rows) == 25_000
    with pytest.raises(InputError, match="more than 25000 rows of 2 columns; add a LIMIT"):
        query(settings, "select range, range from range(1000000000)")
