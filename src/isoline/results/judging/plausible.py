"""Can these requests have happened, and as the scenario wants? Times, counts, cache hits. Pure.

A request that "completed" without a token, or before it was sent, makes a number like any other:
negative milliseconds, users served at infinite speed. Nothing later would notice.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np

from isoline.results.bundles.records import ReasonNote
from isoline.results.metrics.measured import Bools, Requests

SLACK_S = 1e-4
"""Two processes that read one clock may differ by this much."""

CACHE_TOLERANCE = 0.02
"""Share of cached input tokens that a scenario which forbids hits lets pass."""


def implausible(requests: Requests) -> list[ReasonNote]:
    """What completed requests cannot be, one reason for each kind; empty when all is well."""
    ok = requests.ok
    notes: list[ReasonNote] = []

    def note(code: str, found: Bools, what: str) -> None:
        if count := int((found & ok).sum()):
            notes.append(ReasonNote(code=code, detail=f"{count} of {int(ok.sum())} requests {what}"))

    note("empty_stream", np.isnan(requests.first) | np.isnan(requests.last), "completed without a token time")
    note("zero_output_tokens", requests.output_tokens == 0, "completed with no output token by usage")
    counts = (requests.input_tokens, requests.output_tokens, requests.cached_tokens)
    negative = np.logical_or.reduce([np.nan_to_num(values) < 0 for values in counts])
    # Cached tokens are input tokens.
    with np.errstate(invalid="ignore"):
        too_many = requests.cached_tokens > requests.input_tokens
    note(
        "token_count_mismatch", negative | too_many, "report counts below 0 or more cached than input tokens"
    )
    note("clock_stepped", _out_of_order(requests), "have times out of order")
    return notes


def _out_of_order(requests: Requests) -> Bools:
    """Requests with a later event before an earlier one. An absent time is not out of order."""
    found = np.zeros(requests.ok.size, dtype=bool)
    with np.errstate(invalid="ignore"):
        for before, after in pairwise((requests.intended, requests.first, requests.last, requests.end)):
            found |= after < before - SLACK_S
    for index in np.flatnonzero(requests.ok):
        times = requests.chunk_ns[index]
        if times is not None and times.size > 1:
            found[index] |= bool((np.diff(times) < -SLACK_S).any())
    return found


def cache_state(wanted: Literal["forbid", "allow", "expect"], requests: Requests) -> list[ReasonNote]:
    """Whether prefix-cache hits are what the scenario says; silence of the server is no proof."""
    if wanted == "allow" or not requests.ok.any():
        return []
    known = requests.ok & ~np.isnan(requests.cached_tokens) & ~np.isnan(requests.input_tokens)
    total = float(requests.input_tokens[known].sum())
    share = float(requests.cached_tokens[known].sum()) / total if total > 0 else 0.0
    if np.isnan(requests.cached_tokens[requests.ok]).all():
        problem = "the server does not report cached tokens"
    elif wanted == "forbid" and share > CACHE_TOLERANCE:
        problem = f"{share:.1%} of input tokens came from the cache"
    elif wanted == "expect" and share == 0:
        problem = "no input token came from the cache"
    else:
        return []
    return [ReasonNote(code="cache_state_wrong", detail=problem)]
