"""Seeded strikes at whatever runs: orchestrator, server, container, Slurm's daemon, load generator.

Each round starts a sweep, waits for a phase and a seeded moment in it, kills or stops the target, and runs
the same command until nothing is due. Afterwards: no false ``valid``, no sealed bundle lost or changed, no
process, container, job, lease, port or scratch folder left, strangers untouched, every point with a verdict.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isoline.results.judging.reasons import Verdict

pytestmark = [pytest.mark.engine]

BARE = "smollm2-135m/llamacpp-cpu-q4_1"
BOXED = f"{BARE}-container"
PAUSED_S = 11.0
"""A little more than the gap in its clock that Isoline calls a pause."""

COMMANDS = 5
"""So many times the same command is run at most until nothing is due."""

DELAY_S = {"ready": 1.0, "warmup": 0.3, "load": 2.0, "canary": 0.2, "seal": 0.1, "stop": 0.2}


@dataclass(frozen=True)
class Moment:
    """A strike: at whom, how, and in which phase of which kind of pool."""

    kind: str
    target: str
    number: signal.Signals
    phase: str

    def text(self) -> str:
        return f"{self.kind}: {self.number.name} to {self.target} in {self.phase}"


K, S = signal.SIGKILL, signal.SIGSTOP
PROCESS = [
    Moment("process", target, number, phase)
    for target in ("orchestrator", "server", "aiperf")
    for number in (K, S)
    for phase in ("load", "ready", "warmup", "canary", "stop")
    if (target, phase)
    not in (("aiperf", "ready"), ("aiperf", "warmup"), ("aiperf", "canary"), ("aiperf", "stop"))
]
CONTAINER = [
    Moment("container", target, number, phase)
    for target in ("orchestrator", "server", "container", "aiperf")
    for number in (K, S)
    for phase in ("load", "ready", "canary")
    if target != "aiperf" or phase == "load"
]
SLURM = [
    Moment("slurm", target, number, phase)
    for target in ("orchestrator", "server", "slurmd", "aiperf")
    for number in (K, S)
    for phase in ("load", "ready", "canary")
    if target != "aiperf" or phase == "load"
]
IN_CI = [
    Moment("process", "server", K, "canary"),
    Moment("process", "aiperf", S, "load"),
    Moment("container", "container", K, "load"),
    Moment("slurm", "slurmd", K, "load"),
]
"""Beside what other tests of this folder strike at: the orchestrator with SIGKILL in four phases
(test_kills), in containers and under Slurm (test_container, test_slurm), with SIGSTOP (test_faults), and
server and load generator under load (test_faults). Twelve moments and more in all."""


class MissedError(Exception):
    """The phase to strike in never came."""


class Arena:
    """A small project with a pool of each kind, and the hands that strike."""

    def __init__(
        self, tiny: Any, load_s: float, podman: Any = None, slurm: Any = None, image: Any = None
    ) -> None:
        self.tiny, self.podman, self.slurm = tiny, podman, slurm
        self.struck: tuple[str, signal.Signals] | None = None
        tiny.scenario(
            "tiny-struck",
            requests={"minimum": 6, "per_concurrency": 3},
            deadlines={"request_s": 60, "stall_s": 6, "load_s": load_s},
        )
        scenarios = {"tiny-struck": {"concurrency": [1]}}
        tiny.recipe(scenarios=scenarios)
        if image is not None:
            path = tiny.project / f"recipes/{tiny.recipe('container', scenarios=scenarios)}.yaml"
            recipe = json.loads(path.read_text().partition("\n")[2])
            tiny.yaml(str(path.relative_to(tiny.project)), {**recipe, "image": {"ref": image.ref}})
            self._pools()

    def _pools(self) -> None:
        container = {
            "runtime": "podman",
            "device_profile": "cpu",
            "model_cache": "{state}/weights",
            "scratch": "{state}/scratch",
            "shm_gb": 1,
            "env": self.podman.env,
        }
        base = {"schema_version": 1, "sku": "cpu", "client_profile": "shared-cpu", "container": container}
        self.tiny.yaml("runners/container.yaml", {**base, "name": "container", "launcher": "container"})
        slurm = {"partition": "cpu", "container": "podman", "exclusive": False, "time_limit_min": 10}
        self.tiny.yaml("runners/slurm.yaml", {**base, "name": "slurm", "launcher": "slurm", "slurm": slurm})

    def sweep(self, name: str, kind: str) -> None:
        recipe = BARE if kind == "process" else BOXED
        select = {"recipes": [recipe], "scenario": "tiny-struck", "concurrency": [1]}
        self.tiny.sweep(name, select, pool="local" if kind == "process" else kind, publish=False)

    def pid(self, target: str, running: Any, kind: str) -> int:
        """The process to strike."""
        if target == "orchestrator":
            return int(running.process.pid)
        if target == "aiperf":
            return int(self.tiny.child("client"))
        if kind == "process":
            return int(self.tiny.child("server"))
        return max(self._inside())

    def _inside(self) -> list[int]:
        """Processes of the engine inside containers, by their command line."""
        found = []
        for name in os.listdir("/proc"):  # noqa: PTH208
            if name.isdigit():
                with contextlib.suppress(OSError):
                    words = (Path("/proc") / name / "cmdline").read_bytes().split(b"\0")
                    if b"/opt/isoline/llamacpp_server.py" in words and words[0].endswith(b"python3"):
                        found.append(int(name))
        return found

    def strike(self, moment: Moment, running: Any) -> None:
        """Do it, and undo what a machine would undo by itself (a stopped orchestrator that goes on)."""
        if moment.target == "slurmd":
            self.struck = (self.slurm.node_of_job(), moment.number)
            self.slurm.kill_node(*self.struck)
            return
        if moment.target == "container":
            ours = [name for name in self.podman.containers() if name != "stranger"]
            verb = ["kill", "--signal", "KILL"] if moment.number is K else ["pause"]
            for name in ours:
                self.podman.run(*verb, name, check=False)
            return
        with contextlib.suppress(ProcessLookupError, ValueError):
            pid = self.pid(moment.target, running, moment.kind)
            if moment.target == "aiperf":
                os.killpg(pid, moment.number)
            else:
                os.kill(pid, moment.number)
            if moment.target == "orchestrator" and moment.number is S:
                time.sleep(PAUSED_S)
                os.kill(pid, signal.SIGCONT)

    def mend(self) -> None:
        """What a person does afterwards: start a node's daemon again."""
        if self.struck is not None:
            node, number = self.struck
            self.struck = None
            if number is S:
                self.slurm.kill_node(node, signal.SIGCONT)
            else:
                self.slurm.start_node(node)
            self.slurm.wait(lambda: set(self.slurm.states().values()) <= {"idle", "mixed"}, "nodes", 60)

    def round(self, moment: Moment, rng: random.Random, name: str) -> str:
        """One strike and what follows, in words. Everything is checked."""
        tiny = self.tiny
        self.sweep(name, moment.kind)
        running = tiny.start("sweep", "run", name)
        try:
            tiny.wait_phase(running, moment.phase, timeout_s=240)
        except AssertionError:
            if running.process.poll() is None:
                raise
            # The machine was so busy that the attempt failed by itself: nothing was struck at.
            assert tiny.run("sweep", "run", name, timeout_s=300).code in (0, 3), running.text()
            raise MissedError(running.text()) from None
        time.sleep(rng.uniform(0, DELAY_S[moment.phase]))
        kept = tiny.digests()
        self.strike(moment, running)
        if moment.target == "slurmd":
            time.sleep(1.0)
        codes = [running.end(300).code if not self._is_dead(moment) else self._reap(running)]
        self.mend()
        events = tiny.events(running)
        for _ in range(COMMANDS):
            if codes[-1] in (0, 3):
                break
            codes.append(tiny.run("sweep", "run", name, timeout_s=300).code)
        assert codes[-1] in (0, 3), (moment.text(), codes, running.text())
        verdicts = self.check(moment, name, kept, events)
        return f"{moment.text()}: exit codes {codes}, attempts {dict(verdicts)}"

    @staticmethod
    def _is_dead(moment: Moment) -> bool:
        return moment.target == "orchestrator" and moment.number is K

    @staticmethod
    def _reap(running: Any) -> int:
        running.process.wait()
        return -9

    def check(self, moment: Moment, name: str, kept: dict[str, str], events: list[Any]) -> Counter[str]:
        """The invariants."""
        tiny = self.tiny
        now = tiny.digests()
        assert {path: now.get(path) for path in kept} == kept, moment.text()
        run = next(item for item in reversed(tiny.runs()) if f"-{name}-" in item.name)
        verdicts: Counter[str] = Counter()
        for point_id, items in tiny.attempts(run).items():
            if not items:
                # A server that stood still while it started: its launch has the verdict, and its logs.
                self._check_start(moment, run)
                verdicts["invalid start"] += 1
                continue
            told = [item.verdict for item in items]
            verdicts.update(item.value for item in told)
            assert told[-1] in (Verdict.VALID, Verdict.INVALID), (moment.text(), point_id, told)
            codes = {note.code for note in items[-1].reasons}
            if told[-1] is Verdict.INVALID:
                # Not tried again: what looks like the engine's own failure, a client on a busy machine.
                assert codes & {"stalled", "server_died", "client_saturated"}, (moment.text(), codes)
            assert told.count(Verdict.VALID) <= 1
        self._no_false_valid(moment, tiny, run, events)
        if moment.target == "slurmd":  # what was on a lost node goes once the node is back
            done = tiny.run("pool", "gc", "slurm")
            assert done.code == 0, done.out + done.err
            self.slurm.wait(lambda: tiny.processes() == {}, "the end of what was on the lost node", 30)
        assert tiny.processes() == {}, moment.text()
        for folder, pattern in (("owners", "*"), ("scratch", "*"), ("leases", "*.json"), ("ports", "[0-9]*")):
            assert list((tiny.state / folder).glob(pattern)) == [], (moment.text(), folder)
        if self.podman is not None:
            assert set(self.podman.containers()) <= {"stranger"}, moment.text()
        if self.slurm is not None and moment.kind == "slurm":
            self.slurm.wait(lambda: self.slurm.jobs() == {}, "the end of all jobs", 60)
        return verdicts

    @staticmethod
    def _check_start(moment: Moment, run: Path) -> None:
        """The last start of the run was struck before it was ready, and says that it never was."""
        starts = [json.loads(path.read_text()) for path in run.glob("_launch/*/launch.json")]
        last = max(starts, key=lambda item: str(item["ended_at"]))
        codes = {note["code"] for note in last["reasons"]}
        assert (moment.phase, moment.target) in {("ready", "server"), ("ready", "container")}, moment.text()
        assert last["verdict"] == "invalid" and codes & {"launch_timeout", "not_generating"}, (moment, last)

    @staticmethod
    def _no_false_valid(moment: Moment, tiny: Any, run: Path, events: list[Any]) -> None:
        """The attempt that was under load when its server or client was killed is not valid.

        A daemon of Slurm may be gone for a while without any harm to what runs on its node.
        """
        if moment.phase != "load" or moment.target in ("orchestrator", "slurmd") or moment.number is not K:
            return
        loads = [item for item in events if item.get("phase") == "load" and item.get("point_id")]
        first = loads[0]
        record = tiny.attempts(run)[first["point_id"]][0]
        assert record.verdict is not Verdict.VALID, moment.text()


