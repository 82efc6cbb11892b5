"""The scheduler's decisions: single rules, then random fleets on a simulated clock."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isoline.sweeps.execution.schedule import (
    Decision,
    Flight,
    Node,
    Skip,
    Start,
    State,
    Taken,
    Task,
    decide,
    next_close,
)
from isoline.sweeps.execution.schedule_breaker import Hold, ImageState

PROVEN = {"a": ImageState(is_proven=True)}


def task(key: str, gpus: int = 1, seconds: float = 10.0, image: str = "a", points: int = 1) -> Task:
    """A launch of some points; half of its time is its start."""
    each = seconds / 2 / points
    return Task(key, image, gpus, seconds / 2, tuple((f"{key}.{n}", each) for n in range(points)))


def nodes(*devices: int, **fields: str) -> tuple[Node, ...]:
    """Nodes n0, n1, … with so many devices."""
    return tuple(Node(f"n{number}", count, **fields) for number, count in enumerate(devices))


def keys(decision: Decision) -> list[str]:
    """The launches that start now."""
    return [start.key for start in decision.starts]


def waits(decision: Decision) -> dict[str, str]:
    """Launch -> what it waits for."""
    return {item.key: item.why for item in decision.waits}


# --- single rules -----------------------------------------------------------------------------


def test_the_smallest_launch_of_an_image_goes_first_and_alone() -> None:
    """The others of its image wait for its outcome; another image has a canary of its own."""
    tasks = (task("big", seconds=50), task("small", seconds=5), task("other", image="b", seconds=90))
    state = State(now=0, tasks=tasks, nodes=nodes(8), max_parallel=8, share_node=True)
    decision = decide(state)
    assert keys(decision) == ["small", "other"]
    assert "canary" in waits(decision)["big"]
    flights = (Flight("small", "a", (("n0", (0,)),), 5.0),)
    assert keys(decide(replace(state, flights=flights))) == ["other"]
    assert keys(decide(replace(state, images=PROVEN, tasks=(tasks[0],)))) == ["big"]


def test_after_a_canary_that_failed_one_more_goes_alone() -> None:
    """An image that has not proved itself gets one launch at a time, never the whole fleet."""
    tasks = tuple(task(f"t{n}") for n in range(4))
    state = State(now=0, tasks=tasks, nodes=nodes(8), max_parallel=8, share_node=True)
    assert keys(decide(replace(state, images={"a": ImageState()}))) == ["t0"]


def test_a_held_image_is_skipped_with_what_proves_it() -> None:
    """Signature and evidence are named; other images go on."""
    hold = Hold("oom", ("x-1", "y-1"), ("_launch/x-1/server.log",))
    tasks = (task("held"), task("free", image="b"))
    decision = decide(State(now=0, tasks=tasks, nodes=nodes(2), images={"a": ImageState(hold=hold)}))
    assert keys(decision) == ["free"]
    assert decision.skips == (Skip("held", ("held.0",), "breaker", hold.line(), ("_launch/x-1/server.log",)),)
    assert "x-1, y-1" in hold.line() and "oom" in hold.line()


def test_a_node_has_one_launch_unless_the_pool_shares_it() -> None:
    """Devices of one node go to several launches only where the pool says so, and none twice."""
    tasks = (task("one", gpus=2), task("two", gpus=2))
    state = State(now=0, tasks=tasks, nodes=nodes(4), max_parallel=4, images=PROVEN)
    assert keys(decide(state)) == ["one"]
    shared = decide(replace(state, share_node=True))
    assert shared.starts == (Start("one", (("n0", (0, 1)),)), Start("two", (("n0", (2, 3)),)))


def test_a_large_launch_takes_whole_nodes() -> None:
    """What no node can hold gets several, wholly free ones; a closed node is none of them."""
    wide = task("wide", gpus=16)
    state = State(now=0, tasks=(wide,), nodes=nodes(8, 8, 8), max_parallel=4, share_node=True)
    busy = (Taken("n0", (3,)),)
    (start,) = decide(replace(state, taken=busy)).starts
    assert [name for name, _ in start.placement] == ["n1", "n2"]
    closed = (*nodes(8, 8), Node("n2", 8, closed="drained: fan"))
    (skip,) = decide(replace(state, nodes=(closed[0], closed[2]))).skips
    assert skip.cause == "no_node" and "needs 16 device(s)" in skip.detail and "drained: fan" in skip.detail


def test_nothing_starts_that_cannot_end_in_the_window() -> None:
    """What fits is started, what does not is skipped with the hour that closes."""
    tasks = (task("long", seconds=100), task("short", seconds=10))
    decision = decide(State(now=0, tasks=tasks, nodes=nodes(1), closes_at=50, images=PROVEN))
    assert keys(decision) == ["short"]
    (skip,) = decision.skips
    assert (skip.key, skip.cause) == ("long", "window_closed") and "00:00 UTC" in skip.detail


def test_the_budget_counts_what_is_in_flight() -> None:
    """A launch for whose devices and time no budget is left is skipped; a smaller one still goes."""
    tasks = (task("wide", gpus=8, seconds=10), task("small", gpus=1, seconds=10))
    flight = Flight("f", "a", (("n0", (0,)),), 10.0, cost_s=40.0)
    state = State(now=0, tasks=tasks, flights=(flight,), nodes=nodes(8, 8), max_parallel=3, images=PROVEN)
    decision = decide(replace(state, budget_left_s=100.0))
    assert keys(decision) == ["small"]
    assert [(item.key, item.cause) for item in decision.skips] == [("wide", "budget")]
    assert keys(decide(replace(state, budget_left_s=130.0))) == ["wide"]


def test_small_launches_go_beside_a_large_one_that_waits_but_not_in_its_way() -> None:
    """Back-fill: what ends before the large one can start goes now, what would delay it waits."""
    flight = Flight("f", "a", (("n0", (0, 1, 2, 3)),), 100.0)
    large, short, long = (
        task("large", gpus=8, seconds=50),
        task("short", seconds=90),
        task("long", seconds=200),
    )
    state = State(
        now=0,
        tasks=(large, long, short),
        flights=(flight,),
        nodes=nodes(8),
        max_parallel=9,
        share_node=True,
        images=PROVEN,
    )
    decision = decide(state)
    assert keys(decision) == ["short"]
    assert waits(decision) == {"large": "for devices", "long": "a larger launch (large) is to start"}
    two = decide(replace(state, nodes=nodes(8, 1)))
    assert keys(two) == ["long", "short"], "a node that is of no use to the large one is not kept free"


def test_a_pause_lets_nothing_start_and_a_cancel_skips_all() -> None:
    """Paused launches wait; cancelled ones are skipped, and so is one that a person took out."""
    state = State(now=0, tasks=(task("one"), task("two")), nodes=nodes(1, 1), max_parallel=2, images=PROVEN)
    assert set(waits(decide(replace(state, is_paused=True))).values()) == {"the run is paused"}
    assert [item.cause for item in decide(replace(state, is_cancelled=True)).skips] == ["cancelled_run"] * 2
    decision = decide(replace(state, taken_out={"one": "skipped by hand: slow"}))
    assert keys(decision) == ["two"]
    assert [item.detail for item in decision.skips] == ["skipped by hand: slow"]


def test_without_nodes_only_the_number_of_launches_counts() -> None:
    """Where the pool's own scheduler places launches (Slurm) a start has no placement."""
    state = State(now=0, tasks=tuple(task(f"t{n}", gpus=64) for n in range(3)), max_parallel=2, images=PROVEN)
    assert decide(state).starts == (Start("t0", ()), Start("t1", ()))


