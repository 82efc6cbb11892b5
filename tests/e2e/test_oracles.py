"""The numbers of a point against an independent client, and the canary's questions, on the real engine."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from isoline.accuracy.questions import ask_batch, read_questions
from isoline.results.records import PlanLaunch
from isoline.runners.launcher import Deadlines, LaunchSpec, Server
from isoline.runners.process import ProcessLauncher
from isoline.settings import load_settings
from isoline.sweeps.launch import planned_weights

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

ALIAS = "smollm2-135m-instruct"


@contextmanager
def serving(tiny: Any, launch: PlanLaunch) -> Iterator[tuple[ProcessLauncher, Server]]:
    """The launch of a plan, started without the orchestrator."""
    launcher = ProcessLauncher(load_settings(tiny.project, state=tiny.state))
    spec = LaunchSpec(
        run_id="20260101T000000Z-test-abcdef",
        launch_id="test-1",
        engine="llamacpp",
        alias=ALIAS,
        argv=tuple(launch.argv),
        env=dict(launch.env),
        weights=planned_weights(launch),
        packages=tuple(launch.identity["image"]["packages"]),
        scratch=tiny.state / "scratch" / "test-1",
        log=tiny.root / "server.log",
        deadlines=Deadlines(ready_s=60, reset_s=30, stop_s=10),
    )
    server = launcher.start(spec, launcher.stage(spec))
    try:
        launcher.ready(server)
        yield launcher, server
    finally:
        launcher.stop(server)


def bodies_of(folder: Path) -> list[dict[str, Any]]:
    """The measured request bodies that the load generator sent, in the order of their sending."""
    rows = [json.loads(line) for line in (folder / "profile_export_raw.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["metadata"]["benchmark_phase"] == "profiling"]
    rows.sort(key=lambda row: row["metadata"]["request_start_ns"])
    return [row["payload"] for row in rows]


def test_a_plain_client_measures_the_same(
    tiny: Any, plain_client: ModuleType, evidence: Callable[[str, Sequence[str]], Path]
) -> None:
    """At concurrency 1 and 4 a plain client gets the point's output tokens/s within 15 % (median of 3)."""
    tiny.scenario("tiny-long", osl=32, requests={"minimum": 10, "per_concurrency": 4})
    tiny.recipe(scenarios={"tiny-long": {"concurrency": [1, 4]}})
    tiny.sweep("long", {"scenario": "tiny-long", "concurrency": [1, 4]})
    tiny.sweep_run("long")
    run = tiny.the_run()
    lines = []
    with serving(tiny, tiny.plan(run).launches[0]) as (launcher, server):
        for concurrency in (1, 4):
            (record,) = tiny.at(run, concurrency)
            bodies = bodies_of(run / record.point_id / "1" / "aiperf")
            assert len(bodies) == record.counts.completed
            (point_tps,) = (
                row.value
                for row in record.metrics
                if row.name == "output_tps_per_gpu" and row.window == "full"
            )
            tries = []
            for _ in range(3):
                launcher.reset(server)
                tries.append(plain_client.run(server.host, server.port, bodies, concurrency).output_tps)
            plain_tps = statistics.median(tries)
            assert point_tps is not None
            lines.append(f"- c{concurrency}: point {point_tps:.1f}, plain {plain_tps:.1f} output tokens/s")
            assert point_tps == pytest.approx(plain_tps, rel=0.15), tries
    evidence("plain-client", lines)


def ask_rounds(tiny: Any, rounds: int) -> list[str]:
    """Ask all canary questions in random order at concurrency 1, 2, 4, 8; the wrong answers."""
    tiny.recipe(parallel=8, ctx_size=8192)
    tiny.sweep("canary", {"concurrency": [1]})
    planned = tiny.run("sweep", "plan", "canary", "--out", str(tiny.root / "plan.json"))
    assert planned.code == 0, planned.err
    launch = PlanLaunch.model_validate(json.loads((tiny.root / "plan.json").read_text())["launches"][0])
    questions = read_questions(tiny.project / "datasets" / "canary-smollm2.jsonl")
    rng = random.Random(8)
    wrong = []
    with serving(tiny, launch) as (_, server):
        for concurrency in (1, 2, 4, 8):
            for _ in range(rounds):
                rng.shuffle(questions)
                batch = ask_batch(
                    server.url, ALIAS, questions, concurrency=concurrency, max_tokens=16, deadline_s=60
                )
                wrong += [
                    f"c{concurrency} {item.id}: {item.text!r}" for item in batch.answers if not item.correct
                ]
    return wrong


def test_the_canary_questions_are_easy(tiny: Any) -> None:
    """Every canary question is answered right in 2 of 2 rounds at concurrency 1, 2, 4 and 8."""
    assert ask_rounds(tiny, 2) == []


@pytest.mark.soak
def test_the_canary_questions_are_never_missed(
    tiny: Any, evidence: Callable[[str, Sequence[str]], Path]
) -> None:
    """Every canary question is answered right in 20 of 20 rounds at concurrency 1, 2, 4 and 8."""
    assert ask_rounds(tiny, 20) == []
    evidence("canary", ["20 of 20 rounds right at concurrency 1, 2, 4, 8, in random order"])