@pytest.fixture
def arena(request: pytest.FixtureRequest, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Arena]:
    """A maker of arenas for a kind of pool."""

    def make(kind: str, load_s: float = 40) -> Arena:
        if kind == "process":
            return Arena(tiny, load_s)
        podman, image = (request.getfixturevalue(name) for name in ("podman", "container_image"))
        slurm = None
        if kind == "slurm":
            slurm = request.getfixturevalue("slurm")
            monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
        return Arena(tiny, load_s, podman, slurm, image)

    return make


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["process", "container", "slurm"])
def test_strikes_of_each_kind(
    kind: str, arena: Callable[..., Arena], capsys: pytest.CaptureFixture[str]
) -> None:
    """A strike at each kind of target: the sweep is finished by the same command, and nothing is false,
    lost or left."""
    made = arena(kind)
    rng = random.Random(12)
    lines = [
        made.round(moment, rng, f"struck{number}")
        for number, moment in enumerate(item for item in IN_CI if item.kind == kind)
    ]
    with capsys.disabled():
        print("\n".join(["", *lines]))


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_a_hundred_moments(
    arena: Callable[..., Arena], evidence: Callable[[str, Sequence[str]], Path]
) -> None:
    """A hundred seeded strikes over all kinds, targets, signals and phases; outcomes are counted.

    ``ISOLINE_STRIKES`` says how many where there is less time; the page says so too. The page is written
    after each strike, and ``ISOLINE_STRIKES_FROM=page`` goes on where it ends.
    """
    made = arena("slurm", 120)  # has the pools of all kinds; a busy machine is no reason to miss a phase
    wanted = int(os.environ.get("ISOLINE_STRIKES", "100"))
    rng = random.Random(100)
    moments = [*PROCESS, *CONTAINER, *SLURM]
    rng.shuffle(moments)
    moments = (moments * 3)[:wanted]
    lines = struck_before(moments)
    for number, moment in enumerate(moments[len(lines) :], len(lines)):
        lines.append(struck(made, moment, number))
        print(lines[-1], flush=True)
        counted = Counter(f"{item.kind} {item.target} {item.number.name}" for item in moments[: len(lines)])
        table = [f"- {name}: {count}" for name, count in sorted(counted.items())]
        head = (
            f"{len(lines)} of 100 seeded strikes, each finished by the same command, nothing false or left:"
        )
        evidence("chaos", [head, "", *table, "", *(f"- {line}" for line in lines)])


