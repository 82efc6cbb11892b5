"""One attempt at one point: reset, warm-up, load, canary, accuracy, judge, seal (DESIGN 3)."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from isoline.accuracy.canary import run_canary
from isoline.accuracy.check import judge_batch, worst_state
from isoline.accuracy.questions import ask_batch, read_questions
from isoline.catalog.facts import load_catalog
from isoline.datasets.schema import Dataset, dataset_path
from isoline.load.collect import client_facts, client_record, collect
from isoline.load.command import LoadSpec
from isoline.load.profile import profile
from isoline.load.supervise import LoadOutcome, LoadProgress, run_load
from isoline.recipes.schema import Recipe
from isoline.results.bundle import BundleWriter, utc_now, write_file, write_record
from isoline.results.derive import derive
from isoline.results.judge import ClientFacts, Evidence, ExportFacts, Rules, judge
from isoline.results.reasons import REASONS, Verdict
from isoline.results.records import (
    AccuracyResult,
    LockRecord,
    Plan,
    PlanLaunch,
    PlanPoint,
    PointRecord,
    ReasonNote,
)
from isoline.results.requests import REQUESTS_SCHEMA
from isoline.runners import owners
from isoline.runners.launcher import Launcher, PhaseFailedError, Server, StoppedError
from isoline.runners.tokenizer import TokenizerInfo
from isoline.runners.watch import Watch
from isoline.sweeps.context import Context, full_disk_line
from isoline.sweeps.phases import Phases
from isoline.sweeps.schema import Scenario
from isoline.sweeps.warmup import OUTPUT_TOKENS, judge_warmup, warmup_prompts

CLIENT_WARMUP = 1
"""Requests that AIPerf sends before it measures: its own first request is slow, the server's is not."""

RATE_HEADROOM = 3.0
"""A second try after ``client_rate_capped`` ticks this many times faster than the rule asks for."""


@dataclass(frozen=True)
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


@dataclass
class _Seen:
    """What an attempt has gathered so far."""

    events: list[ReasonNote] = field(default_factory=list)
    findings: list[ReasonNote] = field(default_factory=list)
    canary: dict[str, Any] | None = None
    accuracy: list[AccuracyResult] = field(default_factory=list)
    spec: LoadSpec | None = None
    outcome: LoadOutcome | None = None
    export: ExportFacts = field(default_factory=ExportFacts)
    table: pa.Table | None = None
    version: str = ""


