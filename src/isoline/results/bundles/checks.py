"""Is a file what its folder, its plan and its own digests say it is (DESIGN 5.1)? Pure.

Every function returns one line for each contradiction; empty when all is well. A contradiction
sends the bundle to quarantine: between two values under one key nobody may choose.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from isoline.results import identity
from isoline.results.bundles.records import (
    METRICS_VERSION,
    AccuracyResult,
    LaunchRecord,
    LockRecord,
    Plan,
    PlanLaunch,
    PlanPoint,
    PointRecord,
    ReasonNote,
)
from isoline.results.bundles.tombstone import moment
from isoline.results.judging.official import NOT_RUN, WORST_FIRST, worst_state
from isoline.results.judging.reasons import REASONS, Verdict, worst
from isoline.results.metrics.registry import METRICS

ACCURACY_STATES: tuple[str, ...] = (*reversed(WORST_FIRST), NOT_RUN)
"""The accuracy states of a point (DESIGN 5.4)."""

IN_LAUNCH: tuple[str, ...] = (
    "model",
    "model_revision",
    "sku",
    "engine",
    "weight_precision",
    "kv_precision",
    "speculative",
    "kv_offload",
)
"""The fields of a curve that the identity of its launch decides."""


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
        problems += _check_start(launch)
        for point in launch.points:
            problems += _check_planned(launch, point)
    for value in _repeated(launch.launch_digest for launch in plan.launches):
        problems.append(f"launch {value[:12]} is planned twice")
    for value in _repeated(point.point_id for launch in plan.launches for point in launch.points):
        problems.append(f"point {value} is planned twice")
    return problems + _check_additions(plan)


def _check_additions(plan: Plan) -> list[str]:
    """Nothing is on one curve from two runs unless it is a listed addition, and that lists all it adds."""
    own: dict[str, list[str]] = {}
    for launch in plan.launches:
        for point in launch.points:
            own.setdefault(point.curve_key, []).append(point.point_id)
    measured = {point_id for ids in own.values() for point_id in ids}
    names = [item.point_id for item in plan.reused]
    problems = [f"point {value} is reused twice" for value in _repeated(names)]
    problems += [f"point {value} is reused and planned" for value in sorted(measured & {*names})]
    kept = {item.curve_key for item in plan.reused}
    listed = {item.curve_key: item.point_ids for item in plan.additions}
    for key in _repeated(item.curve_key for item in plan.additions):
        problems.append(f"curve {key} is added to twice")
    for key in sorted(listed.keys() | (kept & own.keys())):
        if key not in kept or sorted(listed.get(key, [])) != sorted(own.get(key, [])) or key not in own:
            problems.append(f"curve {key}: its additions are not what this run adds to reused points")
    return problems


def _check_start(launch: PlanLaunch) -> list[str]:
    """What is shown of a start is what its digest covers: arguments, environment, accelerators."""
    known = launch.identity
    problems = _differ(
        (f"{launch.recipe_id}: {name}", value, known[name])
        for name, value in (("argv", launch.argv), ("env", launch.env))
        if name in known
    )
    roles = {name: role for name, role in known.get("topology", {}).items() if role is not None}
    if all("tp" in role for role in roles.values()):
        gpus = sum(role.get("workers", 1) * role["tp"] * role.get("pp", 1) for role in roles.values())
        problems += _differ([(f"{launch.recipe_id}: gpus", launch.gpus, gpus)] if roles else [])
    return problems


def _check_curve(launch: PlanLaunch, point: PlanPoint) -> list[str]:
    """What a point is drawn as is what its digests cover: no curve joins what differs."""
    known, scenario = point.identity, point.identity.get("scenario", {})
    wanted = {name: launch.identity[name] for name in IN_LAUNCH if name in launch.identity}
    wanted |= {"scenario": scenario.get("name"), "scenario_version": scenario.get("version")}
    wanted |= {"dataset_digest": known.get("dataset_digest")}
    if "launcher" in launch.identity:
        # What somebody else runs is declared, not seen: it is never on a curve of ours.
        wanted |= {"source": "endpoint" if launch.identity["launcher"] == "endpoint" else "own"}
    wanted |= {"client_class": known.get("load_generator", {}).get("profile")}
    pairs = [(f"{name} of its curve", point.curve[name], value) for name, value in wanted.items()]
    pairs += [
        ("scenario", point.scenario, scenario.get("name")),
        ("concurrency", point.concurrency, known.get("concurrency")),
    ]
    return [f"{point.point_id}: {line}" for line in _differ(pairs)]


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
    return problems if missing else problems + _check_curve(launch, point)


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
    return moment(text).replace(tzinfo=None)


def _check_times(record: LaunchRecord | PointRecord) -> list[str]:
    for text in (record.started_at, record.ended_at, *(phase.started_at for phase in record.phases)):
        try:
            utc(text)
        except (ValueError, OverflowError) as error:  # the second: a year that UTC does not have
            return [f"not a UTC time: {error}"]
    if negative := [phase.name for phase in record.phases if phase.duration_s < 0]:
        return [f"phase {negative[0]} took less than no time"]
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
    problems += _check_accuracy(record, launch)
    if record.verdict in (Verdict.VALID, Verdict.PARTIAL):
        problems += _check_answers(record, point)
    counts = record.counts
    if record.verdict is Verdict.VALID and (counts.failed or not 0 < counts.completed == counts.asked):
        said = f"{counts.asked} asked, {counts.completed} completed, {counts.failed} failed"
        problems.append(f"valid with {said} requests")
    return problems + _check_metrics(record)


def _check_accuracy(record: PointRecord, launch: PlanLaunch) -> list[str]:
    """The state of a point follows from its checks, and that of a check from its answers."""
    problems = []
    references = launch.recipe.get("accuracy") or {}
    for result in record.accuracy:
        if result.state not in WORST_FIRST:
            problems.append(f"unknown accuracy state {result.state!r} of {result.task}")
        elif not 0 <= result.correct <= result.n or (result.n == 0 and result.state != "invalid"):
            problems.append(f"{result.task}: {result.state} with {result.correct} of {result.n} correct")
        elif result.state == "passed":
            problems += _check_passed(result, references.get(result.task))
    wanted = worst_state(result.state for result in record.accuracy)
    return problems + _differ([("accuracy_state", record.accuracy_state, wanted)])


def _check_passed(result: AccuracyResult, reference: Mapping[str, Any] | None) -> list[str]:
    """Fails closed: nothing passes without a reference, and nothing below it."""
    if result.reference is None or result.correct == 0:
        return [f"{result.task}: passed with {result.correct} of {result.n}, reference {result.reference}"]
    if reference is None:
        return []
    limit = reference["correct_share"] - reference["tolerance"]
    if result.reference != reference["correct_share"] or result.correct / result.n < limit - 1e-9:
        return [
            f"{result.task}: passed with {result.correct} of {result.n}, the recipe asks for {limit:g} of all"
        ]
    return []


def _check_answers(record: PointRecord, point: PlanPoint) -> list[str]:
    """Speed counts only where the answers were looked at: the canary, and the checks that were planned."""
    problems = []
    canary = record.canary or {}
    asked, correct = canary.get("asked"), canary.get("correct")
    if not asked or asked != correct:
        problems.append(f"{record.verdict.value} with a canary of {correct} correct of {asked}")
    left_out = set(point.accuracy) - {result.task for result in record.accuracy}
    if left_out:
        problems.append(f"{record.verdict.value} without the planned check {min(left_out)}")
    return problems


def _check_metrics(record: PointRecord) -> list[str]:
    problems = []
    for row in record.metrics:
        known = METRICS.get(row.name)
        if known is not None and known.unit != row.unit:
            problems.append(f"{row.name} in {row.unit!r}, the registry says {known.unit!r}")
        if row.value is not None and not math.isfinite(row.value):
            problems.append(f"{row.name} is {row.value}; what is absent is null")
        if row.metrics_version > METRICS_VERSION:
            problems.append(f"{row.name} of metrics_version {row.metrics_version}: a newer Isoline made it")
    versions = sorted({row.metrics_version for row in record.metrics})
    if len(versions) > 1 or (versions and versions[0] < 1):
        # One odd version would keep all the others from being derived again.
        problems.append(
            f"metrics of version {' and '.join(map(str, versions))}: one of 1 or more is expected"
        )
    for name, window in _repeated((row.name, row.window) for row in record.metrics):
        problems.append(f"{name} of window {window} is there twice")
    return problems


def check_lock(lock: LockRecord, record: PointRecord, *, launch: PlanLaunch, point: PlanPoint) -> list[str]:
    """lock.json against the point.json beside it, and against the plan that both are of.

    :raises ValueError: when its launch or point is not of the plan's form.
    """
    problems = _differ(
        (
            ("run_id of lock.json", lock.run_id, record.run_id),
            ("point_id of lock.json", lock.point.get("point_id"), record.point_id),
            ("point_digest of lock.json", lock.point.get("point_digest"), record.point_digest),
            ("launch_digest of lock.json", lock.launch.get("launch_digest"), record.launch_digest),
        )
    )
    if problems:
        return problems
    # Through the models: a field that a later version adds has its default on both sides.
    pairs = (
        ("launch", PlanLaunch.model_validate({**lock.launch, "points": []}), launch),
        ("point", PlanPoint.model_validate(lock.point), point),
    )
    return [
        f"{kind} of lock.json has another {name} than the plan"
        for kind, found, planned in pairs
        for name in type(planned).model_fields
        if name != "points" and getattr(found, name) != getattr(planned, name)
    ]