def struck(made: Arena, moment: Moment, number: int) -> str:
    """What came of a strike. A machine that is too busy to get to its phase gets two more chances."""
    for chance in range(3):
        with contextlib.suppress(MissedError):
            return made.round(moment, random.Random(100 + number), f"struck{number}x{chance}")
    raise AssertionError(f"{moment.text()}: its phase never came in three runs")


def struck_before(moments: Sequence[Moment]) -> list[str]:
    """The strikes that the page ``docs/evidence/chaos.md`` tells of, where they are to be kept."""
    if os.environ.get("ISOLINE_STRIKES_FROM") != "page":
        return []
    page = (Path(__file__).parents[2] / os.environ["ISOLINE_EVIDENCE"] / "chaos.md").read_text()
    lines = [line[2:] for line in page.splitlines() if "exit codes" in line]
    kept = [line for line, moment in zip(lines, moments, strict=False) if line.startswith(moment.text())]
    assert kept == lines, "the page tells of other strikes"
    return kept


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_from_cancel_to_a_clean_machine(
    arena: Callable[..., Arena], evidence: Callable[[str, Sequence[str]], Path]
) -> None:
    """Ctrl-C under load: how long until nothing of the run is left, for each kind of pool."""
    made = arena("slurm")
    lines = []
    for kind, aim_s in (("process", 30), ("container", 30), ("slurm", 60)):
        made.sweep(f"ended{kind}", kind)
        running = made.tiny.start("sweep", "run", f"ended{kind}")
        made.tiny.wait_requests(running, 1)
        began = time.monotonic()
        running.kill(signal.SIGINT)
        code = running.end(240).code
        made.slurm.wait(lambda: made.slurm.jobs() == {}, "the end of all jobs", 120)
        took_s = time.monotonic() - began
        assert code == 130 and made.tiny.processes() == {} and made.podman.containers() == {}
        lines.append(f"- {kind}: {took_s:.1f} s (aim: about {aim_s} s)")
    evidence("cancel", ["From Ctrl-C under load to a machine with nothing left of the run:", "", *lines])
