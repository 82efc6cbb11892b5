"""Foreign files in the store: kept byte for byte, with a note beside each (DESIGN 5.5).

A file is ``imports/<sha256>``; its note, ``<sha256>.json``, has its names and what was said when it came.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from isoline.errors import InputError
from isoline.results.bundles.bundle import MANIFEST, write_file
from isoline.results.identity import canonical_json
from isoline.results.importers.foreign import ForeignError, writable
from isoline.results.importers.normalise import GIVEN
from isoline.results.importers.recognise import FORMATS, PARTS, parse, recognise

FOLDER = "imports"
SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv")
"""Files that are looked at in a folder; one that is named by itself is always taken."""

MAX_BYTES = 2 * 1024**3


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


def keep(store: Path, paths: Sequence[Path], said: Said) -> Kept:
    """Copy files into the store, byte for byte; a second time nothing changes.

    :param paths: files, or folders whose files are taken, subfolders too.
    :raises InputError: for a path that is not there or cannot be read.
    """
    said.check()
    kept = Kept()
    files = list(_files(paths, kept))
    parts_of = {path: _parts_of(path, said) for path in files}
    parts = {part for found in parts_of.values() for part in found.values()}
    for path in files:
        if path in parts:
            continue
        found = {
            name: _store(store, part, said, {}, kept, is_part=True) for name, part in parts_of[path].items()
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
                if path.name == MANIFEST:
                    raise InputError(
                        "these are bundles of ours, not files of others",
                        where=str(path.parent),
                        remedy="name the store that they are in with --store, and `isoline results ingest`",
                    )
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
        names=[writable(path.name)],
        group=writable(said.group or path.resolve().parent.name or "files"),
        forced=said.forced,
        source=said.source,
        licence=said.licence,
        given=dict(said.given),
        parts=dict(parts),
        is_part=is_part,
    )
    if target.exists() and (had := note_of(target)) is not None:
        kept.known += 1
        note = _joined(had, note)
        if note == had:
            return sha256
    else:
        kept.files += 1
    # The note first: a file without one has no name, but of a note without its file all can be said.
    write_file(target.with_name(f"{sha256}.json"), canonical_json(note.model_dump(mode="json")) + b"\n")
    if not target.exists():
        write_file(target, content)
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


def note_of(target: Path) -> Note | None:
    """The note beside a kept file; None where there is none that can be read."""
    try:
        return Note.model_validate_json(target.with_name(f"{target.name}.json").read_bytes())
    except (OSError, ValidationError):
        return None


def kept_files(store: Path) -> list[Path]:
    """Every kept file of a store, in the order of their digests; also one of which only the note is left."""
    folder = store / FOLDER
    if not folder.is_dir():
        return []
    names = {path.name.removesuffix(".json") for path in folder.iterdir() if path.is_file()}
    return [folder / name for name in sorted(names) if _is_sha256(name)]


def _is_sha256(name: str) -> bool:
    return len(name) == 64 and all(digit in "0123456789abcdef" for digit in name)


def verify_kept(store: Path) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """(problems as path and line, path and digest of what is there) of all kept files."""
    problems: list[tuple[str, str]] = []
    found: dict[str, str] = {}
    for target in kept_files(store):
        name = f"{FOLDER}/{target.name}"
        if not target.is_file():
            problems.append((name, "the file is gone, its note is there; import it again"))
            continue
        found[name] = target.name
        with target.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != target.name:
                problems.append((name, "its content is not what was imported"))
        note = note_of(target)
        if note is None:
            problems.append((name, "no readable note beside it"))
        for part, sha256 in (note.parts if note else {}).items():
            if not (target.parent / sha256).is_file():
                problems.append((name, f"its part {part} is gone"))
    return problems, found
