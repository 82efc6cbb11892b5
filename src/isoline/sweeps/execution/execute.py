"""Execute a plan: ask the scheduler, start what it says, wait for what ends, until nothing is due.

A thin shell around :mod:`.schedule`. The main thread decides, each launch in flight has a thread of its own
(:mod:`.flight`); everything that is known lies on disk, so that a killed run goes on where it was.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

from isoline.errors import InfraError
from isoline.results.bundles.records import PlanLaunch, PlanPoint, PointRecord
from isoline.results.identity import launch_id
from isoline.results.judging.reasons import Verdict
from isoline.runners.launchers.interface import Launcher
from isoline.runners.ownership import leases
from isoline.sweeps.execution import schedule
from isoline.sweeps.execution.context import Context, disk_full, full_disk_is_clear
from isoline.sweeps.execution.fleet import Fleet
from isoline.sweeps.execution.flight import Flight, Ticket, explained
from isoline.sweeps.execution.launch import is_infra
from isoline.sweeps.execution.sofar import SoFar, seal_skipped, window_of
from isoline.sweeps.planning.due import due_points
from isoline.sweeps.state.control import Controls, read_controls
from isoline.sweeps.state.journal import JOURNAL, Journal
from isoline.sweeps.state.outcome import NEXT_AFTER, Outcome, outcome_of
from isoline.sweeps.state.poollock import say_who, tidy
from isoline.sweeps.state.progress import Progress
from isoline.sweeps.state.runs import Run, next_launch_number

MAX_LAUNCH_TRIES = 3
"""Starts of one launch in a row that may fail for the machine's reasons before it is given up."""

LOOK_S = 0.25
"""How often people's commands are looked at."""

DECIDE_S = 5.0
"""How often a decision is made anew when nothing has changed: windows close, other pools free nodes."""


