"""The accuracy state of a check and of a point."""

from __future__ import annotations

import pytest

from isoline.accuracy.check import accuracy_state, judge_batch, worst_state
from isoline.accuracy.questions import Answer, Batch
from isoline.results.bundles.checks import ACCURACY_STATES
from isoline.results.bundles.records import AccuracyResult
from isoline.results.judging.official import WORST_FIRST


@pytest.mark.parametrize(
    ("correct", "n", "high", "reference", "tolerance", "state"),
    [
        (0, 0, 1.0, 0.5, 0.1, "invalid"),  # nothing was answered
        (0, 0, 1.0, None, 0.1, "invalid"),
        (9, 10, 0.98, None, 0.1, "provisional"),  # nothing to compare with
        (0, 10, 0.3, None, 0.1, "provisional"),
        (5, 10, 0.76, 0.5, 0.1, "passed"),
        (4, 10, 0.69, 0.5, 0.1, "passed"),  # the limit itself passes
        (3, 10, 0.60, 0.5, 0.2, "passed"),  # also where 0.5 - 0.2 is a little more than 0.3
        (3, 10, 0.60, 0.5, 0.1, "inconclusive"),
        (0, 10, 0.28, 0.5, 0.1, "failed"),
        (0, 10, 0.41, 0.5, 0.1, "inconclusive"),
    ],
)
def test_states(
    correct: int, n: int, high: float, reference: float | None, tolerance: float, state: str
) -> None:
    """Passed, failed, inconclusive, provisional and invalid are told apart; nothing passes unasked."""
    assert accuracy_state(correct, n, high, reference, tolerance) == state


def batch(right: int, wrong: int, failed: int = 0) -> Batch:
    def answer(correct: bool, error: str | None) -> Answer:
        return Answer("q", "", "x", correct, error is None, error, 0.0, 1.0, 1)

    answers = [answer(True, None)] * right + [answer(False, None)] * wrong + [answer(False, "500")] * failed
    return Batch(answers, 4, 4)


def test_a_broken_protocol_is_no_result() -> None:
    """One failed request, or none at all, makes the check invalid whatever the others say."""
    assert judge_batch("t", "d", batch(30, 2), 0.5, 0.1).state == "passed"
    assert judge_batch("t", "d", batch(30, 1, failed=1), 0.5, 0.1).state == "invalid"
    empty = judge_batch("t", "d", batch(0, 0), 0.5, 0.1)
    assert (empty.state, empty.interval_low, empty.interval_high) == ("invalid", None, None)


def test_a_result_says_what_it_is_made_of() -> None:
    """Counts, reference, interval and concurrency are in the result; the interval holds the share."""
    result = judge_batch("task", "digest", batch(12, 20), 0.37, 0.15)
    assert (result.task, result.dataset_digest, result.n, result.correct) == ("task", "digest", 32, 12)
    assert (result.reference, result.concurrency, result.unparsed) == (0.37, 4, 0)
    assert result.interval_low is not None
    assert result.interval_high is not None
    assert 0.2 < result.interval_low < 12 / 32 < result.interval_high < 0.6
    assert judge_batch("t", "d", batch(0, 32), 0.37, 0.15).state == "failed"


def result(state: str) -> AccuracyResult:
    return judge_batch("t", "d", batch(1, 1), None, 0.0).model_copy(update={"state": state})


def test_the_worst_check_speaks_for_the_point() -> None:
    """Without a check the state is not_run; else the worst one decides, failed before all others."""
    assert worst_state([]) == "not_run"
    for index, state in enumerate(WORST_FIRST):
        assert worst_state([result(item) for item in reversed(WORST_FIRST[index:])]) == state
    assert {*WORST_FIRST, "not_run"} == set(ACCURACY_STATES)
