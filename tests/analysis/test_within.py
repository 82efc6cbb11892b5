"""Within-run intervals of stored metrics, computed from per-request tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from isoline.analysis.within import request_interval, within_of
from isoline.results.bundles.requests import REQUESTS_SCHEMA
from isoline.results.metrics.derive import derive
from isoline.results.metrics.registry import HEADLINE

SECOND = 1_000_000_000


def requests(waves: int, concurrency: int, spread: float, seed: int = 0) -> pa.Table:
    """Closed-loop requests in waves: each wave has its own speed, `spread` tells how different."""
    random = np.random.default_rng(seed)
    rows, start = [], 1_700_000_000 * SECOND
    for wave in range(waves):
        gap = int(SECOND * 0.02 * (1 + spread * random.random()))
        for lane in range(concurrency):
            first = start + 10 * gap + lane * 1000
            chunks = [first + gap * k for k in range(16)]
            rows.append(
                {
                    **dict.fromkeys(REQUESTS_SCHEMA.names),
                    "request_id": f"{wave}.{lane}",
                    "turn": 0,
                    "phase": "measured",
                    "status": "ok",
                    "intended_send_ns": start,
                    "send_ns": start,
                    "first_token_ns": first,
                    "first_output_token_ns": first,
                    "last_token_ns": chunks[-1],
                    "end_ns": chunks[-1],
                    "chunk_ns": chunks,
                    "chunk_tokens": [1] * 16,
                    "input_tokens": 100,
                    "cached_tokens": 0,
                    "output_tokens": 16,
                }
            )
        start = rows[-1]["end_ns"] + 1000
    return pa.Table.from_pylist(rows, schema=REQUESTS_SCHEMA)


@pytest.mark.parametrize("window", ["full", "steady"])
@pytest.mark.parametrize(
    "metric",
    [
        "total_tps_per_gpu",
        "output_tps_per_gpu",
        "uncached_input_tps_per_gpu",
        "request_rps",
        "interactivity_p50_tps",
        "e2e_interactivity_p90_tps",
        "ttft_p50_ms",
        "tpot_mean_ms",
    ],
)
def test_interval_holds_the_stored_value(metric: str, window: str) -> None:
    """The interval of a headline metric lies around the value that the warehouse stores."""
    table = requests(20, 4, 0.5)
    value = derive(table, gpus=2, concurrency=4).value(metric, window)
    assert value is not None
    interval = request_interval(table, metric, value=value, concurrency=4, window=window)
    assert interval is not None
    assert interval.label == "within_run"
    assert interval.low <= value <= interval.high
    assert 0.5 * value < interval.low < interval.high < 1.5 * value


def test_more_spread_is_a_wider_interval() -> None:
    """Waves of unequal speed widen the interval; the number depends on the data."""
    widths = []
    for spread in (0.05, 1.0):
        table = requests(20, 4, spread)
        value = derive(table, gpus=1, concurrency=4).value("output_tps_per_gpu")
        assert value is not None
        interval = request_interval(table, "output_tps_per_gpu", value=value, concurrency=4, window="full")
        assert interval is not None
        widths.append((interval.high - interval.low) / value)
    assert widths[1] > 5 * widths[0]


def test_no_interval_where_requests_do_not_make_the_metric() -> None:
    """One wave, or a metric that is no function of single requests, has no interval."""
    assert request_interval(requests(1, 4, 0), "request_rps", value=1, concurrency=4, window="full") is None
    assert request_interval(requests(9, 1, 0), "failed_share", value=1, concurrency=1, window="full") is None
    assert request_interval(requests(9, 1, 0), "itl_p50_ms", value=1, concurrency=1, window="full") is None


def test_only_single_valid_repetitions_are_read(frame: Callable[..., pd.DataFrame]) -> None:
    """Bundles are opened only for points with one valid repetition; a thinned one has no interval."""
    assert "total_tps_per_gpu" in HEADLINE
    points = frame(
        {"c": 1, "x": 30.0, "y": 100.0},
        {"c": 2, "x": 30.0, "y": 100.0},
        {"c": 2, "x": 30.0, "y": 100.0, "repetition": 2},
        {"c": 4, "x": 30.0, "y": 100.0, "verdict": "partial"},
        {"c": 8, "x": 30.0, "y": 100.0},
        {"c": 16, "verdict": None, "bundle_path": None},
    )
    opened = []

    def read(path: str) -> pa.Table | None:
        opened.append(path)
        return requests(9, 1, 0.5) if path == "bundle0" else None

    found = within_of(points, ["total_tps_per_gpu", "ttft_p50_ms", "not_there"], read)
    assert opened == ["bundle0", "bundle4"]
    assert {point: set(metrics) for point, metrics in found.items()} == {"p0.r1": {"total_tps_per_gpu"}}
