"""One attempt at one point: reset, warm-up, load, canary, accuracy, judge, seal (DESIGN 3)."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from isoline.accuracy.canary import run_canary
from isoline.accuracy.check import judge_batch
from isoline.accuracy.questions import Batch, ask_batch, read_questions
from isoline.datasets.schema import dataset_path
from isoline.errors import InfraError
from isoline.load.collect import collect
from isoline.load.command import LoadSpec
from isoline.load.supervise import LoadProgress, make_scratch, run_load
from isoline.results.bundles.bundle import BundleWriter, utc_now, write_file, write_record
from isoline.results.bundles.records import Plan, PlanPoint, PointRecord, ReasonNote
from isoline.results.judging.reasons import REASONS, Verdict
from isoline.runners.causes import explain_logs, log_sizes, server_logs
from isoline.runners.launchers.compile_cache import mark_warm
from isoline.runners.launchers.interface import PhaseFailedError, StoppedError
from isoline.runners.ownership import owners
from isoline.runners.telemetry import foreign
from isoline.sweeps.execution.context import Context, disk_full, full_disk_line
from isoline.sweeps.execution.phases import Phases
from isoline.sweeps.execution.record import (
    Job,
    Live,
    Seen,
    build_lock,
    build_record,
    mark_windows,
    write_evidence,
)
from isoline.sweeps.execution.warmup import (
    COLD_FACTOR,
    OUTPUT_TOKENS,
    ROUND_SEED,
    is_steady,
    judge_warmup,
    warmup_prompts,
)
from isoline.sweeps.planning.loadspec import load_spec

RATE_HEADROOM = 3.0
"""A second try after ``client_rate_capped`` ticks this many times faster than the rule asks for."""

WATCH_S = 3.0
"""How long the watch may take to see that a server has ended: a container's end takes a moment to tell."""

