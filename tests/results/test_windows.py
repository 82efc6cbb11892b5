"""Windows and token accounting against oracles that step through time."""

from __future__ import annotations

import numpy as np
import pytest

from isoline.results.metrics import windows
from isoline.results.metrics.windows import Span


def _random_intervals(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    start = np.round(rng.uniform(0, 20, n), 1)
    return start, start + np.round(rng.uniform(0.1, 5, n), 1)


@pytest.mark.parametrize("seed", range(20))
def test_in_flight_equals_a_count_at_every_moment(seed: int) -> None:
    """The step function gives at each moment what counting the open intervals gives."""
    rng = np.random.default_rng(seed)
    start, end = _random_intervals(rng, 40)
    times, counts = windows.in_flight(start, end)
    for moment in np.arange(0.05, 25, 0.1):  # between the steps, which lie on tenths
        expected = int(((start <= moment) & (moment < end)).sum())
        index = np.searchsorted(times, moment, side="right") - 1
        assert (counts[index] if index >= 0 else 0) == expected


@pytest.mark.parametrize("seed", range(20))
def test_steady_window_is_the_longest_loaded_run_of_moments(seed: int) -> None:
    """Without bridging, the steady window is the longest run of small steps at 90 % of the load."""
    rng = np.random.default_rng(seed)
    start, end = _random_intervals(rng, 40)
    asked = 6
    step = 0.1
    moments = np.arange(0.05, 26, step)
    loaded = [((start <= moment) & (moment < end)).sum() >= 0.9 * asked for moment in moments]
    longest = run = 0
    for is_loaded in loaded:
        run = run + 1 if is_loaded else 0
        longest = max(longest, run)
    found = windows.steady_window(start, end, asked, 0.0)
    length = found.length if found else 0.0
    assert length == pytest.approx(longest * step, abs=1e-6)


def test_a_short_drop_is_bridged_and_a_long_one_is_not() -> None:
    """The client's turn-around between two requests does not end a steady window; an idle second does."""
    start = np.array([0.0, 1.02, 3.0])
    end = np.array([1.0, 2.0, 4.5])
    found = windows.steady_window(start, end, 1, 0.1)
    assert found == Span(0.0, 2.0)


def test_many_bridged_drops_do_not_make_a_window_steady() -> None:
    """Where the mean in flight is below 90 %, drops are not bridged."""
    start = np.arange(0, 1, 0.1)
    end = start + 0.05
    found = windows.steady_window(start, end, 1, 0.1)
    assert found is not None and found.length == pytest.approx(0.05)


def test_exactly_ninety_percent_is_enough() -> None:
    """63 of 70 in flight are steady, 62 are not."""
    start = np.zeros(63)
    end = np.ones(63)
    assert windows.steady_window(start, end, 70, 0.0) == Span(0.0, 1.0)
    assert windows.steady_window(start[:62], end[:62], 70, 0.0) is None


@pytest.mark.parametrize("seed", range(10))
def test_output_tokens_are_spread_evenly(seed: int) -> None:
    """Tokens of a window equal a brute-force count of each token's even share of time."""
    rng = np.random.default_rng(seed)
    first, last = _random_intervals(rng, 15)
    tokens = rng.integers(1, 60, 15).astype(float)
    span = Span(4.0, 11.0)
    parts = 20_000
    expected = 0.0
    for begin, finish, count in zip(first, last, tokens, strict=True):
        moments = begin + (np.arange(parts) + 0.5) / parts * (finish - begin)
        expected += count * ((moments >= span.start) & (moments <= span.end)).mean()
    assert windows.output_tokens_in(span, first, last, tokens) == pytest.approx(expected, rel=1e-3)


def test_tokens_of_one_moment_count_at_it() -> None:
    """A one-token answer counts whole in the window that holds it, and not at all outside."""
    first = np.array([1.0, 5.0])
    assert windows.output_tokens_in(Span(0, 2), first, first, np.array([1.0, 1.0])) == 1.0


def test_windows_that_touch_lose_and_double_no_token() -> None:
    """Output tokens of two halves add up to those of the whole."""
    rng = np.random.default_rng(1)
    first, last = _random_intervals(rng, 30)
    tokens = rng.integers(1, 60, 30).astype(float)
    halves = sum(
        windows.output_tokens_in(Span(*part), first, last, tokens) for part in ((-1, 9.77), (9.77, 99))
    )
    assert halves == pytest.approx(tokens.sum())


def test_full_window_is_first_send_to_last_token() -> None:
    """Absent times are skipped; with no token there is no window."""
    nan = np.nan
    assert windows.full_window(np.array([2.0, 1.0]), np.array([nan, 7.0])) == Span(1.0, 7.0)
    assert windows.full_window(np.array([2.0]), np.array([nan])) is None
