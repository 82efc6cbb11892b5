"""Intervals: the right kind for the number of repetitions, with the coverage that they claim."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from isoline.analysis.intervals import (
    Interval,
    cut_waves,
    over_repetitions,
    percentile,
    rate,
    wilson,
    within_run,
)


def test_kind_follows_the_number_of_repetitions() -> None:
    """One repetition has none, two to four a range, five and more a bootstrap."""
    assert over_repetitions([1.0]) is None
    assert over_repetitions([]) is None
    assert over_repetitions([3.0, 1.0, np.nan]) == Interval(1, 3, "range", 2)
    assert over_repetitions([4.0, 1.0, 2.0, 3.0]) == Interval(1, 4, "range", 4)
    five = over_repetitions([1.0, 2.0, 3.0, 4.0, 5.0])
    assert five is not None
    assert five.label == "bootstrap_95"
    assert 1 <= five.low < 3 < five.high <= 5


def test_same_seed_same_interval() -> None:
    """The same data and seed give the same interval, another seed another one."""
    values = np.random.default_rng(0).normal(size=60)
    assert over_repetitions(values) == over_repetitions(values)
    one = within_run(values, percentile(50), concurrency=2, seed=1, draws=50)
    assert one == within_run(values, percentile(50), concurrency=2, seed=1, draws=50)
    assert one != within_run(values, percentile(50), concurrency=2, seed=2, draws=50)


def test_repetition_bootstrap_covers_the_median() -> None:
    """With 15 repetitions the interval holds the true median in about 95 of 100 trials."""
    random = np.random.default_rng(3)
    hits = 0
    for seed in range(200):
        interval = over_repetitions(random.normal(10, 1, 15), seed=seed)
        assert interval is not None
        hits += interval.low <= 10 <= interval.high
    assert hits >= 0.88 * 200


def test_waves_and_not_single_requests_are_drawn() -> None:
    """Requests of one wave are alike: the block interval is wider and covers, single draws do not."""
    random = np.random.default_rng(4)
    hits_block = hits_single = 0
    for seed in range(100):
        values = np.repeat(random.normal(100, 10, 30), 8) + random.normal(0, 1, 240)
        block = within_run(values, np.mean, concurrency=8, seed=seed, draws=300)
        single = within_run(values, np.mean, concurrency=1, seed=seed, draws=300)
        assert block is not None and single is not None
        assert block.label == "within_run"
        hits_block += block.low <= 100 <= block.high
        hits_single += single.low <= 100 <= single.high
    assert hits_block >= 85
    assert hits_single <= 75


def test_within_run_needs_two_waves() -> None:
    """A single wave has no interval, and a statistic without a value gives none."""
    assert within_run([1.0, 2.0, 3.0], np.mean, concurrency=3) is None
    assert within_run([np.nan, np.nan], percentile(50), concurrency=1, draws=10) is None
    with pytest.raises(ValueError, match="concurrency"):
        within_run([1.0], np.mean, concurrency=0)


def test_throughput_of_all_waves_is_the_throughput() -> None:
    """The rows cut at completions sum to the window, so their rate is tokens over window."""
    rows = cut_waves([4.0, 2.0, 8.0], [20.0, 10.0, 30.0], start=1.0)
    assert rows.tolist() == [[10, 1], [20, 2], [30, 4]]
    assert rate(rows) == pytest.approx(60 / 7)
    interval = within_run(rows, rate, concurrency=1, draws=200)
    assert interval is not None
    assert interval.low <= 60 / 7 <= interval.high
    assert np.isnan(rate(np.zeros((1, 2))))


@pytest.mark.parametrize(("correct", "n"), [(0, 10), (1, 10), (5, 9), (10, 10), (37, 200), (1319, 1319)])
def test_wilson_equals_scipy(correct: int, n: int) -> None:
    """Wilson's interval equals scipy's."""
    interval = wilson(correct, n)
    expected = binomtest(correct, n).proportion_ci(0.95, method="wilson")
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_of_nothing() -> None:
    """No question asked is no interval; more right than asked is an error."""
    assert wilson(0, 0) is None
    with pytest.raises(ValueError, match="share"):
        wilson(3, 2)
