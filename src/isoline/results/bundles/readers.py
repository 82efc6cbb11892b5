"""Sealed bundles as checked values: hashes, schemas, then every identity against every other one.

A bundle that fails any of it becomes a :class:`Quarantined` line; the others are read all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from isoline.errors import IncompleteError, IsolineError
from isoline.results.bundles import bundle, checks
from isoline.results.bundles.folder import Folder
from isoline.results.bundles.records import (
    LaunchRecord,
    LockRecord,
    Plan,
    PlanLaunch,
    PlanPoint,
    PointRecord,
    SkippedRecord,
)
from isoline.results.bundles.requests import REQUESTS_SCHEMA
from isoline.results.bundles.tombstone import EVIDENCE
from isoline.results.identity import RUN_ID
from isoline.results.judging.skips import check_skipped
from isoline.results.metrics.rederive import compare
from isoline.results.warehouse.reused import TakenOver, take_over

B = TypeVar("B")

# What a file that somebody else wrote can make our readers raise. Anything else is a bug of ours.
_BAD = (
    IsolineError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    OSError,
    RecursionError,
    pa.ArrowException,
)


@dataclass(frozen=True)
class Quarantined:
    """One bundle that was refused, and why."""

    path: str  # relative to the store
    run_id: str
    digest: str
    kind: str  # run | launch | point
    reason: str


@dataclass(frozen=True)
class RunBundle:
    """``_run``: the expected set."""

    path: str
    digest: str
    plan: Plan


@dataclass(frozen=True)
class LaunchBundle:
    """``_launch/<id>``. ``telemetry`` has the columns t (timestamp), name, device, value; None without."""

    path: str
    digest: str
    record: LaunchRecord
    telemetry: pa.Table | None


@dataclass(frozen=True)
class PointBundle:
    """``<point_id>/<attempt>``."""

    path: str
    digest: str
    record: PointRecord
    lock: LockRecord


@dataclass(frozen=True)
class SkippedBundle:
    """``_skipped/<n>``: what the run had left out when it ended."""

    path: str
    digest: str
    record: SkippedRecord


@dataclass
class RunFiles:
    """All that one run has in the store. ``plan`` is None when its ``_run`` cannot be used."""

    run_id: str
    plan: RunBundle | None = None
    launches: list[LaunchBundle] = field(default_factory=list)
    points: list[PointBundle] = field(default_factory=list)
    skipped: list[SkippedBundle] = field(default_factory=list)
    bad: list[Quarantined] = field(default_factory=list)
    taken: list[TakenOver] = field(default_factory=list)


def manifest_digest(path: Path) -> str:
    """The digest of a sealed folder; of the manifest's own bytes where it is of no use; "" without those."""
    try:
        return bundle.bundle_digest(bundle.read_manifest(path))
    except IncompleteError:
        try:
            return bundle.file_sha256(path / bundle.MANIFEST)
        except OSError:
            return ""


def run_name(store: Path, run: Path) -> str:
    """A run's id; the path of its folder where that is not the folder that the id names.

    So a copy of a run under another day never takes the place of the run itself.
    """
    if RUN_ID.fullmatch(run.name) and bundle.run_folder(store, run.name) == run:
        return run.name
    return run.relative_to(store).as_posix()


def run_bundles(store: Path, run: Path) -> dict[str, str]:
    """Every sealed bundle of a run: path relative to the store, and digest. Reads manifests only."""
    return {path.relative_to(store).as_posix(): manifest_digest(path) for path in bundle.sealed_bundles(run)}


def _line(error: BaseException) -> str:
    text = error.line() if isinstance(error, IsolineError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:500]


def _refuse(problems: list[str]) -> None:
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise IncompleteError(f"{problems[0]}{more}")


def read_run(store: Path, run: Path, known: Mapping[str, str], *, derive_all: bool = False) -> RunFiles:
    """Read and check every sealed bundle of a run.

    :param known: path and digest of the bundles whose every file was hashed, and whose metrics were
        derived again, by an earlier ingest. Of these only the files that are read now are hashed.
    :param derive_all: derive the metrics of the known ones again too.
    """
    files = RunFiles(run_name(store, run))

    def guard(path: Path, kind: str, read: Callable[[Folder], B]) -> B | None:
        name = path.relative_to(store).as_posix()
        try:
            folder = Folder(path)
            if folder.manifest.kind != kind:
                raise IncompleteError(f"the manifest is of kind {folder.manifest.kind!r}")
            if folder.manifest.id != (wanted := _manifest_id(path, kind)):
                raise IncompleteError(f"the manifest is of {folder.manifest.id!r}, expected {wanted!r}")
            if known.get(name) != folder.digest:
                _refuse(bundle.verify(path))
            return read(folder)
        except _BAD as error:
            files.bad.append(Quarantined(name, files.run_id, manifest_digest(path), kind, _line(error)))
            return None

    sealed = list(bundle.sealed_bundles(run))
    place = "" if files.run_id == run.name else "the run's folder is not the one that its id names"

    def read_other(path: Path, launch: PlanLaunch, point: PlanPoint) -> PointBundle | None:
        """An attempt of another run; None where that run's own reading refuses it, and tells why."""
        name, of_run = path.relative_to(store).as_posix(), path.parent.parent.name
        try:
            _refuse(bundle.verify(path))
            return _point(name, Folder(path), of_run, {point.point_id: (launch, point)}, {}, True)
        except _BAD:
            return None

    def read_plan(folder: Folder) -> RunBundle:
        _refuse([place] if place else [])
        plan = folder.record("plan.json", Plan)
        _refuse(checks.check_plan(plan))
        files.taken = take_over(store, run.name, plan, read_other)
        return RunBundle(folder.path.relative_to(store).as_posix(), folder.digest, plan)

    if sealed and sealed[0].name == "_run":
        files.plan = guard(sealed.pop(0), "run", read_plan)
    plan = files.plan.plan if files.plan else None
    if plan is None:
        reason = place or "its run has no usable plan (_run)"
        for path in sealed:
            name = path.relative_to(store).as_posix()
            kind = {"_launch": "launch", bundle.SKIPPED: "skipped"}.get(path.parent.name, "point")
            files.bad.append(Quarantined(name, files.run_id, manifest_digest(path), kind, reason))
        return files

    planned = {point.point_id: (launch, point) for launch in plan.launches for point in launch.points}
    tables: dict[str, str] = {}

    def read_point(folder: Folder) -> PointBundle:
        name = folder.path.relative_to(store).as_posix()
        return _point(name, folder, run.name, planned, tables, derive_all or known.get(name) != folder.digest)

    for path in sealed:
        if path.parent.name == "_launch":
            found = guard(path, "launch", lambda folder: _launch(store, folder, run.name, plan))
            files.launches += [found] if found else []
        elif path.parent.name == bundle.SKIPPED:
            left = guard(path, "skipped", lambda folder: _skipped(store, folder, run.name, set(planned)))
            files.skipped += [left] if left else []
        else:
            point = guard(path, "point", read_point)
            files.points += [point] if point else []
    return files


