"""Everything that a person may name for an ingest: folders, files, archives, ``s3://``; into the store.

Archives are unpacked aside and looked at like folders. Afterwards nothing is left but sealed bundles at
their places and files of others under ``imports/``.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from isoline.errors import IncompleteError, InputError
from isoline.results.arrivals.admit import OTHER, Arrived, admit, room
from isoline.results.arrivals.archive import DEFAULT, Limits, suffix_of, unpack
from isoline.results.arrivals.places import Sorted
from isoline.results.arrivals.sources import Entry, FolderSource, S3Source, Source
from isoline.results.bundles import bundle
from isoline.results.bundles.bundle import MANIFEST, write_file
from isoline.results.bundles.readers import manifest_digest
from isoline.results.foreign.store import (
    FOLDER,
    MAX_BYTES,
    SUFFIXES,
    Kept,
    Note,
    Said,
    keep,
    kept_files,
    note_of,
)
from isoline.results.publishing.remote import is_remote
from isoline.settings import Settings


def is_url(given: str) -> bool:
    """Whether it is a URL. :raises InputError: for one of another kind than S3."""
    if not is_remote(given):
        return False
    if not given.startswith("s3://"):
        raise InputError("only folders, files and s3:// are read", where=given)
    return True


def is_ours(given: str, store: Path) -> bool:
    """Whether it names something inside the store."""
    return not is_url(given) and Path(given).resolve().is_relative_to(store)


def bring(
    store: Path, given: Sequence[str], said: Said, *, wait_s: float = 0.0, limits: Limits = DEFAULT
) -> tuple[Arrived, Kept]:
    """Take all of it in. A bad archive or bundle is refused, the rest comes in.

    :param said: what a person says about files of others.
    :param wait_s: how long to wait for another process that brings something in, seconds.
    :raises InputError: for a path that is not there.
    :raises InfraError: when S3 does not answer, or the disk is full; what is in already stays in.
    """
    said.check()
    for each in given:
        if not is_url(each) and not Path(each).exists():
            raise InputError("no such file or folder", where=each)
    arrived, foreign = Arrived(), []
    kept = Kept()
    with room(store, wait_s) as aside:
        for left in (store / FOLDER).glob(".*.part"):
            left.unlink()  # of a process that was killed; only the holder of the room writes there
        for each in given:
            if is_url(each) and suffix_of(each) is None:
                foreign += _from_source(store, S3Source(each), aside, arrived, kept)
            elif suffix_of(each) is not None and (is_url(each) or Path(each).is_file()):
                foreign += _from_archive(store, each, aside, arrived, kept, limits)
            elif Path(each).is_dir() and next(Path(each).rglob(MANIFEST), None) is not None:
                foreign += _from_source(store, FolderSource(Path(each), each), aside, arrived, kept)
            else:
                foreign.append(Path(each))
        files = keep(store, foreign, said)
    kept.files += files.files
    kept.known += files.known
    kept.skipped += files.skipped
    return arrived, kept


@contextmanager
def bring_aside(
    settings: Settings, given: Sequence[str], said: Said
) -> Iterator[tuple[Settings, Arrived, Kept]]:
    """The same into a store and a warehouse that are thrown away: what would happen.

    The runs that would get more bundles are in that store as they are in the real one.
    """
    with tempfile.TemporaryDirectory(prefix="isoline-") as folder:
        store = Path(folder) / "store"
        arrived, kept = bring(store, given, said)
        aside = replace(settings, store=store, warehouse=Path(folder) / "none.duckdb")
        for run in list(arrived.runs):
            had = settings.store / run.relative_to(store)
            for mine in bundle.sealed_bundles(had) if had.is_dir() else ():
                theirs = run / mine.relative_to(had)
                if not theirs.exists():
                    shutil.copytree(mine, theirs, symlinks=True)
                    continue
                arrived.bundles -= 1
                if manifest_digest(mine) == manifest_digest(theirs):
                    arrived.known += 1
                else:
                    arrived.refuse(theirs.relative_to(store).as_posix(), run.name, "bundle", OTHER)
        yield aside, arrived, kept


def _from_archive(
    store: Path, given: str, aside: Path, arrived: Arrived, kept: Kept, limits: Limits
) -> list[Path]:
    """Unpack an archive aside and take in what it holds; one that is refused leaves nothing."""
    archive = Path(given)
    if is_url(given):
        source = S3Source(given)
        ((name, entry),) = list(source.files().items())[:1]
        if entry.bytes > limits.packed_bytes:
            arrived.refuse(given, "", "archive", f"{entry.bytes} bytes")
            return []
        archive = aside / secrets.token_hex(8) / name
        archive.parent.mkdir()
        source.copy({name: archive})
    suffix = suffix_of(archive.name) or ""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", archive.name[: -len(suffix)]).strip(".-")
    into = aside / secrets.token_hex(8) / (stem or "archive")  # files at its top are of a run of its name
    into.mkdir(parents=True)
    try:
        unpack(archive, into, limits)
    except IncompleteError as error:
        arrived.refuse(given, "", "archive", error.what)
        return []
    return _from_source(store, FolderSource(into, given, link=True), aside, arrived, kept)


def _from_source(store: Path, source: Source, aside: Path, arrived: Arrived, kept: Kept) -> list[Path]:
    """Take in the bundles of a source, and fetch its files of others. Returns where these lie now."""
    listed, found = admit(store, source, aside, arrived)
    _take_kept(store, source, found, aside, arrived, kept)
    wanted = [path for path in found.others if PurePosixPath(path).suffix.lower() in SUFFIXES]
    kept.skipped += len(found.others) - len(wanted)
    if isinstance(source, FolderSource):
        return [source.folder / path for path in wanted]
    return _fetch_others(store, source, {path: listed[path] for path in wanted}, aside, kept)


def _fetch_others(
    store: Path, source: Source, wanted: Mapping[str, Entry], aside: Path, kept: Kept
) -> list[Path]:
    """Fetch files of others, without those that are kept already under the same name."""
    had: dict[tuple[str, int], list[Path]] = {}
    for target in kept_files(store):
        note = note_of(target)
        for name in note.names if note else ():
            had.setdefault((name, note.bytes if note else 0), []).append(target)
    found: dict[str, Path] = {}
    for path, entry in wanted.items():
        name = PurePosixPath(path).name
        if any(entry.is_like(target) for target in had.get((name, entry.bytes), ())):
            kept.known += 1
            continue
        if entry.bytes > MAX_BYTES:
            kept.skipped += 1
            continue
        group = [*source.above, *PurePosixPath(path).parts][-2]
        found[path] = aside / secrets.token_hex(8) / group / name
        found[path].parent.mkdir(parents=True)
    if found:
        source.copy(found)
    return list(found.values())


def _take_kept(store: Path, source: Source, found: Sorted, aside: Path, arrived: Arrived, kept: Kept) -> None:
    """Files of others that another store keeps, with their notes; those of the same content are known."""
    there = set(found.kept)
    pairs = [path for path in found.kept if not path.endswith(".json") and f"{path}.json" in there]
    for path in pairs:
        sha256 = path.rpartition("/")[2]
        target = store / FOLDER / sha256
        if target.is_file() and note_of(target) is not None:
            kept.known += 1
            continue
        here = aside / secrets.token_hex(8) / sha256
        here.parent.mkdir()
        source.copy({path: here, f"{path}.json": here.with_name(f"{sha256}.json")})
        content, note = here.read_bytes(), here.with_name(f"{sha256}.json").read_bytes()
        try:
            if (
                hashlib.sha256(content).hexdigest() != sha256
                or Note.model_validate_json(note).sha256 != sha256
            ):
                raise IncompleteError("its content or its note is not what its name says")
        except (ValidationError, IncompleteError) as error:
            arrived.refuse(f"{source.name}: {path}", "", "file", str(error).splitlines()[0])
            continue
        write_file(target.with_name(f"{sha256}.json"), note)
        write_file(target, content)
        kept.files += 1
