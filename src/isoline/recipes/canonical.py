"""Command lines in one form: the same arguments are equal however they were spelled. Pure.

Engines take ``--tp 8``, ``--tp=8``, ``-tp 8``, ``--tensor-parallel-size 8`` for one thing, and JSON with
other spaces is the same JSON. Comparing command lines as text finds differences that are none. The
spellings are the catalog's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from isoline.catalog.facts import load_catalog
from isoline.recipes.engine_flags import owned_by_topology
from isoline.recipes.server import is_whole

OWN = frozenset(
    ("model", "model-path", "served-model-name", "host", "port", "server-port", "alias", "dist-init-addr")
)
"""Arguments that the launcher sets: which weights, under which name, where it listens."""

_NUMBER = re.compile(r"^-?\d+(\.\d+)?([eE][+-]?\d+)?\Z")
_FLAG = re.compile(r"^--?[A-Za-z]")


def value_of(word: str) -> Any:
    """One word as a value: a number, JSON (mappings only), or text."""
    if _NUMBER.match(word):
        number = float(word)
        return int(number) if re.match(r"^-?\d+\Z", word) else number
    if word.lstrip().startswith("{"):
        try:
            return json.loads(word)
        except ValueError:
            return word
    return word


def parse_words(words: Sequence[str], engine: str) -> dict[str, Any]:
    """Arguments by canonical name. A flag alone is True; several words are a list; the last one wins.

    ``--config.key=v`` is key ``key`` of the JSON argument ``--config``, as vLLM reads it.

    :param words: what follows the program's own words, from the first flag on.
    """
    found: dict[str, Any] = {}
    index = 0
    while index < len(words):
        name, equals, text = words[index].partition("=")
        index += 1
        value: Any
        if equals:
            value = value_of(text)
        else:
            first = index
            while index < len(words) and not _FLAG.match(words[index]):
                index += 1
            values = [value_of(item) for item in words[first:index]]
            value = True if not values else values[0] if len(values) == 1 else values
        _put(found, load_catalog().engines[engine].canonical(name), value)
    return found


def _put(found: dict[str, Any], name: str, value: Any) -> None:
    """One argument into ``found``; keys of one JSON argument come together."""
    outer, dot, key = name.partition(".")
    if dot:
        value = {"True": True, "False": False}.get(value, value) if isinstance(value, str) else value
        name, value = outer, {key: value}
    before = found.get(name)
    found[name] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value


def canonical_args(args: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """A mapping of arguments with canonical names, texts that are JSON parsed, ``false`` left out."""
    found: dict[str, Any] = {}
    for name, value in args.items():
        if value is False or value is None:
            continue
        known = load_catalog().engines[engine].canonical(name)
        _put(found, known, value_of(value) if isinstance(value, str) else value)
    return found


def without(args: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Arguments without some names."""
    left_out = set(names)
    return {name: value for name, value in args.items() if name not in left_out}


def topology_args(args: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """The arguments that split the model over devices; what is 1 is left out, as it is the default."""
    owned = owned_by_topology(engine)
    return {name: value for name, value in args.items() if name in owned and (value is True or value != 1)}


def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """A nested mapping as one value a path. Lists, expressions and empty mappings are values."""
    if isinstance(value, dict) and value and not is_whole(value):
        found: dict[tuple[str, ...], Any] = {}
        for name, item in value.items():
            found |= leaves(item, (*path, str(name)))
        return found
    return {path: value}


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The paths at which two nested mappings differ, with dots, sorted."""
    first, second = leaves(dict(one)) if one else {}, leaves(dict(other)) if other else {}
    return sorted(
        ".".join(path)
        for path in first.keys() | second.keys()
        if path not in first or path not in second or not _same(first[path], second[path])
    )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    return bool(one == other)
