"""Small accuracy checks: a task's questions at the point's own concurrency, against a reference."""

from __future__ import annotations

from isoline.accuracy.questions import Batch
from isoline.analysis.intervals import wilson
from isoline.results.bundles.records import AccuracyResult
from isoline.results.judging import official

ROUNDING = 1e-9
"""0.5 - 0.2 is a little more than 3 of 10 in binary; that is no wrong answer."""


def accuracy_state(correct: int, n: int, high: float, reference: float | None, tolerance: float) -> str:
    """The accuracy state of one check (DESIGN 5.4). Fails closed: no answers is ``invalid``.

    * ``provisional``: there is no reference to compare with.
    * ``passed``: the share reaches reference - tolerance.
    * ``failed``: the whole interval lies below reference - tolerance.
    * ``inconclusive``: below it, but the interval reaches over it.
    """
    if n == 0:
        return "invalid"
    if reference is None:
        return "provisional"
    limit = reference - tolerance - ROUNDING
    if correct / n >= limit:
        return "passed"
    return "failed" if high < limit else "inconclusive"


def judge_batch(
    task: str, dataset_digest: str, batch: Batch, reference: float | None, tolerance: float
) -> AccuracyResult:
    """The result of one check. A failed request breaks the protocol: the state is ``invalid``."""
    n = len(batch.answers)
    errors = sum(answer.error is not None for answer in batch.answers)
    interval = wilson(batch.correct, n)
    state = (
        "invalid"
        if errors or interval is None
        else accuracy_state(batch.correct, n, interval.high, reference, tolerance)
    )
    return AccuracyResult(
        task=task,
        dataset_digest=dataset_digest,
        n=n,
        correct=batch.correct,
        unparsed=batch.unparsed,
        reference=reference,
        interval_low=interval.low if interval else None,
        interval_high=interval.high if interval else None,
        state=state,
        concurrency=batch.asked_concurrency,
    )


def worst_state(results: list[AccuracyResult]) -> str:
    """The accuracy state of a point: the worst of its checks, ``not_run`` without one."""
    return official.worst_state(result.state for result in results)
