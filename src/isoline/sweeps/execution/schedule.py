"""Which launch starts next, where, and which are left out and why. Pure: it is told the time and the state.

The rules, in the order in which a launch meets them:

1. A cancelled run and a launch that a person took out start nothing (``cancelled_run``).
2. The circuit breaker (:mod:`.schedule_breaker`) holds an image that failed twice alike.
3. Nothing starts that would not end by the window's close, or for which the budget has no room.
4. One launch at a time of an image that has not proved itself; the smallest goes first, as the canary.
5. A slot (``max_parallel``) and devices: what they are and who has them.

A launch that waits for devices gets the earliest moment at which they come free, by the estimates;
smaller ones go beside it only where that moment stays (back-fill). So nothing waits for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from isoline.sweeps.execution.schedule_breaker import ImageState

Placement = tuple[tuple[str, tuple[int, ...]], ...]
"""Nodes of a launch with the indices of its devices there; empty where the pool's own scheduler chooses."""


@dataclass(frozen=True)
class Task:
    """A launch with due points. Seconds are estimates; ``points`` are (point id, seconds) in their order."""

    key: str
    image: str
    gpus: int
    startup_s: float
    points: tuple[tuple[str, float], ...]

    @property
    def total_s(self) -> float:
        """From start to the last point."""
        return self.startup_s + sum(seconds for _, seconds in self.points)

    @property
    def first_s(self) -> float:
        """From start to the end of the first point."""
        return self.startup_s + (self.points[0][1] if self.points else 0.0)


@dataclass(frozen=True)
class Flight:
    """A launch that runs. ``ends_at``: expected, epoch seconds; ``cost_s``: its expected device seconds."""

    key: str
    image: str
    placement: Placement
    ends_at: float
    cost_s: float = 0.0


@dataclass(frozen=True)
class Node:
    """A machine: how many devices it has, and why it takes nothing at present ("" = it does).

    ``errors``: errors of the machine lately; of several that are free the one with the fewest is taken.
    """

    name: str
    devices: int
    closed: str = ""
    errors: int = 0


@dataclass(frozen=True)
class Taken:
    """Devices of a node that somebody else holds (another pool's run); ``devices`` None: all of it."""

    node: str
    devices: tuple[int, ...] | None


@dataclass(frozen=True)
class State:
    """All that a decision depends on. Times are epoch seconds.

    :param max_nodes: how many nodes one launch may use.
    :param nodes: None where the pool's own scheduler places launches (Slurm), or there is nothing to place.
    :param images: what is known of each image; an absent one has not proved itself.
    :param budget_left_s: device seconds that may still be begun; None = no limit.
    :param taken_out: launch key -> why a person took it out.
    """

    now: float
    tasks: tuple[Task, ...]
    flights: tuple[Flight, ...] = ()
    nodes: tuple[Node, ...] | None = None
    taken: tuple[Taken, ...] = ()
    max_parallel: int = 1
    share_node: bool = False
    closes_at: float | None = None
    budget_left_s: float | None = None
    images: Mapping[str, ImageState] = field(default_factory=dict)
    max_nodes: int = 64
    is_paused: bool = False
    is_cancelled: bool = False
    taken_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    """Start this launch there, now."""

    key: str
    placement: Placement


@dataclass(frozen=True)
class Skip:
    """Points that are left out as things are. ``cause``: one of :data:`.judging.reasons.SKIPPED`."""

    key: str
    points: tuple[str, ...]
    cause: str
    detail: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wait:
    """A launch that waits, and for what. ``until``: expected, None = nobody knows."""

    key: str
    why: str
    until: float | None = None


@dataclass(frozen=True)
class Decision:
    """What to do now. Every task is in exactly one of the three."""

    starts: tuple[Start, ...]
    skips: tuple[Skip, ...]
    waits: tuple[Wait, ...]


@dataclass(frozen=True)
class _Held:
    """Devices in use until a time; None = nobody knows."""

    placement: Placement
    until: float | None
    is_whole: bool  # whether its nodes take nothing else