def _column(table: pa.Table, name: str) -> pa.ChunkedArray | pa.Array:
    """A text column; null where the file is of a form that did not have it."""
    if name in table.column_names:
        return table.column(name).cast(pa.string())
    return pa.nulls(table.num_rows, pa.string())


def _launch(store: Path, folder: Folder, run_id: str, plan: Plan) -> LaunchBundle:
    record = folder.record("launch.json", LaunchRecord)
    _refuse(checks.check_launch(record, run_id=run_id, folder=folder.path.name, plan=plan))
    telemetry = None
    if "telemetry.parquet" in folder:
        raw = folder.parquet("telemetry.parquet").read(use_threads=False)
        micros = pc.divide(raw.column("t_ns").cast(pa.int64()), 1000)
        telemetry = pa.table(
            {
                "t": micros.cast(pa.timestamp("us")),
                "name": raw.column("name").cast(pa.string()),
                "device": _column(raw, "device"),
                "value": raw.column("value").cast(pa.float64()),
            }
        )
    return LaunchBundle(folder.path.relative_to(store).as_posix(), folder.digest, record, telemetry)


def _skipped(store: Path, folder: Folder, run_id: str, planned: set[str]) -> SkippedBundle:
    record = folder.record("skipped.json", SkippedRecord)
    problems = check_skipped(record, run_id=run_id, folder=folder.path.name, planned=planned)
    _refuse(problems)
    return SkippedBundle(folder.path.relative_to(store).as_posix(), folder.digest, record)


def _manifest_id(path: Path, kind: str) -> str:
    """The id that a bundle at this place must have."""
    if kind in ("point", "skipped"):
        return f"{path.parent.name}/{path.name}"
    return path.parent.name if kind == "run" else path.name


def _point(
    name: str,
    folder: Folder,
    run_id: str,
    planned: Mapping[str, tuple[PlanLaunch, PlanPoint]],
    tables: dict[str, str],
    derive_again: bool,
) -> PointBundle:
    """:param tables: digest of each request table that was read so far, and the bundle that has it."""
    point_id = folder.path.parent.name
    if point_id not in planned:
        raise IncompleteError("this point is not in the plan of its run")
    launch, point = planned[point_id]
    record = folder.record("point.json", PointRecord)
    _refuse(
        checks.check_point(
            record, run_id=run_id, folder=point_id, attempt=folder.path.name, launch=launch, point=point
        )
    )
    lock = folder.record("lock.json", LockRecord)
    _refuse(checks.check_lock(lock, record, launch=launch, point=point))
    derives = derive_again and not folder.thinned.intersection(EVIDENCE)
    _check_requests(folder, record, is_read=derives)
    if "requests.parquet" in folder:
        if derives:
            _refuse(compare(folder, record, lock))
        if record.counts.completed:  # only where there are requests is a table like no other
            twin = tables.setdefault(folder.sha256("requests.parquet"), name)
            _refuse([f"it has the very requests of {twin}"] if twin != name else [])
    return PointBundle(name, folder.digest, record, lock)


def _check_requests(folder: Folder, record: PointRecord, *, is_read: bool) -> None:
    """What counts must be derivable again: the request table is there and has our columns.

    :param is_read: whether all of the table is read afterwards; else only its schema is.
    """
    if "requests.parquet" not in folder:
        if record.verdict.value in ("valid", "partial"):
            raise IncompleteError(f"{record.verdict.value} without requests.parquet")
        return
    if "requests.parquet" in folder.thinned:
        return
    name = "requests.parquet"
    schema = folder.parquet(name).schema_arrow if is_read else pq.read_schema(folder.path / name)
    wanted: dict[str, Any] = {field.name: field.type for field in REQUESTS_SCHEMA}
    found: dict[str, Any] = {field.name: field.type for field in schema}
    differ = sorted(
        name for name in wanted.keys() | found.keys() if not _same(wanted.get(name), found.get(name))
    )
    if differ:
        raise IncompleteError(f"requests.parquet: other columns than schema 1: {', '.join(differ)}")


def _same(wanted: Any, found: Any) -> bool:
    if wanted is None or found is None:
        return False
    if pa.types.is_list(wanted) and pa.types.is_list(found):  # names of list items do not matter
        return bool(wanted.value_type == found.value_type)
    return bool(wanted == found)
