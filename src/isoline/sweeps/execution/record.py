"""What an attempt leaves: evidence files, point.json with its verdict, and lock.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from isoline.accuracy.check import worst_state
from isoline.datasets.schema import Dataset
from isoline.load.collect import client_facts, client_record
from isoline.load.command import LoadSpec
from isoline.load.supervise import LoadOutcome
from isoline.recipes.schema import Recipe
from isoline.results.bundles.bundle import utc_now, write_file
from isoline.results.bundles.records import (
    AccuracyResult,
    CauseRecord,
    LockRecord,
    PhaseRow,
    Plan,
    PlanLaunch,
    PlanPoint,
    PointRecord,
    ReasonNote,
)
from isoline.results.bundles.requests import REQUESTS_SCHEMA
from isoline.results.judging.judge import ClientFacts, Evidence, ExportFacts, Rules, judge
from isoline.results.metrics.derive import derive
from isoline.results.metrics.energy import power_of
from isoline.results.metrics.rederive import TELEMETRY
from isoline.runners.launchers.compile_cache import CompileCache
from isoline.runners.launchers.interface import Launcher, Server
from isoline.runners.launchers.watch import Watch
from isoline.runners.staging.tokenizer import TokenizerInfo
from isoline.runners.telemetry import table as telemetry
from isoline.sweeps.execution.context import Context
from isoline.sweeps.planning.schema import Scenario


@dataclass
class Live:
    """A running launch, as the attempts on it see it."""

    launch: PlanLaunch
    launch_id: str
    recipe: Recipe
    server: Server
    launcher: Launcher
    watch: Watch
    tokenizer: TokenizerInfo
    lock: dict[str, Any]  # what the placeholders became; part of each point's lock
    fingerprint: Mapping[str, Any]  # of the launch's machine before its start
    compiled: CompileCache | None = None  # where its kernels are kept


@dataclass(frozen=True)
class Job:
    """One attempt before anything has happened: what is measured, where, as which number."""

    context: Context
    plan: Plan
    run_id: str
    live: Live
    point: PlanPoint
    number: int
    scenario: Scenario
    started_at: str
    started_ns: int

    @property
    def dataset(self) -> Dataset:
        """The dataset of the scenario."""
        return self.context.datasets[self.scenario.dataset]


@dataclass
class Seen:
    """What an attempt has gathered so far."""

    events: list[ReasonNote] = field(default_factory=list)
    findings: list[ReasonNote] = field(default_factory=list)
    canary: dict[str, Any] | None = None
    accuracy: list[AccuracyResult] = field(default_factory=list)
    spec: LoadSpec | None = None
    outcome: LoadOutcome | None = None
    export: ExportFacts = field(default_factory=ExportFacts)
    table: pa.Table | None = None
    telemetry: pa.Table | None = None  # the slice that the bundle holds
    version: str = ""
    foreign_cpu_share: float | None = None  # of all cores, by programs that are not this launch's
    beside: dict[str, float] = field(default_factory=dict)  # our other launches among them, by id
    cause: CauseRecord | None = None  # why the server failed, by its log

    @property
    def requests(self) -> pa.Table:
        """The request table; an empty one where the load gave none."""
        return self.table if self.table is not None else REQUESTS_SCHEMA.empty_table()


def write_evidence(folder: Path, job: Job, seen: Seen) -> None:
    """Requests, telemetry and the canary's answers, as files of the bundle."""
    pq.write_table(seen.requests, folder / "requests.parquet")
    job.live.watch.write_telemetry(folder / TELEMETRY, from_ns=job.started_ns)
    seen.telemetry = pq.read_table(folder / TELEMETRY)
    if seen.canary is not None:
        text = json.dumps(seen.canary, ensure_ascii=False, indent=1) + "\n"
        write_file(folder / "accuracy" / "canary.json", text.encode())
    # Links and sockets have no place in a bundle; AIPerf should leave none.
    for path in (folder / "aiperf").rglob("*"):
        if path.is_symlink():
            path.unlink()


def mark_windows(folder: Path, record: PointRecord) -> None:
    """Say in the slice of telemetry where the windows of measurement lie."""
    spans = {
        name: None if span is None else (span.start_ns, span.end_ns) for name, span in record.windows.items()
    }
    telemetry.mark(folder / TELEMETRY, spans)


