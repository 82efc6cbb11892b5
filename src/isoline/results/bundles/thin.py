"""Thin the store: files past the days of their class go, a tombstone says what they were (DESIGN 5.5).

The tombstone is durable before the first file goes, so that whoever is killed leaves a store that
verifies, and the next call completes it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

from isoline.errors import IncompleteError, InputError
from isoline.results.bundles import bundle
from isoline.results.bundles.records import Manifest, ManifestFile
from isoline.results.bundles.tombstone import (
    EVIDENCE,
    NEEDED,
    ThinnedFile,
    Tombstone,
    moment,
    read_tombstone,
    thinned,
    tombstone_path,
)
from isoline.results.decisions.documents import Retention, load_retention, named_runs
from isoline.results.identity import RUN_ID, run_start
from isoline.results.warehouse.file import Connection, open_reader, write_lock
from isoline.results.warehouse.maintain import Problem
from isoline.results.warehouse.schema import BUNDLES
from isoline.settings import Settings


@dataclass(frozen=True)
class Gone:
    """Files of one class that go from one run."""

    run_id: str
    retention_class: str
    files: int
    bytes: int


@dataclass
class ThinReport:
    """What one call did, or would do.

    :param gone: what goes, by run and class.
    :param held: runs of which files would go, and why they stay.
    :param kept: bundles that are too old to be whole but stay, and why: damaged, or not ingested.
    """

    gone: list[Gone] = field(default_factory=list)
    held: list[tuple[str, str]] = field(default_factory=list)
    kept: list[Problem] = field(default_factory=list)

    @property
    def files(self) -> int:
        """How many files go."""
        return sum(item.files for item in self.gone)

    @property
    def bytes(self) -> int:
        """How many bytes go."""
        return sum(item.bytes for item in self.gone)


@dataclass(frozen=True)
class _Due:
    """One file whose days are over."""

    file: ManifestFile
    retention_class: str
    days: int


def days_of(path: str, kind: str, rules: Retention) -> tuple[str, int] | None:
    """(class, days) of a file in a bundle; None: it stays for ever. Pure.

    Where several classes name it, the one that keeps it longest counts.
    """
    if path in NEEDED[kind]:
        return None
    found: list[tuple[str, int]] = []
    for name, rule in rules.classes.items():
        if any(fnmatchcase(path, pattern) for pattern in rule.files):
            if rule.days is None:
                return None
            found.append((name, rule.days))
    return max(found, key=lambda item: item[1], default=None)


def due_files(manifest: Manifest, rules: Retention, now: datetime) -> list[_Due]:
    """The files of a bundle whose days are over at ``now``. Pure.

    What metrics are derived from goes together, first and only when all of it is due.

    :raises ValueError: when nobody can tell when it was sealed.
    """
    age = now - moment(manifest.sealed_at)
    evidence = [days_of(file.path, manifest.kind, rules) for file in manifest.files if file.path in EVIDENCE]
    due = []
    for file in manifest.files:
        rule = days_of(file.path, manifest.kind, rules)
        if rule is None:
            continue
        name, days = rule
        if file.path in EVIDENCE and manifest.kind == "point":
            if None in evidence:
                continue
            days = max(days, *(item[1] for item in evidence if item))
        if age >= timedelta(days=days):
            due.append(_Due(file, name, days))
    return sorted(due, key=lambda item: (item.file.path not in EVIDENCE, item.file.path))


def thin(
    settings: Settings,
    *,
    now: datetime | None = None,
    held: Collection[str] = (),
    dry_run: bool = False,
    wait_s: float = 0.0,
) -> ThinReport:
    """Remove what is past its days from the store's sealed bundles.

    Only from bundles that the warehouse has taken in: what is in quarantine may still be mended, and
    derived again, and stays whole. So does every run that a decision (override, baseline, accepted
    change) names, and every one that it shares points with.

    :param now: the moment at which ages are taken; None: now.
    :param held: further runs that stay whole, such as those of open alerts.
    :param dry_run: remove nothing.
    :param wait_s: how long to wait for a writer of the warehouse, seconds.
    :raises InputError: when there is no store, no warehouse or no rule, or a held run has no id's form.
    :raises InfraError: while another process writes the warehouse.
    """
    rules = load_retention(settings.project)
    if not settings.store.is_dir():
        raise InputError("no store there", where=str(settings.store), remedy="--store names it")
    for name in held:
        if not RUN_ID.fullmatch(name):
            raise InputError(f"no run id: {name!r}", where="--keep")
    moment_ = (now or datetime.now(UTC)).astimezone(UTC)
    # With the lock nobody ingests a bundle while its files go.
    with nullcontext() if dry_run else write_lock(settings.warehouse, wait_s):
        con = open_reader(settings.warehouse)
        try:
            known = _known(con)
            why = _with_shared(con, {**dict.fromkeys(held, "--keep"), **named_runs(settings.project)})
        finally:
            con.close()
        report = ThinReport()
        days = [rule.days for rule in rules.classes.values() if rule.days is not None]
        for run in bundle.run_folders(settings.store):
            if RUN_ID.fullmatch(run.name) and days and _is_young(run.name, min(days), moment_):
                continue
            _thin_run(settings.store, run, rules, moment_, known, why, report, dry_run=dry_run)
        return report


def _is_young(run_id: str, days: int, now: datetime) -> bool:
    """Nothing of a run was sealed before it began."""
    try:
        return now - run_start(run_id).replace(tzinfo=UTC) < timedelta(days=days)
    except ValueError:
        return False


def _known(con: Connection) -> dict[str, str]:
    """Path and digest of every bundle in the warehouse."""
    return dict(con.execute(f"SELECT bundle_path, bundle_digest FROM ({BUNDLES})").fetchall())


def _with_shared(con: Connection, why: Mapping[str, str]) -> dict[str, str]:
    """The held runs, and those whose points they took over."""
    found = dict(why)
    for run_id, measured_in in con.execute("SELECT DISTINCT run_id, measured_in FROM reused").fetchall():
        if run_id in why:
            found.setdefault(measured_in, f"{why[run_id]}, through {run_id}")
    return found


def _thin_run(
    store: Path,
    run: Path,
    rules: Retention,
    now: datetime,
    known: Mapping[str, str],
    held: Mapping[str, str],
    report: ThinReport,
    *,
    dry_run: bool,
) -> None:
    by_class: dict[str, list[int]] = {}
    for folder in bundle.sealed_bundles(run):
        name = folder.relative_to(store).as_posix()
        try:
            manifest = bundle.read_manifest(folder)
            gone, problems = thinned(folder, manifest)
            if problems:
                raise IncompleteError(problems[0])
            due = [item for item in due_files(manifest, rules, now) if item.file.path not in gone]
            if not due:
                continue
            if run.name in held:
                if (run.name, held[run.name]) not in report.held:
                    report.held.append((run.name, held[run.name]))
                return
            if known.get(name) != bundle.bundle_digest(manifest):
                raise IncompleteError("in quarantine, or never ingested: it stays whole")
            sound = _sound(folder, due, report, name)
            if sound and not dry_run:
                _remove(folder, manifest, sound, now)
            for item in sound:
                by_class.setdefault(item.retention_class, []).append(item.file.bytes)
        except (IncompleteError, ValueError, OSError) as error:
            report.kept.append(Problem(name, " ".join(str(error).split())))
    report.gone += [Gone(run.name, name, len(sizes), sum(sizes)) for name, sizes in sorted(by_class.items())]


def _sound(folder: Path, due: Sequence[_Due], report: ThinReport, name: str) -> list[_Due]:
    """The due files that are what was sealed: thinning hides no damage, and leaves no bundle's folder."""
    root = folder.resolve()
    sound: list[_Due] = []
    for item in due:
        path = folder / item.file.path
        if folder.is_symlink() or path.is_symlink() or path.resolve() != root / item.file.path:
            report.kept.append(Problem(name, f"{item.file.path}: not a plain file of the bundle"))
        elif not path.is_file():
            report.kept.append(Problem(name, f"{item.file.path}: missing"))
        elif bundle.file_sha256(path) != item.file.sha256:
            report.kept.append(Problem(name, f"{item.file.path}: not what was sealed"))
        else:
            sound.append(item)
    evidence = [item for item in due if item.file.path in EVIDENCE]
    if any(item not in sound for item in evidence):  # what is left of it would derive to less
        sound = [item for item in sound if item not in evidence]
    return sound


def _remove(folder: Path, manifest: Manifest, due: Sequence[_Due], now: datetime) -> None:
    """Tombstone first, durably; then the files."""
    stone = read_tombstone(folder)
    names = {item.file.path for item in due}
    files = [file for file in (stone.files if stone else []) if file.path not in names]
    files += [
        ThinnedFile(
            path=item.file.path,
            sha256=item.file.sha256,
            bytes=item.file.bytes,
            retention_class=item.retention_class,
            days=item.days,
            when=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        )
        for item in due
    ]
    record = Tombstone(
        bundle_digest=bundle.bundle_digest(manifest), files=sorted(files, key=lambda file: file.path)
    )
    bundle.write_record(tombstone_path(folder), record)
    bundle.sync(folder.parent)
    emptied: set[Path] = set()
    for item in due:
        path = folder / item.file.path
        path.unlink()
        emptied.update(parent for parent in path.parents if parent != folder and folder in parent.parents)
    for parent in sorted(emptied, key=lambda path: len(path.parts), reverse=True):
        if not any(parent.iterdir()):
            parent.rmdir()
    bundle.sync(folder)
