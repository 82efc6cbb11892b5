"""Documents: the YAML that people edit as checked, frozen models; every message names file and line.

All documents of the project (recipes, sweeps, scenarios, pools, datasets, catalog) come in through
:func:`load_document`, so that every mistake in any of them looks the same.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from isoline.catalog.fastyaml import fast_parse
from isoline.catalog.trees import DocumentError as DocumentError
from isoline.catalog.trees import Loc, line_of, parse_yaml, read_text, step, to_plain

NAME = r"^[a-z0-9][a-z0-9_-]*$"
"""The form of the names of sweeps, scenarios, pools and datasets."""

M = TypeVar("M", bound="Document")


class Document(BaseModel):
    """Base of all documents: frozen, an unknown key is an error, and so is a value of another type.

    Strict, because `tp: true` is a mistake and not the number 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class ValueAtError(ValueError):
    """For validators: what is wrong lies deeper than the value that is being validated.

    Remedy: mend the line that is named.

    :param loc: from the validated value to the wrong one.
    """

    def __init__(self, message: str, *loc: int | str) -> None:
        self.loc = loc
        super().__init__(message)


class UnknownNameError(DocumentError):
    """A document that another one names is not there.

    Remedy: one of the names in the message. :func:`named_at` turns it into a line of the other one.
    """

    def __init__(self, problems: Sequence[tuple[str, str]], kind: str, name: str) -> None:
        super().__init__(problems)
        self.words = f"unknown {kind} {name!r}; {self.what.partition('; ')[2]}"


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known ones, else all (at most 12)."""
    names = sorted(set(known))
    # Of a name that was cut short the rest is near, however long it is.
    longer = [item for item in names if len(name) > 1 and item.startswith(name)]
    scores = {item: difflib.SequenceMatcher(None, item, name).ratio() for item in names}
    least = max(0.5, max(scores.values(), default=0) - 0.2)
    similar = [item for item in sorted(names, key=lambda item: -scores[item]) if scores[item] >= least]
    close = list(dict.fromkeys([*longer, *similar]))[:3]
    if close:
        return f"did you mean {' or '.join(repr(item) for item in close)}?"
    return f"known: {', '.join(names[:12])}{', …' if len(names) > 12 else ''}"


def _fields_at(model: type[BaseModel], loc: Loc) -> list[str]:
    """The keys that are known where ``loc`` points to, as well as that can be told from the types."""
    kinds: list[Any] = [model]
    for part in loc[:-1]:
        found: list[Any] = []
        for kind in kinds:
            field = kind.model_fields.get(str(part))
            found += [field.annotation] if field else [kind]
        kinds = []
        while found:
            kind = found.pop()
            args = typing.get_args(kind)
            if args:
                found += args
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                kinds.append(kind)
    return sorted({name for kind in kinds for name in kind.model_fields})


def _branch(tree: Any, item: Any) -> tuple[Loc, Loc]:
    """(where the value of a union lies, where the error is), both as parts that the tree has.

    Where no union is passed, both are the error's place.
    """
    found: list[int | str] = []
    root: list[int | str] | None = None
    node = tree
    last = len(item["loc"]) - 1
    for index, part in enumerate(item["loc"]):
        child = step(node, part)
        if child is not None:
            found.append(part)
            node = child[1]
        elif index == last and item["type"] in ("missing", "extra_forbidden"):
            found.append(part)
        elif root is None:
            root = list(found)
    return (tuple(found) if root is None else tuple(root)), tuple(found)


def _words(item: Any, path: str) -> str:
    if item["type"] == "missing":
        return f"{path!r} is missing"
    if item["type"] == "value_error" and "ctx" in item:
        message = str(item["ctx"]["error"])
    else:
        shown = repr(item["input"])
        shown = shown if len(shown) <= 60 else shown[:57] + "…"
        message = f"{item['msg'][:1].lower()}{item['msg'][1:]}, got {shown}"
    return f"{path}: {message}" if path else message


def _joined(items: list[Any]) -> Any:
    """The errors of the branches of one union as one: a value may be this, that or the other."""
    kinds = [item["msg"].removeprefix("Input should be ").removeprefix("a valid ") for item in items]
    kinds = list(dict.fromkeys(kind.split(",")[0] for kind in kinds))
    if len(kinds) < 2:
        return items[0]
    return {**items[0], "msg": f"input should be a valid {', '.join(kinds[:-1])} or {kinds[-1]}"}


def _misspelt(unions: dict[Loc, list[tuple[Loc, Any]]]) -> set[Loc]:
    """Missing keys whose value is there under a name that is nearly right: that is one mistake, not two."""
    every = [row for rows in unions.values() for row in rows]
    found: set[Loc] = set()
    for place, item in every:
        if item["type"] == "extra_forbidden":
            missing = {
                str(other[-1]): other
                for other, beside in every
                if beside["type"] == "missing" and other[:-1] == place[:-1]
            }
            found |= {missing[name] for name in difflib.get_close_matches(str(place[-1]), missing, n=1)}
    return found


def problems_of(
    error: ValidationError, tree: Any, where: str, model: type[BaseModel]
) -> list[tuple[str, str]]:
    """pydantic's errors as (file:line, message) in the order of lines, one for each mistake."""
    unions: dict[Loc, list[tuple[Loc, Any]]] = {}
    for item in error.errors(include_url=False):
        root, place = _branch(tree, item)
        unions.setdefault(root, []).append((place, item))
    misspelt = _misspelt(unions)
    problems: list[tuple[int, str]] = []
    for root, found in unions.items():
        # Of the branches of a union the one that came farthest is what the writer meant.
        deepest = max(len(place) for place, _ in found) if any(p != root for p, _ in found) else len(root)
        by_place: dict[Loc, list[Any]] = {}
        for place, item in found:
            if len(place) == deepest and place not in misspelt:
                by_place.setdefault(place, []).append(item)
        for place, items in by_place.items():
            item = _joined(items) if items[0]["type"] != "value_error" else items[0]
            cause = item.get("ctx", {}).get("error")
            loc = (*place, *cause.loc) if isinstance(cause, ValueAtError) else place
            line = line_of(tree, loc)
            if item["type"] == "extra_forbidden":
                key = str(loc[-1])
                problems.append((line, f"unknown key {key!r}; {nearest(key, _fields_at(model, loc))}"))
            else:
                problems.append((line, _words(item, ".".join(map(str, loc)))))
    problems.sort(key=lambda problem: problem[0])
    return [(f"{where}:{line}", what) for line, what in problems]


