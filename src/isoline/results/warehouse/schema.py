"""The warehouse's tables as data (DESIGN 5.6): one row of :data:`TABLES` for each.

Absent values are null. Nothing here depends on when a row was ingested, so that a rebuilt
warehouse has the same content. Times are UTC, without a zone in the type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from isoline.results.identity import digest
from isoline.results.metrics.registry import HEADLINE

DERIVATION_VERSION = 1
"""Raised by hand whenever the rows that the same bundles give change."""

_ARROW: dict[str, pa.DataType] = {
    "VARCHAR": pa.string(),
    "VARCHAR[]": pa.list_(pa.string()),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us"),
}


@dataclass(frozen=True)
class Table:
    """One table. ``columns`` are (name, DuckDB type) in order; ``key`` names the primary key."""

    name: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...] = ()
    by_run: bool = True  # whether its rows belong to one run, and are replaced with it

    @property
    def names(self) -> list[str]:
        """The column names, in order."""
        return [name for name, _ in self.columns]

    @property
    def arrow(self) -> pa.Schema:
        """The same columns as an Arrow schema."""
        return pa.schema([pa.field(name, _ARROW[kind]) for name, kind in self.columns])

    def ddl(self, name: str | None = None) -> str:
        """``CREATE TABLE`` in DuckDB's SQL."""
        columns = [f'"{column}" {kind}' for column, kind in self.columns]
        if self.key:
            columns.append(f"PRIMARY KEY ({', '.join(self.key)})")
        return f'CREATE TABLE "{name or self.name}" ({", ".join(columns)})'

    def rows(self, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Rows as Arrow.

        :raises KeyError: when a row has a name that is no column, or lacks one: a misspelt name
            must not become a null.
        """
        known = set(self.names)
        listed = list(rows)
        for row in listed:
            if row.keys() != known:
                raise KeyError(f"{self.name}: columns differ: {sorted(row.keys() ^ known)}")
        return pa.Table.from_pylist(listed, schema=self.arrow)


def _table(name: str, columns: str, key: str = "", *, by_run: bool = True) -> Table:
    pairs = []
    for line in columns.split(","):
        column, kind = line.split()
        pairs.append((column, kind))
    return Table(name, tuple(pairs), tuple(key.split()), by_run)


_POINT_HEAD = """
    run_id VARCHAR, point_id VARCHAR, point_digest VARCHAR, launch_digest VARCHAR, launch_id VARCHAR,
    counting_attempt INTEGER, measured_in VARCHAR, attempts INTEGER, got BOOLEAN, missing_cause VARCHAR,
    sweep VARCHAR, pool VARCHAR, recipe_id VARCHAR, recipe_digest VARCHAR, twin_of VARCHAR,
    model VARCHAR, model_revision VARCHAR, engine VARCHAR, engine_version VARCHAR, sku VARCHAR,
    weight_precision VARCHAR, kv_precision VARCHAR, scenario VARCHAR, scenario_version INTEGER,
    scenario_kind VARCHAR, dataset VARCHAR, dataset_digest VARCHAR, topology VARCHAR, gpus INTEGER,
    concurrency INTEGER, repetition INTEGER, seed BIGINT, speculative VARCHAR, kv_offload VARCHAR,
    deployment_class VARCHAR, client_class VARCHAR, kind VARCHAR, source VARCHAR,
    curve_key VARCHAR, series_key VARCHAR, verdict VARCHAR, reasons VARCHAR[], accuracy_state VARCHAR,
    official BOOLEAN, unofficial_why VARCHAR, unofficial_otherwise VARCHAR, marks VARCHAR[],
    started_at TIMESTAMP, ended_at TIMESTAMP, asked INTEGER, completed INTEGER, failed INTEGER,
    window VARCHAR"""

TABLES: tuple[Table, ...] = (
    _table(
        "runs",
        """run_id VARCHAR, sweep VARCHAR, plan_digest VARCHAR, started_at TIMESTAMP, finished_at TIMESTAMP,
        rev VARCHAR,
        dirty BOOLEAN, expected INTEGER, got INTEGER, valid INTEGER, partial INTEGER, invalid INTEGER,
        infra_error INTEGER, cancelled INTEGER, skipped INTEGER, missing INTEGER, complete BOOLEAN,
        curve_parts VARCHAR[], published BOOLEAN, bundle_path VARCHAR, bundle_digest VARCHAR""",
        "run_id",
    ),
    _table(
        "launches",
        """run_id VARCHAR, launch_id VARCHAR, launch_digest VARCHAR, recipe_id VARCHAR,
        started_at TIMESTAMP, ended_at TIMESTAMP, verdict VARCHAR, reasons VARCHAR[],
        reason_details VARCHAR[], exit_code INTEGER, signal INTEGER, ready_s DOUBLE,
        cause VARCHAR, cause_detail VARCHAR, bundle_path VARCHAR, bundle_digest VARCHAR""",
        "run_id launch_id",
    ),
    _table(
        "attempts",
        """run_id VARCHAR, point_id VARCHAR, attempt INTEGER, verdict VARCHAR, reasons VARCHAR[],
        reason_details VARCHAR[], accuracy_state VARCHAR, launch_id VARCHAR, started_at TIMESTAMP,
        ended_at TIMESTAMP, asked INTEGER, completed INTEGER, failed INTEGER, canary VARCHAR,
        client VARCHAR, cause VARCHAR, cause_detail VARCHAR, bundle_path VARCHAR, bundle_digest VARCHAR""",
        "run_id point_id attempt",
    ),
    _table(
        "points",
        f"""{_POINT_HEAD}, {", ".join(f"{name} DOUBLE" for name in HEADLINE)},
        bundle_path VARCHAR, bundle_digest VARCHAR""",
        "run_id point_id",
    ),
    # What a run took over from others. What is on a curve that it added to is in `points` too, under this
    # run, with `measured_in` naming the other one.
    _table(
        "reused",
        """run_id VARCHAR, point_id VARCHAR, curve_key VARCHAR, base_run_id VARCHAR, measured_in VARCHAR,
        attempt INTEGER, withdrawn BOOLEAN, run_digest VARCHAR, bundle_path VARCHAR, bundle_digest VARCHAR""",
        "run_id point_id",
    ),
    _table(
        "metrics",
        """run_id VARCHAR, point_id VARCHAR, attempt INTEGER, name VARCHAR, window VARCHAR,
        value DOUBLE, unit VARCHAR, n BIGINT, note VARCHAR, metrics_version INTEGER""",
    ),
    _table(
        "accuracy",
        """run_id VARCHAR, point_id VARCHAR, attempt INTEGER, task VARCHAR, dataset_digest VARCHAR,
        n INTEGER, correct INTEGER, unparsed INTEGER, reference DOUBLE, interval_low DOUBLE,
        interval_high DOUBLE, state VARCHAR, concurrency INTEGER""",
    ),
    _table(
        "phases",
        """run_id VARCHAR, point_id VARCHAR, launch_id VARCHAR, attempt INTEGER, name VARCHAR,
        started_at TIMESTAMP, duration_s DOUBLE, outcome VARCHAR""",
    ),
    # What happened and when, for people: launches and attempts from start to end, and what went wrong.
    _table(
        "events",
        """run_id VARCHAR, happened_at TIMESTAMP, what VARCHAR, launch_id VARCHAR, point_id VARCHAR,
        attempt INTEGER, code VARCHAR, detail VARCHAR""",
    ),
    _table(
        "telemetry",
        "run_id VARCHAR, launch_id VARCHAR, t TIMESTAMP, name VARCHAR, device VARCHAR, value DOUBLE",
    ),
    # What a run left out each time that it ended; the last time counts.
    _table(
        "skips",
        """run_id VARCHAR, number INTEGER, point_id VARCHAR, cause VARCHAR, detail VARCHAR,
        evidence VARCHAR[], at TIMESTAMP, bundle_path VARCHAR, bundle_digest VARCHAR""",
        "run_id number point_id",
    ),
    _table("locks", "run_id VARCHAR, point_id VARCHAR, attempt INTEGER, lock VARCHAR"),
    # Where the points of imports are from: the kept file, and the row as it is there.
    _table(
        "imports",
        """run_id VARCHAR, point_id VARCHAR, sha256 VARCHAR, row_index INTEGER, file_name VARCHAR,
        format VARCHAR, source VARCHAR, licence VARCHAR, notes VARCHAR[], original VARCHAR""",
    ),
    _table(
        "quarantine",
        "path VARCHAR, run_id VARCHAR, digest VARCHAR, kind VARCHAR, reason VARCHAR",
        "path",
    ),
    _table(
        "overrides",
        "run_id VARCHAR, point_id VARCHAR, action VARCHAR, reason VARCHAR, reviewer VARCHAR, dated VARCHAR",
    ),
    _table(
        "prices",
        """version VARCHAR, tier VARCHAR, is_default BOOLEAN, sku VARCHAR, usd_per_gpu_hour DOUBLE,
        source VARCHAR, dated VARCHAR""",
        by_run=False,
    ),
    # By run here and not one row a digest: a run's rows come and go with the run alone.
    _table(
        "recipes",
        "run_id VARCHAR, recipe_digest VARCHAR, recipe_id VARCHAR, content VARCHAR",
        "run_id recipe_digest",
    ),
)

BY_NAME: dict[str, Table] = {table.name: table for table in TABLES}
"""The tables by name."""

RUN_TABLES: tuple[Table, ...] = tuple(table for table in TABLES if table.by_run)
"""The tables whose rows are replaced together, one run in one transaction."""

BUNDLES = " UNION ALL ".join(
    f"SELECT run_id, bundle_path, bundle_digest FROM {name} WHERE bundle_path IS NOT NULL"
    for name in ("runs", "launches", "attempts", "skips")
)
"""SQL: every sealed bundle whose rows are in the warehouse."""


def derivation() -> str:
    """What the rows depend on besides the bundles: a digest of the columns and the version.

    Where a warehouse holds another one, every run is derived again.
    """
    return digest(
        {
            "version": DERIVATION_VERSION,
            "tables": [[table.name, *map(list, table.columns)] for table in TABLES],
        }
    )
