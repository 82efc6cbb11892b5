"""Warm-up: prompts that share nothing, and the proof that the reset worked."""

from __future__ import annotations

from isoline.accuracy.questions import Answer, Batch
from isoline.sweeps.execution.warmup import is_steady, judge_warmup, warmup_prompts


def test_prompts_share_no_beginning() -> None:
    """No two prompts of a batch, or of two seeds, begin with the same words: nothing is warmed twice."""
    texts = [item.question for seed in (1, 2, 3) for item in warmup_prompts(32, seed)]
    assert len({" ".join(text.split()[:4]) for text in texts}) == len(texts)
    assert warmup_prompts(4, 7) == warmup_prompts(4, 7)


def answer(number: int, cached: int | None = 0, error: str | None = None) -> Answer:
    return Answer(f"w{number}", "x", "-", False, True, error, float(number), number + 1.0, 16, cached)


def test_a_good_warm_up_gives_no_reason() -> None:
    """Every request answered and nothing found cached: all is well; the text does not matter."""
    assert judge_warmup(Batch([answer(n) for n in range(4)], 4, 4), 4) == []


def test_a_failed_request_is_a_reason() -> None:
    """One failed request fails the warm-up, with what it said."""
    (note,) = judge_warmup(Batch([answer(0), answer(1, error="HTTP 500")], 2, 2), 2)
    assert (note.code, note.detail) == ("warmup_failed", "1 of 2 failed: HTTP 500")


def test_cached_tokens_right_after_a_reset() -> None:
    """The first request of each lane must find nothing cached; a later one may."""
    (note,) = judge_warmup(Batch([answer(0), answer(1, cached=40)], 2, 2), 2)
    assert (note.code, note.detail) == ("cache_state_wrong", "40 cached tokens right after the reset")
    assert judge_warmup(Batch([answer(1, cached=40), answer(0)], 1, 1), 1) == []
    assert judge_warmup(Batch([answer(0, cached=None)], 1, 1), 1) == []


def test_a_cold_server_is_steady_when_three_rounds_took_the_same() -> None:
    """While kernels are compiled rounds get shorter; three alike within a tenth end the warm-up."""
    assert not is_steady([])
    assert not is_steady([1.0, 1.0])
    assert not is_steady([9.0, 3.0, 1.0])
    assert is_steady([9.0, 1.0, 1.05, 0.99])
    assert not is_steady([1.0, 1.0, 1.2])