SERVER_FAILED = frozenset(
    (
        "server_died",
        "server_killed",
        "server_restarted",
        "stalled",
        "load_timeout",
        "reset_failed",
        "oom",
        "warmup_failed",
        "too_many_failed",
    )
)
"""Reason codes after which the server's log is asked why."""


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
        self.run = run
        self.job = Job(
            context=context,
            plan=plan,
            run_id=run_id,
            live=live,
            point=point,
            number=number,
            scenario=context.scenarios[point.scenario],
            started_at=utc_now(),
            started_ns=time.time_ns(),
        )
        self.context = context
        self.live = live
        self.point = point
        self.scenario = self.job.scenario
        self.tick_factor = tick_factor
        self.phases = Phases(on_phase)
        self.on_load = on_load
        self.seen = Seen()
        self.log_sizes = log_sizes(live.server.spec.log.parent)

    # --- running ------------------------------------------------------------------------------

    def measure(self) -> PointRecord:
        """Go through all phases and seal. Whatever happens to server or client becomes a verdict.

        :raises OSError, InfraError: when the store cannot be written (nothing half is sealed then).
        """
        self.live.watch.take_paused()
        place = f"{self.point.point_id}/{self.job.number}"
        writer = BundleWriter(self.run, "point", place, place)
        try:
            self._phases(writer.path)
            with self.phases.phase("seal"):
                self._note_events()
                self._explain()
                write_evidence(writer.path, self.job, self.seen)
                record = build_record(self.job, self.seen, self.phases.rows)
                mark_windows(writer.path, record)
                write_record(writer.path / "lock.json", build_lock(self.job))
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
            if self.seen.findings and not self.seen.events:
                # Requests fail at once when a server dies, and the watch is a moment later: what the
                # machine did must not look like what the engine did.
                self._await_watch()
            self._note_events()
            if self.seen.events or (name in ("reset", "warmup") and self.seen.findings):
                return
            if name == "load" and not self._has_answers():
                return

    def _await_watch(self) -> None:
        """Let the watch see what it is about to see: a server that has ended, or does not answer any more."""
        until = time.monotonic() + WATCH_S
        while self.live.watch.event() is None and time.monotonic() < until:
            if self.live.server.ended() is None and self.live.server.adapter.healthy(self.live.server.url):
                return
            time.sleep(0.05)

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

    def _explain(self) -> None:
        """Where the server failed under the attempt: why, by what it wrote since the attempt began."""
        codes = {note.code for note in [*self.seen.events, *self.seen.findings]}
        if not codes & SERVER_FAILED:
            return
        folder = self.live.server.spec.log.parent
        cause = explain_logs(server_logs(folder), self.live.recipe.engine, self.log_sizes)
        self.seen.cause = cause.record() if cause else None
        if cause and cause.code not in codes and any(cause.is_proof_against(code) for code in codes):
            self.seen.events.append(ReasonNote(code=cause.code, detail=cause.lines[0][1]))

    def _has_answers(self) -> bool:
        table = self.seen.table
        return table is not None and "ok" in set(table.column("status").to_pylist())

    # --- phases -------------------------------------------------------------------------------

    def _reset(self) -> None:
        self.live.launcher.reset(self.live.server, self._should_stop)

    def _warmup(self) -> None:
        began = time.monotonic()
        batch = self._warmup_batch(0)
        took = [time.monotonic() - began]
        if self._should_stop() is None:
            self.seen.findings += judge_warmup(batch, self.point.concurrency)
        cache = self.live.compiled
        if cache is None or not cache.cold or self.seen.findings:
            return
        # Kernels are compiled as they are first asked for: nothing is measured before that is over.
        limit_s = self.scenario.deadlines.warmup_s * COLD_FACTOR
        while self._should_stop() is None and not is_steady(took):
            if time.monotonic() - began > limit_s:
                self._add("warmup_failed", f"cold compile cache: not steady after {len(took)} rounds")
                return
            round_began = time.monotonic()
            self._warmup_batch(len(took))
            took.append(time.monotonic() - round_began)
        if self._should_stop() is None:
            with contextlib.suppress(InfraError):  # then the next launch warms up as long again
                mark_warm(self.live.server.spec.node, cache)
            self.live.compiled = replace(cache, cold=False)

    def _warmup_batch(self, number: int) -> Batch:
        """One round of warm-up: prompts that nobody sent before, at the point's concurrency."""
        concurrency = self.point.concurrency
        return ask_batch(
            self.live.server.url,
            self.live.server.spec.alias,
            warmup_prompts(
                concurrency * self.scenario.warmup_per_concurrency,
                self.point.seed + self.job.number + number * ROUND_SEED,
            ),
            concurrency=concurrency,
            max_tokens=OUTPUT_TOKENS,
            deadline_s=self.scenario.deadlines.warmup_s,
            extra={"ignore_eos": True},
            should_stop=self._should_stop,
        )

    def _load(self, folder: Path) -> None:
        spec = self._spec(folder / "aiperf")
        self.seen.spec = spec
        state = self.context.settings.state
        before = foreign.mark(self.live.server.pids())
        others = foreign.launches_cpu_s(state, self.live.launch_id)
        scratch = make_scratch()
        with owners.owned(
            state,
            run_id=self.job.run_id,
            launch_id=self.live.launch_id,
            what="client",
            log=folder / "aiperf.log",
            scratch=scratch,
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
                scratch=scratch,
            )
        self.seen.outcome = outcome
        self.seen.beside = foreign.shares(
            others,
            foreign.launches_cpu_s(state, self.live.launch_id),
            outcome.wall_s,
            os.cpu_count() or 1,
        )
        self.seen.foreign_cpu_share = foreign.foreign_share(
            before, foreign.mark(self.live.server.pids()), outcome.cpu_s, os.cpu_count() or 1
        )
        if outcome.stop_reason == "load_timeout" and outcome.was_stopped:
            self._add("client_died", "it was stopped by a signal and did not go on")
        elif outcome.stop_reason == "load_timeout":
            self._add("load_timeout", f"not done after {self.scenario.deadlines.load_s:g} s")
            if busy := foreign.busy_line(self.seen.foreign_cpu_share):
                self._add("machine_busy", busy)
        elif outcome.killed_from_outside:
            self._add("client_died", f"ended by signal {outcome.signal}")
        if step := outcome.clock_step_s:
            self._add("clock_stepped", f"the clock was set by {step:+.1f} s during the load")
        if full := full_disk_line(folder / "aiperf.log"):
            # No attempt: what it would say is about the disk, and each one uses up a try.
            raise disk_full(f"the load generator could not write: {full}", self.context.settings.store)
        export, self.seen.export = collect(spec, outcome, self.live.tokenizer.tokenizer_json)
        if export is not None:
            self.seen.table, self.seen.version = export.requests, export.version

    def _spec(self, artifacts: Path) -> LoadSpec:
        dataset = self.job.dataset
        input_file = dataset_path(self.context.settings.project, dataset) if dataset.file else None
        return load_spec(
            self.point,
            self.scenario,
            dataset,
            engine=self.live.recipe.engine,
            client_profile=self.context.client_profile,
            url=self.live.server.url,
            model=self.live.server.spec.alias,
            tokenizer=self.live.tokenizer.repo,
            artifacts=artifacts,
            input_file=input_file,
            tick_factor=self.tick_factor,
        )

    def _canary(self) -> None:
        if self.live.recipe.canary is None:
            return  # nobody has measured which questions this model always answers right
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
