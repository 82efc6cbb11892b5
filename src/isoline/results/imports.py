"""From the foreign files of a store to rows in the warehouse (DESIGN 5.6).

The tables are made from the kept files and their notes alone, so that a rebuilt warehouse is the same,
and an alias that was added later recovers what was refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from isoline.catalog.facts import Catalog
from isoline.results.identity import digest
from isoline.results.import_flat import Flat, Imported, Origin, Refused, flatten, joined, run_id
from isoline.results.import_rows import tables_of
from isoline.results.import_store import FOLDER, Note, kept_files, note_of
from isoline.results.importers.filenames import file_facts
from isoline.results.importers.foreign import ForeignError, ForeignFile, ForeignPoint
from isoline.results.importers.normalise import normalise
from isoline.results.importers.recognise import FORMATS, read, row_format
from isoline.results.schema import derivation
from isoline.results.warehouse import Connection, replace_runs

IMPORTER_VERSION = 2
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


def has_imports(con: Connection, store: Path) -> bool:
    """Whether there is a foreign file in the store, or a row of one in the warehouse."""
    return bool(kept_files(store)) or bool(_places(con))


def land(con: Connection, store: Path, catalog: Catalog, *, again: bool = False) -> Landing:
    """Bring the imports of a store into the warehouse, with an open writer.

    Only the runs are made anew that a file came to, or whose note changed; all of them where the catalog
    or Isoline did.

    :param again: read all the same.
    """
    base = digest([catalog.digest, derivation(), IMPORTER_VERSION])
    now = {target.name: _note_digest(target) for target in kept_files(store)}
    had = _had(con, base)
    changed = now.keys() | had.keys() if again else {name for name, _ in now.items() ^ had.items()}
    landing = Landing()
    # Without the note of what was read last (another catalog, another Isoline) every run is made anew.
    runs = set() if had and not again else _import_runs(con)
    if changed or runs:
        _land(con, store, catalog, changed, runs, landing)
    if changed or runs or not had:
        # Only now: whoever is killed before starts over.
        value = json.dumps({"base": base, "files": now}, sort_keys=True)
        con.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [_STATE, value])
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


def _land(
    con: Connection, store: Path, catalog: Catalog, changed: set[str], runs: set[str], landing: Landing
) -> None:
    """Make the runs anew that the changed files have rows in; other files of these are read again too."""
    flat, refused = read_all(store, catalog, changed)
    runs |= set(flat.table.column("run_id").unique().to_pylist()) | {bad.run_id for bad in refused}
    runs |= {run for run, sha256 in _places(con) if sha256 in changed}
    others = {sha256 for run, sha256 in _places(con) if run in runs} - changed
    if others:
        more, more_refused = read_all(store, catalog, others)
        flat = joined([flat, more.of_runs(runs)])
        refused += [bad for bad in more_refused if bad.run_id in runs]
    made = tables_of(flat, refused)
    landing.repeated = made.repeated
    con.execute(
        "CREATE OR REPLACE TEMP TABLE had AS SELECT run_id, sha256, row_index, point_id FROM imports "
        "WHERE list_contains(?, run_id)",
        [sorted(runs)],
    )
    replace_runs(con, sorted(runs), made.tables)
    now = "SELECT run_id, sha256, row_index, point_id FROM imports WHERE list_contains($runs, run_id)"
    new, gone = f"{now} EXCEPT FROM had", f"FROM had EXCEPT {now}"
    row = con.execute(f"SELECT count(*) FROM ({new})", {"runs": sorted(runs)}).fetchone()
    landing.new = row[0] if row else 0
    changed_runs = f"SELECT run_id FROM ({new}) UNION SELECT run_id FROM ({gone}) ORDER BY 1"
    landing.changed = [run for (run,) in con.execute(changed_runs, {"runs": sorted(runs)}).fetchall()]
    con.execute("DROP TABLE had")


def _places(con: Connection) -> list[tuple[str, str]]:
    """(run, file) of every row of an import, refused ones too."""
    return con.execute(
        "SELECT run_id, sha256 FROM imports UNION SELECT run_id, digest FROM quarantine WHERE kind = 'import'"
    ).fetchall()


def _had(con: Connection, base: str) -> dict[str, str]:
    """The files that were read last, with the digests of their notes; none where anything else changed."""
    row = con.execute("SELECT value FROM meta WHERE name = ?", [_STATE]).fetchone()
    try:
        had = json.loads(row[0]) if row else {}
    except ValueError:
        return {}  # an older Isoline wrote something else there
    return had["files"] if isinstance(had, dict) and had.get("base") == base else {}


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


def flat_of(points: Sequence[Imported], refused: list[Refused]) -> Flat:
    """Points as columns, without those of which, even alone, no row can be made: these are refused."""
    try:
        return flatten(points)
    except _NO_ROWS:
        good = []
        for item in points:
            try:
                flatten([item])
                good.append(item)
            except _NO_ROWS as error:
                where = f"{item.origin.path}#{item.landed.point.row}"
                refused.append(Refused(where, item.run_id, item.origin.sha256, str(_why(error))))
        return flatten(good)


def _note_digest(target: Path) -> str:
    try:
        return hashlib.sha256(target.with_name(f"{target.name}.json").read_bytes()).hexdigest()
    except OSError:
        return ""


def _import_runs(con: Connection) -> set[str]:
    return {run for run, _ in _places(con)}


def read_all(
    store: Path, catalog: Catalog, names: Container[str] | None = None
) -> tuple[Flat, list[Refused]]:
    """Every row of kept files, landed or refused.

    :param names: digests of the files; None for all.
    """
    targets = []
    for target in kept_files(store):
        if names is not None and target.name not in names:
            continue
        note = note_of(target)
        if note is None or not note.is_part:
            targets.append((target, note))
    return read_files(store, targets, catalog)


def read_files(
    store: Path, targets: Sequence[tuple[Path, Note | None]], catalog: Catalog
) -> tuple[Flat, list[Refused]]:
    """The rows of some kept files, as columns, and what is refused."""
    points: list[Imported] = []
    refused: list[Refused] = []
    for target, note in targets:
        for found in read_one(store, target, note, catalog):
            if isinstance(found, Imported):
                points.append(found)
            else:
                refused.append(found)
    return flat_of(points, refused), refused


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
