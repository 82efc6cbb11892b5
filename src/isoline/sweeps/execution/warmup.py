"""Warm-up: requests at the point's own concurrency, none like another, and the proof of the reset."""

from __future__ import annotations

import random
from collections.abc import Sequence

from isoline.accuracy.questions import Batch, Question
from isoline.results.bundles.records import ReasonNote

OUTPUT_TOKENS = 16
ROUND_SEED = 1_000_003
"""Added to the seed of each further round, so that no prompt is sent twice."""

COLD_FACTOR = 10.0
"""So many times its usual deadline a warm-up may take where kernels are still being compiled."""

STEADY = 0.10
STEADY_ROUNDS = 3
WORDS = 60

_WORDS = [
    "amber",
    "anchor",
    "apple",
    "arrow",
    "autumn",
    "basket",
    "beacon",
    "bell",
    "birch",
    "bottle",
    "bridge",
    "brook",
    "butter",
    "candle",
    "canyon",
    "carpet",
    "castle",
    "cedar",
    "chalk",
    "cherry",
    "circle",
    "cloud",
    "copper",
    "coral",
    "cotton",
    "cradle",
    "crystal",
    "curtain",
    "desert",
    "dolphin",
    "eagle",
    "echo",
    "ember",
    "engine",
    "feather",
    "field",
    "flame",
    "flute",
    "forest",
    "fossil",
    "garden",
    "ginger",
    "glacier",
    "grape",
    "hammer",
    "harbor",
    "hazel",
    "honey",
    "island",
    "ivory",
    "jacket",
    "jungle",
    "kettle",
    "ladder",
    "lantern",
    "lemon",
    "linen",
    "magnet",
    "maple",
    "marble",
    "meadow",
    "mirror",
    "needle",
    "nickel",
    "ocean",
    "olive",
    "orchard",
    "paper",
    "pebble",
    "pepper",
    "pillow",
    "planet",
    "plum",
    "quartz",
    "rabbit",
    "ribbon",
    "river",
    "saddle",
    "sail",
    "salmon",
    "shadow",
    "silver",
    "spruce",
    "stone",
    "summer",
    "table",
    "thistle",
    "thunder",
    "timber",
    "tulip",
    "valley",
    "velvet",
    "violet",
    "walnut",
    "water",
    "willow",
    "window",
    "winter",
    "wool",
]


def warmup_prompts(count: int, seed: int) -> list[Question]:
    """Prompts that share no prefix with each other or with another seed's: nothing is warmed twice."""
    rng = random.Random(seed)
    return [
        Question(id=f"w{number}", question=f"{' '.join(rng.choices(_WORDS, k=WORDS))}. Go on.", answer="-")
        for number in range(count)
    ]


def is_steady(took_s: Sequence[float]) -> bool:
    """Whether the last three rounds took the same time within a tenth.

    :param took_s: seconds of each round so far.
    """
    last = list(took_s[-STEADY_ROUNDS:])
    return len(last) == STEADY_ROUNDS and max(last) <= (1 + STEADY) * min(last)


def judge_warmup(batch: Batch, concurrency: int) -> list[ReasonNote]:
    """Reasons from a warm-up batch; empty when all is well.

    Right after a reset the first request of each lane must find nothing cached: that is the proof
    that the reset did what it says.
    """
    failed = [answer for answer in batch.answers if answer.error]
    if failed:
        return [
            ReasonNote(
                code="warmup_failed",
                detail=f"{len(failed)} of {len(batch.answers)} failed: {failed[0].error}",
            )
        ]
    first = sorted(batch.answers, key=lambda answer: answer.sent_s)[:concurrency]
    hits = sum(answer.cached_tokens or 0 for answer in first)
    if hits:
        return [ReasonNote(code="cache_state_wrong", detail=f"{hits} cached tokens right after the reset")]
    return []
