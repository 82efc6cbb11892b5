"""The warehouse file: one writer with a lock, readers on an atomically replaced copy (DESIGN 5.6).

``warehouse.duckdb`` is written by one process at a time; ``warehouse.duckdb.lock`` says which.
After the writer ends, ``warehouse.read.duckdb`` is replaced by a copy of it. Readers open the copy
only, so they meet neither a lock nor a half-written run.
"""

from __future__ import annotations

import glob
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from isoline.errors import InfraError, InputError
from isoline.results.warehouse.lock import hold
from isoline.results.warehouse.schema import RUN_TABLES, TABLES, Table

Connection = duckdb.DuckDBPyConnection


def read_copy_path(path: Path) -> Path:
    """The place of the read-only copy of a warehouse: ``warehouse.read.duckdb`` beside it."""
    return path.with_name(f"{path.stem}.read{path.suffix}")


# --- migrations -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Migration:
    """One named step. It runs once for each warehouse, in a transaction of its own."""

    name: str
    step: Callable[[Connection], None]


def _create_tables(con: Connection) -> None:
    for table in TABLES:
        con.execute(table.ddl())


MIGRATIONS: tuple[Migration, ...] = (Migration("0001_tables", _create_tables),)
"""All steps, in order. A released step is never edited; a later change is a new step.

Columns that only follow :data:`isoline.results.warehouse.schema.TABLES` (a new headline metric) need none:
:func:`_follow_schema` brings them in.
"""


def _follow_schema(con: Connection) -> None:
    """Bring every table to the columns of the schema, in order; kept columns keep their values."""
    for table in TABLES:
        info = con.execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? "
            "AND database_name = current_database() ORDER BY column_index",
            [table.name],
        ).fetchall()
        if [tuple(row) for row in info] == list(table.columns):
            continue
        con.execute(table.ddl(f"{table.name}__new"))
        had = dict(info)
        kept = ", ".join(f'"{name}"' for name, kind in table.columns if had.get(name) == kind)
        if kept and not (set(table.key) - set(had)):
            con.execute(f'INSERT INTO "{table.name}__new" ({kept}) SELECT {kept} FROM "{table.name}"')
        con.execute(f'DROP TABLE IF EXISTS "{table.name}"')
        con.execute(f'ALTER TABLE "{table.name}__new" RENAME TO "{table.name}"')


def migrate(con: Connection, path: Path) -> list[str]:
    """Run the steps that this warehouse has not had. Returns their names.

    :raises InputError: when a newer Isoline wrote the file.
    """
    con.execute("CREATE TABLE IF NOT EXISTS migrations (name VARCHAR PRIMARY KEY)")
    con.execute("CREATE TABLE IF NOT EXISTS meta (name VARCHAR PRIMARY KEY, value VARCHAR)")
    done = {name for (name,) in con.execute("SELECT name FROM migrations").fetchall()}
    unknown = done - {migration.name for migration in MIGRATIONS}
    if unknown:
        raise InputError(
            f"a newer Isoline made this warehouse (step {min(unknown)})",
            where=str(path),
            remedy="update Isoline, or remove the file and ingest again",
        )
    ran = []
    for migration in MIGRATIONS:
        if migration.name not in done:
            with transaction(con):
                migration.step(con)
                con.execute("INSERT INTO migrations VALUES (?)", [migration.name])
            ran.append(migration.name)
    with transaction(con):
        _follow_schema(con)
    return ran


# --- writing ----------------------------------------------------------------------------------


@contextmanager
def transaction(con: Connection) -> Iterator[None]:
    """All or nothing: commit at the end, roll back on any exception."""
    con.execute("BEGIN TRANSACTION")
    try:
        yield
    except BaseException:
        con.execute("ROLLBACK")
        raise
    con.execute("COMMIT")


def insert(con: Connection, table: Table, rows: pa.Table) -> None:
    """Append Arrow rows to a table, column by column name."""
    if not rows.num_rows:
        return
    names = ", ".join(f'"{name}"' for name in rows.column_names)
    con.register("incoming_rows", rows)
    try:
        con.execute(f'INSERT INTO "{table.name}" ({names}) SELECT {names} FROM incoming_rows')
    finally:
        con.unregister("incoming_rows")


def replace_runs(con: Connection, runs: Sequence[str], tables: Mapping[str, pa.Table]) -> None:
    """Replace all rows of several runs, in one transaction: a row may go from one run to another.

    :param tables: the new rows of all of them by table; a table that is not there is left empty.
    """
    with transaction(con):
        for table in RUN_TABLES:
            con.execute(f'DELETE FROM "{table.name}" WHERE list_contains(?, run_id)', [list(runs)])
            if table.name in tables:
                insert(con, table, tables[table.name])


@contextmanager
def write_lock(path: Path, wait_s: float = 0.0) -> Iterator[None]:
    """Be the one writer of a warehouse. The lock dies with its process, also by SIGKILL.

    :param wait_s: how long to wait for another writer, seconds.
    :raises InfraError: when another process writes; says which, where and since when. Also when
        nothing can be written there.
    """
    lock = path.with_name(f"{path.name}.lock")
    setting = "--warehouse or ISOLINE_WAREHOUSE names another file"
    with hold(
        lock, what="the warehouse", doing="writes the warehouse", where=path, wait_s=wait_s, setting=setting
    ):
        for name in (path.name, read_copy_path(path).name):
            for left in path.parent.glob(f".{glob.escape(name)}.*.part*"):
                left.unlink(missing_ok=True)  # of a writer that was killed; only the holder makes such
        yield


