"""From the foreign files of a store to rows in the warehouse (DESIGN 5.6).

The tables are made from the kept files and their notes alone, so that a rebuilt warehouse is the same,
and an alias that was added later recovers what was refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from isoline.catalog.facts import Catalog
from isoline.results.identity import digest
from isoline.results.import_rows import Imported, ImportTables, Origin, Refused, run_id, tables_of
from isoline.results.import_store import FOLDER, Note, kept_files, note_of
from isoline.results.importers.filenames import file_facts
from isoline.results.importers.foreign import ForeignError, ForeignFile, ForeignPoint
from isoline.results.importers.normalise import normalise
from isoline.results.importers.recognise import FORMATS, read, row_format
from isoline.results.schema import derivation
from isoline.results.warehouse import Connection, replace_run

IMPORTER_VERSION = 1
"""Raised by hand whenever the same file gives other rows."""

_STATE = "imports"


@dataclass
class Landing:
    """What the imports of a store give.

    :param rows: landed rows by verdict; ``scores`` and ``samples`` for evaluations and logs.
    :param new: landed rows that the warehouse did not have.
    :param changed: runs whose rows were made anew.
    :param repeated: rows that are there twice word for word, and count once.
    """

    rows: dict[str, int] = field(default_factory=dict)
    new: int = 0
    changed: list[str] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    repeated: int = 0


def land(con: Connection, store: Path, catalog: Catalog, *, again: bool = False) -> Landing:
    """Bring the imports of a store into the warehouse, with an open writer.

    Where neither a file, a note, the catalog nor Isoline changed, nothing is read.

    :param again: read all the same.
    """
    state = _state(store, catalog)
    row = con.execute("SELECT value FROM meta WHERE name = ?", [_STATE]).fetchone()
    landing = Landing()
    if again or row is None or row[0] != state:
        points, refused = read_all(store, catalog)
        made, landing.refused = make_tables(points, refused)
        landing.repeated = made.repeated
        had = {key: _origins(con, key) for key in _import_runs(con)}
        for name in sorted(had.keys() - made.by_run.keys()):
            replace_run(con, name, {})
        for name, tables in made.by_run.items():
            replace_run(con, name, tables)
            now = _origins(con, name)
            landing.new += len(now - had.get(name, set()))
            if now != had.get(name, set()):
                landing.changed.append(name)
        # Only now: whoever is killed before starts over.
        con.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [_STATE, state])
    else:
        landing.refused = [
            Refused(*bad)
            for bad in con.execute(
                "SELECT path, run_id, digest, reason FROM quarantine WHERE kind = 'import' ORDER BY path"
            ).fetchall()
        ]
    landing.rows = dict(
        con.execute(
            """SELECT coalesce(p.verdict, CASE WHEN i.format = 'power-log' THEN 'samples' ELSE 'scores' END),
            count(*) FROM imports i LEFT JOIN points p USING (run_id, point_id) GROUP BY ALL ORDER BY 1"""
        ).fetchall()
    )
    return landing


# What a value that nobody foresaw can make of a row. It must not stop the others.
_NO_ROWS = (
    ValueError,
    TypeError,
    KeyError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    pa.ArrowException,
)


def _why(error: BaseException) -> ForeignError:
    return ForeignError("unreadable", " ".join(f"{type(error).__name__}: {error}".split())[:300])


def make_tables(points: list[Imported], refused: list[Refused]) -> tuple[ImportTables, list[Refused]]:
    """The rows, without points of which, even alone, no rows can be made."""
    try:
        return tables_of(points, refused), refused
    except _NO_ROWS:
        good = []
        for item in points:
            try:
                tables_of([item], [])
                good.append(item)
            except _NO_ROWS as error:
                where = f"{item.origin.path}#{item.landed.point.row}"
                refused.append(Refused(where, item.run_id, item.origin.sha256, str(_why(error))))
        return tables_of(good, refused), refused


def _state(store: Path, catalog: Catalog) -> str:
    notes = [(target.name, _note_digest(target)) for target in kept_files(store)]
    return digest([notes, catalog.digest, derivation(), IMPORTER_VERSION])


def _note_digest(target: Path) -> str:
    try:
        return hashlib.sha256(target.with_name(f"{target.name}.json").read_bytes()).hexdigest()
    except OSError:
        return ""


def _import_runs(con: Connection) -> list[str]:
    rows = con.execute(
        "SELECT run_id FROM imports UNION SELECT run_id FROM quarantine WHERE kind = 'import'"
    ).fetchall()
    return [str(name) for (name,) in rows]


def _origins(con: Connection, name: str) -> set[tuple[Any, ...]]:
    rows = con.execute("SELECT sha256, row_index, point_id FROM imports WHERE run_id = ?", [name]).fetchall()
    return {tuple(row) for row in rows}


def read_all(store: Path, catalog: Catalog) -> tuple[list[Imported], list[Refused]]:
    """Every row of every kept file, landed or refused."""
    points: list[Imported] = []
    refused: list[Refused] = []
    for target in kept_files(store):
        note = note_of(target)
        if note is not None and note.is_part:
            continue
        for found in read_one(store, target, note, catalog):
            if isinstance(found, Imported):
                points.append(found)
            else:
                refused.append(found)
    return points, refused


def read_one(store: Path, target: Path, note: Note | None, catalog: Catalog) -> Iterable[Imported | Refused]:
    """The rows of one kept file. Nothing in it stops the others."""
    path = f"{FOLDER}/{target.name}"
    if note is None:
        return [Refused(path, run_id("unknown", "files"), target.name, "unreadable: no note beside it")]
    name = note.names[0]
    origin = Origin(target.name, name, "", note.source or "unknown", note.licence, note.group)
    found: list[Imported | Refused] = []

    def refuse(error: ForeignError) -> None:
        where = path if error.row is None else f"{path}#{error.row}"
        text = f"{error} ({name}{'' if error.row is None else f', row {error.row}'})"
        found.append(Refused(where, run_id(origin.source, note.group), target.name, text[:500]))

    try:
        content = target.read_bytes()
        if hashlib.sha256(content).hexdigest() != target.name:
            raise ForeignError("unreadable", "the kept file was changed")
        parts = {part: (target.parent / sha256).read_bytes() for part, sha256 in note.parts.items()}
        kind, rows = read(ForeignFile(name, content, parts), note.forced)
    except OSError as error:
        refuse(ForeignError("unreadable", f"the kept file or a part of it: {error.strerror}"))
        return found
    except ForeignError as error:
        refuse(error)
        return found
    except _NO_ROWS as error:
        refuse(_why(error))
        return found
    facts = file_facts(name, catalog)
    for row in rows:
        if isinstance(row, ForeignError):
            refuse(row)
            continue
        kind_of_row = _format_of(row, kind)
        origin = Origin(
            target.name,
            name,
            kind_of_row,
            note.source or FORMATS[kind_of_row].source,
            note.licence,
            note.group,
        )
        try:
            landed = normalise(row, facts, catalog, note.given, alone=len(rows) == 1)
        except ForeignError as error:
            refuse(error.at(row.row) if len(rows) > 1 else error)
            continue
        except _NO_ROWS as error:
            refuse(_why(error).at(row.row))
            continue
        found.append(Imported(landed, origin))
    return found


def _format_of(row: ForeignPoint, kind: str) -> str:
    return kind if kind in FORMATS else row_format(row.raw) or kind