def test_the_node_with_fewer_errors_is_taken() -> None:
    """A retry goes elsewhere where it can."""
    state = State(now=0, tasks=(task("t"),), nodes=(Node("bad", 1, errors=2), Node("good", 1)))
    assert decide(state).starts == (Start("t", (("good", (0,)),)),)


@pytest.mark.parametrize(
    ("now", "close"),
    [
        ("2026-12-01T06:59:00+00:00", "2026-12-01T07:00:00+00:00"),
        ("2026-12-01T07:00:00+00:00", "2026-12-02T07:00:00+00:00"),
        ("2026-12-01T23:30:00-02:00", "2026-12-02T07:00:00+00:00"),
    ],
)
def test_the_next_close_of_a_window(now: str, close: str) -> None:
    """The time of day is UTC; at the very moment the next day's counts."""
    assert next_close("07:00", datetime.fromisoformat(now)).astimezone(UTC) == datetime.fromisoformat(close)


# --- random fleets ----------------------------------------------------------------------------


@dataclass
class World:
    """A fleet on a simulated clock. ``truth``: how long a launch really takes, as a share of its estimate."""

    tasks: dict[str, Task]
    nodes: tuple[Node, ...]
    max_parallel: int
    share_node: bool
    truth: dict[str, float]
    closes_at: float | None = None
    now: float = 0.0
    done: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    flights: dict[str, tuple[Flight, float]] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)

    def state(self) -> State:
        """What the scheduler is told."""
        images = {
            image: ImageState(is_proven=any(self.tasks[key].image == image for key in self.done))
            for image in {item.image for item in self.tasks.values()}
        }
        return State(
            now=self.now,
            tasks=tuple(item for key, item in self.tasks.items() if key not in self.done),
            flights=tuple(flight for flight, _ in self.flights.values()),
            nodes=self.nodes,
            max_parallel=self.max_parallel,
            share_node=self.share_node,
            closes_at=self.closes_at,
            images=images,
        )

    def step(self) -> bool:
        """Decide, start, and go to the next end. False when nothing flies and nothing starts."""
        decision = decide(self.state())
        told = [item.key for item in (*decision.starts, *decision.skips, *decision.waits)]
        waiting = [key for key in self.tasks if key not in self.done and key not in self.flights]
        assert sorted(told) == sorted(waiting), "each launch is told exactly one thing"
        self.skipped = {item.key: item.cause for item in decision.skips}
        for start in decision.starts:
            mine = self.tasks[start.key]
            flight = Flight(start.key, mine.image, start.placement, self.now + mine.total_s)
            self.flights[start.key] = (flight, self.now + mine.total_s * self.truth[start.key])
            self.began[start.key] = self.now
            if self.closes_at is not None:
                assert self.now + mine.first_s <= self.closes_at
        self.check()
        if not self.flights:
            return False
        first = min(self.flights, key=lambda key: self.flights[key][1])
        self.now = max(self.now, self.flights.pop(first)[1])
        self.done.add(first)
        return True

    def check(self) -> None:
        """What must hold at each moment."""
        assert len(self.flights) <= self.max_parallel
        used = Counter(
            (node, device)
            for flight, _ in self.flights.values()
            for node, devices in flight.placement
            for device in devices
        )
        assert all(count == 1 for count in used.values()), "a device has one launch"
        sizes = {node.name: node.devices for node in self.nodes}
        assert all(device < sizes[node] for node, device in used)
        for key, (flight, _) in self.flights.items():
            assert sum(len(devices) for _, devices in flight.placement) == self.tasks[key].gpus
        if not self.share_node:
            count = Counter(node for flight, _ in self.flights.values() for node, _ in flight.placement)
            assert all(item == 1 for item in count.values()), "a node has one launch"
        for image in {item.image for item in self.tasks.values()}:
            if not any(self.tasks[key].image == image for key in self.done):
                assert sum(self.tasks[key].image == image for key in self.flights) <= 1

    def run(self) -> None:
        """To the end."""
        for _ in range(len(self.tasks) * 3 + 3):
            if not self.step():
                return
        raise AssertionError("it does not end")


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Fleets of one to four nodes, up to twelve launches of up to three images."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    devices = draw(st.sampled_from([1, 2, 4, 8]))
    fleet = nodes(*[devices] * draw(st.integers(1, 4)))
    total = devices * len(fleet)
    tasks = {}
    for number in range(draw(st.integers(1, 12))):
        gpus = rng.choice([1, 1, 1, 2, 4, 8, 16])
        key = f"t{number}"
        tasks[key] = task(key, min(gpus, total), rng.uniform(1, 100), rng.choice("abc"), rng.randint(1, 3))
    truth = {key: rng.choice([0.3, 1.0, 1.0, 2.5]) for key in tasks}
    return World(tasks, fleet, draw(st.integers(1, 6)), draw(st.booleans()), truth)


