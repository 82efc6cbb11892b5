"""Several launches in flight, a kill in their middle, commands of people, an image that fails twice alike."""

from __future__ import annotations

import json
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from isoline.results.judging.reasons import Verdict

pytestmark = [pytest.mark.engine, pytest.mark.timeout(500)]

TWO = {
    "schema_version": 1,
    "name": "local",
    "launcher": "process",
    "sku": "cpu",
    "accelerators": 2,
    "max_parallel": 2,
    "share_node": True,
    "client_profile": "shared-cpu",
}
"""This machine as two accelerators that two launches may have at the same time."""


def leases_of(tiny: Any) -> list[dict[str, Any]]:
    """The leases on disk."""
    return [json.loads(path.read_text()) for path in (tiny.state / "leases").glob("*.json")]


def in_phase(tiny: Any, running: Any, phase: str) -> set[str]:
    """The launches that have entered a phase since the command started."""
    events = tiny.events(running)
    return {str(event["launch_id"]) for event in events if event.get("phase") == phase}


def test_two_in_flight_are_killed_and_the_next_run_ends_clean(tiny: Any) -> None:
    """A canary goes alone, then two launches side by side; after a SIGKILL the same command finishes all."""
    tiny.yaml("runners/local.yaml", TWO)
    recipes = [tiny.recipe(f"v{number}", parallel=3 + number) for number in range(3)]
    tiny.sweep("side", {"recipes": recipes, "concurrency": [1]})
    running = tiny.start("sweep", "run", "side")
    tiny.wait(running, lambda: len(in_phase(tiny, running, "warmup")) == 3, "three launches", 200)
    told = [event["event"] for event in tiny.events(running) if event["event"] in ("launch", "sealed")]
    assert told[:3] == ["launch", "sealed", "launch"], "the canary goes alone until it has served a point"
    held = leases_of(tiny)
    assert {tuple(map(tuple, item["places"][0][1:])) for item in held} == {((0,),), ((1,),)}
    assert all(not item["is_whole"] and item["places"][0][0] == "local" for item in held)
    shown = tiny.run("pool", "status", "--format", "json").json()
    assert {row["launch"] for row in shown} == {item["launch_id"] for item in held}
    assert all(row["state"] == "busy" and row["phase"] and row["eta"] for row in shown)

    running.kill()
    running.process.wait()
    left = tiny.run("pool", "gc", "--dry-run", "--format", "json").json()
    assert {"process", "lease"} <= {row["kind"] for row in left}
    assert {row["state"] for row in left} == {"left"}
    assert len(leases_of(tiny)) == 2, "a dry run removes nothing"

    tiny.sweep_run("side")
    run = tiny.the_run()
    for items in tiny.attempts(run).values():
        assert [item.verdict for item in items].count(Verdict.VALID) == 1
    assert tiny.processes() == {}
    assert leases_of(tiny) == []
    assert list((tiny.state / "owners").iterdir()) == []
    assert list((tiny.state / "scratch").iterdir()) == []
    assert tiny.run("results", "verify").code == 0
    followed = tiny.run("sweep", "status", "side", "--follow", "--format", "json")
    rows = [json.loads(line) for line in followed.out.splitlines()]
    assert [row["event"] for row in rows if row["event"] in ("run", "end")] == ["run", "run", "end"]
    assert {row["verdict"] for row in rows if row["event"] == "sealed"} == {"valid"}
    assert len({tuple(row) for row in rows}) == 1, "every line has the same keys"


def test_an_image_that_fails_twice_alike_is_held(tiny: Any) -> None:
    """Two starts fail with one signature, the third launch is skipped with it; a retry opens the breaker."""
    recipes = [tiny.recipe(f"v{n}", parallel=3 + n, no_such_argument="x") for n in range(3)]
    tiny.sweep("broken", {"recipes": recipes, "concurrency": [1]})
    done = tiny.sweep_run("broken", code=3)
    assert "3 without an attempt (1 breaker)" in done.out
    run = tiny.the_run()
    assert len(list((run / "_launch").iterdir())) == 2
    (left,) = json.loads((run / "_skipped" / "1" / "skipped.json").read_text())["points"]
    assert left["cause"] == "breaker"
    assert [Path(run / path).is_file() for path in left["evidence"]] == [True, True]
    again = tiny.sweep_run("broken", code=3)
    assert len(list((run / "_launch").iterdir())) == 2, again.err
    tiny.run("results", "ingest")
    causes = tiny.query("select missing_cause, count(*) as n from points group by 1 order by 1")
    assert causes == [{"missing_cause": "breaker", "n": 1}, {"missing_cause": "launch_failed", "n": 2}]
    assert tiny.query("select skipped, missing from runs") == [{"skipped": 3, "missing": 0}]
    before = tiny.query("select * from points order by point_id")
    assert tiny.run("results", "rebuild").code == 0
    assert tiny.query("select * from points order by point_id") == before

    dry = tiny.run("sweep", "retry", "broken", left["point_id"], "--dry-run")
    assert dry.code == 0 and "would be told" in dry.out
    assert list((run / ".work").glob("control-*")) == []
    assert (
        "it counts from the next `isoline sweep run broken`"
        in tiny.run("sweep", "retry", "broken", left["point_id"]).out
    )
    tiny.sweep_run("broken", code=3)
    assert len(list((run / "_launch").iterdir())) > 2


