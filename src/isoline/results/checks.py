"""Is a file what its folder, its plan and its own digests say it is (DESIGN 5.1)? Pure.

Every function returns one line for each contradiction; empty when all is well. A contradiction
sends the bundle to quarantine: between two values under one key nobody may choose.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from isoline.results import identity
from isoline.results.metrics import METRICS
from isoline.results.reasons import REASONS, Verdict, worst
from isoline.results.records import (
    LaunchRecord,
    LockRecord,
    Plan,
    PlanLaunch,
    PlanPoint,
    PointRecord,
    ReasonNote,
)

ACCURACY_STATES: tuple[str, ...] = (
    "passed",
    "provisional",
    "failed",
    "inconclusive",
    "invalid",
    "not_run",
)
"""The accuracy states of a point (DESIGN 5.4)."""


def plan_digest(plan: Plan | Mapping[str, Any]) -> str:
    """The digest of a plan: over what is expected, wherever it was measured.

    Covered: the sweep's name, and for each expected point (reused ones included) its id and its
    accuracy tasks; a point's id covers everything that can change its number. Not covered:
    estimates, owners, comments, the state of the checkout. So the same sweep finds its run again.
    """
    if isinstance(plan, Plan):
        sweep = plan.sweep
        rows = [(point.point_id, point.accuracy) for launch in plan.launches for point in launch.points]
        rows += [(item.point_id, item.accuracy) for item in plan.reused]
    else:
        sweep, listed = plan["sweep"], [point for launch in plan["launches"] for point in launch["points"]]
        rows = [(item["point_id"], item["accuracy"]) for item in [*listed, *plan["reused"]]]
    expected = sorted([point_id, sorted(tasks)] for point_id, tasks in rows)
    return identity.digest({"sweep": sweep, "expected": expected})


def _repeated(values: Iterable[Any]) -> list[Any]:
    return sorted(value for value, count in Counter(values).items() if count > 1)


def check_plan(plan: Plan) -> list[str]:
    """Whether every digest, id and key of a plan is what its content gives, and none is there twice."""
    problems = []
    if (found := plan_digest(plan)) != plan.plan_digest:
        problems.append(f"plan_digest is {plan.plan_digest[:12]}, its content gives {found[:12]}")
    for launch in plan.launches:
        found = identity.digest(launch.identity)
        if found != launch.launch_digest:
            problems.append(
                f"{launch.recipe_id}: launch_digest {launch.launch_digest[:12]}, identity gives {found[:12]}"
            )
        for point in launch.points:
            problems += _check_planned(launch, point)
    for value in _repeated(launch.launch_digest for launch in plan.launches):
        problems.append(f"launch {value[:12]} is planned twice")
    for value in _repeated(point.point_id for launch in plan.launches for point in launch.points):
        problems.append(f"point {value} is planned twice")
    return problems


def _check_planned(launch: PlanLaunch, point: PlanPoint) -> list[str]:
    problems = []
    name = point.point_id
    found = identity.digest(point.identity)
    if found != point.point_digest:
        problems.append(f"{name}: point_digest {point.point_digest[:12]}, its identity gives {found[:12]}")
    wanted = identity.point_id(
        launch.recipe_id,
        launch.topology,
        point.scenario,
        point.concurrency,
        point.repetition,
        point.point_digest,
    )
    if wanted != name:
        problems.append(f"{name}: its fields give the id {wanted}")
    if point.identity.get("launch_digest", launch.launch_digest) != launch.launch_digest:
        problems.append(f"{name}: its identity names another launch")
    missing = [field for field in identity.CURVE_FIELDS if field not in point.curve]
    if missing:
        problems.append(f"{name}: curve lacks {', '.join(missing)}")
    elif (key := identity.curve_key(point.curve)) != point.curve_key:
        problems.append(f"{name}: curve_key {point.curve_key}, its fields give {key}")
    elif identity.series_key(key, launch.topology, point.concurrency) != point.series_key:
        problems.append(f"{name}: series_key {point.series_key} is not of its curve")
    return problems


def check_reasons(verdict: Verdict, reasons: list[ReasonNote]) -> list[str]:
    """Whether every reason code is known, and the verdict is the worst that they give."""
    unknown = [reason.code for reason in reasons if reason.code not in REASONS]
    if unknown:
        return [f"unknown reason code {code!r}" for code in unknown]
    found = worst([reason.code for reason in reasons])
    return [] if found == verdict else [f"verdict {verdict.value}, its reasons give {found.value}"]


def utc(text: str) -> datetime:
    """An ISO 8601 time as UTC without a zone, as the warehouse stores it.

    :raises ValueError: for a time without a zone: nobody knows which hour it means.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time without a zone: {text!r}")
    return moment.astimezone(UTC).replace(tzinfo=None)


