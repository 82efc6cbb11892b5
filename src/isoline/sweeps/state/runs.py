"""Runs on disk: finding the one to continue, opening a new one, what it has so far, clearing wreckage."""

from __future__ import annotations

import contextlib
import json
import platform
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import isoline
from isoline.errors import IncompleteError, InputError
from isoline.results.bundles.bundle import (
    MANIFEST,
    WORK,
    BundleWriter,
    attempts,
    is_sealed,
    run_folder,
    run_folders,
    utc_now,
    write_file,
    write_record,
)
from isoline.results.bundles.records import LaunchRecord, Plan, PlanLaunch, PointRecord, ReasonNote, Reused
from isoline.results.identity import RUN_ID, new_run_id
from isoline.results.judging.reasons import Verdict
from isoline.sweeps.planning.due import Elsewhere, OtherRun, is_due
from isoline.sweeps.planning.estimates import Past


@dataclass(frozen=True)
class Run:
    """One run on disk."""

    run_id: str
    folder: Path
    plan: Plan

    @property
    def work(self) -> Path:
        """Scratch of the run: unsealed bundles and the journal."""
        return self.folder / WORK


def started(run_id: str) -> datetime:
    """When a run started, from its id."""
    match = RUN_ID.fullmatch(run_id)
    if not match:
        raise ValueError(f"not a run id: {run_id!r}")
    return datetime.strptime(match.group(1) + match.group(2), "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def read_run(folder: Path) -> Run | None:
    """The run in a folder; None where its plan is not sealed or not of our form."""
    if not is_sealed(folder / "_run") or not RUN_ID.fullmatch(folder.name):
        return None
    try:
        plan = Plan.model_validate_json((folder / "_run" / "plan.json").read_bytes())
    except (OSError, ValidationError):
        return None
    return Run(folder.name, folder, plan)


def runs_newest_first(store: Path, sweep: str | None = None) -> Iterator[Run]:
    """All readable runs, newest first; of one sweep where it is named."""
    for folder in reversed(list(run_folders(store))):
        match = RUN_ID.fullmatch(folder.name)
        if match and (sweep is None or match.group(3) == sweep):
            run = read_run(folder)
            if run is not None:
                yield run


def find_run(store: Path, plan: Plan, max_age_h: float | None, now: datetime | None = None) -> Run | None:
    """The newest run of the sweep whose plan is equal and which is young enough (DESIGN 5.8).

    None as well where points that it took over from other runs are no longer in the store: going on
    with it would call a curve complete that nobody has.
    """
    moment = now or datetime.now(UTC)
    for run in runs_newest_first(store, plan.sweep):
        # A try-out is shown nowhere, and a part of a curve never in its place: neither answers for the whole.
        alike = run.plan.publish == plan.publish and run.plan.parts == plan.parts
        if run.plan.plan_digest == plan.plan_digest and alike:
            if not all(is_sealed(_attempt_folder(store, item)) for item in run.plan.reused):
                return None
            age_h = (moment - started(run.run_id)).total_seconds() / 3600
            return run if max_age_h is None or age_h <= max_age_h else None
    return None


def _attempt_folder(store: Path, item: Reused) -> Path:
    return run_folder(store, item.run_id) / item.point_id / str(item.attempt)


def named_run(store: Path, run_id: str) -> Run:
    """The run of that id.

    :raises InputError: when there is none.
    """
    if RUN_ID.fullmatch(run_id):
        run = read_run(run_folder(store, run_id))
        if run is not None:
            return run
    raise InputError(
        f"no such run: {run_id}", where=str(store), remedy="`isoline sweep status` shows the newest"
    )


OPENING = ".opening"
"""Where a store keeps runs whose plan is not sealed yet; no reader of the store looks there."""

STALE_S = 3600.0


def new_run(store: Path, plan: Plan, settings_seen: Mapping[str, Any]) -> Run:
    """Open a run: seal its plan and the environment that it starts in, before anything is started.

    The run's folder appears with its sealed plan or not at all: a crash in here leaves no half run.
    """
    run_id = new_run_id(plan.sweep)
    folder = run_folder(store, run_id)
    opening = store / OPENING / run_id
    _drop_stale(opening.parent)
    opening.mkdir(parents=True)
    try:
        writer = BundleWriter(opening, "run", "_run", run_id)
        write_record(writer.path / "plan.json", plan)
        environment = {
            "schema_version": 1,
            "isoline": isoline.__version__,
            "python": sys.version.split()[0],
            "system": platform.platform(),
            "started_at": utc_now(),
            **settings_seen,
        }
        write_file(writer.path / "environment.json", (json.dumps(environment, indent=1) + "\n").encode())
        writer.seal()
        folder.parent.mkdir(parents=True, exist_ok=True)
        opening.rename(folder)
    finally:
        shutil.rmtree(opening, ignore_errors=True)
    return Run(run_id, folder, plan)


def _drop_stale(opening: Path) -> None:
    """Remove what a crash left of runs that were being opened; opening one takes less than a second."""
    if not opening.is_dir():
        return
    for path in opening.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_S:
                shutil.rmtree(path, ignore_errors=True)


def read_point(folder: Path) -> PointRecord:
    """point.json of a sealed attempt.

    :raises IncompleteError: when it is gone or not of our form.
    """
    path = folder / "point.json"
    try:
        return PointRecord.model_validate_json(path.read_bytes())
    except OSError as error:
        raise IncompleteError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except ValidationError as error:
        what = str(error).splitlines()[0]
        raise IncompleteError(what, where=str(path), remedy="look with `isoline results verify`") from None


def sealed_records(run: Run, point_id: str) -> list[PointRecord]:
    """The sealed attempts at one point, in order."""
    return [read_point(folder) for folder in attempts(run.folder, point_id)]


def records(run: Run) -> dict[str, list[PointRecord]]:
    """point id -> its sealed attempts, in order; of every point of the plan."""
    points = (point for launch in run.plan.launches for point in launch.points)
    return {point.point_id: sealed_records(run, point.point_id) for point in points}


def launch_records(run: Run) -> Iterator[LaunchRecord]:
    """The sealed starts of a run, by name. What cannot be read is none: `results verify` tells of damage."""
    for path in sorted(run.folder.glob("_launch/*/launch.json")):
        with contextlib.suppress(OSError, ValueError):
            yield LaunchRecord.model_validate_json(path.read_bytes())


def verdicts(run: Run) -> dict[str, list[Verdict]]:
    """point id -> the verdicts of its sealed attempts, in order."""
    return {point_id: [item.verdict for item in items] for point_id, items in records(run).items()}


def is_finished(run: Run) -> bool:
    """Whether nothing of the run is due."""
    return not any(is_due(items) for items in verdicts(run).values())


def measured_elsewhere(
    store: Path,
    plan: Plan,
    max_age_h: float | None,
    now: datetime | None = None,
    withdrawn: Collection[tuple[str, str | None]] = (),
    *,
    own_only: bool = False,
) -> list[OtherRun]:
    """Each run that is young enough, newest first, with its counting attempts at points of the plan.

    Runs that have neither a point nor a curve of it are left out. An attempt that cannot be read
    counts as none: it is measured again. So does one that is shown nowhere: withdrawn, or of a
    try-out where the plan is to be published.

    :param withdrawn: (run id, point id, None for the whole run) that people have withdrawn.
    :param own_only: of the plan's own sweep only.
    """
    points = [point for launch in plan.launches for point in launch.points]
    wanted = sorted({point.point_id for point in points})
    keys = {point.curve_key for point in points}
    others: list[OtherRun] = []
    moment = now or datetime.now(UTC)
    for run in runs_newest_first(store, plan.sweep if own_only else None):
        if max_age_h is not None and (moment - started(run.run_id)).total_seconds() / 3600 > max_age_h:
            continue
        if (plan.publish and not run.plan.publish) or (run.run_id, None) in withdrawn:
            continue
        found = {}
        pools = {item.point_id: launch.pool for launch in run.plan.launches for item in launch.points}
        for point_id in wanted:
            # A run measures points of its own plan alone: nothing is looked for on disk for the others.
            if point_id not in pools or (run.run_id, point_id) in withdrawn:
                continue
            if (last := _counting(run, point_id)) is not None:
                tasks = frozenset(item.task for item in last.accuracy)
                found[point_id] = Elsewhere(last.attempt, last.verdict, tasks, pools[point_id])
        curves = _curves(run)
        if found or keys & curves.keys():
            expected = frozenset([*pools, *(item.point_id for item in run.plan.reused)])
            others.append(OtherRun(run.run_id, found, curves, run.plan.sweep == plan.sweep, expected))
    return others


def _counting(run: Run, point_id: str) -> PointRecord | None:
    """The last sealed attempt at a point; None without one, or where it cannot be read."""
    sealed = attempts(run.folder, point_id)
    with contextlib.suppress(IncompleteError):
        return read_point(sealed[-1]) if sealed else None
    return None


def _curves(run: Run) -> dict[str, dict[str, str]]:
    """Curve key -> point id -> the run that measured it, of each curve that the run has."""
    curves: dict[str, dict[str, str]] = {}
    for launch in run.plan.launches:
        for point in launch.points:
            curves.setdefault(point.curve_key, {})[point.point_id] = run.run_id
    added = {addition.curve_key for addition in run.plan.additions}
    for item in run.plan.reused:
        if item.curve_key in added:
            curves[item.curve_key][item.point_id] = item.run_id
    return curves


PAST_RUNS = 20
"""Newest runs that durations are taken from."""


def past_durations(store: Path) -> Past:
    """How long points took, and launches from start to ready, in the newest runs; seconds.

    What cannot be read says nothing: a damaged bundle of one run stops no plan of another.
    """
    points: dict[str, float] = {}
    launches: dict[str, float] = {}
    for run in islice(runs_newest_first(store), PAST_RUNS):
        for name in [point.point_id for launch in run.plan.launches for point in launch.points]:
            last = None if name in points else _counting(run, name)
            if last is not None and last.verdict is Verdict.VALID:
                points[name] = round(sum(row.duration_s for row in last.phases), 1)
        for record in launch_records(run):
            if record.verdict is Verdict.VALID:
                took = sum(row.duration_s for row in record.phases if row.name != "stop")
                launches.setdefault(record.launch_digest, round(took, 1))
    return Past(points, launches)


def next_launch_number(run: Run, launch: PlanLaunch) -> int:
    """The number of the next start of a launch: above every start that left a trace."""
    sealed = (sealed_records(run, point.point_id) for point in launch.points)
    names = [item.launch_id for items in sealed for item in items]
    folder = run.folder / "_launch"
    if folder.is_dir():
        names += [path.name for path in folder.iterdir()]
    return max([0, *(number for name in names if (number := _number_of(launch, name)))]) + 1


def _number_of(launch: PlanLaunch, name: str) -> int:
    """The number in a launch id of that launch; 0 where the name is no such id."""
    prefix, _, number = name.rpartition("-")
    return int(number) if prefix == launch.launch_digest[:10] and number.isdecimal() else 0


def clear_wreckage(run: Run) -> list[str]:
    """After a crash: seal the logs of starts that nobody sealed, drop half-written attempts.

    Only under the pool's lock, when no other process works on the run. A start that was cut off
    keeps its server log: it becomes a launch bundle with verdict ``cancelled``.

    :returns: one line for each thing done.
    """
    done: list[str] = []
    if not run.work.is_dir():
        return done
    launches = {launch.launch_digest[:10]: launch for launch in run.plan.launches}
    for folder in sorted(run.work.iterdir()):
        if not folder.is_dir():
            continue
        kind, _, rest = folder.name.partition("~")
        name = rest.rsplit(".", 1)[0]
        launch = launches.get(name.rpartition("-")[0])
        is_start = kind == "_launch" and launch is not None and _number_of(launch, name) > 0
        if is_start and launch is not None and not (run.folder / "_launch" / name).exists():
            _seal_cut_off(run, launch, name, folder)
            done.append(f"launch {name}: sealed as cut off")
        else:
            shutil.rmtree(folder, ignore_errors=True)
            done.append(f"{folder.name}: dropped, it was not sealed")
    return done


def _seal_cut_off(run: Run, launch: PlanLaunch, name: str, folder: Path) -> None:
    """Seal a start's own folder where it is, so that a crash in here loses nothing either."""
    began = datetime.fromtimestamp(min(path.stat().st_mtime for path in [folder, *folder.iterdir()]), UTC)
    for path in sorted(folder.rglob("*"), reverse=True):
        is_plain = not path.is_symlink() and (path.is_file() or path.is_dir())
        if not is_plain or path.name == MANIFEST or path.name.endswith(".part"):
            path.unlink()
    if not (folder / "launch.json").exists():
        record = LaunchRecord(
            run_id=run.run_id,
            launch_id=name,
            launch_digest=launch.launch_digest,
            recipe_id=launch.recipe_id,
            started_at=began.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            ended_at=utc_now(),
            verdict=Verdict.CANCELLED,
            reasons=[ReasonNote(code="interrupted", detail="Isoline itself was ended during this launch")],
            phases=[],
            exit_code=None,
            signal=None,
            points=[],
        )
        write_record(folder / "launch.json", record)
    BundleWriter.adopt(run.folder, "launch", f"_launch/{name}", name, folder).seal()