def validate(tree: Any, model: type[M], where: str) -> M:
    """Validate a parsed tree against a model.

    :raises DocumentError: with one problem for each mistake.
    """
    if tree is None:
        raise DocumentError([(f"{where}:1", "the file is empty")])
    if not isinstance(tree, dict):
        kind = "list" if isinstance(tree, list) else "single value"
        raise DocumentError([(f"{where}:1", f"`key: value` lines are expected, not a {kind}")])
    try:
        return model.model_validate(to_plain(tree, where))
    except ValidationError as error:
        raise DocumentError(problems_of(error, tree, where, model)) from None


def load_document(path: Path, model: type[M], *, root: Path | None = None) -> M:
    """Read and validate one document.

    :param root: the folder that paths in messages are relative to.
    :raises DocumentError: when it is absent, unreadable, not YAML or not of the schema.
    """
    where = str(path.relative_to(root)) if root and path.is_relative_to(root) else str(path)
    return validate_text(read_text(path, where), model, where)


def validate_text(text: str, model: type[M], where: str) -> M:
    """Validate the text of a document: the fast way where it is good, else with the lines of its mistakes.

    :raises DocumentError: when it is not YAML or not of the schema.
    """
    plain = fast_parse(text)
    if isinstance(plain, dict):
        with suppress(ValidationError):
            return model.model_validate(plain)
    return validate(parse_yaml(text, where), model, where)


def load_named(project: Path, folder: str, name: str, kind: str, model: type[M]) -> M:
    """The document ``<folder>/<name>.yaml`` of a project, whose ``name`` is its file's.

    :param kind: what it is, for messages.
    :raises UnknownNameError: when there is none of that name.
    :raises DocumentError: when it is wrong.
    """
    where = f"{folder}/{name}.yaml"
    path = project / where
    if not re.match(NAME, name) or not path.exists():
        known = [item.stem for item in (project / folder).glob("*.yaml")]
        raise UnknownNameError([(where, f"no such {kind}; {nearest(name, known)}")], kind, name)
    document = load_document(path, model, root=project)
    found = getattr(document, "name", None)
    if found != name:
        raise DocumentError([(locate(path, ["name"], where), f"name {found!r} is not the file's, {name!r}")])
    return document


def locate(path: Path, loc: Loc, where: str) -> str:
    """``file:line`` of a value in a document that was read before; only ``where`` if it is gone."""
    try:
        return f"{where}:{line_of(parse_yaml(read_text(path, where), where), loc)}"
    except DocumentError:
        return where


@contextmanager
def named_at(project: Path, where: str, *loc: int | str) -> Iterator[None]:
    """Inside, a name that is not known is the mistake of the document that names it.

    :param where: that document, relative to the project.
    :param loc: where in it the name is.
    :raises DocumentError: with the line of the name.
    """
    try:
        yield
    except UnknownNameError as error:
        place = locate(project / where, loc, where)
        path = ".".join(str(part) for part in loc)
        raise DocumentError([(place, f"{path}: {error.words}")]) from None


def must_know(name: str, known: Iterable[str], kind: str) -> str:
    """``name`` if it is known.

    :raises ValueError: with the nearest known name; inside a validator it becomes a line of the file.
    """
    names = set(known)
    if name not in names:
        raise ValueError(f"unknown {kind} {name!r}; {nearest(name, names)}")
    return name
