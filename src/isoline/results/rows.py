"""From the checked bundles of one run to its rows in every table. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

from isoline.results.checks import utc
from isoline.results.decisions import Override
from isoline.results.identity import CURVE_FIELDS, canonical_json
from isoline.results.metrics import HEADLINE
from isoline.results.official import NOT_RUN, headline_window, official
from isoline.results.readers import LaunchBundle, PointBundle, RunBundle, RunFiles, SkippedBundle
from isoline.results.records import CauseRecord, Plan, PlanLaunch, PlanPoint
from isoline.results.reused import TakenOver
from isoline.results.schema import BY_NAME

Row = dict[str, Any]

UNFINISHED = ("infra_error", "cancelled")
"""Verdicts that say nothing about the engine: the point is still due, the run not complete."""


def run_start(run_id: str) -> datetime:
    """The start of a run, UTC without a zone, from its id."""
    return datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ")


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
    """
    tables: dict[str, list[Row]] = defaultdict(list)
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
        points = _points(files, files.plan.plan, overrides)
        tables["points"] = points
        tables["runs"] = [_run(files.run_id, files.plan, points)]
        tables["recipes"] = _recipes(files.run_id, files.plan.plan)
        for start in files.launches:
            _add_launch(tables, start)
            telemetry += _telemetry(start)
        for attempt in files.points:
            _add_attempt(tables, attempt)
    built = {name: BY_NAME[name].rows(rows) for name, rows in tables.items() if rows}
    if telemetry:
        built["telemetry"] = pa.concat_tables(telemetry).cast(BY_NAME["telemetry"].arrow)
    return built


