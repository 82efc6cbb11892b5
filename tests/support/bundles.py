"""Makes honest sealed bundles: plan, launch and points whose metrics are derived from their requests.

Load it by path through a fixture (see ``tests/results/conftest.py``). The speed of a point follows a
simple closed-loop model: everything slows down as the concurrency rises, and throughput saturates.

    plan = make_plan([(LaunchDef(), [PointDef(1), PointDef(4)])])
    run = make_run(store, plan, "20261201T020000Z-demo-aaaaaa")
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from isoline.results import identity
from isoline.results.bundles.bundle import BundleWriter, file_sha256, run_folder, write_record
from isoline.results.bundles.checks import plan_digest
from isoline.results.bundles.records import (
    AccuracyResult,
    Addition,
    LaunchRecord,
    LockRecord,
    PhaseRow,
    Plan,
    PlanLaunch,
    PlanPoint,
    PointRecord,
    ReasonNote,
    Reused,
    SkippedPoint,
    SkippedRecord,
)
from isoline.results.bundles.requests import REQUESTS_SCHEMA
from isoline.results.judging.reasons import worst
from isoline.results.metrics.derive import derive
from isoline.results.metrics.energy import power_of
from isoline.results.metrics.registry import METRICS

RUN_ID = "20261201T020000Z-demo-aaaaaa"


@dataclass(frozen=True)
class LaunchDef:
    """One server start of a made-up fleet. Change any field to get another curve or launch."""

    recipe_id: str = "smollm2-135m/llamacpp-cpu-q4_1"
    topology: str = "tp1"
    gpus: int = 1
    pool: str = "local"
    model: str = "smollm2-135m-instruct"
    model_revision: str = "main"
    engine: str = "llamacpp"
    engine_version: str = "2026.10"
    sku: str = "cpu"
    weight_precision: str = "q4_1"
    kv_precision: str = "f16"
    status: str = "verified"
    args: tuple[str, ...] = ("--parallel", "8")
    twin_of: str | None = None


@dataclass(frozen=True)
class PointDef:
    """One expected point."""

    concurrency: int = 1
    repetition: int = 1
    scenario: str = "demo-short"
    scenario_kind: str = "fixed_length"
    scenario_version: int = 1
    accuracy: tuple[str, ...] = ()
    source: str = "own"
    kind: str = "measured"


@dataclass(frozen=True)
class Outcome:
    """How one attempt ends. The verdict is the worst that the reasons give.

    ``requests``: how many; None gives enough for a usable steady window, 12 gives too few for one.
    """

    reasons: tuple[str, ...] = ()
    accuracy_state: str = "not_run"
    requests: int | None = None
    speed: float = 1.0
    canary_correct: int = 1
    extra_files: Mapping[str, bytes] = field(default_factory=dict)


GOOD = Outcome()


def make_plan(
    launches: Sequence[tuple[LaunchDef, Sequence[PointDef]]] | None = None,
    *,
    sweep: str = "demo",
    publish: bool = True,
) -> Plan:
    """A plan whose digests, ids and keys are right. Default: one launch at concurrency 1, 2, 4, 8."""
    if launches is None:
        launches = [(LaunchDef(), [PointDef(c) for c in (1, 2, 4, 8)])]
    fields: dict[str, Any] = {
        "schema_version": 1,
        "plan_digest": "",
        "sweep": sweep,
        "created_from": {"rev": "0" * 40, "dirty": False},
        "channels": {},
        "launches": [_launch(launch, points).model_dump(mode="json") for launch, points in launches],
        "reused": [],
        "excluded": [],
        "shards": 1,
        "budget": {"gpu_minutes": 10, "usd": None},
        "publish": publish,
    }
    fields["plan_digest"] = plan_digest(fields)
    return Plan.model_validate(fields)


def grow(whole: Plan, base_run_id: str, owners: Mapping[int, str]) -> Plan:
    """The plan of a run that only adds to the curves of another one.

    :param whole: everything that is expected.
    :param owners: concurrency -> the run that measured it; the others are added.
    """
    reused: list[Reused] = []
    launches: list[PlanLaunch] = []
    new: dict[str, list[str]] = {}
    for launch in whole.launches:
        for point in launch.points:
            if (of := owners.get(point.concurrency)) is None:
                new.setdefault(point.curve_key, []).append(point.point_id)
                continue
            about = {"accuracy": point.accuracy, "curve_key": point.curve_key}
            reused.append(Reused(point_id=point.point_id, run_id=of, attempt=1, **about))
        if left := [point for point in launch.points if point.concurrency not in owners]:
            launches.append(launch.model_copy(update={"points": left}))
    additions = [Addition(curve_key=key, base_run_id=base_run_id, point_ids=ids) for key, ids in new.items()]
    return whole.model_copy(update={"launches": launches, "reused": reused, "additions": additions})


def _launch(launch: LaunchDef, points: Sequence[PointDef]) -> PlanLaunch:
    who = {
        "model": launch.model,
        "model_revision": launch.model_revision,
        "weights": [{"file": "model.gguf", "sha256": "ab" * 32}],
        "weight_precision": launch.weight_precision,
        "kv_precision": launch.kv_precision,
        "engine": launch.engine,
        "image": {"packages": [f"{launch.engine}=={launch.engine_version}"], "script_sha256": "cd" * 32},
        "launcher": "process",
        "device_profile": None,
        "sku": launch.sku,
        "topology": {"aggregated": {"label": launch.topology}},
        "speculative": "none",
        "kv_offload": "none",
        "argv": ["serve", "--port", "{port}", *launch.args],
        "env": {},
    }
    launch_digest = identity.digest(who)
    return PlanLaunch(
        launch_digest=launch_digest,
        recipe_id=launch.recipe_id,
        recipe_digest=identity.digest({"recipe": launch.recipe_id, "args": launch.args}),
        topology=launch.topology,
        gpus=launch.gpus,
        pool=launch.pool,
        argv=["serve", "--port", "{port}", *launch.args],
        env={},
        twin_of=launch.twin_of,
        estimate_s=5.0,
        identity=who,
        recipe={"model": launch.model, "engine": launch.engine, "status": launch.status},
        points=[_point(launch, launch_digest, point) for point in points],
    )


def _point(launch: LaunchDef, launch_digest: str, point: PointDef) -> PlanPoint:
    scenario = {
        "name": point.scenario,
        "version": point.scenario_version,
        "kind": point.scenario_kind,
        "dataset": f"{point.scenario}-data",
    }
    dataset_digest = identity.digest(scenario["dataset"])
    who = {
        "launch_digest": launch_digest,
        "scenario": scenario,
        "dataset_digest": dataset_digest,
        "concurrency": point.concurrency,
        "load_generator": {"name": "aiperf", "version": "0.13", "profile": "shared-cpu"},
    }
    curve = {
        "model": launch.model,
        "model_revision": launch.model_revision,
        "sku": launch.sku,
        "engine": launch.engine,
        "weight_precision": launch.weight_precision,
        "kv_precision": launch.kv_precision,
        "scenario": point.scenario,
        "scenario_version": point.scenario_version,
        "dataset_digest": dataset_digest,
        "speculative": "none",
        "kv_offload": "none",
        "deployment_class": "single_node",
        "client_class": "shared-cpu",
        "kind": point.kind,
        "source": point.source,
    }
    point_digest = identity.digest(who)
    key = identity.curve_key(curve)
    return PlanPoint(
        point_id=identity.point_id(
            launch.recipe_id,
            launch.topology,
            point.scenario,
            point.concurrency,
            point.repetition,
            point_digest,
        ),
        point_digest=point_digest,
        scenario=point.scenario,
        concurrency=point.concurrency,
        repetition=point.repetition,
        seed=1000 * point.concurrency + point.repetition,
        accuracy=list(point.accuracy),
        estimate_s=10.0,
        curve=curve,
        curve_key=key,
        series_key=identity.series_key(key, launch.topology, point.concurrency),
        identity=who,
    )


def points_of(plan: Plan) -> Iterator[tuple[PlanLaunch, PlanPoint]]:
    """Every expected point with its launch, in the plan's order."""
    for launch in plan.launches:
        for point in launch.points:
            yield launch, point


