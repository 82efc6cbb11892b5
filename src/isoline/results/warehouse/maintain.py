"""Make the warehouse anew from the store, and check the store (DESIGN 3, 5.5)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from isoline.errors import InputError, IsolineError
from isoline.results.bundles import bundle
from isoline.results.bundles.readers import read_run
from isoline.results.bundles.tombstone import SUFFIX
from isoline.results.foreign.store import verify_kept
from isoline.results.warehouse.file import (
    open_reader,
    publish,
    read_copy_path,
    scratch,
    write_lock,
    written_anew,
)
from isoline.results.warehouse.ingest import IngestReport, checked_overrides, fill_all
from isoline.results.warehouse.schema import BUNDLES
from isoline.settings import Settings


def rebuild(settings: Settings, target: Path | None = None, *, dry_run: bool = False) -> IngestReport:
    """Make a warehouse from nothing but store, decisions and catalog; its content is the same.

    It is built aside and renamed in, so that the old one serves until the new one is whole.

    :param target: where; None: in place of the warehouse of the settings.
    :param dry_run: make one that is thrown away.
    :raises InputError: when ``target`` is another file that has content, or there is no store: a
        misspelt one would leave an empty warehouse.
    :raises InfraError: while another process writes there.
    """
    path = target.resolve() if target is not None else settings.warehouse
    if path != settings.warehouse and path.exists() and path.stat().st_size:
        raise InputError("this file is not empty", where=str(path), remedy="remove it or name another one")
    if not settings.store.is_dir():
        raise InputError(
            "no store there; nothing was changed",
            where=str(settings.store),
            remedy="--store or ISOLINE_STORE names where sealed bundles are",
        )
    overrides = checked_overrides(settings)
    if dry_run:
        with scratch(None) as con:
            return fill_all(con, settings, None, overrides)
    with write_lock(path):
        with written_anew(path) as con:
            report = fill_all(con, settings, None, overrides)
        publish(path)
    return report


@dataclass(frozen=True)
class Problem:
    """One thing that is not as it was sealed. ``path`` is relative to the store."""

    path: str
    problem: str


def verify(settings: Settings) -> list[Problem]:
    """Hash every sealed file of the store again, derive its metrics, and check every identity.

    Also found: attempts and launches that lost their manifest, and bundles that the warehouse has
    but the store has no more, or has with other content.
    """
    store = settings.store
    problems: list[Problem] = []
    found: dict[str, str] = {}
    for run in bundle.run_folders(store):
        hashed: dict[str, str] = {}
        for folder in bundle.sealed_bundles(run):
            name = folder.relative_to(store).as_posix()
            try:
                digest = bundle.bundle_digest(bundle.read_manifest(folder))
                found[name] = digest
                lines = bundle.verify(folder)
            except (IsolineError, OSError) as error:
                lines = [str(error)]
            if lines:
                problems += [Problem(name, line) for line in lines]
            else:
                hashed[name] = digest
        files = read_run(store, run, hashed, derive_all=True)
        problems += [Problem(bad.path, bad.reason) for bad in files.bad if bad.path in hashed]
        problems += [
            Problem(path, "an attempt before it is gone; all are kept") for path in _gaps(store, run)
        ]
        problems += [
            Problem(folder.relative_to(store).as_posix(), f"no {bundle.MANIFEST}: not sealed, or damaged")
            for folder in _unsealed(run)
        ]
        problems += [
            Problem(path.relative_to(store).as_posix(), "a tombstone without its bundle")
            for path in sorted(run.rglob(f"*{SUFFIX}"))
            if bundle.WORK not in path.parts and not path.with_name(path.name.removesuffix(SUFFIX)).is_dir()
        ]
    bad, kept = verify_kept(store)
    problems += [Problem(path, line) for path, line in bad]
    return problems + _against_warehouse(settings, found | kept)


def _gaps(store: Path, run: Path) -> list[str]:
    """Attempts whose number does not follow on the one before: somebody took one away."""
    numbers: dict[Path, set[int]] = {}
    for path in run.glob("*/[0-9]*"):
        if path.name.isdecimal() and path.parent.name not in (bundle.WORK, "_launch", "_run"):
            numbers.setdefault(path.parent, set()).add(int(path.name))
    return sorted(
        (point / str(number)).relative_to(store).as_posix()
        for point, found in numbers.items()
        for number in found
        if number > 1 and number - 1 not in found
    )


def _unsealed(run: Path) -> list[Path]:
    """Folders where only sealed bundles belong, without a manifest."""
    places = [run / "_run", *run.glob("_launch/*"), *run.glob("*/[0-9]*")]
    return sorted(
        path
        for path in set(places)
        if path.is_dir() and bundle.WORK not in path.parts and not bundle.is_sealed(path)
    )


def _against_warehouse(settings: Settings, found: dict[str, str]) -> list[Problem]:
    if not read_copy_path(settings.warehouse).exists():
        return []
    con = open_reader(settings.warehouse)
    try:
        rows = con.execute(
            f"SELECT DISTINCT bundle_path, bundle_digest FROM ({BUNDLES}) ORDER BY 1"
        ).fetchall()
    finally:
        con.close()
    problems = []
    for path, digest in rows:
        if path not in found:
            problems.append(Problem(path, "in the warehouse, but not in the store"))
        elif found[path] != digest:
            problems.append(
                Problem(path, "its content is not what was ingested: a sealed bundle was changed")
            )
    return problems
