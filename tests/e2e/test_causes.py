"""The real engine's own words say why a launch failed, in the record, on the screen and in the warehouse."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