def requests_table(
    concurrency: int,
    *,
    requests: int,
    failed: int = 0,
    seed: int = 0,
    speed: float = 1.0,
    tokens: int = 16,
    start_ns: int = 1_796_090_400_000_000_000,
) -> pa.Table:
    """Requests of a closed loop, in :data:`REQUESTS_SCHEMA`: one warm-up request, then measured ones."""
    rng = random.Random(seed)
    slow = 1.0 + 0.35 * concurrency
    rows: list[dict[str, Any]] = []
    clocks = [start_ns + lane * 1_000_000 for lane in range(concurrency)]
    for number in range(requests + 1):
        lane = min(range(concurrency), key=clocks.__getitem__)
        sent = clocks[lane]
        jitter = rng.uniform(0.95, 1.05)
        first = sent + int(20e6 * slow * jitter / speed)
        gap = int(4e6 * slow * rng.uniform(0.97, 1.03) / speed)
        ok = number <= requests - failed
        chunks = [first + index * gap for index in range(tokens)] if ok else []
        last = chunks[-1] if ok else None
        end = (last or first) + 200_000
        rows.append(
            {
                "request_id": f"q{number:05d}",
                "lane": lane,
                "session": f"s{number:05d}",
                "turn": 0,
                "depth": 0,
                "phase": "warmup" if number == 0 else "measured",
                "status": "ok" if ok else "error",
                "http_status": 200 if ok else 500,
                "error_type": None if ok else "http_500",
                "error_message": None if ok else "internal error",
                "intended_send_ns": sent,
                "send_ns": sent + 100_000,
                "first_token_ns": first if ok else None,
                "first_output_token_ns": first if ok else None,
                "last_token_ns": last,
                "end_ns": end,
                "chunk_ns": chunks or None,
                "chunk_tokens": [1] * tokens if ok else None,
                "requested_input_tokens": 128,
                "requested_output_tokens": tokens,
                "input_tokens": 128 if ok else None,
                "cached_tokens": 0 if ok else None,
                "output_tokens": tokens if ok else None,
                "reasoning_tokens": 0 if ok else None,
                "text_tokens": None,
            }
        )
        clocks[lane] = end + 100_000
    return pa.Table.from_pylist(rows, schema=REQUESTS_SCHEMA)


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _start(run_id: str) -> datetime:
    return datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)


