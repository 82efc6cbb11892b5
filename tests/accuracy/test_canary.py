"""The canary: its batch and its judgement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from isoline.accuracy.canary import canary_questions, judge_canary, run_canary
from isoline.accuracy.questions import Answer, Batch, Question

QUESTIONS = [Question(f"q{number}", f"question {number}", "blue") for number in range(12)]


@pytest.mark.parametrize(("concurrency", "count"), [(1, 4), (4, 4), (8, 8), (30, 30)])
def test_the_batch_is_as_large_as_the_point(concurrency: int, count: int) -> None:
    """At least the minimum, at least the concurrency; questions are repeated in turn."""
    chosen = canary_questions(QUESTIONS, concurrency, minimum=4)
    assert len(chosen) == count
    assert [item.id for item in chosen] == [f"q{number % 12}" for number in range(count)]


def answer(correct: bool, error: str | None = None) -> Answer:
    return Answer("q1", "blue" if correct else "grn", "blue", correct, error is None, error, 0.0, 1.0, 1)


@pytest.mark.parametrize(
    ("answers", "reached", "codes"),
    [
        ([answer(True)] * 4, 4, []),
        ([answer(True)] * 3 + [answer(False)], 4, ["canary_failed"]),
        ([answer(True)] * 3 + [answer(False, "deadline")], 4, ["canary_failed"]),
        ([answer(True)] * 4, 3, ["canary_not_representative"]),
        ([answer(False)] * 4, 1, ["canary_failed", "canary_not_representative"]),
        ([], 0, ["canary_failed"]),
    ],
)
def test_judgement(answers: list[Answer], reached: int, codes: list[str]) -> None:
    """One wrong answer fails, too few at once is not representative, no answer at all is no pass."""
    assert [note.code for note in judge_canary(Batch(answers, 4, reached))] == codes


def test_what_was_seen_is_told() -> None:
    """The reason shows the first wrong answer beside the expected one."""
    (note,) = judge_canary(Batch([answer(True), answer(False)], 1, 1))
    assert note.detail == "1 of 2 wrong; q1: expected 'blue', got 'grn'"


def test_a_run_keeps_the_answers(serve: Callable[..., Any]) -> None:
    """What point.json keeps: counts, concurrency and every answer; garbage gives the reason."""
    rules = {"minimum": 4, "max_tokens": 8, "deadline_s": 10}
    url = serve("blue", delay_s=0.02).url
    kept, reasons = run_canary(url, "m", QUESTIONS, concurrency=6, **rules)
    assert reasons == []
    assert (kept["asked"], kept["correct"], kept["concurrency"], kept["reached_concurrency"]) == (6, 6, 6, 6)
    assert len(kept["answers"]) == 6
    kept, reasons = run_canary(
        serve("@@ the the", delay_s=0.02).url,
        "m",
        QUESTIONS,
        concurrency=2,
        minimum=4,
        max_tokens=8,
        deadline_s=10,
    )
    assert [note.code for note in reasons] == ["canary_failed"]
    assert kept["correct"] == 0
