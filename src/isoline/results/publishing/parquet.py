"""Parquet files whose bytes depend on their rows alone, and the digest of what a warehouse was made from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from isoline.results.bundles.bundle import file_sha256
from isoline.results.warehouse.file import Connection
from isoline.results.warehouse.schema import Table

ROW_GROUP = 100_000
"""Rows in a row group. Part of the bytes, so it is fixed."""


@dataclass(frozen=True)
class Written:
    """One Parquet file."""

    rows: int
    bytes: int
    sha256: str


def write_parquet(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch | pa.Table]) -> Written:
    """Write batches of any size; the same rows in the same order give the same bytes.

    :param batches: with the columns of ``schema`` in its order.
    """
    rows = _write(path, schema, batches)
    return Written(rows, path.stat().st_size, file_sha256(path))


def parquet_bytes(table: pa.Table) -> bytes:
    """A table as the bytes of a file; the same rows in the same order give the same."""
    sink = pa.BufferOutputStream()
    _write(sink, table.schema, [table])
    return bytes(sink.getvalue().to_pybytes())


def _write(sink: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch | pa.Table]) -> int:
    rows = 0
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for table in _in_groups(schema, batches):
            writer.write_table(table, row_group_size=ROW_GROUP)
            rows += table.num_rows
    return rows


def _in_groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.Table]:
    """The rows in tables of :data:`ROW_GROUP`, the last one shorter, however they were cut before."""
    waiting: list[pa.Table] = []
    count = 0
    for batch in batches:
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        waiting.append(table.cast(schema))
        count += table.num_rows
        while count >= ROW_GROUP:
            joined = pa.concat_tables(waiting)
            yield joined.slice(0, ROW_GROUP).combine_chunks()
            waiting, count = [joined.slice(ROW_GROUP)], count - ROW_GROUP
    if count:
        yield pa.concat_tables(waiting).combine_chunks()


def sorted_rows(con: Connection, table: Table) -> Iterator[pa.RecordBatch]:
    """Every row of a table in the one order that its content gives: by its key, else by all columns."""
    columns = ", ".join(f'"{name}"' for name in table.names)
    order = ", ".join(table.key) or "ALL"
    yield from con.sql(f'SELECT {columns} FROM "{table.name}" ORDER BY {order}').to_arrow_reader(ROW_GROUP)


_INPUTS: dict[str, str] = {
    "bundles": """
        SELECT concat_ws('|', bundle_path, bundle_digest) AS line FROM runs WHERE bundle_path IS NOT NULL
        UNION ALL SELECT concat_ws('|', bundle_path, bundle_digest) FROM launches
        UNION ALL SELECT concat_ws('|', bundle_path, bundle_digest) FROM attempts
        UNION ALL SELECT DISTINCT concat_ws('|', bundle_path, bundle_digest) FROM skips""",
    "imports": "SELECT concat_ws('|', run_id, point_id, sha256, row_index) AS line FROM imports",
    "quarantine": "SELECT concat_ws('|', path, digest) AS line FROM quarantine",
    "overrides": """SELECT concat_ws('|', run_id, coalesce(point_id, '*'), action, reason, reviewer, dated)
        AS line FROM overrides""",
    "derivation": "SELECT value AS line FROM meta WHERE name = 'derivation'",
}


def warehouse_digest(con: Connection) -> str:
    """SHA-256 over what a warehouse's rows follow from: bundles, foreign rows, decisions, derivation.

    Equal for a rebuilt warehouse, and another one as soon as anything came in, went, or was decided.
    """
    total = hashlib.sha256()
    for name, sql in _INPUTS.items():
        row = con.execute(
            f"SELECT coalesce(sha256(string_agg(line, chr(10) ORDER BY line)), '') FROM ({sql})"
        ).fetchone()
        total.update(f"{name} {row[0] if row else ''}\n".encode())
    return total.hexdigest()