class Executor:
    """Executes one run. Everything that it learns is on disk when a method returns.

    :param budget_s: device seconds that the run may take in all; None = no limit.
    """

    def __init__(
        self,
        context: Context,
        launcher: Launcher,
        run: Run,
        progress: Progress,
        budget_s: float | None = None,
    ) -> None:
        self.context = context
        self.pool = context.pool
        self.launcher = launcher
        self.run = run
        self.progress = progress
        self.journal = Journal(run.work / JOURNAL)
        self.measured = 0
        self._state = context.settings.state
        self._budget_s = budget_s
        self._launches = {launch.launch_digest: launch for launch in run.plan.launches}
        self._fleet = Fleet(self._state, self.pool)
        self._flights: dict[str, tuple[Flight, leases.Lease, schedule.Flight]] = {}
        self._failed_in_a_row: Counter[str] = Counter()
        self._given_up: set[str] = set()
        self._lost: set[str] = set()
        self._not_staged: dict[str, str] = {}  # launch -> what is not there
        self._changed = threading.Event()
        self._lock = threading.Lock()
        self._closes_at: float | None = None
        self._controls = Controls()
        self._skips: tuple[schedule.Skip, ...] = ()
        self._waits: Counter[str] = Counter()

    # --- the loop -----------------------------------------------------------------------------

    def execute(self) -> Outcome:
        """Measure everything that is due. Resumable at any moment.

        :raises InfraError: for a full disk or a machine that cannot be cleaned.
        """
        tidy(self.context.settings, self.run, self.progress.say, self.pool)
        say_who(self._state, self.pool.name, self.run)
        with full_disk_is_clear(self.context.settings.store):
            self._closes_at = window_of(self.pool.until, self.run, datetime.now(UTC))
            closes = schedule.clock(self._closes_at) if self._closes_at else None
            self.journal.write("run", run_id=self.run.run_id, closes_at=self._closes_at)
            if closes:
                self.progress.say(f"the window closes at {closes}: nothing starts that would not end by then")
            self._so_far = SoFar(self.run)
            try:
                self._loop()
            except KeyboardInterrupt:
                self._insist()
                raise
            except BaseException:
                self._land_all()
                raise
            interrupted = self.context.stop.why() is not None or self._controls.is_cancelled
            skipped = self._left_out(interrupted)
            if skipped:
                seal_skipped(self.run, skipped, is_new=self.measured > 0)
            self.journal.write("end", skipped=dict(Counter(item.cause for item in skipped)))
        return self._outcome(interrupted, skipped)

    def _loop(self) -> None:
        decided = 0.0
        while True:
            self._land()
            controls = read_controls(self.run.work)
            is_new = controls != self._controls
            if is_new:
                self._obey(controls)
            now = time.monotonic()
            if is_new or self._changed.is_set() or self.context.stop.why() or now - decided >= DECIDE_S:
                self._changed.clear()
                decided = now
                if not self._decide():
                    return
            self._changed.wait(LOOK_S)

    def _decide(self) -> bool:
        """One decision and its starts. Returns whether there is anything to wait for."""
        if self.context.stop.why():
            return bool(self._flights)
        decision = schedule.decide(self._schedule_state())
        self._tell(decision)
        started = 0
        for start in decision.starts:
            started += self._start(start)
        if started < len(decision.starts):
            self._changed.set()
        return bool(self._flights or decision.starts or decision.waits)

    def _tell(self, decision: schedule.Decision) -> None:
        """Say what is newly left out, and what is waited for while nothing flies."""
        known = {(skip.key, skip.cause) for skip in self._skips}
        for skip in decision.skips:
            if (skip.key, skip.cause) not in known:
                launch = self._launches[skip.key]
                self.journal.write(
                    "skipped",
                    phase="skipped",
                    launch_id=skip.key[:10],
                    points=len(skip.points),
                    cause=f"{skip.cause}: {skip.detail}",
                    evidence=" ".join(skip.evidence),
                    next=NEXT_AFTER.get(skip.cause, ""),
                )
                self.progress.say(
                    f"skipped {launch.recipe_id} {launch.topology} ({len(skip.points)} point(s)): "
                    f"{skip.cause}: {skip.detail}"
                )
        self._skips = decision.skips
        waits = Counter(item.why for item in decision.waits)
        if waits != self._waits and not decision.starts and not self._flights:
            for why, count in waits.items():
                self.progress.say(f"{count} launch(es) wait: {why}")
            self.journal.write("waits", **{"for": dict(waits)})
        self._waits = waits

    # --- the state that is decided on ---------------------------------------------------------

    def _schedule_state(self) -> schedule.State:
        now = datetime.now(UTC)
        spent = self._so_far.spent_s
        return schedule.State(
            now=now.timestamp(),
            tasks=tuple(self._tasks()),
            flights=tuple(flight for _, _, flight in self._flights.values()),
            nodes=self._fleet.nodes(now),
            max_nodes=self.pool.nodes,
            taken=self._fleet.taken(),
            max_parallel=self.pool.max_parallel,
            share_node=self.pool.share_node,
            closes_at=self._closes_at,
            budget_left_s=None if self._budget_s is None else self._budget_s - spent,
            images=self._so_far.images(self._controls),
            is_paused=self._controls.is_paused,
            is_cancelled=self._controls.is_cancelled,
            taken_out={
                digest: why for digest in self._launches if (why := self._controls.why_skipped(digest))
            },
        )

    def _tasks(self) -> list[schedule.Task]:
        tasks = []
        for digest, launch in self._launches.items():
            due = self._due(launch) if digest not in self._given_up else []
            if due:
                image = self._so_far.image_of[digest]
                points = tuple((point.point_id, point.estimate_s) for point in due)
                tasks.append(schedule.Task(digest, image, launch.gpus, startup_s(launch), points))
        return tasks

    def _due(self, launch: PlanLaunch) -> list[PlanPoint]:
        return due_points(launch, self._so_far.verdicts, self._controls.retries)

    # --- starts and ends ----------------------------------------------------------------------

    def _start(self, start: schedule.Start) -> bool:
        """Lease and start. False where somebody else was faster: the next decision knows it."""
        launch = self._launches[start.key]
        due = tuple(self._due(launch))
        now = datetime.now(UTC)
        seconds = startup_s(launch) + sum(point.estimate_s for point in due)
        number = next_launch_number(self.run, launch)
        name = launch_id(start.key, number)
        try:
            lease = self._fleet.lease(self.run, name, start.placement, now + timedelta(seconds=seconds))
        except InfraError as error:
            self.journal.write("waits", launch_id=name, cause=error.line())
            return False
        node, devices = start.placement[0] if start.placement else ("", ())
        try:
            flight = Flight(
                self.context,
                self.launcher,
                self.run,
                Ticket(launch, number, due, self._fleet.hosts.get(node), devices),
                self.journal,
                self.progress.line,
                may_go=self._may_go,
                on_sealed=self._sealed,
                on_end=self._changed.set,
            )
            self.journal.write(
                "launch",
                phase="leased",
                launch_id=flight.launch_id,
                places=lease.text(),
                recipe_id=launch.recipe_id,
                points=len(due),
                ends_at=lease.ends_at,
            )
            told = schedule.Flight(
                start.key,
                self._so_far.image_of[launch.launch_digest],
                start.placement,
                now.timestamp() + seconds,
                seconds * launch.gpus,
            )
            self._flights[start.key] = (flight, lease, told)
            flight.start()
        except BaseException:
            self._flights.pop(start.key, None)
            leases.give_back(self._state, lease)
            raise
        return True

    def _may_go(self, point: PlanPoint) -> str:
        """Why a point does not begin now; "" when it may. Called by the flights."""
        if self._controls.is_paused:
            return "the run is paused"
        if not schedule.fits_window(time.time(), point.estimate_s, self._closes_at):
            return "window_closed"
        return ""

    def _sealed(self, record: PointRecord) -> None:
        with self._lock:
            self.measured += 1
            self._so_far.note_attempt(record)
        self._changed.set()  # what waited for a canary may go now

    def _land(self) -> None:
        """Take in what has ended.

        :raises InfraError: for a full disk; anything that a flight could not handle.
        """
        for key, (flight, lease, _) in list(self._flights.items()):
            if not flight.is_over:
                continue
            flight.join()
            del self._flights[key]
            with contextlib.suppress(OSError):
                leases.give_back(self._state, lease)
            landed = flight.landed
            if landed.fatal is not None:
                raise landed.fatal
            if landed.start is not None:
                self._so_far.note_start(landed.start, landed.records)
            self._note_node(flight, lease)
            self.journal.write("landed", phase="landed", launch_id=flight.launch_id)
            if landed.failure is None:
                self._failed_in_a_row[key] = 0
                continue
            self._failed(key, flight)

    def _failed(self, key: str, flight: Flight) -> None:
        """A start that did not come to a ready server."""
        error = flight.landed.failure
        assert error is not None
        infra = is_infra(error.reasons)
        self._failed_in_a_row[key] += 1
        not_there = [note.detail for note in error.reasons if note.code == "not_staged"]
        if not_there:  # a launch downloads nothing: trying again finds the same
            self._not_staged[key] = "; ".join(not_there)
        is_over = not infra or bool(not_there) or self._failed_in_a_row[key] >= MAX_LAUNCH_TRIES
        told = explained(error.reasons)
        self.journal.write(
            "launch_failed",
            phase="failed",
            launch_id=flight.launch_id,
            why=str(error),
            evidence=f"_launch/{flight.launch_id}/server.log",
            **(told | ({} if is_over else {"next": "it is tried again"})),
        )
        self.progress.say(f"launch {flight.launch_id} failed: {error}")
        if error.log_tail:
            self.progress.say("  " + "\n  ".join(error.log_tail.splitlines()[-5:]))
        for note in error.reasons:
            if note.code == "disk_full":  # a second try finds the same disk
                raise disk_full(note.detail, self.context.settings.store) from error
        if is_over:
            self._given_up.add(key)
            if infra and not not_there:
                self._lost |= {point.point_id for point in flight.ticket.due}

    def _note_node(self, flight: Flight, lease: leases.Lease) -> None:
        """Count an error of the machine against its nodes, and say which are quarantined by it."""
        landed = flight.landed
        notes = [note for record in landed.records for note in record.reasons]
        notes += landed.start.reasons if landed.start else []
        is_good = any(record.verdict is Verdict.VALID for record in landed.records)
        for node, hold in self._fleet.note(lease, notes, is_good, landed.nodes):
            self.progress.say(f"node {node} is {hold.text()}")
            self.journal.write(
                "quarantine",
                phase="quarantined",
                node=node,
                cause=hold.reason,
                next=f"`isoline pool release {node}`, or it ends at {hold.until}",
            )

    # --- people -------------------------------------------------------------------------------

    def _obey(self, controls: Controls) -> None:
        """Take people's commands into account."""
        before, self._controls = self._controls, controls
        changes = {
            "paused": (before.is_paused, controls.is_paused),
            "cancelled": (before.is_cancelled, controls.is_cancelled),
        }
        for name, (was, is_now) in changes.items():
            if was != is_now:
                line = name if is_now else f"no longer {name}"
                lifts = f"; `isoline sweep resume {self.run.run_id}` lifts that" if is_now else ""
                self.progress.say(f"the run is {line}{lifts}")
                self.journal.write("control", phase=line, cause="a command of a person")
        if controls.is_cancelled:
            self.context.stop.set()
        for digest, (flight, _, _) in self._flights.items():
            if controls.why_skipped(digest):
                flight.stop.set()
        for point_id in controls.retries.keys() - before.retries.keys():
            for digest, launch in self._launches.items():
                if any(point.point_id == point_id for point in launch.points):
                    self._given_up.discard(digest)
                    self._not_staged.pop(digest, None)
                    self._failed_in_a_row[digest] = 0

    def _land_all(self) -> None:
        """Something ends the run: stop what flies, in order, before it is told."""
        self.context.stop.set()
        for flight, lease, _ in self._flights.values():
            flight.join()
            with contextlib.suppress(OSError):
                leases.give_back(self._state, lease)

    def _insist(self) -> None:
        """A second Ctrl-C: end our processes now; the next run seals or drops what is half."""
        self._fleet.end_ours()
        for _, lease, _ in self._flights.values():
            with contextlib.suppress(OSError):
                leases.give_back(self._state, lease)

    # --- the end ------------------------------------------------------------------------------

    def _left_out(self, interrupted: bool) -> list[schedule.Skip]:
        """What has no attempt and why, as far as the run itself decided it."""
        without = {point_id for point_id, items in self._so_far.verdicts.items() if not items}
        known = {skip.key: skip for skip in self._skips}
        failed = self._so_far.failed_launches
        left = []
        for digest, launch in self._launches.items():
            points = tuple(point.point_id for point in launch.points if point.point_id in without)
            skip = known.get(digest)
            if digest in self._not_staged:
                skip = schedule.Skip(digest, points, "not_staged", self._not_staged[digest])
            if skip is None and interrupted:
                why = "the run was cancelled" if self._controls.is_cancelled else "the run was stopped"
                skip = schedule.Skip(digest, points, "cancelled_run", why)
            if not points or skip is None or (skip.cause == "breaker" and digest in failed):
                continue  # a launch that failed itself says so by its own bundle
            left.append(schedule.Skip(digest, points, skip.cause, skip.detail, skip.evidence))
        return left

    def _outcome(self, interrupted: bool, skipped: list[schedule.Skip]) -> Outcome:
        outcome = outcome_of(self.run, self.measured, interrupted)
        lost = self._lost | {name for skip in skipped if skip.cause == "no_node" for name in skip.points}
        outcome.lost = sum(not items for name, items in self._so_far.verdicts.items() if name in lost)
        for skip in skipped:
            outcome.skipped[skip.cause] = outcome.skipped.get(skip.cause, 0) + len(skip.points)
        if self._controls.is_cancelled:
            outcome.told = f"the run is cancelled; `isoline sweep resume {self.run.run_id}` lifts that"
        return outcome


def startup_s(launch: PlanLaunch) -> float:
    """What the plan expects of a launch before its first point, seconds."""
    return max(launch.estimate_s - sum(point.estimate_s for point in launch.points), 0.0)
