"""The fast way from YAML text to plain values, for documents that are good; anything else is left alone.

ruamel's parser keeps comments and lines, which the messages need, and takes about a hundred times as
long as libyaml's. So documents are first read here, and only what this reader does not surely
understand in the same way (or what turns out to be wrong) is parsed again by
:func:`isoline.catalog.trees.parse_yaml`. A test holds the two against each other.

Source: the YAML 1.2 core schema, as ruamel resolves it; libyaml's events through PyYAML.
"""

from __future__ import annotations

import re
from typing import Any

from isoline.catalog.treecache import current

UNSURE: Any = object()
"""What :func:`fast_parse` returns for a text that the careful parser has to decide about."""

MAX_DEPTH = 30

# Where libyaml, which is of YAML 1.1, and ruamel part: line ends, tabs, escapes, directives, and
# the sign of a block with a comment that touches it or a blank line below it.
_ODD = re.compile(
    "[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]|\\\\|^%|^(?:---|\\.\\.\\.)"
    "|[|>][-+0-9]*(?:#| *\n *\n)",
    re.MULTILINE,
)
_INT = re.compile(r"-?(?:0|[1-9][0-9]{0,17}|[1-9][0-9]{0,2}(?:_[0-9]{3}){1,4})$")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,17}$")
_WORDS: dict[str, bool | None] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
# Text for sure: no number, date or sign of YAML begins so, or a letter stands in it that none has.
_TEXT = re.compile(
    r"[^-+.0-9<=~]"
    r"|[0-9].*[g-np-su-wyG-NP-SU-WY/@,()]"
    r"|(?!0[xXoObB])[0-9].*[a-dfA-DF]"
    r"|--|-[A-Za-z]|[0-9]+(?:\.[0-9]+){2,}$",
    re.DOTALL,
)


def fast_parse(text: str) -> Any:
    """Plain dicts, lists and scalars, equal to what the careful way gives; or :data:`UNSURE`.

    Inside :func:`isoline.catalog.treecache.cached_trees` a text that was read before is not parsed.
    """
    cache = current()
    if cache is None:
        return _parse(text)
    key = cache.key(text)
    tree = cache.get(key)
    if tree is None:
        tree = _parse(text)
        if tree is not UNSURE:
            cache.put(key, tree)
    return tree


def _parse(text: str) -> Any:
    if _ODD.search(text):
        return UNSURE
    try:
        # Loaded here: with the cache it is seldom needed.
        from yaml.cyaml import CParser  # type: ignore[attr-defined]
        from yaml.error import YAMLError
    except ImportError:  # PyYAML without libyaml: every document takes the careful way
        return UNSURE
    try:
        return _build(CParser(text), text)
    except (YAMLError, ValueError):
        return UNSURE


def _build(parser: Any, text: str) -> Any:
    """Build the one document of a stream; UNSURE as soon as anything is out of the ordinary."""
    get = parser.get_event
    get()  # the stream's start
    get()  # the document's
    stack: list[Any] = []
    keys: list[str | None] = []  # of each open mapping: the key that waits for its value
    while True:
        event = get()
        kind = type(event).__name__
        if kind == "ScalarEvent":
            value = _scalar(event)
            if value is UNSURE:
                return UNSURE
            if stack and type(stack[-1]) is dict and keys[-1] is None:
                key = _key(value)
                if key is None or key in stack[-1]:
                    return UNSURE
                keys[-1] = key
                continue
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            if event.anchor is not None or event.tag is not None or len(stack) >= MAX_DEPTH:
                return UNSURE
            if stack and type(stack[-1]) is dict and keys[-1] is None:
                return UNSURE  # a collection as a key
            if kind == "SequenceStartEvent":
                stack.append([])
            elif event.flow_style and text[event.start_mark.index] != "{":
                return UNSURE  # `[a: b]`
            else:
                stack.append({})
            keys.append(None)
            continue
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            value = stack.pop()
            keys.pop()
        else:
            return UNSURE  # an alias, or the end of an empty document
        if not stack:
            break
        top = stack[-1]
        if type(top) is dict:
            top[keys[-1]] = value
            keys[-1] = None
        else:
            top.append(value)
    get()  # the document's end
    return value if type(get()).__name__ == "StreamEndEvent" else UNSURE


def _key(value: Any) -> str | None:
    if type(value) is str:
        return value
    return str(value) if type(value) is int else None


def _scalar(event: Any) -> Any:
    text = event.value
    if event.anchor is not None or event.tag is not None or text == "<<":
        return UNSURE
    if event.style:  # quoted, or a block
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text):
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    return text if _TEXT.match(text) else UNSURE
