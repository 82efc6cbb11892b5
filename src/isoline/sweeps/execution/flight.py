"""One launch in flight: a thread that starts it, measures its due points in turn, and stops it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from isoline.load.supervise import LoadProgress
from isoline.results.bundles.records import LaunchRecord, PlanLaunch, PlanPoint, PointRecord, ReasonNote
from isoline.results.judging.reasons import REASONS
from isoline.runners.launchers.interface import Launcher, StoppedError
from isoline.runners.machine.hosts import Host
from isoline.sweeps.execution.context import Context, Stop
from isoline.sweeps.execution.launch import LaunchFailedError, LaunchRun, needs_new_server
from isoline.sweeps.execution.point import RATE_HEADROOM, Attempt
from isoline.sweeps.execution.record import Live
from isoline.sweeps.state.journal import Journal
from isoline.sweeps.state.progress import Line
from isoline.sweeps.state.runs import Run, sealed_records

BUSY_SHARE = 0.15
"""Share of the CPU that other programs may use before a progress line says so."""


@dataclass(frozen=True)
class Ticket:
    """What a flight is about: a launch, its due points, and where it may run."""

    launch: PlanLaunch
    number: int
    due: tuple[PlanPoint, ...]
    node: Host | None
    devices: tuple[int, ...]


@dataclass
class Landed:
    """What became of a flight. ``fatal``: what must end the whole run (a full disk, a bug).

    ``nodes``: those that it speaks of, where the pool's own scheduler chose them.
    """

    records: list[PointRecord] = field(default_factory=list)
    start: LaunchRecord | None = None
    failure: LaunchFailedError | None = None
    nodes: tuple[str, ...] = ()
    fatal: BaseException | None = None


class Flight(threading.Thread):
    """One launch in flight.

    :param may_go: asked before each point; a text says why it does not begin now.
    :param on_sealed: told of each sealed attempt; ``on_end`` that the flight is over.
    """

    def __init__(
        self,
        context: Context,
        launcher: Launcher,
        run: Run,
        ticket: Ticket,
        journal: Journal,
        line: Callable[[str], Line],
        *,
        may_go: Callable[[PlanPoint], str] = lambda _: "",
        on_sealed: Callable[[PointRecord], None] = lambda _: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.stop = Stop(parent=context.stop)
        self.context = replace(context, stop=self.stop)
        self.run_ = run
        self.ticket = ticket
        self.journal = journal
        self.landed = Landed()
        self.is_over = False
        self._may_go = may_go
        self._on_sealed = on_sealed
        self._on_end = on_end
        self._start = LaunchRun(
            self.context,
            launcher,
            run.run_id,
            run.folder,
            ticket.launch,
            ticket.number,
            self._phase,
            node=ticket.node,
            devices=ticket.devices,
        )
        self.launch_id = self._start.name
        self._line = line(self.launch_id)
        super().__init__(name=f"isoline-{self.launch_id}", daemon=True)

    def run(self) -> None:
        """The thread: everything that happens ends up in :attr:`landed`."""
        try:
            self._fly()
        except BaseException as error:
            self.landed.fatal = error
        finally:
            self._line.close()
            self.is_over = True
            self._on_end()

    def _fly(self) -> None:
        try:
            with self._start.running() as live:
                for point in self.ticket.due:
                    if why := self.stop.why() or self._may_go(point):
                        self.journal.write(
                            "held", launch_id=self.launch_id, point_id=point.point_id, cause=why
                        )
                        break
                    self._start.served.append(point.point_id)
                    if not self._point(live, point):
                        break
        except StoppedError:
            pass
        except LaunchFailedError as error:
            self.landed.failure = error
        self.landed.nodes = self._start.nodes
        path = self.run_.folder / "_launch" / self.launch_id / "launch.json"
        self.landed.start = LaunchRecord.model_validate_json(path.read_bytes())

    def _point(self, live: Live, point: PlanPoint) -> bool:
        """One attempt. Returns whether the server can serve the next point."""
        sealed = sealed_records(self.run_, point.point_id)
        self._line.begin(point)
        number = (sealed[-1].attempt if sealed else 0) + 1
        attempt = Attempt(
            self.context,
            self.run_.plan,
            self.run_.run_id,
            self.run_.folder,
            live,
            point,
            number,
            tick_factor=_tick_factor(sealed),
            on_phase=lambda name: self._phase(name, point, number),
            on_load=lambda load: self._load(live, load),
        )
        record = attempt.measure()
        self.landed.records.append(record)
        self._on_sealed(record)
        notes = explained(record.reasons)
        self.journal.write(
            "sealed",
            point_id=point.point_id,
            attempt=record.attempt,
            verdict=record.verdict.value,
            launch_id=self.launch_id,
            evidence=f"{point.point_id}/{record.attempt}",
            **notes,
        )
        self._line.end(record, headline(record))
        codes = [note.code for note in record.reasons]
        if live.server.adapter.isolation == "restart":
            return False  # nothing empties its cache: the next point has a server of its own
        return not needs_new_server(codes) and self.stop.why() is None

    def _phase(self, name: str, point: PlanPoint | None = None, attempt: int | None = None) -> None:
        self.journal.write(
            "phase",
            phase=name,
            point_id=point.point_id if point else None,
            attempt=attempt,
            launch_id=self.launch_id,
        )
        self._line.phase(name)

    def _load(self, live: Live, load: LoadProgress) -> None:
        seen = live.watch.live()
        self._line.load(load.done, load.total, seen.counters.get("output_tokens"), seen.running)


def explained(reasons: Sequence[ReasonNote]) -> dict[str, str]:
    """``cause`` and ``next`` of a journal line: what was seen, and what to do about it."""
    if not reasons:
        return {}
    cause = "; ".join(f"{note.code}: {note.detail}" if note.detail else note.code for note in reasons)
    return {"cause": cause, "next": REASONS[reasons[0].code].remedy}


def _tick_factor(sealed: Sequence[PointRecord]) -> float:
    capped = sum(any(note.code == "client_rate_capped" for note in item.reasons) for item in sealed)
    return RATE_HEADROOM**capped


def headline(record: PointRecord) -> str:
    """The two numbers that everybody asks for, as text for a progress line."""
    values = {row.name: row.value for row in record.metrics if row.window == "full"}
    total, speed = values.get("total_tps_per_gpu"), values.get("interactivity_p50_tps")
    if total is None or speed is None:
        return ""
    foreign = record.client.get("foreign_cpu_share") or 0.0
    busy = f", other programs used {foreign:.0%} of the CPU" if foreign > BUSY_SHARE else ""
    beside = record.client.get("beside") or {}
    busy += f" (our launches {', '.join(beside)} among them)" if busy and beside else ""
    return f", {total:.0f} tokens/s, {speed:.1f} tokens/s/user{busy}"
