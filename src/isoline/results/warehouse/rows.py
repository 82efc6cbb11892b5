"""From the checked bundles of one run to its rows in every table. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

from isoline.results.bundles.checks import utc
from isoline.results.bundles.readers import LaunchBundle, PointBundle, RunBundle, RunFiles, SkippedBundle
from isoline.results.bundles.records import CauseRecord, Plan, PlanLaunch, PlanPoint
from isoline.results.decisions.documents import Override
from isoline.results.identity import CURVE_FIELDS, canonical_json, run_start
from isoline.results.judging.official import NOT_RUN, headline_window, official
from isoline.results.judging.skips import Causes
from isoline.results.metrics.registry import HEADLINE
from isoline.results.warehouse.events import event_rows
from isoline.results.warehouse.expected import (
    Withdrawals,
    candidate_of,
    evidence,
    expected_points,
    is_withdrawn,
    marks_of,
    scenario_of,
    withdrawals,
)
from isoline.results.warehouse.reused import TakenOver
from isoline.results.warehouse.schema import BY_NAME

Row = dict[str, Any]

UNFINISHED = ("infra_error", "cancelled")
"""Verdicts that say nothing about the engine: the point is still due, the run not complete."""


def _json(value: Any) -> str:
    return canonical_json(value).decode()


def _dump(record: BaseModel) -> Row:
    return record.model_dump(mode="json")


def _facts(record_reasons: Sequence[Any]) -> tuple[list[str], list[str]]:
    return [reason.code for reason in record_reasons], [reason.detail for reason in record_reasons]


def _cause(cause: CauseRecord | None) -> Row:
    """The name of what the log proves, and the whole of it as JSON."""
    return {"cause": cause.name if cause else None, "cause_detail": _json(_dump(cause)) if cause else None}


def run_tables(
    files: RunFiles, overrides: Sequence[Override], others: Sequence[Override] = ()
) -> dict[str, pa.Table]:
    """Every row that a run has, by table; tables without rows are left out.

    :param overrides: the decisions about this run.
    :param others: the decisions about other runs; those that it took points over from count.
    """
    tables: dict[str, list[Row]] = defaultdict(list)
    withdrawn = withdrawals([*overrides, *others])
    tables["overrides"] = [_dump(item) for item in overrides]
    for bad in files.bad:
        tables["quarantine"].append(
            {
                "path": bad.path,
                "run_id": bad.run_id,
                "digest": bad.digest,
                "kind": bad.kind,
                "reason": bad.reason,
            }
        )
    telemetry: list[pa.Table] = []
    if files.plan is not None:
        points = _points(files, files.plan.plan, withdrawn)
        tables["reused"] = [_reused(files.run_id, taken, withdrawn) for taken in files.taken]
        tables["points"] = points
        tables["runs"] = [
            _run(files, files.plan, [row for row in points if row["measured_in"] == files.run_id])
        ]
        tables["recipes"] = _recipes(files.run_id, files.plan.plan)
        for start in files.launches:
            _add_launch(tables, start)
            telemetry += _telemetry(start)
        for attempt in files.points:
            _add_attempt(tables, attempt)
        for left in files.skipped:
            _add_skips(tables, left)
        tables["events"] = event_rows(files)
    built = {name: BY_NAME[name].rows(rows) for name, rows in tables.items() if rows}
    if telemetry:
        built["telemetry"] = pa.concat_tables(telemetry).cast(BY_NAME["telemetry"].arrow)
    return built


def _finished_at(files: RunFiles) -> datetime | None:
    """When the last thing that was sealed of a run was done; None while there is none."""
    ends = [item.record.ended_at for item in files.launches]
    ends += [item.record.ended_at for item in files.points]
    ends += [item.record.at for item in files.skipped]
    return max(map(utc, ends), default=None)


def _run(files: RunFiles, bundle: RunBundle, points: Sequence[Row]) -> Row:
    run_id = files.run_id
    verdicts = Counter(point["verdict"] for point in points)
    causes = Counter(point["missing_cause"] for point in points if not point["got"])
    got = sum(point["got"] for point in points)
    missing = causes["missing"]
    return {
        "run_id": run_id,
        "sweep": bundle.plan.sweep,
        "plan_digest": bundle.plan.plan_digest,
        "started_at": run_start(run_id),
        "finished_at": _finished_at(files),
        "rev": bundle.plan.created_from.get("rev"),
        "dirty": bundle.plan.created_from.get("dirty"),
        "expected": len(points),
        "got": got,
        **{name: verdicts[name] for name in ("valid", "partial", "invalid", "infra_error", "cancelled")},
        "skipped": len(points) - got - missing,
        "missing": missing,
        "complete": got == len(points) and not any(verdicts[name] for name in UNFINISHED),
        "curve_parts": bundle.plan.parts,
        "published": bundle.plan.publish,
        "bundle_path": bundle.path,
        "bundle_digest": bundle.digest,
    }


def _recipes(run_id: str, plan: Plan) -> list[Row]:
    found = {
        launch.recipe_digest: {
            "run_id": run_id,
            "recipe_digest": launch.recipe_digest,
            "recipe_id": launch.recipe_id,
            "content": _json(launch.recipe),
        }
        for launch in plan.launches
    }
    return list(found.values())


def _reused(run_id: str, taken: TakenOver, withdrawn: Withdrawals) -> Row:
    item = taken.item
    return {
        "run_id": run_id,
        "point_id": item.point_id,
        "curve_key": item.curve_key or None,
        "base_run_id": taken.addition.base_run_id if taken.addition else None,
        "measured_in": item.run_id,
        "attempt": item.attempt,
        "withdrawn": is_withdrawn(withdrawn, item.run_id, item.point_id),
        "run_digest": taken.run_digest,
        "bundle_path": taken.path,
        "bundle_digest": taken.digest,
    }


def _add_launch(tables: dict[str, list[Row]], bundle: LaunchBundle) -> None:
    record = bundle.record
    codes, details = _facts(record.reasons)
    ready = [phase.duration_s for phase in record.phases if phase.name == "ready" and phase.outcome == "ok"]
    tables["launches"].append(
        {
            "run_id": record.run_id,
            "launch_id": record.launch_id,
            "launch_digest": record.launch_digest,
            "recipe_id": record.recipe_id,
            "started_at": utc(record.started_at),
            "ended_at": utc(record.ended_at),
            "verdict": record.verdict.value,
            "reasons": codes,
            "reason_details": details,
            "exit_code": record.exit_code,
            "signal": record.signal,
            "ready_s": ready[-1] if ready else None,
            **_cause(record.cause),
            "bundle_path": bundle.path,
            "bundle_digest": bundle.digest,
        }
    )
    for phase in record.phases:
        row = {**_dump(phase), "started_at": utc(phase.started_at)}
        tables["phases"].append(
            {"run_id": record.run_id, "point_id": None, "launch_id": record.launch_id, "attempt": None, **row}
        )


def _telemetry(bundle: LaunchBundle) -> list[pa.Table]:
    if bundle.telemetry is None:
        return []
    count = bundle.telemetry.num_rows
    who = {"run_id": bundle.record.run_id, "launch_id": bundle.record.launch_id}
    columns = {name: pa.array([value] * count, pa.string()) for name, value in who.items()}
    columns |= {name: bundle.telemetry.column(name) for name in ("t", "name", "device", "value")}
    return [pa.table(columns)]


def _add_attempt(tables: dict[str, list[Row]], bundle: PointBundle) -> None:
    record = bundle.record
    codes, details = _facts(record.reasons)
    key = {"run_id": record.run_id, "point_id": record.point_id, "attempt": record.attempt}
    tables["attempts"].append(
        {
            **key,
            "verdict": record.verdict.value,
            "reasons": codes,
            "reason_details": details,
            "accuracy_state": record.accuracy_state,
            "launch_id": record.launch_id,
            "started_at": utc(record.started_at),
            "ended_at": utc(record.ended_at),
            **_dump(record.counts),
            "canary": None if record.canary is None else _json(record.canary),
            "client": _json(record.client),
            **_cause(record.cause),
            "bundle_path": bundle.path,
            "bundle_digest": bundle.digest,
        }
    )
    for metric in record.metrics:
        tables["metrics"].append({**key, **vars(metric)})  # plain values: no need to dump them
    for result in record.accuracy:
        tables["accuracy"].append({**key, **_dump(result)})
    for phase in record.phases:
        row = {**_dump(phase), "started_at": utc(phase.started_at)}
        tables["phases"].append({**key, "launch_id": record.launch_id, **row})
    tables["locks"].append({**key, "lock": _json(_dump(bundle.lock))})


def _add_skips(tables: dict[str, list[Row]], bundle: SkippedBundle) -> None:
    where = {"bundle_path": bundle.path, "bundle_digest": bundle.digest, "at": utc(bundle.record.at)}
    key = {"run_id": bundle.record.run_id, "number": bundle.record.number}
    tables["skips"] += [{**key, **_dump(point), **where} for point in bundle.record.points]


# --- points -----------------------------------------------------------------------------------


def _cause_of(files: RunFiles) -> Callable[[str, str], str]:
    """Why a planned point has no attempt: by point id and launch digest."""
    return Causes(
        [item.record for item in files.launches],
        [item.record for item in files.points],
        [item.record for item in files.skipped],
    ).of


def _points(files: RunFiles, plan: Plan, withdrawn: Withdrawals) -> list[Row]:
    """One row for each expected point, with its last attempt."""
    planned = expected_points(files, plan, _cause_of(files))
    by_curve: dict[str, list[PointBundle]] = defaultdict(list)
    for each in planned:
        if each.launch.twin_of is None and each.bundle is not None:
            by_curve[each.point.curve_key].append(each.bundle)
    windows = {
        curve: headline_window((item.record.verdict.value, _has_steady(item)) for item in found)
        for curve, found in by_curve.items()
    }
    candidates = [candidate_of(each, files.run_id, plan, withdrawn) for each in planned]
    beside = [evidence(taken) for taken in files.taken if taken.planned is None]
    why = official([*candidates, *beside])
    # Before somebody withdraws a point it was what it otherwise is: who looks back at that time sees it.
    otherwise = why
    if any(item.withdrawn for item in candidates):
        otherwise = official([*(replace(item, withdrawn=False) for item in candidates), *beside])
    rows = []
    for each, candidate in zip(planned, candidates, strict=True):
        point_id = each.point.point_id
        row = _expected(files.run_id, plan, each.launch, each.point)
        row |= _measured(each.bundle, windows.get(each.point.curve_key, "full"))
        row["measured_in"] = each.run_id
        row["attempts"] = each.attempts
        row["missing_cause"] = each.missing_cause if each.bundle is None else None
        row["official"] = not why[point_id]
        row["unofficial_why"] = why[point_id] or None
        row["unofficial_otherwise"] = otherwise[point_id] or None
        row["marks"] = marks_of(each, candidate)
        rows.append(row)
    return rows


def _has_steady(bundle: PointBundle) -> bool:
    # Rows of an unusable steady window are not stored; see derive.
    return any(row.window == "steady" for row in bundle.record.metrics)


def _expected(run_id: str, plan: Plan, launch: PlanLaunch, point: PlanPoint) -> Row:
    scenario = scenario_of(point)
    dataset = scenario.get("dataset")
    return {
        "run_id": run_id,
        "point_id": point.point_id,
        "point_digest": point.point_digest,
        "launch_digest": launch.launch_digest,
        "sweep": plan.sweep,
        "pool": launch.pool,
        "recipe_id": launch.recipe_id,
        "recipe_digest": launch.recipe_digest,
        "twin_of": launch.twin_of,
        **{name: point.curve[name] for name in CURVE_FIELDS},
        "scenario_kind": scenario.get("kind"),
        "dataset": dataset.get("name") if isinstance(dataset, dict) else dataset,
        "topology": launch.topology,
        "gpus": launch.gpus,
        "concurrency": point.concurrency,
        "repetition": point.repetition,
        "seed": point.seed,
        "curve_key": point.curve_key,
        "series_key": point.series_key,
        "engine_version": _engine_version(launch),
    }


def _engine_version(launch: PlanLaunch) -> str | None:
    """The version of the one package that is the engine; None for an image or several packages."""
    image = launch.identity.get("image")
    packages = image.get("packages") if isinstance(image, dict) else None
    if isinstance(packages, list) and len(packages) == 1:
        return str(packages[0]).partition("==")[2] or None
    return None


def _measured(bundle: PointBundle | None, window: str) -> Row:
    """The columns that come from the counting attempt; null without one."""
    row: Row = dict.fromkeys(HEADLINE)
    if bundle is None:
        names = (
            "launch_id counting_attempt verdict reasons accuracy_state started_at ended_at asked completed"
        )
        row |= dict.fromkeys([*names.split(), "failed", "window", "bundle_path", "bundle_digest"])
        return row | {"got": False, "accuracy_state": NOT_RUN}
    record = bundle.record
    values = {metric.name: metric.value for metric in record.metrics if metric.window == window}
    return {
        "launch_id": record.launch_id,
        "counting_attempt": record.attempt,
        "got": True,
        "verdict": record.verdict.value,
        "reasons": [reason.code for reason in record.reasons],
        "accuracy_state": record.accuracy_state,
        "started_at": utc(record.started_at),
        "ended_at": utc(record.ended_at),
        **_dump(record.counts),
        "window": window,
        **{name: values.get(name) for name in HEADLINE},
        "bundle_path": bundle.path,
        "bundle_digest": bundle.digest,
    }
