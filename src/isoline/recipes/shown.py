"""What ``recipe show`` prints: a recipe with the origin of each value, and what differs between two."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from isoline.catalog.facts import load_catalog
from isoline.catalog.trees import Loc, line_of, parse_yaml, read_text
from isoline.recipes.extends import base_id, has, merged_tree, place, read_base, read_tree
from isoline.recipes.load import LoadedRecipe
from isoline.recipes.render import hub_of, revision_of
from isoline.recipes.schema import ANNOTATIONS

DEFAULT = "default"
CATALOG = "catalog"


@dataclass(frozen=True)
class Shown:
    """A resolved recipe, and where each value is from: ``file:line``, ``default`` or ``catalog: VALUE``.

    What the catalog says stays null in the content: a recipe that does not pin it is another one.
    """

    content: dict[str, Any]
    origins: dict[tuple[str | int, ...], str]


def is_value(node: Any) -> bool:
    """Whether a node is printed as one value: a scalar, an empty container, or a list of scalars."""
    if isinstance(node, Mapping):
        return not node
    if isinstance(node, list):
        return not any(isinstance(item, (Mapping, list)) for item in node)
    return True


def values_of(node: Any, loc: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """(place, value) of each value of a content, in its order."""
    if is_value(node):
        yield loc, node
        return
    for key, item in node.items() if isinstance(node, Mapping) else enumerate(node):
        yield from values_of(item, (*loc, key))


def from_catalog(loaded: LoadedRecipe) -> dict[str, Any]:
    """What the catalog fills in where a recipe says nothing: ``checkpoint``, ``revision``."""
    recipe, model = loaded.recipe, load_catalog().models[loaded.recipe.model]
    filled = {"checkpoint": hub_of(recipe, model), "revision": revision_of(recipe, model)}
    return {
        name: value for name, value in filled.items() if value is not None and getattr(recipe, name) is None
    }


def shown(project: Path, loaded: LoadedRecipe) -> Shown:
    """A recipe's resolved content and where each of its values comes from.

    :raises DocumentError: when its file, or its base's, is gone meanwhile.
    """
    if loaded.lock_file is not None:
        text = read_text(project / loaded.file, loaded.file)
        tree: Any = parse_yaml(text, loaded.file)
    else:
        tree = read_tree(project, loaded.recipe_id)
    base = ""
    if base_id(tree) is not None:
        base, below = read_base(project, loaded.recipe_id, tree)
        tree = merged_tree(below, tree)
    content, filled = dict(loaded.content), from_catalog(loaded)
    origins = {}
    for loc, _ in values_of(content):
        if loc[0] in filled:
            origins[loc] = f"{CATALOG}: {filled[str(loc[0])]}"
        elif has(tree, loc):
            line = line_of(tree, loc)
            origins[loc] = place(line, loaded.recipe_id, base) if base else f"{loaded.file}:{line}"
        else:
            origins[loc] = DEFAULT
    return Shown(content, origins)


def as_yaml(what: Shown) -> str:
    """The content as YAML, the origin of each value as a comment behind it; it loads as a recipe."""
    yaml = YAML()
    yaml.width = 1 << 20  # a comment stands behind its value, so no value is folded
    yaml.representer.add_representer(type(None), _null)
    text = io.StringIO()
    yaml.dump(_commented(what.content, what.origins, ()), text)
    rows = [_ORIGIN.sub("\0", line) for line in text.getvalue().splitlines()]
    column = max((len(row.partition("\0")[0]) for row in rows if len(row) <= _LONG), default=0) + 2
    lines = []
    for row, line in zip(rows, text.getvalue().splitlines(), strict=True):
        value, marked, _ = row.partition("\0")
        origin = line[len(value) :].strip()
        lines.append(
            f"{value.ljust(column)}{'' if len(value) < column else '  '}{origin}" if marked else line
        )
    return "\n".join(lines) + "\n"


_LONG = 60
_ORIGIN = re.compile(rf"\s+# (?:{DEFAULT}|{CATALOG}: \S+|\S+\.yaml:\d+)$")


def _null(representer: Any, _: None) -> Any:
    return representer.represent_scalar("tag:yaml.org,2002:null", "null")


def _commented(node: Any, origins: Mapping[tuple[str | int, ...], str], loc: tuple[str | int, ...]) -> Any:
    if is_value(node):
        if isinstance(node, list):
            made = CommentedSeq(node)
            made.fa.set_flow_style()
            return made
        if isinstance(node, Mapping):
            empty = CommentedMap()
            empty.fa.set_flow_style()
            return empty
        return node
    if isinstance(node, Mapping):
        mapping = CommentedMap()
        for key, item in node.items():
            mapping[key] = _commented(item, origins, (*loc, key))
            if (origin := origins.get((*loc, key))) is not None:
                mapping.yaml_add_eol_comment(origin, key)
        return mapping
    listed = CommentedSeq()
    for index, item in enumerate(node):
        listed.append(_commented(item, origins, (*loc, index)))
        if (origin := origins.get((*loc, index))) is not None:
            listed.yaml_add_eol_comment(origin, index)
    return listed


def path_of(loc: Loc) -> str:
    """A place as people write it: ``server.args.max-num-seqs``."""
    return ".".join(str(part) for part in loc)


def differences(left: LoadedRecipe, right: LoadedRecipe) -> list[dict[str, Any]]:
    """What differs between two recipes: ``{path, a, b, kind}`` by path.

    ``kind`` is ``annotation`` for what no digest covers (:data:`isoline.recipes.schema.ANNOTATIONS`),
    else ``identity``: points of the two are then other points. A side that lacks a value is null.
    """
    one, two = (dict(values_of(dict(item.content) | from_catalog(item))) for item in (left, right))
    rows = []
    for loc in dict.fromkeys([*one, *two]):
        a, b = one.get(loc), two.get(loc)
        if a != b or type(a) is not type(b):
            kind = "annotation" if loc[0] in ANNOTATIONS else "identity"
            rows.append({"path": path_of(loc), "a": a, "b": b, "kind": kind})
    return rows