def client_warmup_s(table: pa.Table) -> float | None:
    """How long the load generator's own warm-up requests took, seconds; None where it sent none.

    They lie between its start and the first measured request, and are load, not harness.
    """
    rows = table.filter(pc.equal(table.column("phase"), "warmup"))
    begin, end = pc.min(rows.column("intended_send_ns")).as_py(), pc.max(rows.column("end_ns")).as_py()
    return None if begin is None or end is None else round((end - begin) / 1e9, 3)


def rules_of(job: Job, asked: int) -> Rules:
    """What the judge holds the attempt to."""
    scenario = job.scenario
    return Rules(
        concurrency=job.point.concurrency,
        asked=asked,
        max_failed_share=scenario.max_failed_share,
        min_requests=1,
        ignore_eos=scenario.ignore_eos,
        cache=scenario.cache,
        isl=scenario.isl,
        osl=scenario.osl,
    )


def _client(job: Job, seen: Seen) -> dict[str, Any]:
    version = seen.version or job.context.client.version
    if seen.spec is None or seen.outcome is None:
        return {"name": "aiperf", "version": version}
    return {
        **client_record(seen.spec.profile, version, seen.spec, seen.outcome, seen.table),
        "client_warmup_s": client_warmup_s(seen.requests),
        "foreign_cpu_share": seen.foreign_cpu_share,
        "beside": seen.beside,
    }


def build_record(job: Job, seen: Seen, phases: Sequence[PhaseRow]) -> PointRecord:
    """point.json: the verdict and its reasons, the counts, the windows and every metric."""
    live, point = job.live, job.point
    asked = seen.spec.requests if seen.spec else 0
    derived = derive(
        seen.requests,
        gpus=live.launch.gpus,
        concurrency=point.concurrency,
        slo=dict(job.scenario.identity()["limits"]) or None,
        power=power_of(seen.telemetry, gpus=live.launch.gpus, sku=str(live.launch.identity["sku"])),
    )
    evidence = Evidence(
        rules=rules_of(job, asked),
        table=seen.table,
        export=seen.export,
        client=client_facts(seen.spec, seen.outcome) if seen.spec and seen.outcome else ClientFacts(),
        attempt_started_ns=job.started_ns,
        events=seen.events,
        findings=seen.findings,
    )
    if not seen.events and (seen.spec is None or seen.outcome is None):
        # It ended before there was any load: what was found then is all there is.
        evidence = replace(evidence, events=[*seen.findings], findings=[])
    verdict, reasons = judge(evidence)
    return PointRecord(
        run_id=job.run_id,
        point_id=point.point_id,
        attempt=job.number,
        launch_id=live.launch_id,
        point_digest=point.point_digest,
        launch_digest=live.launch.launch_digest,
        started_at=job.started_at,
        ended_at=utc_now(),
        verdict=verdict,
        reasons=reasons,
        accuracy_state=worst_state(seen.accuracy),
        accuracy=seen.accuracy,
        canary=seen.canary,
        phases=list(phases),
        counts=derived.counts.model_copy(update={"asked": max(asked, derived.counts.asked)}),
        windows=derived.windows,
        metrics=derived.rows,
        client=_client(job, seen),
        cause=seen.cause,
    )


def build_lock(job: Job) -> LockRecord:
    """lock.json: everything that the point was measured with; enough to measure it again."""
    context, live = job.context, job.live
    canary = live.recipe.canary
    return LockRecord(
        run_id=job.run_id,
        sweep=job.plan.sweep,
        launch=live.launch.model_dump(mode="json", exclude={"points"}),
        point=job.point.model_dump(mode="json"),
        resolved={
            **live.lock,
            "client": {"aiperf": context.client.version},
            "tokenizer_sha256": live.tokenizer.sha256,
            "scenario": job.scenario.model_dump(mode="json"),
            "dataset": job.dataset.model_dump(mode="json"),
            "canary": context.datasets[canary].model_dump(mode="json") if canary else None,
            "pool": {
                "launcher": context.launcher,
                "host": context.host,
                "client_profile": context.client_profile,
            },
        },
        fingerprint=dict(live.fingerprint),
        created_from=job.plan.created_from,
    )