@given(worlds())
def test_everything_is_measured_once_within_the_limits(world: World) -> None:
    """Never too many launches, no device twice, no node shared unasked, one canary an image; all get done."""
    world.run()
    assert world.done == set(world.tasks)


@given(worlds())
def test_nobody_starves(world: World) -> None:
    """With true estimates a launch never waits longer than all others together take."""
    world.truth = dict.fromkeys(world.tasks, 1.0)
    world.run()
    whole = sum(item.total_s for item in world.tasks.values())
    assert all(at <= whole for at in world.began.values())


@given(st.integers(0, 2**32), st.integers(2, 8))
def test_a_stream_of_small_launches_does_not_hold_up_a_large_one(seed: int, devices: int) -> None:
    """However many small ones come before and after, the large one starts when those before it end."""
    rng = random.Random(seed)
    small = [task(f"s{n}", seconds=rng.uniform(5, 20)) for n in range(devices)]
    later = [task(f"l{n}", seconds=rng.uniform(5, 20)) for n in range(40)]
    items = {item.key: item for item in [*small, task("large", gpus=devices, seconds=10), *later]}
    # The image proves itself at once: canaries are not what this is about.
    world = World(items, nodes(devices), devices, True, dict.fromkeys(items, 1.0))
    world.tasks["first"] = task("first", seconds=1)
    world.truth["first"] = 1.0
    world.done.add("first")
    world.run()
    assert world.began["large"] <= max(item.total_s for item in small) + 1e-6


@given(worlds(), st.floats(1, 300))
def test_the_window_is_kept(world: World, closes_at: float) -> None:
    """Nothing starts that cannot end by the estimates; what is left out says so, the rest is measured."""
    world.closes_at = closes_at
    world.run()
    left = set(world.tasks) - world.done
    assert left == {key for key, cause in world.skipped.items() if cause == "window_closed"}


@given(worlds(), st.integers(0, 2**32))
def test_killed_at_any_step_and_started_again_the_same_is_measured(world: World, seed: int) -> None:
    """A kill loses what flies; the next run measures it, and nothing that is sealed twice."""
    rng = random.Random(seed)
    measured: Counter[str] = Counter()
    for _ in range(20):
        before = set(world.done)
        for _ in range(rng.randint(0, 4)):
            if not world.step():
                break
        measured.update(world.done - before)
        world.flights.clear()  # the kill: what flew left nothing sealed
    before = set(world.done)
    world.run()
    measured.update(world.done - before)
    assert measured == Counter(dict.fromkeys(world.tasks, 1))
