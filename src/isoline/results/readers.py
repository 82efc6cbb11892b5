"""Sealed bundles as checked values: hashes, schemas, then every identity against every other one.

A bundle that fails any of it becomes a :class:`Quarantined` line; the others are read all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError

from isoline.errors import IncompleteError, IsolineError
from isoline.results import bundle, checks
from isoline.results.identity import RUN_ID
from isoline.results.records import (
    LaunchRecord,
    LockRecord,
    Manifest,
    Plan,
    PlanLaunch,
    PlanPoint,
    PointRecord,
    Record,
)
from isoline.results.requests import REQUESTS_SCHEMA

R = TypeVar("R", bound=Record)
B = TypeVar("B")

# What a file that somebody else wrote can make our readers raise. Anything else is a bug of ours.
_BAD = (IsolineError, ValueError, TypeError, KeyError, OSError, RecursionError, pa.ArrowException)


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
    """``_launch/<id>``. ``telemetry`` has the columns t (timestamp), name, value; None without it."""

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


@dataclass
class RunFiles:
    """All that one run has in the store. ``plan`` is None when its ``_run`` cannot be used."""

    run_id: str
    plan: RunBundle | None = None
    launches: list[LaunchBundle] = field(default_factory=list)
    points: list[PointBundle] = field(default_factory=list)
    bad: list[Quarantined] = field(default_factory=list)


class Folder:
    """A sealed folder whose files are hashed as they are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest: Manifest = bundle.read_manifest(path)
        self.digest = bundle.bundle_digest(self.manifest)
        self._files = {file.path: file for file in self.manifest.files}

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def read(self, name: str) -> bytes:
        """The bytes of a file.

        :raises IncompleteError: when it is not in the manifest, or is not what the manifest says.
        """
        if name not in self._files:
            raise IncompleteError(f"no {name} in the bundle")
        data = (self.path / name).read_bytes()
        found = hashlib.sha256(data).hexdigest()
        if found != self._files[name].sha256:
            raise IncompleteError(f"{name}: sha256 {found}, manifest says {self._files[name].sha256}")
        return data

    def record(self, name: str, kind: type[R]) -> R:
        """A JSON file as a record."""
        try:
            return kind.model_validate_json(self.read(name))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise IncompleteError(f"{name}: {where or 'file'}: {first['msg']}") from None


def manifest_digest(path: Path) -> str:
    """The digest of a sealed folder; of the manifest's own bytes when it cannot be read."""
    try:
        return bundle.bundle_digest(bundle.read_manifest(path))
    except IncompleteError:
        return bundle.file_sha256(path / bundle.MANIFEST)


def run_name(store: Path, run: Path) -> str:
    """A run's id; the path of its folder where that is not the folder that the id names.

    So a copy of a run under another day never takes the place of the run itself.
    """
    if RUN_ID.match(run.name) and bundle.run_folder(store, run.name) == run:
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


def read_run(store: Path, run: Path, known: Mapping[str, str]) -> RunFiles:
    """Read and check every sealed bundle of a run.

    :param known: path and digest of the bundles whose every file was hashed by an earlier ingest.
        Of these only the files that are read now are hashed again.
    """
    files = RunFiles(run_name(store, run))

    def guard(path: Path, kind: str, read: Callable[[Folder], B]) -> B | None:
        name = path.relative_to(store).as_posix()
        try:
            folder = Folder(path)
            if folder.manifest.kind != kind:
                raise IncompleteError(f"the manifest is of kind {folder.manifest.kind!r}")
            if known.get(name) != folder.digest:
                _refuse(bundle.verify(path))
            return read(folder)
        except _BAD as error:
            files.bad.append(Quarantined(name, files.run_id, manifest_digest(path), kind, _line(error)))
            return None

    sealed = list(bundle.sealed_bundles(run))
    place = "" if files.run_id == run.name else "the run's folder is not the one that its id names"

    def read_plan(folder: Folder) -> RunBundle:
        _refuse([place] if place else [])
        plan = folder.record("plan.json", Plan)
        _refuse(checks.check_plan(plan))
        return RunBundle(folder.path.relative_to(store).as_posix(), folder.digest, plan)

    if sealed and sealed[0].name == "_run":
        files.plan = guard(sealed.pop(0), "run", read_plan)
    plan = files.plan.plan if files.plan else None
    if plan is None:
        reason = place or "its run has no usable plan (_run)"
        for path in sealed:
            name = path.relative_to(store).as_posix()
            kind = "launch" if path.parent.name == "_launch" else "point"
            files.bad.append(Quarantined(name, files.run_id, manifest_digest(path), kind, reason))
        return files

    planned = {point.point_id: (launch, point) for launch in plan.launches for point in launch.points}
    for path in sealed:
        if path.parent.name == "_launch":
            found = guard(path, "launch", lambda folder: _launch(store, folder, run.name, plan))
            files.launches += [found] if found else []
        else:
            point = guard(path, "point", lambda folder: _point(store, folder, run.name, planned))
            files.points += [point] if point else []
    return files


def _launch(store: Path, folder: Folder, run_id: str, plan: Plan) -> LaunchBundle:
    record = folder.record("launch.json", LaunchRecord)
    _refuse(checks.check_launch(record, run_id=run_id, folder=folder.path.name, plan=plan))
    telemetry = None
    if "telemetry.parquet" in folder:
        raw = pq.read_table(pa.BufferReader(folder.read("telemetry.parquet")))
        micros = pc.divide(raw.column("t_ns").cast(pa.int64()), 1000)
        telemetry = pa.table(
            {
                "t": micros.cast(pa.timestamp("us")),
                "name": raw.column("name").cast(pa.string()),
                "value": raw.column("value").cast(pa.float64()),
            }
        )
    return LaunchBundle(folder.path.relative_to(store).as_posix(), folder.digest, record, telemetry)


def _point(
    store: Path, folder: Folder, run_id: str, planned: Mapping[str, tuple[PlanLaunch, PlanPoint]]
) -> PointBundle:
    name = folder.path.parent.name
    if name not in planned:
        raise IncompleteError("this point is not in the plan of its run")
    launch, point = planned[name]
    record = folder.record("point.json", PointRecord)
    _refuse(
        checks.check_point(
            record, run_id=run_id, folder=name, attempt=folder.path.name, launch=launch, point=point
        )
    )
    lock = folder.record("lock.json", LockRecord)
    _refuse(checks.check_lock(lock, record))
    _check_requests(folder, record)
    return PointBundle(folder.path.relative_to(store).as_posix(), folder.digest, record, lock)


def _check_requests(folder: Folder, record: PointRecord) -> None:
    """What counts must be derivable again: the request table is there and has our columns."""
    if "requests.parquet" not in folder:
        if record.verdict.value in ("valid", "partial"):
            raise IncompleteError(f"{record.verdict.value} without requests.parquet")
        return
    schema = pq.read_schema(folder.path / "requests.parquet")
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
