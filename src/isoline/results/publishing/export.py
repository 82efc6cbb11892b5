"""Every table of the warehouse as Parquet files, for other tools on this machine."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from isoline.errors import InfraError, InputError
from isoline.results.bundles.bundle import sync, write_record
from isoline.results.bundles.records import Record
from isoline.results.publishing.parquet import sorted_rows, warehouse_digest, write_parquet
from isoline.results.warehouse.file import open_reader
from isoline.results.warehouse.schema import BY_NAME, TABLES
from isoline.settings import Settings

MARKER = "export.json"
"""Written into each export: what is in it. A folder without it is somebody else's."""


class ExportedTable(Record):
    """One file of an export."""

    table: str
    file: str
    rows: int
    bytes: int
    sha256: str


class ExportRecord(Record):
    """``export.json``. No time in it: the same warehouse gives the same bytes."""

    schema_version: Literal[1] = 1
    kind: Literal["isoline-export"] = "isoline-export"
    warehouse_digest: str
    tables: list[ExportedTable]


@dataclass(frozen=True)
class Export:
    """What was written, or would be."""

    record: ExportRecord
    replaced: bool


def export(settings: Settings, target: Path, tables: Sequence[str] = (), *, dry_run: bool = False) -> Export:
    """Write tables as ``<target>/<table>.parquet``: typed, rows in the order of their keys.

    The folder is made aside and renamed in. One that an earlier export made is replaced.

    :param tables: names; none: all of them.
    :param dry_run: make it, and throw it away.
    :raises InputError: for a name that is no table, or a folder that is not an export's.
    :raises InfraError: when nothing can be written there.
    """
    for name in tables:
        if name not in BY_NAME:
            raise InputError(f"no table {name!r}", where="--table", remedy=f"known: {', '.join(BY_NAME)}")
    wanted = [table for table in TABLES if not tables or table.name in tables]
    target = target.absolute()
    replaces = _is_ours(target)
    con = open_reader(settings.warehouse)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        if dry_run:
            part = Path(tempfile.mkdtemp(prefix="isoline-"))
        else:
            part.mkdir(parents=True)
        con.execute("SET temp_directory = ?", [str(part / "spill")])
        found = []
        for table in wanted:
            file = part / f"{table.name}.parquet"
            written = write_parquet(file, table.arrow, sorted_rows(con, table))
            sync(file)
            found.append(
                ExportedTable(
                    table=table.name,
                    file=file.name,
                    rows=written.rows,
                    bytes=written.bytes,
                    sha256=written.sha256,
                )
            )
        record = ExportRecord(warehouse_digest=warehouse_digest(con), tables=found)
        write_record(part / MARKER, record)
        shutil.rmtree(part / "spill", ignore_errors=True)
        if not dry_run:
            sync(part)
            _rename_in(part, target)
    except OSError as error:
        raise InfraError(f"the export cannot be written: {error.strerror}", where=str(target)) from None
    finally:
        con.close()
        shutil.rmtree(part, ignore_errors=True)
    return Export(record, replaces)


def _is_ours(target: Path) -> bool:
    """Whether an earlier export lies there; False where there is nothing yet.

    :raises InputError: when anything else does.
    """
    if not target.exists() and not target.is_symlink():
        return False
    refusal = InputError(
        "this is no export of ours; nothing was changed",
        where=str(target),
        remedy="name a new folder, or remove this one",
    )
    if target.is_symlink() or not target.is_dir():
        raise refusal
    there = {path.name for path in target.iterdir()}
    if not there:
        return False
    try:
        record = ExportRecord.model_validate_json((target / MARKER).read_bytes())
    except (OSError, ValidationError):
        raise refusal from None
    if there - {MARKER, *(table.file for table in record.tables)}:
        raise refusal
    return True


def _rename_in(part: Path, target: Path) -> None:
    """Put the new folder where the old one was. Who has a file of the old one open reads it to its end."""
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.old")
    if target.exists():
        target.rename(aside)
    try:
        part.rename(target)
    except OSError:
        if aside.exists():
            aside.rename(target)
        raise
    sync(target.parent)
    shutil.rmtree(aside, ignore_errors=True)
