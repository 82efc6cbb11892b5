"""Sealed bundles from elsewhere into the store: hashed first, renamed in, never over another (DESIGN 5.5).

A bundle is fetched aside, every file is hashed against its manifest, then it is renamed to its place. What
is in the store already is not fetched. Whether it is right by its schema and its plan, the ingest says,
as of every bundle of the store.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from isoline.errors import IncompleteError, InfraError
from isoline.results.arrivals.names import NameRefusedError, Names, shown
from isoline.results.arrivals.places import Place, Sorted, sort_files
from isoline.results.arrivals.sources import Entry, Source
from isoline.results.bundles import bundle
from isoline.results.bundles.readers import Quarantined
from isoline.results.bundles.records import Manifest
from isoline.results.bundles.tombstone import thinned, tombstone_path
from isoline.results.identity import RUN_ID
from isoline.results.warehouse.lock import hold

ROOM = ".incoming"
"""The folder of a store where things wait that are not checked yet. Never ingested."""

MAX_MANIFEST_BYTES = 16 * 1024**2
MAX_BUNDLE_BYTES = 64 * 1024**3
MAX_BUNDLE_FILES = 100_000
OTHER = "the store has another bundle there; a sealed bundle is never changed"

AT_ONCE = 8
"""Bundles that are fetched at a time; each fetches several files."""


@dataclass
class Arrived:
    """What came from outside.

    :ivar bundles: new in the store.
    :ivar known: in it already, with the same content.
    :ivar unsealed: files of runs that are in no sealed bundle: left where they are.
    :ivar others: files outside every run that were left: of no kind that is read, or not read there.
    :ivar refused: bundles and archives that were not taken in; nothing of them stays.
    :ivar runs: folders of the runs that bundles came to.
    """

    bundles: int = 0
    known: int = 0
    unsealed: int = 0
    others: int = 0
    refused: list[Quarantined] = field(default_factory=list)
    runs: set[Path] = field(default_factory=set)

    def refuse(self, where: str, run_id: str, kind: str, reason: str) -> None:
        """Note one refusal."""
        self.refused.append(Quarantined(where, run_id, "", kind, shown(reason)))


@contextmanager
def room(store: Path, wait_s: float = 0.0) -> Iterator[Path]:
    """An empty folder in the store's own file system, for one process at a time; it is removed afterwards.

    :raises InfraError: while another process brings something in; says which.
    """
    place = store / ROOM
    lock = store / f"{ROOM}.lock"
    with hold(lock, what="the store", doing="brings files into the store", where=store, wait_s=wait_s):
        _clear(place)  # of a process that was killed; only the holder of the lock makes such
        place.mkdir(parents=True)
        try:
            yield place
        finally:
            _clear(place)


def _clear(place: Path) -> None:
    if place.is_symlink():
        place.unlink()
    shutil.rmtree(place, ignore_errors=True)


def admit(store: Path, source: Source, aside: Path, arrived: Arrived) -> tuple[Mapping[str, Entry], Sorted]:
    """Take the bundles of a source into a store. Returns its listing, and that sorted: what else is there.

    :param aside: a folder in the store's file system for what is not checked yet; see :func:`room`.
    """
    listed = source.files()
    found = sort_files(listed, source.above)
    arrived.unsealed += found.unsealed
    said = _said_runs(source, listed, found.bundles, aside)
    places = [
        each if each.run_id else replace(each, run_id=said.get(each.above, "")) for each in found.bundles
    ]

    def staged(place: Place) -> Path | str | None:
        return _stage(store, source, listed, place, aside)

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="admit") as pool:
        for place, result in zip(places, pool.map(staged, places), strict=True):
            if isinstance(result, Path):
                try:
                    _enter(store, place, result)
                except IncompleteError as error:
                    result = error.what
            if isinstance(result, str):
                where = f"{source.name}: {place.root or place.path}"
                arrived.refuse(where, place.run_id, place.kind, result)
            elif result is None:
                arrived.known += 1
            else:
                arrived.bundles += 1
                arrived.runs.add(bundle.run_folder(store, place.run_id))
    return listed, found


def _said_runs(
    source: Source, listed: Mapping[str, Entry], places: Sequence[Place], aside: Path
) -> dict[str, str]:
    """Run ids by the folder that a run lies in, for those whose name is not the id: its plan's manifest
    says it."""
    found = {}
    for place in places:
        if not place.run_id and place.target == "_run":
            try:
                said = _manifest(source, listed, place, aside)[0].id
            except IncompleteError:
                continue  # it is refused for that later
            found[place.above] = said if RUN_ID.fullmatch(said) else ""
    return found


def _join(root: str, name: str) -> str:
    return f"{root}/{name}" if root else name


def _manifest(
    source: Source, listed: Mapping[str, Entry], place: Place, aside: Path
) -> tuple[Manifest, Path]:
    """The manifest of a bundle, and the folder aside that it was fetched to."""
    name = _join(place.root, bundle.MANIFEST)
    if listed[name].bytes > MAX_MANIFEST_BYTES:
        raise IncompleteError(f"a manifest of {listed[name].bytes} bytes")
    folder = aside / secrets.token_hex(8) / place.target.rpartition("/")[2]
    folder.mkdir(parents=True)
    source.copy({name: folder / bundle.MANIFEST})
    return bundle.read_manifest(folder), folder


def _stage(
    store: Path, source: Source, listed: Mapping[str, Entry], place: Place, aside: Path
) -> Path | str | None:
    """A bundle that was fetched and hashed; the reason of a refusal; None where the store has it."""
    try:
        if not place.run_id:
            raise IncompleteError("the folder of its run is not there, which has the run's id for a name")
        if not _PLACE.fullmatch(place.target):
            raise IncompleteError("this is no place of a bundle in a run")
        final = bundle.run_folder(store, place.run_id) / place.target
        listed_manifest = listed[_join(place.root, bundle.MANIFEST)]
        if bundle.is_sealed(final) and listed_manifest.is_like(final / bundle.MANIFEST):
            return None
        manifest, folder = _manifest(source, listed, place, aside)
        if bundle.is_sealed(final):
            if bundle.bundle_digest(bundle.read_manifest(final)) == bundle.bundle_digest(manifest):
                return None
            raise IncompleteError(OTHER)
        if place.tombstone is not None and source.is_job:
            # What is gone cannot be derived again: a forged bundle would pass for an old one.
            raise IncompleteError("a tombstone in an archive: thinned bundles come from stores alone")
        if place.tombstone is not None:
            source.copy({place.tombstone: tombstone_path(folder)})
        _fetch(source, listed, place, manifest, folder)
        problems = bundle.verify(folder)
        if problems:
            raise IncompleteError(
                f"{problems[0]}{f' (and {len(problems) - 1} more)' if problems[1:] else ''}"
            )
        for path in (folder, *folder.rglob("*")):
            bundle.sync(path)
        return folder
    except (IncompleteError, NameRefusedError) as error:
        return error.what if isinstance(error, IncompleteError) else str(error)


_PLACE = re.compile(r"_run|_launch/[\w.-]+|_skipped/[0-9]{1,9}|(?![_.])[^/\x00-\x1f]+/[0-9]{1,9}")


def _fetch(
    source: Source, listed: Mapping[str, Entry], place: Place, manifest: Manifest, folder: Path
) -> None:
    """Fetch the files that the manifest names, once the listing says that they can be what it names."""
    gone, problems = thinned(folder, manifest)
    if problems:
        raise IncompleteError(problems[0])
    if (
        len(manifest.files) > MAX_BUNDLE_FILES
        or sum(file.bytes for file in manifest.files) > MAX_BUNDLE_BYTES
    ):
        raise IncompleteError("more files or bytes than a bundle has")
    names = Names()
    wanted: dict[str, Path] = {}
    for file in manifest.files:
        if names.add(file.path, is_folder=False) != file.path or file.path == bundle.MANIFEST:
            raise IncompleteError(f"{shown(file.path)}: no name of a file in a bundle")
        if file.path in gone:
            continue
        entry = listed.get(_join(place.root, file.path))
        if entry is None:
            raise IncompleteError(f"{file.path}: missing")
        if entry.bytes != file.bytes:
            raise IncompleteError(f"{file.path}: {entry.bytes} bytes, manifest says {file.bytes}")
        wanted[_join(place.root, file.path)] = folder / file.path
    more = set(place.files) - {file.path for file in manifest.files} - {bundle.MANIFEST}
    if more:
        raise IncompleteError(f"{shown(min(more))}: not in the manifest")
    for parent in {path.parent for path in wanted.values()}:
        parent.mkdir(parents=True, exist_ok=True)
    source.copy(wanted)


def _enter(store: Path, place: Place, staged: Path) -> None:
    """Rename a bundle to its place; its tombstone first, which says why files are gone.

    :raises IncompleteError: when something lies there.
    """
    final = bundle.run_folder(store, place.run_id) / place.target
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        if final.exists():
            raise IncompleteError("the store has a folder there that is not sealed", remedy="remove it first")
        if tombstone_path(staged).exists():
            tombstone_path(staged).replace(tombstone_path(final))
        staged.rename(final)
        bundle.sync(final.parent)
    except OSError as error:
        raise InfraError(f"cannot be put into the store: {error.strerror}", where=str(final)) from None
