"""How a person names a curve, for the commands that need exactly one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from isoline.cli.frontier import known
from isoline.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

FIELDS = {
    "model": "model",
    "sku": "sku",
    "engine": "engine",
    "precision": "weight_precision",
    "scenario": "scenario",
    "kind": "kind",
    "source": "source",
    "recipe": "recipe_id",
}
"""The words of a selector, and their columns."""

_SHORTEST_KEY = 4


def one_curve(points: pd.DataFrame, text: str, where: str) -> pd.DataFrame:
    """The rows of the one curve that ``text`` names.

    :param points: rows of ``points`` of any number of curves.
    :param text: the begin of a curve key, or ``sku=h200,engine=vllm``.
    :param where: for messages.
    :raises InputError: when it names none or several; says what would tell them apart.
    """
    if "=" not in text:
        keys = sorted(key for key in set(points["curve_key"].dropna()) if key.startswith(text))
        if len(text) < _SHORTEST_KEY or not keys:
            raise InputError(
                f"no curve {text!r}",
                where=where,
                remedy="give a curve key (`isoline frontier --format json`) or sku=h200,engine=vllm",
            )
        found = points[points["curve_key"].isin(keys)]
    else:
        found = points
        for part in text.split(","):
            word, _, value = (piece.strip() for piece in part.partition("="))
            known(word, list(FIELDS), "word")
            values = [str(item) for item in found[FIELDS[word]].dropna()]
            if value not in values:
                known(value, values, word)
            found = found[found[FIELDS[word]] == value]
    keys = sorted(set(found["curve_key"]))
    if len(keys) > 1:
        apart = [word for word, name in FIELDS.items() if found[name].nunique() > 1]
        raise InputError(
            f"{text!r} names {len(keys)} curves: {', '.join(keys[:4])}",
            where=where,
            remedy=f"add {' or '.join(apart)}, or give the key" if apart else "give the key of one",
        )
    return found


def title(shared: Mapping[str, Any]) -> str:
    """A curve in one line for people, without what is unknown."""
    names = ("model", "sku", "engine", "weight_precision", "scenario")
    parts = [str(shared[name]) for name in names if isinstance(shared.get(name), str)]
    parts.extend(
        str(shared[name])
        for name in ("speculative", "kv_offload")
        if shared.get(name) not in (None, "none", "off")
    )
    if shared.get("kind") not in (None, "measured"):
        parts.append(str(shared["kind"]))
    if shared.get("source") not in (None, "own"):
        parts.append(f"from {shared['source']}")
    return " · ".join(parts)
