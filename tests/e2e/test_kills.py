"""SIGKILL of the orchestrator at any moment, then the same command: nothing lost, left or twice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from isoline.results.judging.reasons import Verdict

pytestmark = pytest.mark.engine

PHASES = ("stage", "start", "ready", "reset", "warmup", "load", "canary", "accuracy", "seal", "stop")

DELAY_S = {
    "stage": 0.3,
    "start": 0.03,
    "ready": 1.0,
    "reset": 0.01,
    "warmup": 0.4,
    "load": 8.0,
    "canary": 0.3,
    "accuracy": 1.0,
    "seal": 0.1,
    "stop": 0.3,
}
"""The longest seeded delay into a phase: about as long as the phase itself lasts."""

TRIES = 8
"""Rounds of the soak: a short phase may be over before the signal comes."""

LOOK_ALIKE = "import time; print('up', flush=True); time.sleep(3600)"


def make_sweep(tiny: Any) -> None:
    """Three points on one launch, the last one with a check, so that every phase occurs."""
    tiny.sweep("killed", {"concurrency": [1, 3], "accuracy": {"tiny-sums": [3]}})


@pytest.fixture
def look_alike(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's process with the command line of our server, and none of our labels."""
    from isoline.runners.engines import llamacpp_server

    script = tmp_path / "other" / Path(llamacpp_server.__file__).name
    script.parent.mkdir()
    script.write_text(LOOK_ALIKE)
    argv = [sys.executable, str(script), "--model", "SmolLM2-135M-Instruct.Q4_1.gguf", "--port", "20000"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd="/", start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def kill_at(tiny: Any, phase: str, rng: random.Random) -> tuple[str, str]:
    """Run the sweep and kill the orchestrator in the phase: the phase that was hit, and when in words."""
    running = tiny.start("sweep", "run", "killed")
    delay = rng.uniform(0, DELAY_S.get(phase, 2.5))
    if phase == "begin":  # before there is a run: the plan, the lock of the pool, the run's folder
        time.sleep(0.5 + delay)
    else:
        tiny.wait_phase(running, phase)
        time.sleep(delay)
    running.kill()
    running.process.wait()
    events = tiny.events(running)
    hit = events[-1].get("phase", events[-1]["event"]) if events else "begin"
    return hit, f"- {phase} + {delay:.2f} s: hit {hit}"


def check_whole(tiny: Any, kept: dict[str, str]) -> None:
    """After the last command: everything measured once, everything sealed unchanged, nothing left."""
    run = tiny.the_run()
    for point_id, items in tiny.attempts(run).items():
        verdicts = [item.verdict for item in items]
        assert verdicts.count(Verdict.VALID) == 1 and verdicts[-1] is Verdict.VALID, (point_id, verdicts)
        assert [item.attempt for item in items] == list(range(1, len(items) + 1))
    now = tiny.digests()
    assert {name: now.get(name) for name in kept} == kept
    assert [path.name for path in (run / ".work").iterdir()] == ["journal.jsonl"]
    assert tiny.processes() == {}
    assert list((tiny.state / "owners").iterdir()) == []
    assert [path for path in (tiny.state / "ports").iterdir() if path.name.isdigit()] == []
    assert list((tiny.state / "scratch").iterdir()) == []
    assert list(tiny.tmp.iterdir()) == []
    verified = tiny.run("results", "verify")
    assert verified.code == 0, verified.out


def run_kills(tiny: Any, phases: Sequence[str], rng: random.Random) -> list[tuple[str, str]]:
    """Kill one command after the other in these phases, then let the same command end, and check."""
    told = []
    kept: dict[str, str] = {}
    for phase in phases:
        told.append(kill_at(tiny, phase, rng))
        now = tiny.digests()
        assert {name: now.get(name) for name in kept} == kept, told
        kept = now
    tiny.sweep_run("killed")
    check_whole(tiny, kept)
    return told


@pytest.mark.timeout(400)
def test_killed_in_a_row_and_finished(tiny: Any, look_alike: subprocess.Popen[bytes]) -> None:
    """Killed in four phases one after the other, the next command finishes only what is due."""
    make_sweep(tiny)
    told = run_kills(tiny, ["ready", "load", "canary", "stop"], random.Random(2))
    assert look_alike.poll() is None, told
    assert os.getpgid(look_alike.pid) == look_alike.pid


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_killed_at_twenty_moments(
    tmp_path: Path,
    tiny: Any,
    look_alike: subprocess.Popen[bytes],
    evidence: Callable[[str, Sequence[str]], Path],
) -> None:
    """At least twenty seeded kills, two or more hits in each phase, each followed by the same command."""
    rng = random.Random(20)
    hits: Counter[str] = Counter()
    lines: list[str] = []

    def kill_in(*phases: str) -> None:
        one = type(tiny)(tmp_path / f"kill-{len(lines)}")
        make_sweep(one)
        try:
            told = run_kills(one, phases, rng)
        finally:
            one.close()
        hits.update(hit for hit, _ in told)
        lines.extend(line for _, line in told)
        assert look_alike.poll() is None, told

    kill_in("begin", "begin", "begin")
    for _ in range(TRIES):
        for phase in PHASES:
            if hits[phase] < 2:
                kill_in(phase)
    head = f"SIGKILL of the orchestrator at {len(lines)} moments, each time finished by the same command:"
    evidence("kills", [head, "", *lines])
    assert all(hits[phase] >= 2 for phase in PHASES), hits
