"""Reading the YAML that people edit: duplicate keys are errors, every message names file and line.

All documents of the project (recipes, sweeps, scenarios, pools, datasets, catalog) come in through
:func:`load_document`, so that every mistake in any of them looks the same.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent

from isoline.errors import InputError

MAX_BYTES = 1 << 20
"""A document that people write by hand is far below this; above it is a mistake or an attack."""

MAX_DEPTH = 40

M = TypeVar("M", bound="Document")


class Document(BaseModel):
    """Base of all documents: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


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


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known ones, else all (at most 12)."""
    names = sorted(set(known))
    close = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(repr(item) for item in close)}?"
    return f"known: {', '.join(names[:12])}{', …' if len(names) > 12 else ''}"


def parse_yaml(text: str, where: str) -> Any:
    """Parse one YAML document into ruamel's commented containers, which know their lines.

    :raises DocumentError: for bad syntax, duplicate keys, aliases or more than one document.
    """
    if len(text.encode()) > MAX_BYTES:
        raise DocumentError([(where, f"larger than {MAX_BYTES} bytes")])
    yaml = YAML(typ="rt")
    try:
        for event in YAML(typ="rt").parse(text):
            if isinstance(event, AliasEvent):
                line = event.start_mark.line + 1 if event.start_mark else 0
                raise DocumentError(
                    [(f"{where}:{line}", "anchors and aliases are not used here: write the value out")]
                )
        return yaml.load(text)
    except DuplicateKeyError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark else 0
        raise DocumentError([(f"{where}:{line}", str(error.problem).split(" with value")[0])]) from None
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 0
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise DocumentError([(f"{where}:{line}", f"not valid YAML: {what}")]) from None
    except (ValueError, RecursionError) as error:
        raise DocumentError([(where, f"not valid YAML: {type(error).__name__}")]) from None


def to_plain(value: Any, where: str = "", depth: int = 0) -> Any:
    """Plain Python from ruamel's containers: dict, list, str, int, float, bool, None."""
    if depth > MAX_DEPTH:
        raise DocumentError([(where, f"nested more than {MAX_DEPTH} deep")])
    if isinstance(value, dict):
        plain: dict[str, Any] = {}
        for key, item in value.items():
            # `8:` and `on:` are no strings in YAML, but people mean the name.
            name = str(key) if not isinstance(key, bool) else str(key).lower()
            if name in plain:
                raise DocumentError([(where, f"found duplicate key {name!r}")])
            plain[name] = to_plain(item, where, depth + 1)
        return plain
    if isinstance(value, list):
        return [to_plain(item, where, depth + 1) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        number = float(value)
        if number != number or number in (float("inf"), float("-inf")):
            raise DocumentError([(where, "NaN and infinity are not values here")])
        return number
    return str(value)


def _line_of(tree: Any, loc: Sequence[int | str]) -> int:
    """The line (from 1) of the deepest part of ``loc`` that the tree has."""
    line = 0
    node = tree
    for part in loc:
        if isinstance(node, CommentedMap):
            key = part if part in node else next((k for k in node if str(k) == str(part)), None)
            if key is None:
                break
            line = node.lc.data[key][0]
            node = node[key]
        elif isinstance(node, CommentedSeq) and isinstance(part, int) and part < len(node):
            line = node.lc.data[part][0]
            node = node[part]
        else:
            # A part that pydantic adds by itself, such as the name of a union's branch.
            continue
    return int(line) + 1


def _fields_at(model: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    """The keys that are known where ``loc`` points to, as well as that can be told from the types."""
    import typing

    kinds: list[Any] = [model]
    for part in loc[:-1]:
        found: list[Any] = []
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                field = kind.model_fields.get(str(part))
                if field is None:
                    field = next((f for f in kind.model_fields.values() if f.alias == part), None)
                found += [field.annotation] if field else [kind]
            else:
                found.append(kind)
        kinds = []
        while found:
            kind = found.pop()
            args = typing.get_args(kind)
            if args:
                found += [arg for arg in args if arg is not type(None)]
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                kinds.append(kind)
    return sorted({name for kind in kinds if hasattr(kind, "model_fields") for name in kind.model_fields})


def problems_of(
    error: ValidationError, tree: Any, where: str, model: type[BaseModel]
) -> list[tuple[str, str]]:
    """pydantic's errors as (file:line, message) in the order of lines."""
    problems: list[tuple[int, str]] = []
    for item in error.errors(include_url=False):
        loc = [part for part in item["loc"] if not (isinstance(part, str) and "[" in part)]
        path = ".".join(str(part) for part in loc)
        line = _line_of(tree, loc)
        match item["type"]:
            case "extra_forbidden":
                what = f"unknown key {str(loc[-1])!r}; {nearest(str(loc[-1]), _fields_at(model, loc))}"
            case "missing":
                what = f"{path!r} is missing"
            case "value_error":
                message = str(item["ctx"]["error"]) if "ctx" in item else item["msg"]
                what = f"{path}: {message}" if path else message
            case _:
                shown = repr(item["input"])
                if len(shown) > 60:
                    shown = shown[:57] + "…"
                what = f"{path}: {item['msg'][0].lower()}{item['msg'][1:]}, got {shown}"
        problems.append((line, what))
    problems.sort(key=lambda problem: problem[0])
    return [(f"{where}:{line}", what) for line, what in problems]


def validate(tree: Any, model: type[M], where: str) -> M:
    """Validate a parsed tree against a model.

    :raises DocumentError: with one problem for each mistake.
    """
    if not isinstance(tree, dict):
        raise DocumentError([(f"{where}:1", f"a mapping is expected, not {type(tree).__name__}")])
    try:
        return model.model_validate(to_plain(tree, where))
    except ValidationError as error:
        raise DocumentError(problems_of(error, tree, where, model)) from None


def read_text(path: Path, where: str) -> str:
    """The text of a document.

    :raises DocumentError: when it is absent, too large or not UTF-8.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DocumentError([(where, f"larger than {MAX_BYTES} bytes")])
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DocumentError([(where, "no such file")]) from None
    except IsADirectoryError:
        raise DocumentError([(where, "this is a folder, not a file")]) from None
    except (UnicodeDecodeError, OSError) as error:
        raise DocumentError([(where, f"cannot be read: {error}")]) from None


def load_document(path: Path, model: type[M], *, root: Path | None = None) -> M:
    """Read and validate one document.

    :param root: the folder that paths in messages are relative to.
    :raises DocumentError: when it is absent, unreadable, not YAML or not of the schema.
    """
    where = str(path.relative_to(root)) if root and path.is_relative_to(root) else str(path)
    return validate(parse_yaml(read_text(path, where), where), model, where)


def must_know(name: str, known: Iterable[str], kind: str) -> str:
    """``name`` if it is known.

    :raises ValueError: with the nearest known name; inside a validator it becomes a line of the file.
    """
    names = set(known)
    if name not in names:
        raise ValueError(f"unknown {kind} {name!r}; {nearest(name, names)}")
    return name
