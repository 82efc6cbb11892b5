"""Bring-up: a server that is kept, measured on without a restart, by its launch id and by its address."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from isoline.results.judging.reasons import Verdict

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]

RECIPE = "smollm2-135m/llamacpp-cpu-q4_1"


def record(tiny: Any) -> dict[str, Any] | None:
    """The record of the held launch, once it is ready."""
    paths = list((tiny.state / "held").glob("*.json"))
    return json.loads(paths[0].read_text()) if paths else None


def test_hold_attach_and_endpoint(tiny: Any) -> None:
    """One server serves two sweeps and an outsider: its process is the same before and after; it ends with
    its holder, and nothing is left."""
    tiny.sweep("try", {"concurrency": [1]})
    holder = tiny.start("launch", RECIPE, "--concurrency", "1", "--hold", "1h")
    tiny.wait(holder, lambda: record(tiny) is not None, "a held server", 120)
    held = record(tiny)
    assert held
    server = tiny.child("server")

    done = tiny.run("sweep", "run", "try", "--attach", "nothing")
    assert done.code == 1 and f"held now: {held['launch_id']}" in done.err
    tiny.sweep_run("try", "--attach", held["launch_id"])
    (point,) = tiny.at(tiny.the_run(), 1)
    assert point.verdict is Verdict.VALID, point.reasons
    lock = json.loads(next(Path(tiny.the_run()).glob("*.c1.r1.*/1/lock.json")).read_text())
    assert lock["resolved"]["attached_to"] == held["launch_id"]

    endpoint = ["--url", held["url"], "--topology", "tp1", "--sku", "cpu"]
    tiny.sweep_run("try", *endpoint)
    (theirs,) = tiny.at(tiny.runs()[-1], 1)
    assert theirs.verdict is Verdict.VALID, theirs.reasons
    assert theirs.launch_digest != point.launch_digest

    assert tiny.child("server") == server and holder.process.poll() is None
    assert tiny.run("results", "ingest").code == 0
    rows = tiny.query("select source, official from points order by source")
    assert rows == [{"source": "endpoint", "official": False}, {"source": "own", "official": False}]

    holder.kill(signal.SIGINT)
    assert holder.end(60).code in (0, 130)
    assert tiny.processes() == {} and record(tiny) is None
    assert list((tiny.state / "owners").glob("*")) == []