def _run(run_id: str, bundle: RunBundle, points: Sequence[Row]) -> Row:
    verdicts = Counter(point["verdict"] for point in points)
    causes = Counter(point["missing_cause"] for point in points if not point["got"])
    got = sum(point["got"] for point in points)
    missing = causes["missing"]
    return {
        "run_id": run_id,
        "sweep": bundle.plan.sweep,
        "plan_digest": bundle.plan.plan_digest,
        "started_at": run_start(run_id),
        "rev": bundle.plan.created_from.get("rev"),
        "dirty": bundle.plan.created_from.get("dirty"),
        "expected": len(points),
        "got": got,
        **{name: verdicts[name] for name in ("valid", "partial", "invalid", "infra_error", "cancelled")},
        "skipped": len(points) - got - missing,
        "missing": missing,
        "complete": got == len(points) and not any(verdicts[name] for name in UNFINISHED),
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
    columns |= {name: bundle.telemetry.column(name) for name in ("t", "name", "value")}
    return [pa.table(columns)]


def _add_attempt(tables: dict[str, list[Row]], bundle: PointBundle) -> None:
    record = bundle.record
    codes, details = _facts(record.reasons)
    key = {"run_id": record.run_id, "point_id": record.point_id, "attempt": record.attempt}
    tables["attempts"].append(
        {
            **_cause(record.cause),
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
            "bundle_path": bundle.path,
            "bundle_digest": bundle.digest,
        }
    )
    for metric in record.metrics:
        tables["metrics"].append({**key, **_dump(metric)})
    for result in record.accuracy:
        tables["accuracy"].append({**key, **_dump(result)})
    for phase in record.phases:
        row = {**_dump(phase), "started_at": utc(phase.started_at)}
        tables["phases"].append({**key, "launch_id": record.launch_id, **row})
    tables["locks"].append({**key, "lock": _json(_dump(bundle.lock))})


# --- points -----------------------------------------------------------------------------------


def _points(files: RunFiles, plan: Plan, overrides: Sequence[Override]) -> list[Row]:
    """One row for each expected point, with its last attempt."""
    attempts: dict[str, list[PointBundle]] = defaultdict(list)
    for each in files.points:
        attempts[each.record.point_id].append(each)
    last = {key: max(found, key=lambda item: item.record.attempt) for key, found in attempts.items()}
    withdrawn = {item.point_id for item in overrides if item.action == "withdraw"}

    planned = [(launch, point) for launch in plan.launches for point in launch.points]
    by_curve: dict[str, list[PlanPoint]] = defaultdict(list)
            **_cause(record.cause),
    for launch, point in planned:
        if launch.twin_of is None:
            by_curve[point.curve_key].append(point)
    windows = {
        curve: headline_window(
            (bundle.record.verdict.value, _has_steady(bundle))
            for point in points
            if (bundle := last.get(point.point_id)) is not None
        )
        for curve, points in by_curve.items()
    }
    candidates = [
        Candidate(
            key=point.point_id,
            group=f"{launch.recipe_id} {launch.topology}",
            concurrency=point.concurrency,
            verdict=bundle.record.verdict.value if bundle else None,
            accuracy_state=bundle.record.accuracy_state if bundle else NOT_RUN,
            kind=str(point.curve["kind"]),
            source=str(point.curve["source"]),
            conforming=not _scenario(point).get("non_conforming", False),
            withdrawn=None in withdrawn or point.point_id in withdrawn,
            published=plan.publish,
            planned_accuracy=bool(point.accuracy),
            disturbed=disturbed(bundle.record.client, str(point.curve["sku"])) if bundle else "",
            twin=launch.twin_of is not None,
        )
        for launch, point in planned
        for bundle in (last.get(point.point_id),)
    ]
    why = official(candidates)
    causes, other = _missing_causes(files)
    rows = []
    for (launch, point), candidate in zip(planned, candidates, strict=True):
        bundle = last.get(point.point_id)
        row = _expected(files.run_id, plan, launch, point)
        row |= _measured(bundle, windows.get(point.curve_key, "full"))
        row["attempts"] = len(attempts[point.point_id])
        row["missing_cause"] = None
        if bundle is None:
            row["missing_cause"] = causes.get(launch.launch_digest, other)
        row["official"] = not why[point.point_id]
        row["unofficial_why"] = why[point.point_id] or None
        row["marks"] = _marks(launch, candidate)
        rows.append(row)
    return rows


MAX_FOREIGN_CPU_SHARE = 0.25
"""Of all cores, by programs that are not ours: above it a number of SKU ``cpu`` is nobody's number."""


def disturbed(client: Mapping[str, Any], sku: str) -> str:
    """What disturbed a measurement, in one line, or "". The CPU is the accelerator of SKU ``cpu`` only."""
    share = client.get("foreign_cpu_share")
    if sku != "cpu" or not isinstance(share, (int, float)) or share <= MAX_FOREIGN_CPU_SHARE:
        return ""
    return f"other programs used {share:.0%} of the CPU"


def _missing_causes(files: RunFiles) -> tuple[dict[str, str], str]:
    """Why a point has no attempt: by launch digest where its last start was not valid, and else.

    ``missing`` means that nobody knows why, which is an alert.
    """
    last = {
        bundle.record.launch_digest: bundle.record.verdict
        for bundle in sorted(files.launches, key=lambda item: utc(item.record.started_at))
    }
    verdicts = {*last.values(), *(bundle.record.verdict for bundle in files.points)}
    other = "cancelled_run" if Verdict.CANCELLED in verdicts else "missing"
    failed = {
        digest: other if verdict is Verdict.CANCELLED else "launch_failed"
        for digest, verdict in last.items()
        if verdict is not Verdict.VALID
    }
    return failed, other


def _has_steady(bundle: PointBundle) -> bool:
    # Rows of an unusable steady window are not stored; see derive.
    return any(row.window == "steady" for row in bundle.record.metrics)


def _scenario(point: PlanPoint) -> Mapping[str, Any]:
    scenario = point.identity.get("scenario")
    return scenario if isinstance(scenario, dict) else {}


def _expected(run_id: str, plan: Plan, launch: PlanLaunch, point: PlanPoint) -> Row:
    scenario = _scenario(point)
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


def _marks(launch: PlanLaunch, candidate: Candidate) -> list[str]:
    marks = {
        "unverified": launch.recipe.get("status") == "unverified",
        "non_conforming": not candidate.conforming or bool(candidate.disturbed),
        "provisional": candidate.accuracy_state == "provisional",
        "withdrawn": candidate.withdrawn,
        "unofficial": not candidate.published,
    }
    return [name for name, holds in marks.items() if holds]
