"""From the foreign files of a store to rows in the warehouse (DESIGN 5.6).

The tables are made from the kept files and their notes alone, so that a rebuilt warehouse is the same,
and an alias that was added later recovers what was refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa

from isoline.catalog.facts import Catalog
from isoline.results.foreign.flat import Flat, Imported, Origin, Refused, flatten, joined, run_id
from isoline.results.foreign.parts import Part, cut
from isoline.results.foreign.rows import tables_of
from isoline.results.foreign.store import FOLDER, Note, kept_files, note_of
from isoline.results.identity import digest
from isoline.results.importers.filenames import file_facts
from isoline.results.importers.foreign import ForeignError, ForeignFile, ForeignPoint, Found
from isoline.results.importers.normalise import normalise
from isoline.results.importers.recognise import FORMATS, ROWS, lines_of, read, read_lines, row_format
from isoline.results.warehouse.file import Connection, replace_runs
from isoline.results.warehouse.helpers import Helpers
from isoline.results.warehouse.schema import derivation

IMPORTER_VERSION = 3
"""Raised by hand whenever the same file gives other rows."""

_STATE = "imports"

WORTH_PARTS = 3
"""More are worth helpers: starting one costs about as much as reading a part."""


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
    """What tells that nothing about a kept file changed: its note, and whether it is there."""
    if not target.is_file():
        return "gone"
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
    """Rows of kept files as columns, and what is refused; by several processes where there are many."""
    parts = cut(targets, usual_source)
    first = list(islice(parts, WORTH_PARTS + 1))
    with Helpers(f"{__name__}:read_part", (store, catalog), worth=len(first) > WORTH_PARTS) as helpers:
        found = list(helpers.map(chain(first, parts)))
    return joined([flat for flat, _ in found]), [bad for _, refused in found for bad in refused]


def read_part(context: tuple[Path, Catalog], part: Part) -> tuple[Flat, list[Refused]]:
    """The same of one part. ``context``: the store, and the catalog whose names count."""
    store, catalog = context
    points: list[Imported] = []
    refused: list[Refused] = []
    for target, note in part.files:
        for found in read_one(store, target, note, catalog) if part.lines is None else _lines(part, catalog):
            if isinstance(found, Imported):
                points.append(found)
            else:
                refused.append(found)
    return flat_of(points, refused), refused


def _lines(part: Part, catalog: Catalog) -> Iterable[Imported | Refused]:
    """The rows of some lines of one file, which was hashed where it was cut."""
    ((target, note),) = part.files
    assert note is not None and part.lines is not None
    rows = read_lines(lines_of(part.lines), part.first, note.forced)
    return _normalised(target, note, note.forced or ROWS, rows, catalog, part.usual, alone=False)


def read_one(store: Path, target: Path, note: Note | None, catalog: Catalog) -> Iterable[Imported | Refused]:
    """The rows of one kept file. Nothing in it stops the others."""
    path = f"{FOLDER}/{target.name}"
    if note is None:
        return [Refused(path, run_id("unknown", "files"), target.name, "unreadable: no note beside it")]
    try:
        content = target.read_bytes()
        if hashlib.sha256(content).hexdigest() != target.name:
            raise ForeignError("unreadable", "the kept file was changed")
        parts = {part: (target.parent / sha256).read_bytes() for part, sha256 in note.parts.items()}
        kind, rows = read(ForeignFile(note.names[0], content, parts), note.forced)
    except FileNotFoundError:
        why = ForeignError("unreadable", "the kept file or a part of it is gone; import it again")
        return [_refused(target, note, why)]
    except OSError as error:
        why = ForeignError("unreadable", f"the kept file or a part of it: {error.strerror}")
        return [_refused(target, note, why)]
    except ForeignError as error:
        return [_refused(target, note, error)]
    except _NO_ROWS as error:
        return [_refused(target, note, _why(error))]
    usual = usual_source(kind, rows) or "unknown"
    return _normalised(target, note, kind, rows, catalog, usual, alone=len(rows) == 1)


def usual_source(kind: str, rows: Iterable[Found]) -> str | None:
    """Whose data a file is by its first point; rows that cannot be read are counted there too."""
    first = next((row for row in rows if isinstance(row, ForeignPoint)), None)
    return None if first is None else FORMATS[_format_of(first, kind)].source


def _refused(target: Path, note: Note, error: ForeignError, source: str | None = None) -> Refused:
    """A file or a row of it in quarantine."""
    path = f"{FOLDER}/{target.name}" if error.row is None else f"{FOLDER}/{target.name}#{error.row}"
    text = f"{error} ({note.names[0]}{'' if error.row is None else f', row {error.row}'})"
    of = run_id(note.source or source or "unknown", note.group)
    return Refused(path, of, target.name, text[:500])


def _normalised(
    target: Path, note: Note, kind: str, rows: Sequence[Found], catalog: Catalog, usual: str, *, alone: bool
) -> Iterator[Imported | Refused]:
    """Rows with the catalog's names, or in quarantine."""
    name = note.names[0]
    facts = file_facts(name, catalog)
    origins: dict[str, Origin] = {}
    for row in rows:
        if isinstance(row, ForeignError):
            yield _refused(target, note, row, usual)
            continue
        kind_of_row = _format_of(row, kind)
        if (origin := origins.get(kind_of_row)) is None:
            source = note.source or FORMATS[kind_of_row].source
            origin = Origin(target.name, name, kind_of_row, source, note.licence, note.group)
            origins[kind_of_row] = origin
        try:
            landed = normalise(row, facts, catalog, note.given, alone=alone)
        except ForeignError as error:
            yield _refused(target, note, error if alone else error.at(row.row), origin.source)
        except _NO_ROWS as error:
            yield _refused(target, note, _why(error).at(row.row), origin.source)
        else:
            yield Imported(landed, origin)


def _format_of(row: ForeignPoint, kind: str) -> str:
    return kind if kind in FORMATS else row_format(row.raw) or kind