class Attempt:
    """One attempt at one point on a running server.

    :param tick_factor: how much faster the client ticks than its rule, after a capped attempt.
    :param on_phase: called with the phase's name; ``on_load`` with the load's progress.
    """

    def __init__(
        self,
        context: Context,
        plan: Plan,
        run_id: str,
        run: Path,
        live: Live,
        point: PlanPoint,
        number: int,
        *,
        tick_factor: float = 1.0,
        on_phase: Callable[[str], None] = lambda _: None,
        on_load: Callable[[LoadProgress], None] = lambda _: None,
    ) -> None:
        self.context = context
        self.plan = plan
        self.run_id = run_id
        self.run = run
        self.live = live
        self.point = point
        self.number = number
        self.scenario: Scenario = context.scenarios[point.scenario]
        self.dataset: Dataset = context.datasets[self.scenario.dataset]
        self.tick_factor = tick_factor
        self.phases = Phases(on_phase)
        self.on_load = on_load
        self.seen = _Seen()
        self.started_at = utc_now()
        self.started_ns = time.time_ns()

    # --- running ------------------------------------------------------------------------------

    def measure(self) -> PointRecord:
        """Go through all phases and seal. Whatever happens to server or client becomes a verdict.

        :raises OSError: when the store cannot be written (nothing half is sealed then).
        """
        self.live.watch.take_paused()
        writer = BundleWriter(
            self.run, "point", f"{self.point.point_id}/{self.number}", f"{self.point.point_id}/{self.number}"
        )
        try:
            self._phases(writer.path)
            with self.phases.phase("seal"):
                self._note_events()
                self._write_evidence(writer.path)
                record = self._record()
                write_record(writer.path / "lock.json", self._lock())
            # The seal phase's own length is in the record too: it is written last.
            record = record.model_copy(update={"phases": list(self.phases.rows), "ended_at": utc_now()})
            write_record(writer.path / "point.json", record)
            writer.seal()
            return record
        except BaseException:
            writer.discard()
            raise

    def _phases(self, folder: Path) -> None:
        """Reset to accuracy; stops at the first thing that spoils the attempt."""
        steps: list[tuple[str, Callable[[], None]]] = [
            ("reset", self._reset),
            ("warmup", self._warmup),
            ("load", lambda: self._load(folder)),
            ("canary", self._canary),
        ]
        if self.point.accuracy:
            steps.append(("accuracy", lambda: self._accuracy(folder)))
        for name, step in steps:
            try:
                with self.phases.phase(name), self._guard(name):
                    step()
            except PhaseFailedError as error:
                self._add(error.code, error.detail)
            except StoppedError:
                pass  # why is told by the watch or by the person
            self._note_events()
            if self.seen.events or (name in ("reset", "warmup") and self.seen.findings):
                return
            if name == "load" and not self._has_answers():
                return

    @contextlib.contextmanager
    def _guard(self, name: str) -> Any:
        # A load that has not begun shows no progress: AIPerf's own start is inside the deadline too.
        with self.live.watch.guard(name, self.scenario.deadlines.stall_s):
            yield

    def _should_stop(self) -> str | None:
        return self.context.stop.why() or self.live.watch.why_stop()

    def _add(self, code: str, detail: str) -> None:
        note = ReasonNote(code=code, detail=detail)
        is_event = (
            REASONS[code].phase in ("load", "any", "launch") or REASONS[code].verdict is Verdict.INFRA_ERROR
        )
        (self.seen.events if is_event else self.seen.findings).append(note)

    def _note_events(self) -> None:
        """Take what the watch saw, and a person's wish to stop, as causes."""
        known = {note.code for note in self.seen.events}
        for event in self.live.watch.events():
            if event.code not in known:
                known.add(event.code)
                self.seen.events.append(ReasonNote(code=event.code, detail=event.detail))
        if self.context.stop.why() and "interrupted" not in known:
            self.seen.events.append(ReasonNote(code="interrupted", detail="asked to stop"))

    def _has_answers(self) -> bool:
        table = self.seen.table
        return table is not None and "ok" in set(table.column("status").to_pylist())

    # --- phases -------------------------------------------------------------------------------

    def _reset(self) -> None:
        self.live.launcher.reset(self.live.server, self._should_stop)

    def _warmup(self) -> None:
        concurrency = self.point.concurrency
        batch = ask_batch(
            self.live.server.url,
            self.live.server.spec.alias,
            warmup_prompts(concurrency * self.scenario.warmup_per_concurrency, self.point.seed + self.number),
            concurrency=concurrency,
            max_tokens=OUTPUT_TOKENS,
            deadline_s=self.scenario.deadlines.warmup_s,
            extra={"ignore_eos": True},
            should_stop=self._should_stop,
        )
        if self._should_stop() is None:
            self.seen.findings += judge_warmup(batch, concurrency)

    def _load(self, folder: Path) -> None:
        spec = self._spec(folder / "aiperf")
        self.seen.spec = spec
        state = self.context.settings.state
        with owners.owned(
            state, run_id=self.run_id, launch_id=self.live.launch_id, what="client", log=folder / "aiperf.log"
        ) as owner:
            outcome = run_load(
                spec,
                aiperf_bin=self.context.client.aiperf_bin,
                hf_home=self.live.tokenizer.hf_home,
                env=owners.label(owner),
                log=folder / "aiperf.log",
                deadline_s=self.scenario.deadlines.load_s,
                should_stop=self._should_stop,
                on_progress=self.on_load,
                wrap=lambda argv: owners.wrap(state, owner, argv),
            )
        self.seen.outcome = outcome
        if outcome.stop_reason == "load_timeout":
            self._add("load_timeout", f"not done after {self.scenario.deadlines.load_s:g} s")
        elif outcome.killed_from_outside:
            self._add("client_died", f"ended by signal {outcome.signal}")
        if full := full_disk_line(folder / "aiperf.log"):
            self._add("disk_full", f"the load generator could not write: {full}")
        export, self.seen.export = collect(spec, outcome, self.live.tokenizer.tokenizer_json)
        if export is not None:
            self.seen.table, self.seen.version = export.requests, export.version

    def _spec(self, artifacts: Path) -> LoadSpec:
        scenario, rules = self.scenario, profile(self.context.client_profile)
        extra: dict[str, Any] = {"ignore_eos": True} if scenario.ignore_eos else {}
        if scenario.cache == "forbid":
            extra |= load_catalog().engines[self.live.recipe.engine].no_cache_body
        common: dict[str, Any] = {
            "url": self.live.server.url,
            "model": self.live.server.spec.alias,
            "tokenizer": self.live.tokenizer.repo,
            "concurrency": self.point.concurrency,
            "seed": self.point.seed,
            "profile": rules,
            "artifact_dir": artifacts,
            "request_timeout_s": scenario.deadlines.request_s,
            "extra_inputs": extra,
        }
        if scenario.kind == "fixed_length" and scenario.requests:
            spec = LoadSpec(
                kind="fixed_length",
                requests=scenario.requests.at(self.point.concurrency),
                isl=scenario.isl,
                osl=scenario.osl,
                warmup_requests=CLIENT_WARMUP,
                **common,
            )
        else:
            spec = LoadSpec(
                kind="trace",
                requests=self.dataset.turns or 1,
                conversations=self.dataset.sessions,
                input_file=dataset_path(self.context.settings.project, self.dataset),
                **common,
            )
        tick = rules.tick_hz(self.point.concurrency)
        return replace(spec, tick_hz=None if tick is None else tick * self.tick_factor)

    def _canary(self) -> None:
        dataset = self.context.datasets[self.live.recipe.canary]
        self.seen.canary, reasons = run_canary(
            self.live.server.url,
            self.live.server.spec.alias,
            read_questions(dataset_path(self.context.settings.project, dataset)),
            concurrency=self.point.concurrency,
            minimum=self.scenario.canary_min_questions,
            max_tokens=dataset.max_tokens or 16,
            deadline_s=self.scenario.deadlines.canary_s,
            should_stop=self._should_stop,
        )
        if self._should_stop() is None:
            self.seen.findings += reasons

    def _accuracy(self, folder: Path) -> None:
        for task in self.point.accuracy:
            dataset = self.context.datasets[task]
            batch = ask_batch(
                self.live.server.url,
                self.live.server.spec.alias,
                read_questions(dataset_path(self.context.settings.project, dataset)),
                concurrency=self.point.concurrency,
                max_tokens=dataset.max_tokens or 16,
                deadline_s=self.scenario.deadlines.accuracy_s,
                should_stop=self._should_stop,
            )
            if self._should_stop() is not None:
                return
            reference = self.live.recipe.accuracy.get(task)
            self.seen.accuracy.append(
                judge_batch(
                    task,
                    dataset.digest(),
                    batch,
                    reference.correct_share if reference else None,
                    reference.tolerance if reference else 0.0,
                )
            )
            text = json.dumps(batch.as_dict(), ensure_ascii=False, indent=1) + "\n"
            write_file(folder / "accuracy" / f"{task}.json", text.encode())

    # --- the bundle ---------------------------------------------------------------------------

    def _write_evidence(self, folder: Path) -> None:
        table = self.seen.table if self.seen.table is not None else REQUESTS_SCHEMA.empty_table()
        pq.write_table(table, folder / "requests.parquet")
        self.live.watch.write_telemetry(folder / "telemetry.parquet", from_ns=self.started_ns)
        if self.seen.canary is not None:
            text = json.dumps(self.seen.canary, ensure_ascii=False, indent=1) + "\n"
            write_file(folder / "accuracy" / "canary.json", text.encode())
        # Links and sockets have no place in a bundle; AIPerf should leave none.
        for path in (folder / "aiperf").rglob("*"):
            if path.is_symlink():
                path.unlink()

    def _rules(self) -> Rules:
        scenario = self.scenario
        asked = self.seen.spec.requests if self.seen.spec else 0
        return Rules(
            concurrency=self.point.concurrency,
            asked=asked,
            max_failed_share=scenario.max_failed_share,
            min_requests=1,
            ignore_eos=scenario.ignore_eos,
            cache=scenario.cache,
            isl=scenario.isl,
            osl=scenario.osl,
        )

    def _record(self) -> PointRecord:
        seen = self.seen
        derived = derive(
            seen.table if seen.table is not None else REQUESTS_SCHEMA.empty_table(),
            gpus=self.live.launch.gpus,
            concurrency=self.point.concurrency,
            slo=dict(self.scenario.identity()["limits"]) or None,
        )
        loaded = seen.spec is not None and seen.outcome is not None
        evidence = Evidence(
            rules=self._rules(),
            table=seen.table,
            export=seen.export,
            client=client_facts(seen.spec, seen.outcome) if seen.spec and seen.outcome else ClientFacts(),
            attempt_started_ns=self.started_ns,
            events=seen.events,
            findings=seen.findings,
        )
        if loaded or seen.events:
            verdict, reasons = judge(evidence)
        else:
            # It ended before there was any load: what was found then is all there is.
            verdict, reasons = judge(replace(evidence, events=[*seen.events, *seen.findings], findings=[]))
        client: dict[str, Any] = {"name": "aiperf", "version": seen.version or self.context.client.version}
        if seen.spec and seen.outcome:
            client = client_record(seen.spec.profile, client["version"], seen.spec, seen.outcome, seen.table)
        asked = self._rules().asked
        return PointRecord(
            run_id=self.run_id,
            point_id=self.point.point_id,
            attempt=self.number,
            launch_id=self.live.launch_id,
            point_digest=self.point.point_digest,
            launch_digest=self.live.launch.launch_digest,
            started_at=self.started_at,
            ended_at=utc_now(),
            verdict=verdict,
            reasons=reasons,
            accuracy_state=worst_state(seen.accuracy),
            accuracy=seen.accuracy,
            canary=seen.canary,
            phases=list(self.phases.rows),
            counts=derived.counts.model_copy(update={"asked": max(asked, derived.counts.asked)}),
            windows=derived.windows,
            metrics=derived.rows,
            client=client,
        )

    def _lock(self) -> LockRecord:
        return LockRecord(
            run_id=self.run_id,
            sweep=self.plan.sweep,
            launch=self.live.launch.model_dump(mode="json", exclude={"points"}),
            point=self.point.model_dump(mode="json"),
            resolved={
                **self.live.lock,
                "client": {"aiperf": self.context.client.version},
                "tokenizer_sha256": self.live.tokenizer.sha256,
                "scenario": self.scenario.model_dump(mode="json"),
                "dataset": self.dataset.model_dump(mode="json"),
                "canary": self.context.datasets[self.live.recipe.canary].model_dump(mode="json"),
                "pool": {
                    "launcher": self.context.launcher,
                    "host": self.context.host,
                    "client_profile": self.context.client_profile,
                },
            },
            fingerprint=dict(self.context.fingerprint),
            created_from=self.plan.created_from,
        )