def seal_plan(store: Path, plan: Plan, run_id: str = RUN_ID) -> Path:
    """Seal ``_run``. Returns the run's folder."""
    run = run_folder(store, run_id)
    writer = BundleWriter(run, "run", "_run", run_id)
    write_record(writer.path / "plan.json", plan)
    (writer.path / "environment.json").write_text(json.dumps({"isoline": "0.1.0"}) + "\n")
    writer.seal()
    return run


def seal_launch(run: Path, launch: PlanLaunch, *, n: int = 1, reasons: Sequence[str] = ()) -> Path:
    """Seal one start of a launch, with a little telemetry."""
    launch_id = identity.launch_id(launch.launch_digest, n)
    begin = _start(run.name)
    writer = BundleWriter(run, "launch", f"_launch/{launch_id}", launch_id)
    record = LaunchRecord(
        run_id=run.name,
        launch_id=launch_id,
        launch_digest=launch.launch_digest,
        recipe_id=launch.recipe_id,
        started_at=_iso(begin),
        ended_at=_iso(begin + timedelta(minutes=5)),
        verdict=worst(list(reasons)),
        reasons=[ReasonNote(code=code, detail=f"seen: {code}") for code in reasons],
        phases=[
            PhaseRow(name="start", started_at=_iso(begin), duration_s=0.5),
            PhaseRow(name="ready", started_at=_iso(begin), duration_s=1.5),
        ],
        exit_code=0,
        signal=None,
        points=[point.point_id for point in launch.points],
    )
    write_record(writer.path / "launch.json", record)
    (writer.path / "server.log").write_text("listening\n")
    begin_ns = int(begin.timestamp()) * 10**9
    telemetry = {
        "t_ns": [begin_ns + index * 10**9 for index in range(3)],
        "name": ["server_rss_bytes"] * 3,
        "value": [1e6, 2e6, 3e6],
    }
    pq.write_table(pa.table(telemetry), writer.path / "telemetry.parquet")
    return writer.seal()


def seal_skipped(run: Path, causes: Mapping[str, str], *, number: int = 1, **changes: Any) -> Path:
    """Seal what a run left out: point id -> cause. ``changes`` replace fields, to make what is refused."""
    name = f"_skipped/{number}"
    record = SkippedRecord(
        run_id=run.name,
        number=number,
        at=_iso(_start(run.name) + timedelta(hours=number)),
        points=[
            SkippedPoint(point_id=point_id, cause=cause, detail=f"seen: {cause}")
            for point_id, cause in causes.items()
        ],
    )
    writer = BundleWriter(run, "skipped", name, name)
    write_record(writer.path / "skipped.json", record.model_copy(update=changes))
    return writer.seal()


