"""What the page shows, as its query string. Pure.

The address is the whole state: it can be shared, reloaded and walked back. A value that is not
known is ignored, and a note says so; nothing of it is ever trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

MAX_QUERY = 4000
"""Longest query string that is read, characters."""

_SHOWN_VALUE = 60


@dataclass(frozen=True)
class PageState:
    """The choices of a reader. None or () means "not chosen": the page takes its default.

    ``precisions``, ``skus`` and ``engines`` may hold several values; () is all. ``run`` is a run id,
    or None for the snapshot. ``official`` hides points that are not official.
    """

    model: str | None = None
    scenario: str | None = None
    precisions: tuple[str, ...] = ()
    skus: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    run: str | None = None
    x: str | None = None
    y: str | None = None
    official: bool = False
    point: str | None = None


KEYS: dict[str, str] = {
    "model": "model",
    "scenario": "scenario",
    "precision": "precisions",
    "sku": "skus",
    "engine": "engines",
    "run": "run",
    "x": "x",
    "y": "y",
    "official": "official",
    "point": "point",
}
"""Names in the address and the field of :class:`PageState` that each one fills."""

MULTIPLE = frozenset({"precision", "sku", "engine"})


@dataclass(frozen=True)
class Known:
    """The values that exist, by name in the address; names that are not here take any value."""

    values: Mapping[str, Sequence[str]]

    def has(self, key: str, value: str) -> bool:
        return key not in self.values or value in self.values[key]


def _short(value: str) -> str:
    text = "".join(character if character.isprintable() else "?" for character in value)
    return text if len(text) <= _SHOWN_VALUE else text[: _SHOWN_VALUE - 1] + "…"


def parse(query: str, known: Known) -> tuple[PageState, list[str]]:
    """Read a query string, with or without ``?``.

    :return: the state and one note for each part that was ignored.
    """
    text = query.removeprefix("?")
    if len(text) > MAX_QUERY:
        return PageState(), [f"The address is longer than {MAX_QUERY} characters."]
    notes: list[str] = []
    chosen: dict[str, list[str]] = {}
    for key, value in parse_qsl(text, keep_blank_values=False, errors="replace"):
        if key not in KEYS:
            notes.append(f"“{_short(key)}” is no part of an address here.")
            continue
        # Several values are repeated parts: no value needs a separator that it must not contain.
        wanted = chosen.setdefault(key, [])
        if value in wanted:
            continue
        if wanted and key not in MULTIPLE:
            notes.append(f"“{key}” is given twice; only the first one can count.")
        elif key == "official" and value not in ("0", "1"):
            notes.append(f"“official” is 0 or 1, not “{_short(value)}”.")
        elif not known.has(key, value):
            notes.append(f"There is no {key} “{_short(value)}” here.")
        else:
            wanted.append(value)
    found: dict[str, Any] = {}
    for key, values in chosen.items():
        if values and key in MULTIPLE:
            found[KEYS[key]] = tuple(sorted(values))
        elif values:
            found[KEYS[key]] = values[0] == "1" if key == "official" else values[0]
    return PageState(**found), notes


def to_query(state: PageState) -> str:
    """The query string of a state, with ``?``; "" when nothing is chosen. Inverse of :func:`parse`."""
    parts: list[tuple[str, str]] = []
    for key, field in KEYS.items():
        value = getattr(state, field)
        if isinstance(value, tuple):
            parts += [(key, item) for item in value]
        elif isinstance(value, bool):
            parts += [(key, "1")] if value else []
        elif value is not None:
            parts.append((key, value))
    return "?" + urlencode(parts, quote_via=quote, safe="/:,") if parts else ""


assert set(KEYS.values()) == {field.name for field in fields(PageState)}