def _check_times(record: LaunchRecord | PointRecord) -> list[str]:
    for text in (record.started_at, record.ended_at, *(phase.started_at for phase in record.phases)):
        try:
            utc(text)
        except ValueError as error:
            return [f"not a UTC time: {error}"]
    # An end before the start is no contradiction: it is what a clock that was set back looks like.
    return []


def _differ(pairs: Iterable[tuple[str, Any, Any]]) -> list[str]:
    return [f"{name} is {found!r}, expected {wanted!r}" for name, found, wanted in pairs if found != wanted]


def check_launch(record: LaunchRecord, *, run_id: str, folder: str, plan: Plan) -> list[str]:
    """launch.json against its folder's name and the plan of its run."""
    problems = _differ((("run_id", record.run_id, run_id), ("launch_id", record.launch_id, folder)))
    planned = {launch.launch_digest: launch for launch in plan.launches}.get(record.launch_digest)
    if planned is None:
        return [*problems, f"launch {record.launch_digest[:12]} is not in the plan"]
    if not record.launch_id.startswith(f"{record.launch_digest[:10]}-"):
        problems.append(f"launch_id {record.launch_id} is not of launch {record.launch_digest[:10]}")
    problems += _differ((("recipe_id", record.recipe_id, planned.recipe_id),))
    return problems + check_reasons(record.verdict, record.reasons) + _check_times(record)


def check_point(
    record: PointRecord, *, run_id: str, folder: str, attempt: str, launch: PlanLaunch, point: PlanPoint
) -> list[str]:
    """point.json against its folders' names, the plan, and itself."""
    problems = _differ(
        (
            ("run_id", record.run_id, run_id),
            ("point_id", record.point_id, folder),
            ("attempt", str(record.attempt), attempt),
            ("point_digest", record.point_digest, point.point_digest),
            ("launch_digest", record.launch_digest, launch.launch_digest),
        )
    )
    if not record.launch_id.startswith(f"{launch.launch_digest[:10]}-"):
        problems.append(f"launch_id {record.launch_id!r} is not of launch {launch.launch_digest[:10]}")
    problems += check_reasons(record.verdict, record.reasons) + _check_times(record)
    if record.accuracy_state not in ACCURACY_STATES:
        problems.append(f"unknown accuracy state {record.accuracy_state!r}")
    for result in record.accuracy:
        if result.state not in ACCURACY_STATES:
            problems.append(f"unknown accuracy state {result.state!r} of {result.task}")
        elif result.state == "failed" and record.accuracy_state in ("passed", "provisional", "not_run"):
            problems.append(f"{result.task} failed, but the accuracy state is {record.accuracy_state!r}")
    if record.verdict is Verdict.VALID and (record.counts.completed < 1 or record.counts.failed > 0):
        counts = f"{record.counts.completed} completed, {record.counts.failed} failed"
        problems.append(f"valid with {counts} requests")
    return problems + _check_metrics(record)


def _check_metrics(record: PointRecord) -> list[str]:
    problems = []
    for row in record.metrics:
        known = METRICS.get(row.name)
        if known is not None and known.unit != row.unit:
            problems.append(f"{row.name} in {row.unit!r}, the registry says {known.unit!r}")
        if row.value is not None and not math.isfinite(row.value):
            problems.append(f"{row.name} is {row.value}; what is absent is null")
    for name, window in _repeated((row.name, row.window) for row in record.metrics):
        problems.append(f"{name} of window {window} is there twice")
    return problems


def check_lock(lock: LockRecord, record: PointRecord) -> list[str]:
    """lock.json against the point.json beside it."""
    return _differ(
        (
            ("run_id of lock.json", lock.run_id, record.run_id),
            ("point_id of lock.json", lock.point.get("point_id"), record.point_id),
            ("point_digest of lock.json", lock.point.get("point_digest"), record.point_digest),
            ("launch_digest of lock.json", lock.launch.get("launch_digest"), record.launch_digest),
        )
    )
