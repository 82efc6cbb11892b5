"""A recipe as YAML text, in the order and form in which a person would write it. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

WIDTH = 108
_PLAIN = re.compile(r"^[A-Za-z_/][A-Za-z0-9_./+@-]*$")
_RESERVED = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"}


def scalar(value: Any) -> str:
    """One value on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    text = str(value)
    if _PLAIN.match(text) and text.lower() not in _RESERVED:
        return text
    return json.dumps(text, ensure_ascii=False)


def name_of(key: Any) -> str:
    text = str(key)
    plain = re.match(r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", text) and not re.match(r"^[0-9.]+$", text)
    return text if plain and text.lower() not in _RESERVED else json.dumps(text)


def flow(value: Any) -> str:
    """A value on one line, mappings and lists too."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name_of(k)}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if isinstance(value, str) and not _PLAIN.match(value):
        return json.dumps(value, ensure_ascii=False)
    return scalar(value)


def _wrapped(items: list[Any], indent: int) -> list[str]:
    pad = " " * indent
    rows, line = [], pad
    for index, item in enumerate(items):
        word = flow(item) + ("," if index < len(items) - 1 else "")
        if len(line) + len(word) + 1 > WIDTH and line.strip():
            rows.append(line.rstrip())
            line = pad
        line += word + " "
    return [*rows, line.rstrip()]


BLOCK = {
    "args",
    "env",
    "config_files",
    "topologies",
    "sidecars",
    "when",
    "differences",
    "server",
    "roles",
    "scenarios",
}


def block(tree: dict[str, Any], indent: int = 0, *, parent: str = "") -> list[str]:
    """A mapping as lines; what fits on one line stays on one line."""
    pad = " " * indent
    rows: list[str] = []
    for key, value in tree.items():
        head = f"{pad}{name_of(key)}:"
        if not isinstance(value, (dict, list)) or not value:
            rows.append(f"{head} {flow(value) if isinstance(value, (dict, list)) else scalar(value)}")
            continue
        one = f"{head} {flow(value)}"
        if len(one) <= WIDTH and key not in BLOCK:
            rows.append(one)
        elif isinstance(value, dict):
            rows.append(head)
            rows += block(value, indent + 2, parent=str(key))
        elif all(not isinstance(item, (dict, list)) for item in value) and key != "differences":
            rows.append(f"{head} [")
            rows += [*_wrapped(value, indent + 2), f"{pad}]"]
        else:
            rows.append(head)
            for item in value:
                rows += _item(item, indent + 2)
    return rows


def _item(item: Any, indent: int) -> list[str]:
    pad = " " * indent
    one = f"{pad}- {flow(item)}"
    deep = isinstance(item, dict) and any(key in BLOCK or key == "command" for key in item)
    if not isinstance(item, dict) or (len(one) <= WIDTH and not deep):
        return [one]
    rows = block(item, indent + 2)
    rows[0] = f"{pad}- {rows[0].lstrip()}"
    return rows


def recipe_text(tree: dict[str, Any], comments: list[str]) -> str:
    """The whole file."""
    return "\n".join([*(f"# {line}" for line in comments), *block(tree)]) + "\n"
