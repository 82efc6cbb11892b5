"""The canary: easy questions at the point's own concurrency, as soon as the load is done.

Throughput looks fine while the text is garbage at one concurrency or topology; only text tells. So
every point asks questions that this model always answers right, as many at once as the point had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isoline.accuracy.questions import Batch, Question, ask_batch
from isoline.results.bundles.records import ReasonNote


def canary_questions(questions: list[Question], concurrency: int, minimum: int) -> list[Question]:
    """The batch: max(minimum, concurrency) questions, repeated in turn where there are fewer."""
    count = max(minimum, concurrency)
    return [questions[index % len(questions)] for index in range(count)]


def judge_canary(batch: Batch) -> list[ReasonNote]:
    """The reasons that a canary batch gives; empty when every answer is right."""
    if not batch.answers:
        return [ReasonNote(code="canary_failed", detail="no question was asked")]
    reasons: list[ReasonNote] = []
    wrong = [answer for answer in batch.answers if not answer.correct]
    if wrong:
        first = wrong[0]
        seen = first.error or repr(first.text[:60])
        reasons.append(
            ReasonNote(
                code="canary_failed",
                detail=f"{len(wrong)} of {len(batch.answers)} wrong; "
                f"{first.id}: expected {first.expected!r}, got {seen}",
            )
        )
    if batch.reached_concurrency < batch.asked_concurrency:
        reasons.append(
            ReasonNote(
                code="canary_not_representative",
                detail=f"{batch.reached_concurrency} of {batch.asked_concurrency} were in flight at once",
            )
        )
    return reasons


def run_canary(
    url: str,
    model: str,
    questions: list[Question],
    *,
    concurrency: int,
    minimum: int,
    max_tokens: int,
    deadline_s: float,
    should_stop: Callable[[], str | None] = lambda: None,
) -> tuple[dict[str, Any], list[ReasonNote]]:
    """Ask the canary batch. Returns what point.json keeps of it, and its reasons."""
    chosen = canary_questions(questions, concurrency, minimum)
    batch = ask_batch(
        url,
        model,
        chosen,
        concurrency=concurrency,
        max_tokens=max_tokens,
        deadline_s=deadline_s,
        should_stop=should_stop,
    )
    kept = {
        "asked": len(batch.answers),
        "correct": batch.correct,
        "concurrency": batch.asked_concurrency,
        "reached_concurrency": batch.reached_concurrency,
        "answers": [
            {"id": a.id, "text": a.text, "correct": a.correct, "error": a.error} for a in batch.answers
        ],
    }
    return kept, judge_canary(batch)
