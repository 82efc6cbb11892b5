"""Acceptance of drafted tokens pinned to the golden table, and how each engine is told.

The golden length of (model, method, draft length, draft model) is looked up here and nowhere written in a
recipe: a length that is copied by hand ends up beside the wrong draft length.
"""

from __future__ import annotations

from typing import Literal

from isoline.catalog.engines import Engine, Settings
from isoline.catalog.facts import load_catalog
from isoline.errors import InputError

METHODS: dict[str, str] = {"mtp": "mtp", "eagle": "eagle3", "draft": "dspark"}
"""Method of a recipe -> method of the golden table."""


def golden_length(model: str, method: str, draft_tokens: int, draft_model: str | None = None) -> float:
    """Accepted tokens of one step, the verified one counted in, as the catalog's golden table has them.

    :param draft_model: whose length it is; None where the method has none, or the recipe does not say.
    :raises InputError: when the table has none, or several: measure it, or write ``acceptance: real``.
    """
    found = load_catalog().acceptance(
        model, METHODS.get(method, method), draft_tokens, draft_model=draft_model
    )
    if found is None:
        by = f" by {draft_model}" if draft_model else ""
        raise InputError(
            f"no golden acceptance length for {model}, {method}, {draft_tokens} draft tokens{by}; "
            "add it to the catalog's acceptance table, or write acceptance: real"
        )
    return found[0]


def acceptance_flags(
    engine: Engine, length: float, draft_tokens: int, form: Literal["length", "rate"] = "length"
) -> Settings:
    """How an engine is told to accept so many tokens a step on average.

    :param length: accepted tokens of a step, the verified one counted in.
    :param form: ``rate`` for versions that take the accepted share of drafts.
    :raises InputError: for an engine that cannot be told, or not in this form.
    """
    told = engine.pinned(length, draft_tokens, form)
    if told is None and form == "rate" and engine.pinned(length) is not None:
        raise InputError(f"{engine.name} takes the length, not a rate; leave pinned_as out")
    if told is None:
        raise InputError(f"{engine.name} cannot pin acceptance; write acceptance: real")
    return told
