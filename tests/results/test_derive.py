"""Every metric against a slow, plain computation, and the cases that must not be silently wrong."""

from __future__ import annotations

import random
import statistics
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from isoline.errors import InputError
from isoline.results.metrics.derive import derive, percentile_n, token_gaps
from isoline.results.metrics.registry import HEADLINE, METRICS, PERCENTILES


def _random_rows(tables: ModuleType, seed: int, count: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = []
    for index in range(count):
        if rng.random() < 0.1:
            rows.append(tables.failed(index * 30, index * 30 + 50))
            continue
        sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 12))]
        moments = [index * 30 + rng.uniform(50, 150)]
        for _ in sizes[1:]:
            moments.append(moments[-1] + rng.uniform(1, 40))
        rows.append(
            tables.request(index * 30, moments, sizes, input=rng.randint(50, 200), cached=rng.randint(0, 40))
        )
    return rows


def _plain_percentile(values: list[float], percentile: int) -> float:
    ordered = sorted(values)
    position = (len(ordered) - 1) * percentile / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@pytest.mark.parametrize("seed", range(5))
def test_latencies_equal_a_plain_computation(tables: ModuleType, seed: int) -> None:
    """ttft, e2el, tpot, itl and icl at every percentile equal the definition, computed one by one."""
    rows = _random_rows(tables, seed, 150)
    derived = derive(tables.table(rows), gpus=1, concurrency=4)
    plain: dict[str, list[float]] = {name: [] for name in ("ttft", "e2el", "tpot", "itl", "icl")}
    slow: list[float] = []
    for row in rows:
        if row["status"] != "ok":
            continue
        at = [(moment - row["intended_send_ns"]) / 1e6 for moment in row["chunk_ns"]]
        sizes = row["chunk_tokens"]
        plain["ttft"].append(at[0])
        plain["e2el"].append(at[-1])
        rest = row["output_tokens"] - sizes[0]
        if rest > 0:
            plain["tpot"].append((at[-1] - at[0]) / rest)
        slow.append(at[-1] / row["output_tokens"])
        for before, after, size in zip(at, at[1:], sizes[1:], strict=False):
            plain["icl"].append(after - before)
            plain["itl"] += [(after - before) / size] * size
    for family, values in plain.items():
        assert derived.value(f"{family}_mean_ms") == pytest.approx(statistics.fmean(values), rel=1e-6)
        for percentile in PERCENTILES:
            expected = _plain_percentile(values, percentile)
            assert derived.value(f"{family}_p{percentile}_ms") == pytest.approx(expected, rel=1e-6)
    for percentile in PERCENTILES:
        tpot = _plain_percentile(plain["tpot"], percentile)
        assert derived.value(f"interactivity_p{percentile}_tps") == pytest.approx(1000 / tpot, rel=1e-6)
        expected = 1000 / _plain_percentile(slow, percentile)
        assert derived.value(f"e2e_interactivity_p{percentile}_tps") == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("gpus", [1, 8])
def test_throughput_divides_by_all_gpus_and_adds_up(tables: ModuleType, gpus: int) -> None:
    """Input and output give the total, cached and uncached the input, all over the same GPUs and window."""
    rows = _random_rows(tables, 7, 60)
    ok = [row for row in rows if row["status"] == "ok"]
    derived = derive(tables.table(rows), gpus=gpus, concurrency=4)
    seconds = (max(row["last_token_ns"] for row in ok) - min(row["intended_send_ns"] for row in rows)) / 1e9
    value = derived.value
    assert value("window_s") == pytest.approx(seconds)
    for name, column in (
        ("input", "input_tokens"),
        ("output", "output_tokens"),
        ("cached_input", "cached_tokens"),
    ):
        expected = sum(row[column] for row in ok) / seconds / gpus
        assert value(f"{name}_tps_per_gpu") == pytest.approx(expected)
    assert value("total_tps_per_gpu") == pytest.approx(
        value("input_tps_per_gpu") + value("output_tps_per_gpu")  # type: ignore[operator]
    )
    assert value("uncached_input_tps_per_gpu") == pytest.approx(
        value("input_tps_per_gpu") - value("cached_input_tps_per_gpu")  # type: ignore[operator]
    )
    assert value("request_rps") == pytest.approx(len(ok) / seconds)
    assert value("failed_share") == pytest.approx((len(rows) - len(ok)) / len(rows))
    assert derived.counts.model_dump() == {"asked": 60, "completed": len(ok), "failed": 60 - len(ok)}


def test_every_metric_of_the_registry_gets_a_row(tables: ModuleType) -> None:
    """One row per metric and window, with its unit; nothing outside the registry."""
    derived = derive(tables.table(tables.closed_loop(2, 80)), gpus=1, concurrency=2)
    assert derived.steady_usable
    for window in ("full", "steady"):
        rows = [row for row in derived.rows if row.window == window]
        assert [row.name for row in rows] == list(METRICS)
        assert all(row.unit == METRICS[row.name].unit for row in rows)
    assert set(HEADLINE) <= set(METRICS)


