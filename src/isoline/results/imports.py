"""Foreign files into the store, and from the store into the warehouse (DESIGN 5.5, 5.6).

Each file is kept byte for byte as ``imports/<sha256>``, with a note beside it (``<sha256>.json``):
its names, and what was said when it came. The tables are made from these alone, so that a rebuilt
warehouse is the same, and an alias that was added later recovers what was refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from isoline.catalog.facts import Catalog
from isoline.errors import InputError
from isoline.results.bundle import write_file
from isoline.results.identity import canonical_json, digest
from isoline.results.import_rows import Imported, Origin, Refused, run_id, tables_of
from isoline.results.importers.filenames import file_facts
from isoline.results.importers.foreign import ForeignError, ForeignFile, ForeignPoint
from isoline.results.importers.normalise import GIVEN, normalise
from isoline.results.importers.recognise import FORMATS, PARTS, parse, read, recognise, row_format
from isoline.results.schema import derivation
from isoline.results.warehouse import Connection, replace_run

FOLDER = "imports"
SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv")
"""Files that are looked at in a folder; one that is named by itself is always taken."""

MAX_BYTES = 2 * 1024**3
IMPORTER_VERSION = 1
"""Raised by hand whenever the same file gives other rows."""

_STATE = "imports"


class Note(BaseModel):
    """What is kept beside a foreign file.

    :ivar names: its names, the first one first; the first is the one that counts.
    :ivar group: the folder that it came from: files of one folder are one run.
    :ivar parts: files that belong to it, by name: their SHA-256.
    :ivar is_part: it belongs to another file and is not read by itself.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    sha256: str
    bytes: int
    names: list[str]
    group: str
    forced: str | None = None
    source: str | None = None
    licence: str | None = None
    given: dict[str, str] = {}
    parts: dict[str, str] = {}
    is_part: bool = False


@dataclass(frozen=True)
class Said:
    """What a person says about the files: see the options of ``isoline results import``."""

    forced: str | None = None
    source: str | None = None
    licence: str | None = None
    group: str | None = None
    given: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """:raises InputError: for an unknown format, or something that cannot be said."""
        if self.forced is not None and self.forced not in FORMATS:
            raise InputError(
                f"no format {self.forced!r}", where="--as", remedy=f"known: {', '.join(FORMATS)}"
            )
        for name, value in self.given.items():
            if name not in GIVEN:
                raise InputError(
                    f"{name!r} cannot be given", where="--set", remedy=f"known: {', '.join(GIVEN)}"
                )
            if name == "gpus" and not (value.isdecimal() and int(value) > 0):
                raise InputError(f"gpus is no count: {value!r}", where="--set", remedy="write --set gpus=8")


@dataclass
class Kept:
    """What was put into the store.

    :param files: files that are new in it.
    :param known: files whose content was there already, under whatever name.
    :param skipped: files in the folders that are of no kind that is looked at.
    """

    files: int = 0
    known: int = 0
    skipped: int = 0


# --- keeping ----------------------------------------------------------------------------------


def keep(store: Path, paths: Sequence[Path], said: Said) -> Kept:
    """Copy files into the store, byte for byte; a second time nothing changes.

    :param paths: files, or folders whose files are taken, subfolders too.
    :raises InputError: for a path that is not there or cannot be read.
    """
    said.check()
    kept = Kept()
    files = list(_files(paths, kept))
    parts = {part for path in files for part in _parts_of(path, said).values()}
    for path in files:
        if path in parts:
            continue
        found = {
            name: _store(store, part, said, {}, kept, is_part=True)
            for name, part in _parts_of(path, said).items()
        }
        _store(store, path, said, found, kept)
    return kept


def _files(paths: Sequence[Path], kept: Kept) -> Iterator[Path]:
    for given in paths:
        if given.is_file():
            yield given
        elif given.is_dir():
            for path in sorted(given.rglob("*")):
                if path.is_symlink() or not path.is_file() or path.name.startswith("."):
                    continue
                if path.suffix.lower() in SUFFIXES:
                    yield path
                else:
                    kept.skipped += 1
        else:
            raise InputError("no such file or folder", where=str(given))