def test_nothing_starts_that_would_not_end_in_the_window(tiny: Any) -> None:
    """A point that is too long for the window is skipped with the hour that closes; no server is started."""
    tiny.scenario("tiny-endless", requests={"minimum": 100_000, "per_concurrency": 1})
    tiny.recipe(scenarios={"tiny-endless": {"concurrency": [1]}})
    soon = datetime.now(UTC) + timedelta(minutes=30)
    tiny.yaml("runners/local.yaml", TWO | {"until": f"{soon:%H:%M}"})
    tiny.sweep("late", {"scenario": "tiny-endless", "concurrency": [1]})
    done = tiny.sweep_run("late", code=3)
    assert f"the window closes at {soon:%H:%M} UTC" in done.err
    assert "1 without an attempt (1 window_closed); nothing could be measured" in done.out
    assert not (tiny.the_run() / "_launch").exists()
    assert tiny.run("results", "ingest").code == 0
    assert tiny.query("select missing_cause from points") == [{"missing_cause": "window_closed"}]


def test_people_pause_cancel_and_resume(tiny: Any) -> None:
    """Paused: the point ends, the server stops, nothing starts; cancelled: exit 130 until it is resumed."""
    tiny.sweep("told", {"concurrency": [1, 2]})
    running = tiny.start("sweep", "run", "told")
    tiny.wait_requests(running, 1)
    said = tiny.run("sweep", "pause", "told", "--reason", "someone needs it")
    assert "pauses; pid " in said.out and "obeys within a second" in said.out
    tiny.wait(
        running, lambda: "landed" in {event["event"] for event in tiny.events(running)}, "the stop", 120
    )
    run = tiny.the_run()
    assert [item.verdict.value for item in tiny.at(run, 1)] == ["valid"]
    time.sleep(1)
    assert tiny.at(run, 2) == []
    assert leases_of(tiny) == []
    assert "the run is paused" in running.text()
    logs = tiny.run("logs", tiny.at(run, 1)[0].point_id)
    assert "==> server of launch" in logs.out and "==> client of attempt 1" in logs.out

    tiny.run("sweep", "resume", "told")
    tiny.wait_requests(running, 2)
    tiny.run("sweep", "cancel", "told")
    done = running.end(60)
    assert done.code == 130, done.err
    assert "isoline sweep resume" in done.err
    assert [item.verdict.value for item in tiny.at(run, 2)] == ["cancelled"]
    assert tiny.processes() == {}
    assert tiny.sweep_run("told", code=130).took_s < 60
    assert len(tiny.at(run, 2)) == 1
    tiny.run("sweep", "resume", "told")
    tiny.sweep_run("told")
    assert [item.verdict.value for item in tiny.at(run, 2)] == ["cancelled", "valid"]


def test_a_second_ctrl_c_ends_at_once_and_leaves_nothing(tiny: Any) -> None:
    """The first one lets the load end in order, the second does not wait; no process and no lease stays."""
    tiny.sweep("hurried", {"concurrency": [1]})
    running = tiny.start("sweep", "run", "hurried")
    tiny.wait_phase(running, "load")
    running.kill(signal.SIGINT)
    time.sleep(0.05)
    running.kill(signal.SIGINT)
    assert running.end(30).code == 130, running.text()
    until = time.monotonic() + 15  # the sampler of the machine notices that nobody reads it any more
    while tiny.processes() and time.monotonic() < until:
        time.sleep(0.2)
    assert tiny.processes() == {}
    assert leases_of(tiny) == []
    assert list((tiny.state / "owners").iterdir()) == []
    assert tiny.run("pool", "gc", "--format", "json").json() == []
