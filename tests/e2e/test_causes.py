"""The real engine's own words say why a launch failed, in the record, on the screen and in the warehouse."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from isoline.runners.ownership import cgroups

pytestmark = pytest.mark.engine


def test_an_argument_that_the_engine_does_not_know(tiny: Any) -> None:
    """The launch carries the cause, the line that proves it, and that a retry will not help."""
    tiny.recipe(warp_drive=1)
    tiny.sweep("typo", {"concurrency": [1]})
    tiny.sweep_run("typo", code=3)
    (launch,) = tiny.the_run().glob("_launch/*/launch.json")
    record = json.loads(launch.read_text())
    assert [note["code"] for note in record["reasons"]] == ["launch_failed", "unknown_argument"]
    cause = record["cause"]
    assert (cause["name"], cause["retry"]) == ("unknown_argument", False)
    (line,) = cause["lines"]
    log = (launch.parent / line["log"]).read_text().splitlines()
    assert "unknown flag --warp-drive" in log[line["number"] - 1]
    assert line["text"].startswith("llamacpp_server: unknown flag --warp-drive")
    shown = tiny.run("sweep", "status", "typo").out
    assert "unknown_argument: server.log:" in shown and "a retry will not help" in shown
    tiny.run("results", "ingest")
    (row,) = tiny.query("select cause, cause_detail from launches")
    assert row["cause"] == "unknown_argument" and "--warp-drive" in row["cause_detail"]

    tried = tiny.run("launch", "smollm2-135m/llamacpp-cpu-q4_1", "--concurrency", "1", "--hold", "1m")
    assert tried.code == 3 and "launch_failed" in tried.err, tried.err
    name = tried.out.partition("its logs: isoline logs ")[2].split()[0]
    assert "unknown flag --warp-drive" in tiny.run("logs", name).out


def test_a_server_over_the_pool_s_memory_limit(tiny: Any) -> None:
    """The kernel ends it and not its neighbours: out of memory, which is the engine's own doing, and no
    record of it stays. Where the kernel takes no limit there is nothing to see here."""
    probe = cgroups.make(tiny.tmp, "probe", 1 << 30)
    cgroups.remove(tiny.tmp, "probe")
    if probe.path is None:
        return  # tests/runners/test_cgroups.py: it runs without one and says why
    pool = tiny.project / "runners/local.yaml"
    pool.write_text(f"{pool.read_text()}\nmemory_limit_gb: 0.03\n")
    tiny.sweep("small", {"concurrency": [1]})
    tiny.sweep_run("small", code=3)
    (launch,) = tiny.the_run().glob("_launch/*/launch.json")
    record = json.loads(launch.read_text())
    assert (record["verdict"], record["signal"]) == ("invalid", signal.SIGKILL)
    assert [note["code"] for note in record["reasons"]] == ["oom"], record["reasons"]
    assert list((tiny.state / "owners").iterdir()) == []


def test_a_server_that_dies_under_load_says_why(tiny: Any) -> None:
    """The point carries what the server wrote since the point began, before it aborted."""
    tiny.scenario("tiny-longer", requests={"minimum": 10, "per_concurrency": 5})
    tiny.recipe(scenarios={"tiny-longer": {"concurrency": [1]}})
    tiny.sweep("dies", {"scenario": "tiny-longer", "concurrency": [1]})
    running = tiny.start("sweep", "run", "dies")
    tiny.wait_requests(running, 1)
    server = tiny.child("server")
    with Path(f"/proc/{server}/fd/1").open("ab") as log:  # the words that llama.cpp has for it
        log.write(b"CUDA error: out of memory\n")
    os.kill(server, signal.SIGABRT)
    assert running.end().code == 3
    (record,) = tiny.at(tiny.the_run(), 1)
    assert [note.code for note in record.reasons] == ["server_died", "oom"]
    assert record.cause is not None and record.cause.name == "oom_run" and not record.cause.retry
    assert record.cause.lines[0].text == "CUDA error: out of memory"
    (row,) = tiny.run("sweep", "status", "dies", "--format", "json").json()
    assert row["cause"] == "oom_run" and row["proof"].endswith(": CUDA error: out of memory")
    tiny.run("results", "ingest")
    assert tiny.query("select cause from attempts") == [{"cause": "oom_run"}]
