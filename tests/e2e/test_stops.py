"""A run that a person stops, and two runs on one pool."""

from __future__ import annotations

import signal
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


def test_ctrl_c_ends_cleanly_and_a_second_run_waits_its_turn(tiny: Any) -> None:
    """A second run on the pool exits 4 in one line; Ctrl-C exits 130, leaves no server, and goes on later."""
    tiny.sweep("stopped", {"concurrency": [1, 2]})
    running = tiny.start("sweep", "run", "stopped")
    tiny.wait_requests(running, 2)
    second = tiny.sweep_run("stopped", code=4)
    (line,) = second.err.strip().splitlines()
    assert "pool 'local' is in use by another run" in line
    kept = tiny.digests()

    running.kill(signal.SIGINT)
    stopped = running.end(30)
    assert stopped.code == 130, running.text()
    assert "run the same command again" in stopped.err
    assert tiny.processes() == {}
    assert [path.name for path in (tiny.the_run() / ".work").iterdir()] == ["journal.jsonl"]

    tiny.sweep_run("stopped")
    run = tiny.the_run()
    assert [item.verdict.value for item in tiny.at(run, 1)] == ["valid"]
    assert [item.verdict.value for item in tiny.at(run, 2)] == ["cancelled", "valid"]
    assert kept.items() <= tiny.digests().items()
    assert tiny.run("results", "verify").code == 0
