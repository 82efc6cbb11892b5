"""Writing recipes as people write them: blocks at the top, short mappings and lists on one line. Pure.

Only for trees that this program makes (imports, ``recipe new``); files that people edit are changed
through ruamel, which keeps their comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH = 100

_PLAIN = re.compile(r"^[A-Za-z/_][A-Za-z0-9_./@+()-]*(?: [A-Za-z0-9_./@+()-]+)*\Z")
_RESERVED = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"))


def scalar(value: Any) -> str:
    """One value on one line; a text is quoted unless it is a text beyond doubt."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = str(value)
    if text.lower() not in _RESERVED and (_PLAIN.match(text) or _is_image(text)):
        return text
    return "".join(_escaped(char) for char in json.dumps(text, ensure_ascii=False))


def _escaped(char: str) -> str:
    """A character as it stands between quotes; what does not print is written as its number."""
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def _is_image(text: str) -> bool:
    return (
        re.match(
            r"^[a-z][A-Za-z0-9._/-]*:[A-Za-z0-9._-]*[A-Za-z][A-Za-z0-9._-]*(?:@sha256:[0-9a-f]{64})?\Z", text
        )
        is not None
    )


def flow(value: Any) -> str:
    """A value on one line, whatever it holds."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return scalar(value)


def to_yaml(
    tree: Mapping[str, Any], *, head: Sequence[str] = (), notes: Mapping[str, str] | None = None
) -> str:
    """A document.

    :param head: lines of the comment at the top.
    :param notes: top-level key -> comment above it.
    """
    lines = [f"# {line}" for line in head]
    for key, value in tree.items():
        if notes and key in notes:
            lines.append(f"# {notes[key]}")
        lines += _block(key, value, 0)
    return "\n".join(lines) + "\n"


def _block(key: str, value: Any, indent: int) -> list[str]:
    pad = " " * indent
    line = f"{pad}{scalar(key)}: {flow(value)}"
    is_collection = isinstance(value, Mapping | list) and len(value) > 0
    if not is_collection or (len(line) <= WIDTH and not _wants_lines(value)):
        return [line]
    lines = [f"{pad}{scalar(key)}:"]
    if isinstance(value, Mapping):
        for name, item in value.items():
            lines += _block(name, item, indent + 2)
        return lines
    for item in value:
        first = f"{pad}  - {flow(item)}"
        if isinstance(item, Mapping) and len(item) > 0 and len(first) > WIDTH:
            inner = [line for name, part in item.items() for line in _block(name, part, indent + 4)]
            lines += [f"{pad}  - {inner[0].strip()}", *inner[1:]]
        else:
            lines.append(first)
    return lines


def _wants_lines(value: Any) -> bool:
    """Whether a collection reads better over several lines: for collections in it, or many values."""
    items = list(value.values()) if isinstance(value, Mapping) else list(value)
    return any(isinstance(item, Mapping | list) for item in items) or (
        isinstance(value, Mapping) and len(items) > 4
    )