@pytest.mark.parametrize(("percentile", "need"), [(50, 2), (75, 4), (90, 10), (95, 20), (99, 100)])
def test_percentiles_need_enough_requests(tables: ModuleType, percentile: int, need: int) -> None:
    """A percentile is null below 1/(1 - XX/100) requests, and there from that number on."""
    assert percentile_n(percentile) == need
    for count, is_there in ((need - 1, False), (need, True)):
        derived = derive(tables.table(tables.closed_loop(1, count)), gpus=1, concurrency=1)
        for name in (f"ttft_p{percentile}_ms", f"interactivity_p{percentile}_tps"):
            assert (derived.value(name) is not None) == is_there


def test_one_token_outputs_have_no_tpot(tables: ModuleType) -> None:
    """One-token answers give no time per output token, and their interactivity is null, not infinite."""
    rows = [tables.request(index * 200, [index * 200 + 100], [1]) for index in range(12)]
    derived = derive(tables.table(rows), gpus=1, concurrency=1)
    assert derived.value("tpot_p50_ms") is None
    assert derived.value("interactivity_p50_tps") is None
    assert derived.value("ttft_p50_ms") == pytest.approx(100)
    assert derived.value("e2el_p50_ms") == pytest.approx(100)


def test_tokens_that_all_come_at_once_are_not_infinitely_fast(tables: ModuleType) -> None:
    """A time per token of zero gives a null interactivity with a note."""
    rows = [tables.request(index * 200, [index * 200 + 100] * 4, [1] * 4) for index in range(4)]
    derived = derive(tables.table(rows), gpus=1, concurrency=1)
    row = next(row for row in derived.rows if row.name == "interactivity_p50_tps")
    assert row.value is None and row.note == "zero_time"


def test_first_chunk_of_several_tokens_counts_as_it_is(tables: ModuleType) -> None:
    """tpot divides by the tokens after the first chunk, so a large first chunk does not flatter it."""
    rows = [
        tables.request(index * 500, [index * 500 + 100, index * 500 + 150, index * 500 + 200], [8, 1, 1])
        for index in range(4)
    ]
    derived = derive(tables.table(rows), gpus=1, concurrency=1)
    assert derived.value("tpot_p50_ms") == pytest.approx(50)


def test_unknown_chunk_tokens_are_said_and_give_no_itl(tables: ModuleType) -> None:
    """Where the server does not say the tokens of a chunk, itl is null with the reason, icl is there."""
    rows = [
        tables.request(index * 500, [index * 500 + 100 + 10 * k for k in range(5)], output=20)
        for index in range(4)
    ]
    derived = derive(tables.table(rows), gpus=1, concurrency=1)
    by_name = {row.name: row for row in derived.rows}
    assert by_name["itl_p50_ms"].value is None
    assert by_name["itl_p50_ms"].note == "chunk_tokens_unknown=4/4"
    assert by_name["icl_p50_ms"].value == pytest.approx(10)
    assert by_name["tpot_p50_ms"].value == pytest.approx(40 / 19)
    assert by_name["tpot_p50_ms"].note == "first_chunk_tokens_assumed=4"


def test_a_chunk_without_a_token_carries_its_gap_over() -> None:
    """No time is lost where a chunk brings text but no whole token."""
    gaps = token_gaps([np.array([0.0, 10.0, 20.0, 30.0])], [np.array([1.0, 0.0, 1.0, 2.0])])
    assert gaps.tolist() == [20.0, 5.0, 5.0]