def seal_attempt(
    run: Path,
    launch: PlanLaunch,
    point: PlanPoint,
    outcome: Outcome = GOOD,
    *,
    attempt: int = 1,
    n: int = 1,
    **changes: Any,
) -> Path:
    """Seal one attempt. ``changes`` replace fields of point.json, to make what must be refused."""
    asked = outcome.requests or max(40, 6 * point.concurrency)
    failed = 0 if not outcome.reasons else 1 if outcome.reasons == ("failed_requests",) else asked // 2
    begin = _start(run.name) + timedelta(minutes=point.concurrency, seconds=30 * attempt)
    table = requests_table(
        point.concurrency,
        requests=asked,
        failed=failed,
        seed=int(point.point_digest[:12], 16) + point.seed + attempt,  # no two tables are alike
        speed=outcome.speed,
        start_ns=int(begin.timestamp()) * 10**9,
    )
    power = power_of(None, gpus=launch.gpus, sku=str(launch.identity["sku"]))
    derived = derive(table, gpus=launch.gpus, concurrency=point.concurrency, slo=None, power=power)
    state = outcome.accuracy_state
    answered = 0 if state == "invalid" else 20
    accuracy = [
        AccuracyResult(
            task="arithmetic",
            dataset_digest="ef" * 32,
            n=answered,
            correct=min(answered, 2 if state == "failed" else 15),
            unparsed=0,
            reference=0.7,
            interval_low=0.5,
            interval_high=0.9,
            state=state,
            concurrency=point.concurrency,
        )
    ]
    record = PointRecord(
        run_id=run.name,
        point_id=point.point_id,
        attempt=attempt,
        launch_id=identity.launch_id(launch.launch_digest, n),
        point_digest=point.point_digest,
        launch_digest=launch.launch_digest,
        started_at=_iso(begin),
        ended_at=_iso(begin + timedelta(seconds=20)),
        verdict=worst(list(outcome.reasons)),
        reasons=[ReasonNote(code=code, detail=f"seen: {code}") for code in outcome.reasons],
        accuracy_state=state,
        accuracy=[] if state == "not_run" else accuracy,
        canary={"asked": 1, "correct": outcome.canary_correct, "concurrency": point.concurrency},
        phases=[
            PhaseRow(name=name, started_at=_iso(begin + timedelta(seconds=index)), duration_s=1.0)
            for index, name in enumerate(("reset", "warmup", "load", "canary", "seal"))
        ],
        counts=derived.counts,
        windows=derived.windows,
        metrics=derived.rows,
        client={"name": "aiperf", "version": "0.13.0", "profile": "shared-cpu"},
    )
    record = record.model_copy(update=changes)
    lock = LockRecord(
        run_id=run.name,
        sweep="demo",
        launch=launch.model_dump(mode="json", exclude={"points"}),
        point=point.model_dump(mode="json"),
        resolved={"engine_version": "2026.10"},
        fingerprint={"cpu": "made up", "cores": 2},
        created_from={"rev": "0" * 40, "dirty": False},
    )
    writer = BundleWriter(run, "point", f"{point.point_id}/{attempt}", f"{point.point_id}/{attempt}")
    write_record(writer.path / "point.json", record)
    write_record(writer.path / "lock.json", lock)
    pq.write_table(table, writer.path / "requests.parquet")
    for name, data in outcome.extra_files.items():
        (writer.path / name).parent.mkdir(parents=True, exist_ok=True)
        (writer.path / name).write_bytes(data)
    return writer.seal()


def make_run(
    store: Path,
    plan: Plan | None = None,
    run_id: str = RUN_ID,
    outcomes: Mapping[tuple[int, int], Outcome | Sequence[Outcome] | None] | None = None,
    *,
    default: Outcome = GOOD,
) -> Path:
    """Seal a whole run. Returns its folder.

    :param outcomes: by (concurrency, repetition): how that point ends; a list gives one attempt
        each; None gives a point without an attempt. Points that are not named end as ``default``.
    """
    plan = plan or make_plan()
    chosen = dict(outcomes or {})
    run = seal_plan(store, plan, run_id)
    for launch in plan.launches:
        for point in launch.points:
            outcome = chosen.get((point.concurrency, point.repetition), default)
            tries = [] if outcome is None else [outcome] if isinstance(outcome, Outcome) else list(outcome)
            for number, attempt in enumerate(tries, start=1):
                seal_attempt(run, launch, point, attempt, attempt=number)
        seal_launch(run, launch)
    return run


def edit(folder: Path, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a JSON file of a sealed bundle and its manifest too: hashes are right, content is not."""
    path = folder / name
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    reseal(folder)


def reseal(folder: Path) -> None:
    """Write the manifest anew for the files that are there now."""
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    manifest["files"] = [
        {
            "path": path.relative_to(folder).as_posix(),
            "sha256": file_sha256(path),
            "bytes": path.stat().st_size,
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "MANIFEST.json"
    ]
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))


def headline_names() -> list[str]:
    """The metric columns of ``points``."""
    return [name for name, metric in METRICS.items() if metric.headline]
