"""YAML text as trees that know their lines: duplicate keys and YAML's tricks are errors."""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isoline.errors import InputError

MAX_BYTES = 1 << 20
"""A document that people write by hand is far below this; above it is a mistake or an attack."""

MAX_DEPTH = 40
_LONG_NUMBER = re.compile(r"^[-+]?[0-9_]{19,}\Z")

Loc = Sequence[int | str]
"""Keys and list positions from the top of a document to a value."""


class DocumentError(InputError):
    """A document that cannot be used. ``problems`` has one line for each mistake in it.

    Remedy: mend the lines that are named.
    """

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        self.problems = list(problems)
        where, what = self.problems[0]
        more = len(self.problems) - 1
        super().__init__(what, where=where, remedy=f"and {more} more in this file" if more else "")

    def lines(self) -> list[str]:
        """One line for each problem."""
        return [f"{where}: {what}" for where, what in self.problems]


def read_text(path: Path, where: str) -> str:
    """The text of a document.

    :raises DocumentError: when it is absent, no plain file, too large or not UTF-8.
    """
    try:
        kind = path.stat().st_mode  # before it is opened: that would wait for the other end of a pipe
        if stat.S_ISDIR(kind):
            raise DocumentError([(where, "this is a folder, not a file")])
        if not stat.S_ISREG(kind):
            raise DocumentError([(where, "this is not a plain file")])
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise DocumentError([(where, "no such file")]) from None
    except OSError as error:
        raise DocumentError([(where, f"cannot be read: {error.strerror}")]) from None
    if len(data) > MAX_BYTES:
        raise DocumentError([(where, f"larger than {MAX_BYTES} bytes")])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError([(f"{where}:{line}", "not UTF-8 text")]) from None


def parse_yaml(text: str, where: str) -> Any:
    """Parse one YAML document into ruamel's commented containers, which know their lines.

    :raises DocumentError: for bad syntax, duplicate keys, anchors, tags, depth or a second document.
    """
    # Loaded here: most documents are good, and read without it (see fastyaml).
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import YAMLError

    if len(text.encode()) > MAX_BYTES:
        raise DocumentError([(where, f"larger than {MAX_BYTES} bytes")])
    try:
        _refuse_tricks(text, where)
        return YAML(typ="rt").load(text)
    except DuplicateKeyError as error:
        line = _mark_line(error.problem_mark)
        raise DocumentError([(f"{where}:{line}", str(error.problem).split(" with value")[0])]) from None
    except YAMLError as error:
        line = _mark_line(getattr(error, "problem_mark", None))
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        if (position := getattr(error, "position", None)) is not None:
            line = text.count("\n", 0, position) + 1
        raise DocumentError([(f"{where}:{line}", f"not valid YAML: {_plain_words(str(what))}")]) from None
    except (ValueError, RecursionError) as error:
        raise DocumentError([(f"{where}:1", f"not valid YAML: {_plain_words(str(error))}")]) from None


def _mark_line(mark: Any) -> int:
    return int(mark.line) + 1 if mark else 1


def _plain_words(what: str) -> str:
    if "'\\t'" in what:
        return "a tab; indent with blanks"
    return " ".join(what.split())


def _refuse_tricks(text: str, where: str) -> None:
    """Refuse what a document here never needs, before anything is built from it."""
    from ruamel.yaml import YAML
    from ruamel.yaml.events import AliasEvent, CollectionStartEvent, NodeEvent, ScalarEvent

    depth = 0
    for event in YAML(typ="rt").parse(text):
        at = f"{where}:{_mark_line(event.start_mark)}"
        if isinstance(event, AliasEvent) or (isinstance(event, NodeEvent) and event.anchor):
            raise DocumentError([(at, "anchors and aliases are not used here: write the value out")])
        if getattr(event, "tag", None):
            raise DocumentError([(at, "tags (!) are not used here: write the plain value")])
        if isinstance(event, ScalarEvent) and event.value == "<<":
            raise DocumentError([(at, "merge keys (<<) are not used here: write the value out")])
        if isinstance(event, ScalarEvent) and _LONG_NUMBER.match(event.value) and not event.style:
            raise DocumentError([(at, "a number this large is not a value here")])
        if isinstance(event, CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise DocumentError([(at, f"nested more than {MAX_DEPTH} deep")])
        elif type(event).__name__ in ("MappingEndEvent", "SequenceEndEvent"):
            depth -= 1


def to_plain(value: Any, where: str = "", line: int = 1) -> Any:
    """Plain Python from ruamel's containers: dict, list, str, int, float, bool, None.

    :param line: of the value, for messages.
    """
    if isinstance(value, dict):
        plain: dict[str, Any] = {}
        for key, item in value.items():
            # `8:` and `true:` are no strings in YAML, but people mean the name.
            name = str(key) if not isinstance(key, bool) else str(key).lower()
            at = value.lc.data[key][0] + 1 if hasattr(value, "lc") else line
            if name in plain:
                raise DocumentError([(f"{where}:{at}", f"found duplicate key {name!r}")])
            plain[name] = to_plain(item, where, at)
        return plain
    if isinstance(value, list):
        lines = value.lc.data if hasattr(value, "lc") else {}
        return [
            to_plain(item, where, lines[index][0] + 1 if index in lines else line)
            for index, item in enumerate(value)
        ]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        if abs(value) >= 1 << 63:
            raise DocumentError([(f"{where}:{line}", "a number this large is not a value here")])
        return int(value)
    if isinstance(value, float):
        number = float(value)
        if number != number or number in (float("inf"), float("-inf")):
            raise DocumentError([(f"{where}:{line}", "NaN and infinity are not values here")])
        return number
    return str(value)


def step(node: Any, part: int | str) -> tuple[int, Any] | None:
    """(line from 0, value) of one part of a loc; None where the node has no such part."""
    if isinstance(node, dict) and hasattr(node, "lc"):
        key = part if part in node else next((k for k in node if str(k).lower() == str(part).lower()), None)
        return None if key is None else (node.lc.data[key][0], node[key])
    if isinstance(node, list) and hasattr(node, "lc") and isinstance(part, int) and part < len(node):
        return node.lc.data[part][0], node[part]
    return None


def line_of(tree: Any, loc: Loc) -> int:
    """The line (from 1) of the deepest part of ``loc`` that the tree has."""
    line, node = 0, tree
    for part in loc:
        found = step(node, part)
        # A part that is not there may be one that pydantic adds, the name of a union's branch.
        if found is not None:
            line, node = found
    return int(line) + 1