@pytest.mark.parametrize("seed", range(20))
def test_gaps_of_requests_do_not_reach_from_one_to_the_next(seed: int) -> None:
    """Those of many requests are those of each, one after the other; first and last chunks may be empty."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, size=rng.integers(1, 9))
    times = [np.sort(rng.random(size)) for size in sizes]
    tokens = [rng.integers(0, 3, size=size).astype(float) for size in sizes]
    alone = [token_gaps([time], [token]) for time, token in zip(times, tokens, strict=True)]
    assert token_gaps(times, tokens).tolist() == np.concatenate(alone).tolist()
    assert token_gaps([], []).size == 0


def test_warm_up_and_cancelled_requests_are_left_out(tables: ModuleType) -> None:
    """Warm-up rows change no number; cancelled ones are neither completed nor failed."""
    rows = tables.closed_loop(1, 20)
    base = derive(tables.table(rows), gpus=1, concurrency=1)
    slow = tables.request(-9000, [-100], [1], phase="warmup", session="w")
    cancelled = tables.failed(5000, 5001, "cancelled") | {"status": "cancelled"}
    more = derive(tables.table([*rows, slow, cancelled]), gpus=1, concurrency=1)
    assert more.value("ttft_p50_ms") == base.value("ttft_p50_ms")
    assert more.value("output_tps_per_gpu") == base.value("output_tps_per_gpu")
    assert (more.counts.completed, more.counts.failed) == (20, 0)


def test_missing_usage_is_null_and_never_zero(tables: ModuleType) -> None:
    """One request without usage makes the token rates null, with the reason."""
    rows = tables.closed_loop(1, 10)
    rows[3]["output_tokens"] = None
    derived = derive(tables.table(rows), gpus=1, concurrency=1)
    by_name = {row.name: row for row in derived.rows}
    for name in ("output_tps_per_gpu", "total_tps_per_gpu"):
        assert by_name[name].value is None and by_name[name].note == "usage_missing"
    assert by_name["input_tps_per_gpu"].value is not None


def test_nothing_measured_gives_no_rows(tables: ModuleType) -> None:
    """A table of failures, or an empty one, gives counts and no number at all."""
    derived = derive(tables.table([tables.failed(0, 10)]), gpus=1, concurrency=1)
    assert derived.rows == [] and derived.windows == {"full": None, "steady": None}
    assert derived.counts.failed == 1
    assert derive(tables.table([]), gpus=1, concurrency=1).rows == []


def test_goodput_counts_requests_that_met_every_limit(tables: ModuleType) -> None:
    """A failed request and one over any limit are not good; without limits there is no goodput."""
    rows = tables.closed_loop(1, 10)
    rows[0]["first_token_ns"] += 50_000_000  # ttft 150 ms
    rows.append(tables.failed(3000, 3001))
    table = tables.table(rows)
    derived = derive(table, gpus=2, concurrency=1, slo={"ttft_ms": 120, "e2el_ms": 1000})
    window = derived.value("window_s")
    assert window is not None
    assert derived.value("goodput_rps") == pytest.approx(9 / window)
    assert derived.value("goodput_rps_per_gpu") == pytest.approx(9 / window / 2)
    assert derive(table, gpus=2, concurrency=1).value("goodput_rps") is None
    with pytest.raises(InputError, match="unknown limit 'ttft'"):
        derive(table, gpus=1, concurrency=1, slo={"ttft": 1})


def test_steady_window_needs_completions_and_half_of_the_time(tables: ModuleType) -> None:
    """Rows of a steady window are stored from max(30, 3c) completions on, and not before."""
    for count, usable in ((30, False), (60, True)):
        derived = derive(tables.table(tables.closed_loop(4, count)), gpus=1, concurrency=4)
        assert derived.steady_usable == usable
        assert any(row.window == "steady" for row in derived.rows) == usable
        assert derived.windows["steady"] is not None
        assert bool(derived.steady_note) != usable


def test_a_short_steady_window_is_not_used(tables: ModuleType) -> None:
    """Enough completions in a burst do not make a window that is under half of the whole."""
    rows = tables.closed_loop(1, 80)
    late = rows[-1]["end_ns"] / 1e6 - tables.EPOCH_NS / 1e6 + 20_000
    rows.append(tables.request(late, [late + 100, late + 200], [1, 1]))
    derived = derive(tables.table(rows), gpus=1, concurrency=1)
    assert derived.windows["steady"] is not None and derived.windows["steady"].completions == 80
    assert not derived.steady_usable and "less than half" in derived.steady_note


def test_steady_throughput_is_that_of_the_full_load(tables: ModuleType) -> None:
    """Ramps lower the full window's throughput; the steady one gives the closed loop's own rate."""
    concurrency, tokens = 8, 11
    rows = tables.closed_loop(concurrency, 80, tokens=tokens, stagger=100)
    derived = derive(tables.table(rows), gpus=1, concurrency=concurrency)
    rate = concurrency * tokens / 0.210  # a request takes 200 ms, a lane needs 10 ms for the next
    steady = derived.value("output_tps_per_gpu", "steady")
    assert steady == pytest.approx(rate, rel=0.03)
    full = derived.value("output_tps_per_gpu")
    assert full is not None and full < 0.9 * rate


def test_sessions_count_when_every_turn_completed(tables: ModuleType) -> None:
    """A session with a failed turn is no completed session; a lane is in flight between its turns."""
    rows = []
    for session in range(4):
        for turn in range(3):
            at = session * 3000 + turn * 1000
            row = tables.request(at, [at + 100, at + 200], [1, 1], turn=turn, session=f"s{session}")
            rows.append(row)
    rows[4] = tables.failed(4000, 4100, turn=1, session="s1")
    derived = derive(tables.table(rows), gpus=1, concurrency=1)
    window = derived.value("window_s")
    assert window is not None
    assert derived.value("sessions_per_gpu_hour") == pytest.approx(3 / window * 3600)
    steady = derived.windows["steady"]
    assert steady is not None and (steady.end_ns - steady.start_ns) / 1e9 == pytest.approx(2.2)


def test_gpus_and_concurrency_below_one_are_refused(tables: ModuleType) -> None:
    """A divisor of zero is an error, never a silent one."""
    with pytest.raises(InputError):
        derive(tables.table([]), gpus=0, concurrency=1)
