"""The demo as a newcomer runs it: `make demo SERVE=0` on a store of its own."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


def demo(env: dict[str, str]) -> tuple[int, str, float]:
    """Exit code, what it printed, and seconds."""
    began = time.monotonic()
    done = subprocess.run(
        ["make", "demo", "SERVE=0"], cwd=PROJECT, env=env, capture_output=True, text=True, timeout=1500
    )
    return done.returncode, done.stdout + done.stderr, time.monotonic() - began


@pytest.mark.soak
@pytest.mark.engine
def test_the_demo_shows_a_real_curve(tmp_path: Path, evidence: Callable[[str, Sequence[str]], Path]) -> None:
    """All points valid; at 8 more in all and less to each user than at 1; a second time takes seconds."""
    env = {
        **os.environ,
        "ISOLINE_STORE": str(tmp_path / "store"),
        "ISOLINE_WAREHOUSE": str(tmp_path / "warehouse.duckdb"),
    }
    isoline = str(PROJECT / ".venv" / "bin" / "isoline")

    def query(sql: str) -> list[dict[str, float]]:
        done = subprocess.run(
            [isoline, "results", "query", sql, "--format", "json"],
            cwd=PROJECT, env=env, capture_output=True, text=True, check=True,
        )  # fmt: skip
        rows: list[dict[str, float]] = json.loads(done.stdout)
        return rows

    code, text, took_s = demo(env)
    assert code == 0, text
    counts = query("select count(*) n, count(*) filter (where verdict = 'valid') valid from points")[0]
    assert counts["n"] >= 6
    assert counts["valid"] == counts["n"]
    curve = {
        row["concurrency"]: row
        for row in query(
            "select concurrency, median(total_tps_per_gpu) total, median(interactivity_p50_tps) speed, "
            "median(ttft_p50_ms) ttft from points where scenario = 'demo-short' group by all order by 1"
        )
    }
    assert curve[8]["total"] >= 1.15 * curve[1]["total"]
    assert curve[8]["speed"] < curve[1]["speed"]
    again_code, again, again_s = demo(env)
    assert again_code == 0, again
    assert "nothing was due" in again
    overhead = subprocess.run(
        [isoline, "sweep", "status", "demo", "--overhead", "--format", "json"],
        cwd=PROJECT, env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    overhead_s = json.loads(overhead.stdout)[0]["overhead_median_s"]
    ratio = curve[8]["total"] / curve[1]["total"]
    rows = [
        f"| {level:g} | {row['total']:.0f} | {row['speed']:.1f} | {row['ttft']:.0f} |"
        for level, row in curve.items()
    ]
    evidence(
        "demo",
        [
            f"`make demo SERVE=0`: {counts['n']:g} points, all valid, in {took_s:.0f} s with set-up done; "
            f"a second time {again_s:.1f} s, nothing measured.",
            f"Harness overhead between two points: {overhead_s} s (median).",
            f"Total throughput at concurrency 8 is {ratio:.2f} times that at 1.",
            "",
            "| concurrency | total tokens/s | tokens/s/user (p50) | TTFT p50 ms |",
            "|---|---|---|---|",
            *rows,
        ],
    )