def _parts_of(path: Path, said: Said) -> dict[str, Path]:
    """The files beside one that belong to it."""
    names = {name for wanted in PARTS.values() for name in wanted}
    if path.name in names or not any(_sibling(path, name) for name in names):
        return {}
    try:
        content = _read(path)
        kind = said.forced or recognise(path.name, parse(content, path.name), content[:512])
    except ForeignError:
        return {}
    found = {name: _sibling(path, name) for name in PARTS.get(kind or "", ())}
    return {name: part for name, part in found.items() if part is not None}


def _sibling(path: Path, name: str) -> Path | None:
    """A file beside it, by its name; a prefix such as ``conc1.`` of an AIPerf export is kept."""
    prefix = path.name.removesuffix("profile_export_aiperf.json") if "profile_export" in path.name else ""
    beside = path.with_name(prefix + name)
    return beside if beside != path and beside.is_file() and not beside.is_symlink() else None


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"larger than {MAX_BYTES // 1024**3} GiB", where=str(path), remedy="split it")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None


def _store(
    store: Path, path: Path, said: Said, parts: Mapping[str, str], kept: Kept, *, is_part: bool = False
) -> str:
    content = _read(path)
    sha256 = hashlib.sha256(content).hexdigest()
    target = store / FOLDER / sha256
    note = Note(
        sha256=sha256,
        bytes=len(content),
        names=[path.name],
        group=said.group or path.resolve().parent.name or "files",
        forced=said.forced,
        source=said.source,
        licence=said.licence,
        given=dict(said.given),
        parts=dict(parts),
        is_part=is_part,
    )
    if target.exists() and (had := _note(target)) is not None:
        kept.known += 1
        note = _joined(had, note)
        if note == had:
            return sha256
    else:
        kept.files += 1
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        write_file(target, content)
    write_file(target.with_name(f"{sha256}.json"), canonical_json(note.model_dump(mode="json")) + b"\n")
    return sha256


def _joined(had: Note, new: Note) -> Note:
    """The same content again: another name is noted, what is said newly wins, what is not stays."""
    names = [*had.names, *(name for name in new.names if name not in had.names)]
    return had.model_copy(
        update={
            "names": names,
            "forced": new.forced or had.forced,
            "source": new.source or had.source,
            "licence": new.licence or had.licence,
            "given": {**had.given, **new.given},
            "parts": {**had.parts, **new.parts},
            "is_part": had.is_part and new.is_part,
        }
    )


def _note(target: Path) -> Note | None:
    try:
        return Note.model_validate_json(target.with_name(f"{target.name}.json").read_bytes())
    except (OSError, ValidationError):
        return None


def _targets(store: Path) -> list[Path]:
    folder = store / FOLDER
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_file() and _is_sha256(path.name))


def _is_sha256(name: str) -> bool:
    return len(name) == 64 and all(digit in "0123456789abcdef" for digit in name)


# --- landing ----------------------------------------------------------------------------------


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
        points, landing.refused = read_all(store, catalog)
        made = tables_of(points, landing.refused)
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


def _state(store: Path, catalog: Catalog) -> str:
    notes = [(target.name, _note_digest(target)) for target in _targets(store)]
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
    for target in _targets(store):
        note = _note(target)
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
        found.append(Imported(landed, origin))
    return found


def _format_of(row: ForeignPoint, kind: str) -> str:
    return kind if kind in FORMATS else row_format(row.raw) or kind


def verify_kept(store: Path) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """(problems as path and line, path and digest of what is there) of all kept files."""
    problems: list[tuple[str, str]] = []
    found: dict[str, str] = {}
    for target in _targets(store):
        name = f"{FOLDER}/{target.name}"
        found[name] = target.name
        with target.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != target.name:
                problems.append((name, "its content is not what was imported"))
        note = _note(target)
        if note is None:
            problems.append((name, "no readable note beside it"))
        for part, sha256 in (note.parts if note else {}).items():
            if not (target.parent / sha256).is_file():
                problems.append((name, f"its part {part} is gone"))
    return problems, found


__all__ = ["FOLDER", "Kept", "Landing", "Note", "Said", "keep", "land", "read_all", "read_one", "verify_kept"]
