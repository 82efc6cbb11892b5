"""Execute a plan: launch after launch, point after point, until nothing is due."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from isoline.errors import InfraError
from isoline.load.supervise import LoadProgress
from isoline.results.reasons import Verdict
from isoline.results.records import PlanLaunch, PlanPoint, PointRecord
from isoline.runners import owners
from isoline.runners.launcher import Launcher, StoppedError
from isoline.settings import Settings
from isoline.sweeps.context import Context, disk_full, folder_is_usable, full_disk_is_clear
from isoline.sweeps.due import due_points, is_due
from isoline.sweeps.journal import JOURNAL, Journal
from isoline.sweeps.launch import LaunchFailedError, LaunchRun, is_infra, needs_new_server
from isoline.sweeps.point import RATE_HEADROOM, Attempt
from isoline.sweeps.progress import Progress
from isoline.sweeps.record import Live
from isoline.sweeps.runs import (
    Run,
    clear_wreckage,
    launch_verdicts,
    next_launch_number,
    sealed_records,
    verdicts,
)

MAX_LAUNCH_TRIES = 3
"""Starts of one launch in a row that may fail for the machine's reasons before it is given up."""


BUSY_SHARE = 0.15
"""Share of the CPU that other programs may use before a progress line says so."""


@dataclass
class Outcome:
    """What became of a run: counts of verdicts of the counting attempts, and points without one.

    ``lost`` of the ``missing`` points have none because the machine let their launch down.
    """

    run_id: str
    verdicts: dict[str, int] = field(default_factory=dict)
    missing: int = 0
    lost: int = 0
    measured: int = 0
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0 all valid; 130 interrupted; 4 the machine failed; 3 anything else that is not valid."""
        if self.interrupted:
            return 130
        bad = {name: count for name, count in self.verdicts.items() if name != Verdict.VALID.value and count}
        if not bad and not self.missing:
            return 0
        return 4 if set(bad) <= {Verdict.INFRA_ERROR.value} and self.missing == self.lost else 3


@contextmanager
def pool_lock(state: Path, pool: str) -> Iterator[None]:
    """The one process that may work on a pool. The system drops the lock when that process dies.

    :raises InfraError: when another process has it, or the state folder cannot be written.
    """
    folder = state / "pools"
    lock = FileLock(folder / f"{pool}.lock", timeout=0)
    try:
        with folder_is_usable(folder, "ISOLINE_STATE"):
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
    except Timeout:
        raise InfraError(
            f"pool {pool!r} is in use by another run", remedy="wait for it, or end it with Ctrl-C there"
        ) from None
    try:
        yield
    finally:
        lock.release()


def clean_up_after_others(state: Path, say: Callable[[str], None]) -> None:
    """End what dead orchestrators left on this machine, and only that.

    :param say: told a line for each of them.
    :raises InfraError: when some of it cannot be ended: nothing can be measured beside it.
    """
    for swept in owners.sweep_orphans(state):
        if swept.left:
            raise InfraError(
                f"processes {', '.join(map(str, swept.left))} of a dead run cannot be ended",
                where=swept.owner.run_id,
                remedy="look at them and end them by hand",
            )
        if swept.ended:
            say(f"ended {len(swept.ended)} process(es) that a dead run left ({swept.owner.launch_id})")


def tidy(settings: Settings, run: Run, say: Callable[[str], None]) -> None:
    """First of all, also where nothing is due: end orphans, seal or drop what a crash left of the run.

    :raises InfraError: for a full disk or a machine that cannot be cleaned.
    """
    with full_disk_is_clear(settings.store):
        clean_up_after_others(settings.state, say)
        for line in clear_wreckage(run):
            Journal(run.work / JOURNAL).write("wreckage", what=line)


class Executor:
    """Executes one run. Everything that it learns is on disk when a method returns."""

    def __init__(self, context: Context, launcher: Launcher, run: Run, progress: Progress) -> None:
        self.context = context
        self.launcher = launcher
        self.run = run
        self.progress = progress
        self.journal = Journal(run.work / JOURNAL)
        self.measured = 0
        self.lost: set[str] = set()

    def execute(self) -> Outcome:
        """Measure everything that is due. Resumable at any moment.

        :raises InfraError: for a full disk or a machine that cannot be cleaned.
        """
        tidy(self.context.settings, self.run, self.progress.say)
        with full_disk_is_clear(self.context.settings.store):
            self.journal.write("run", run_id=self.run.run_id)
            for launch in self.run.plan.launches:
                self._launch(launch)
                if self.context.stop.why():
                    break
            self.journal.write("end")
        outcome = self.outcome_of(self.run, self.measured, self.context.stop.why() is not None)
        outcome.lost = sum(not items for name, items in verdicts(self.run).items() if name in self.lost)
        return outcome

    def _due(self, launch: PlanLaunch) -> list[PlanPoint]:
        return due_points(launch, launch_verdicts(self.run, launch))

    def _launch(self, launch: PlanLaunch) -> None:
        """Start the launch as often as its due points need; bounded, as every attempt uses up a try."""
        failed_in_a_row = 0
        while (due := self._due(launch)) and not self.context.stop.why():
            number = next_launch_number(self.run, launch)
            start = LaunchRun(
                self.context, self.launcher, self.run.run_id, self.run.folder, launch, number, self._phase
            )
            try:
                with start.running() as live:
                    failed_in_a_row = 0
                    for point in due:
                        start.served.append(point.point_id)
                        if not self._point(live, point):
                            break
            except StoppedError:
                return
            except LaunchFailedError as error:
                failed_in_a_row += 1
                self.progress.say(f"launch {start.name} failed: {error}")
                if error.log_tail:
                    self.progress.say("  " + "\n  ".join(error.log_tail.splitlines()[-5:]))
                self.journal.write("launch_failed", launch_id=start.name, why=str(error))
                for note in error.reasons:
                    if note.code == "disk_full":  # a second try finds the same disk
                        raise disk_full(note.detail, self.context.settings.store) from error
                if not is_infra(error.reasons):
                    return
                if failed_in_a_row >= MAX_LAUNCH_TRIES:
                    self.lost |= {point.point_id for point in due}
                    return

    def _point(self, live: Live, point: PlanPoint) -> bool:
        """One attempt. Returns whether the server can serve the next point."""
        sealed = sealed_records(self.run, point.point_id)
        self.progress.begin(point)
        attempt = Attempt(
            self.context,
            self.run.plan,
            self.run.run_id,
            self.run.folder,
            live,
            point,
            (sealed[-1].attempt if sealed else 0) + 1,
            tick_factor=self._tick_factor(sealed),
            on_phase=lambda name: self._phase(name, point),
            on_load=lambda load: self._load(live, load),
        )
        record = attempt.measure()
        self.measured += 1
        self.journal.write(
            "sealed", point_id=point.point_id, attempt=record.attempt, verdict=record.verdict.value
        )
        self.progress.end(record, headline(record))
        codes = [note.code for note in record.reasons]
        if is_due([*(item.verdict for item in sealed), record.verdict]):
            self.progress.again()
        return not needs_new_server(codes) and self.context.stop.why() is None

    @staticmethod
    def _tick_factor(sealed: list[PointRecord]) -> float:
        capped = sum(any(note.code == "client_rate_capped" for note in item.reasons) for item in sealed)
        return RATE_HEADROOM**capped

    def _phase(self, name: str, point: PlanPoint | None = None) -> None:
        self.journal.write("phase", phase=name, point_id=point.point_id if point else None)
        self.progress.phase(name)

    def _load(self, live: Live, load: LoadProgress) -> None:
        seen = live.watch.live()
        self.progress.load(load.done, load.total, seen.counters.get("output_tokens"), seen.running)

    @staticmethod
    def outcome_of(run: Run, measured: int = 0, interrupted: bool = False) -> Outcome:
        """Count the counting attempts of a run."""
        outcome = Outcome(run.run_id, measured=measured, interrupted=interrupted)
        for items in verdicts(run).values():
            if items:
                name = items[-1].value
                outcome.verdicts[name] = outcome.verdicts.get(name, 0) + 1
            else:
                outcome.missing += 1
        return outcome


def headline(record: PointRecord) -> str:
    """The two numbers that everybody asks for, as text for a progress line."""
    values = {row.name: row.value for row in record.metrics if row.window == "full"}
    total, speed = values.get("total_tps_per_gpu"), values.get("interactivity_p50_tps")
    if total is None or speed is None:
        return ""
    foreign = record.client.get("foreign_cpu_share") or 0.0
    busy = f", other programs used {foreign:.0%} of the CPU" if foreign > BUSY_SHARE else ""
    return f", {total:.0f} tokens/s, {speed:.1f} tokens/s/user{busy}"