def next_close(until: str, now: datetime) -> datetime:
    """When a window that closes at a time of day (``07:00``, UTC) closes next after ``now``."""
    hour, minute = (int(part) for part in until.split(":"))
    close = now.astimezone(UTC).replace(hour=hour, minute=minute, second=0, microsecond=0)
    return close if close > now else close + timedelta(days=1)


def fits_window(now: float, seconds: float, closes_at: float | None) -> bool:
    """Whether what takes so long ends in the window."""
    return closes_at is None or now + seconds <= closes_at


def clock(at: float) -> str:
    """``07:00 UTC`` of a moment."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M} UTC"


def decide(state: State) -> Decision:
    """The next starts, and for every other launch why it is left out or waits."""
    flying = {flight.key for flight in state.flights}
    open_tasks = [task for task in state.tasks if task.key not in flying and task.points]
    skips: list[Skip] = []
    left: list[Task] = []
    for task in open_tasks:
        skip = _skip(state, task)
        if skip is None:
            left.append(task)
        else:
            skips.append(skip)
    more, starts, waits = _place_all(state, left)
    return Decision(tuple(starts), (*skips, *more), tuple(waits))


def _skip(state: State, task: Task) -> Skip | None:
    """Why a launch is left out as things are; None when it may start."""
    points = tuple(point_id for point_id, _ in task.points)
    if state.is_cancelled:
        return Skip(task.key, points, "cancelled_run", "the run was cancelled")
    if task.key in state.taken_out:
        return Skip(task.key, points, "cancelled_run", state.taken_out[task.key])
    hold = state.images[task.image].hold if task.image in state.images else None
    if hold is not None:
        return Skip(task.key, points, "breaker", hold.line(), hold.evidence)
    if not fits_window(state.now, task.first_s, state.closes_at):
        assert state.closes_at is not None
        why = f"the first point takes about {task.first_s:.0f} s, the window closes at "
        return Skip(task.key, points, "window_closed", why + clock(state.closes_at))
    if state.nodes is not None and _place(state, _all_free(state.nodes), task.gpus) is None:
        why = f"it needs {task.gpus} device(s); {_closed_line(state.nodes)}"
        return Skip(task.key, points, "no_node", why)
    return None


def _closed_line(nodes: Sequence[Node]) -> str:
    closed = [f"{node.name}: {node.closed}" for node in nodes if node.closed]
    count = sum(node.devices for node in nodes if not node.closed)
    return f"{count} on nodes that take launches" + (f" ({'; '.join(closed)})" if closed else "")


def _canaries(state: State, tasks: Sequence[Task]) -> dict[str, str]:
    """Image -> the launch that may go now, for images that have not proved themselves; "" = one is out."""
    chosen: dict[str, Task] = {}
    for task in tasks:
        known = state.images.get(task.image)
        if known is not None and known.is_proven:
            continue
        best = chosen.get(task.image)
        if best is None or task.total_s < best.total_s:
            chosen[task.image] = task
    out = {flight.image for flight in state.flights}
    return {image: "" if image in out else task.key for image, task in chosen.items()}


def _place_all(state: State, tasks: Sequence[Task]) -> tuple[list[Skip], list[Start], list[Wait]]:
    canaries = _canaries(state, tasks)
    first = {key for key in canaries.values() if key}
    # A canary holds up all others of its image: it comes before those that have company already.
    queue = sorted(tasks, key=lambda task: task.key not in first)
    held = [_Held(item.placement, item.ends_at, not state.share_node) for item in state.flights]
    held += [
        _Held(((item.node, item.devices or ()),), None, item.devices is None or not state.share_node)
        for item in state.taken
    ]
    slots = state.max_parallel - len(state.flights)
    budget = state.budget_left_s
    if budget is not None:
        budget -= sum(flight.cost_s for flight in state.flights)
    skips: list[Skip] = []
    starts: list[Start] = []
    waits: list[Wait] = []
    reserved: tuple[Task, float] | None = None  # the first that waits for devices, and until when
    for task in queue:
        cost = task.total_s * task.gpus
        if budget is not None and cost > budget:
            skips.append(_over_budget(task, cost, budget))
            continue
        if canaries.get(task.image, task.key) != task.key:
            waits.append(Wait(task.key, f"for the canary of its image ({task.image})"))
            continue
        if state.is_paused:
            waits.append(Wait(task.key, "the run is paused"))
            continue
        if slots <= 0:
            waits.append(Wait(task.key, "for a slot", min((f.ends_at for f in state.flights), default=None)))
            continue
        placement: Placement = ()
        if state.nodes is not None:
            found = _place(state, _free(state.nodes, held), task.gpus)
            if found is None:
                until = _free_at(state, held, task)
                waits.append(Wait(task.key, "for devices", until))
                if reserved is None and until is not None:
                    reserved = (task, until)
                continue
            placement = found
        mine = _Held(placement, state.now + task.total_s, not state.share_node)
        if reserved is not None and not _leaves_room(state, [*held, mine], *reserved):
            waits.append(Wait(task.key, f"a larger launch ({reserved[0].key}) is to start", reserved[1]))
            continue
        starts.append(Start(task.key, placement))
        held.append(mine)
        slots -= 1
        budget = None if budget is None else budget - cost
    return skips, starts, waits


def _over_budget(task: Task, cost: float, left: float) -> Skip:
    why = f"it takes about {cost / 60:.1f} GPU-minutes, {max(left, 0) / 60:.1f} of the budget are left"
    return Skip(task.key, tuple(point_id for point_id, _ in task.points), "budget", why)


# --- devices ----------------------------------------------------------------------------------


def _all_free(nodes: Sequence[Node]) -> dict[str, set[int]]:
    return {node.name: set(range(node.devices)) for node in nodes if not node.closed}


def _free(nodes: Sequence[Node], held: Iterable[_Held]) -> dict[str, set[int]]:
    """Node -> the devices of it that nobody has."""
    free = _all_free(nodes)
    for item in held:
        for name, devices in item.placement:
            if item.is_whole:
                free.pop(name, None)
            elif name in free:
                free[name] -= set(devices)
    return free


def _place(state: State, free: Mapping[str, set[int]], gpus: int) -> Placement | None:
    """Where so many devices can be had: on one node if any is large enough, else on whole nodes."""
    nodes = state.nodes or ()
    known = [node for node in nodes if node.name in free]
    largest = max((node.devices for node in nodes if not node.closed), default=0)
    if gpus <= largest:
        fit = [node for node in known if len(free[node.name]) >= gpus]
        if not fit:
            return None
        best = min(fit, key=lambda node: (node.errors, len(free[node.name])))
        return ((best.name, tuple(sorted(free[best.name])[:gpus])),)
    whole = [node for node in known if node.devices and len(free[node.name]) == node.devices]
    whole.sort(key=lambda node: (node.errors, -node.devices))
    placement: list[tuple[str, tuple[int, ...]]] = []
    left = gpus
    for node in whole:
        if left <= 0:
            break
        placement.append((node.name, tuple(range(min(node.devices, left)))))
        left -= node.devices
    return tuple(placement) if left <= 0 and len(placement) <= state.max_nodes else None


def _free_at(state: State, held: Sequence[_Held], task: Task) -> float | None:
    """When its devices come free by the estimates; None where that depends on somebody else."""
    assert state.nodes is not None
    ends = sorted({max(item.until, state.now) for item in held if item.until is not None})
    for moment in ends:
        if _place(state, _free(state.nodes, _still(held, moment, state.now)), task.gpus) is not None:
            return moment
    return None


def _still(held: Iterable[_Held], moment: float, now: float) -> list[_Held]:
    """What is still in use at a moment. What should have ended is expected to end now."""
    return [item for item in held if item.until is None or max(item.until, now) > moment]


def _leaves_room(state: State, held: Sequence[_Held], task: Task, moment: float) -> bool:
    """Whether the launch that waits can still start at its moment."""
    assert state.nodes is not None
    then = _still(held, moment, state.now)
    ours = sum(item.until is not None for item in then)
    return ours < state.max_parallel and _place(state, _free(state.nodes, then), task.gpus) is not None