def connect_file(path: Path) -> Connection:
    """Open a DuckDB file for writing.

    :raises InfraError: when DuckDB cannot: another program holds it, or it is no warehouse.
    """
    try:
        return duckdb.connect(str(path))
    except duckdb.Error as error:
        raise InfraError(
            f"cannot open the warehouse: {str(error).splitlines()[0]}",
            where=str(path),
            remedy="close other programs on it; if it is damaged, remove it and ingest again",
        ) from None


@contextmanager
def open_writer(path: Path, *, wait_s: float = 0.0) -> Iterator[Connection]:
    """The warehouse for writing: locked, migrated, and its read copy replaced afterwards.

    The copy is replaced also when the body failed: what was committed is whole.

    :raises InfraError: when another process writes it.
    """
    with write_lock(path, wait_s):
        if not path.exists():
            with written_anew(path):
                pass
        con = connect_file(path)
        try:
            migrate(con, path)
            yield con
        finally:
            con.close()  # writes the checkpoint, so that the file alone is everything
            publish(path)


@contextmanager
def written_anew(path: Path) -> Iterator[Connection]:
    """An empty warehouse made aside, in the place of ``path`` once the block has ended well.

    Killed at any moment it leaves the old one, or none; never one that is half. Only for the holder of the
    lock.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        con = connect_file(part)
        try:
            migrate(con, path)
            yield con
        finally:
            con.close()
        # A log is of a killed writer, or of a warehouse that somebody removed: it must not be replayed here.
        path.with_name(f"{path.name}.wal").unlink(missing_ok=True)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
        part.with_name(f"{part.name}.wal").unlink(missing_ok=True)


@contextmanager
def scratch(path: Path | None) -> Iterator[Connection]:
    """A writable copy of a warehouse that is thrown away; an empty one for None or where there is none."""
    with tempfile.TemporaryDirectory(prefix="isoline-") as folder:
        file = Path(folder) / "scratch.duckdb"
        if path is not None and read_copy_path(path).exists():
            shutil.copyfile(read_copy_path(path), file)
        con = connect_file(file)
        try:
            migrate(con, file)
            yield con
        finally:
            con.close()


def publish(path: Path) -> bool:
    """Replace the read copy by the warehouse as it is now. Returns whether that was needed.

    Only for the holder of the lock, with no connection open. The copy carries the modification
    time of its original, which tells a later call that they are alike.
    """
    copy = read_copy_path(path)
    stat = path.stat()
    if copy.exists():
        had = copy.stat()
        if (had.st_size, had.st_mtime_ns) == (stat.st_size, stat.st_mtime_ns):
            return False
    part = copy.with_name(f".{copy.name}.{secrets.token_hex(4)}.part")
    try:
        shutil.copyfile(path, part)
        os.utime(part, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(copy)
    finally:
        part.unlink(missing_ok=True)
    return True


# --- reading ----------------------------------------------------------------------------------


def open_reader(path: Path, *, locked_down: bool = False, max_memory: str | None = None) -> Connection:
    """A connection on the read-only copy; the tables are visible by their bare names.

    It keeps seeing the copy that it opened: open again after an ingest to see more. Several
    may be open in one process, on different copies.

    :param path: the warehouse (not its copy).
    :param locked_down: no files, no network, no settings: for SQL that somebody else wrote.
    :param max_memory: limit in DuckDB's words (``2GB``); nothing is spilled to disk then.
    :raises InputError: when there is no warehouse yet.
    :raises InfraError: when it cannot be read, or an older Isoline made it.
    """
    copy = read_copy_path(path)
    if not copy.exists():
        raise InputError("no warehouse yet", where=str(path), remedy="fill it with `isoline results ingest`")
    # Through ATTACH on an instance of its own: DuckDB shares instances by path inside a process,
    # and would hand out the old copy for as long as anybody has it open.
    con = duckdb.connect(":memory:")
    try:
        quoted = str(copy).replace("'", "''")
        con.execute(f"ATTACH '{quoted}' AS warehouse (READ_ONLY)")
        con.execute("USE warehouse")
        if max_memory is not None:
            con.execute(f"SET memory_limit = '{max_memory}'")
            con.execute("SET temp_directory = ''")
        con.execute("SET python_enable_replacements = false")  # a local variable is never a table
        if locked_down:
            con.execute("SET enable_external_access = false")
            con.execute("SET lock_configuration = true")
        lacking = _lacking(con)
    except duckdb.Error as error:
        con.close()
        raise InfraError(
            f"cannot read the warehouse: {str(error).splitlines()[0]}",
            where=str(copy),
            remedy="make it again with `isoline results rebuild`",
        ) from None
    if lacking:
        con.close()
        raise InfraError(
            f"an older Isoline made it ({lacking})",
            where=str(copy),
            remedy="bring it up to date with `isoline results ingest`",
        )
    return con


def _lacking(con: Connection) -> str | None:
    """The first table or column of today that an attached copy does not have; None when all are there."""
    rows = con.execute(
        "SELECT table_name, list(column_name) FROM duckdb_columns() "
        "WHERE database_name = current_database() GROUP BY ALL"
    ).fetchall()
    had = {name: set(columns) for name, columns in rows}
    for name in sorted(table.name for table in TABLES if table.name not in had):
        return f"no table {name}"
    for table in TABLES:
        if missing := set(table.names) - had[table.name]:
            return f"no column {table.name}.{min(missing)}"
    return None
