"""Acceptance of drafted tokens pinned to the golden table, and how each engine is told.

The golden length of (model, method, draft length) is looked up here and nowhere written in a recipe: a
length that is copied by hand ends up beside the wrong draft length.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from isoline.catalog.facts import load_catalog
from isoline.errors import InputError
from isoline.recipes.engine_flags import FAMILIES

METHODS: dict[str, str] = {"mtp": "mtp", "eagle": "eagle3", "draft": "dspark"}
"""Method of a recipe -> method of the golden table."""


@dataclass(frozen=True)
class AcceptanceFlags:
    """What a command line gets beside the recipe's own."""

    args: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


def golden_length(model: str, method: str, draft_tokens: int) -> float:
    """Accepted tokens of one step, the verified one counted in, as the catalog's golden table has them.

    :raises InputError: when the table has none, or several: measure it, or write ``acceptance: real``.
    """
    found = load_catalog().acceptance(model, METHODS.get(method, method), draft_tokens)
    if found is None:
        raise InputError(
            f"no golden acceptance length for {model}, {method}, {draft_tokens} draft tokens; add it to the "
            "catalog's acceptance table, or write acceptance: real"
        )
    return found[0]


def acceptance_flags(
    engine: str, length: float, *, draft_tokens: int | None = None, form: str = "length"
) -> AcceptanceFlags:
    """How an engine is told to accept so many tokens a step on average.

    :param length: accepted tokens of a step, the verified one counted in.
    :param form: ``rate`` for versions that take the accepted share of drafts (needs ``draft_tokens``).
    :raises InputError: for an engine that cannot be told.
    """
    family = FAMILIES.get(engine)
    if family == "vllm":
        pinned = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": length}
        return AcceptanceFlags(args={"speculative-config": pinned})
    if family == "sglang":
        return AcceptanceFlags(
            env={
                "SGLANG_SIMULATE_ACC_LEN": _text(length),
                "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
                "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
            }
        )
    if family == "trtllm":
        # It counts the drafted ones only.
        return AcceptanceFlags(env={"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": _text(length - 1)})
    if family == "atom":
        if form == "rate":
            assert draft_tokens is not None
            return AcceptanceFlags(
                args={"spec-decode-acceptance-rate": round((length - 1) / draft_tokens, 6)}
            )
        return AcceptanceFlags(args={"spec-decode-acceptance-length": length})
    raise InputError(f"engine {engine!r} cannot pin acceptance; write acceptance: real")


def _text(value: float) -> str:
    return f"{value:.6g}"
