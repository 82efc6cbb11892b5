"""``extends: <recipe_id>``: a recipe that says only what differs from another one. One level deep.

Own values lie on the base's, mapping into mapping; a list replaces a list; ``null`` removes. Under
``roles.*.args`` and ``roles.*.env`` a ``null`` stays, because there it says that the role goes without
what every role gets.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoline.catalog.documents import DocumentError, M, nearest, validate
from isoline.catalog.trees import Loc, line_of, parse_yaml, read_text, step

if TYPE_CHECKING:  # most recipes extend nothing, and are read without ruamel
    from ruamel.yaml.comments import CommentedMap

KEY = "extends"
EXTENDS = re.compile(r"^['\"]?extends['\"]?\s*:", re.MULTILINE)
"""Texts that this does not find say nothing about a base: most need not be parsed for it."""

RECIPE_ID = re.compile(r"^[a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*\Z")

_BASE = 10_000_000
"""Added to the lines of the base while both trees are one. A document has fewer lines than that."""


def may_extend(text: str) -> bool:
    """Whether a recipe's text may name a base; where not, it need not be parsed to know."""
    return KEY in text and EXTENDS.search(text) is not None


def keeps_null(path: Loc) -> bool:
    """Whether ``null`` at this place is a value of its own and not a removal."""
    return len(path) == 4 and path[0] == "roles" and path[2] in ("args", "env")


def _are_mappings(before: Any, value: Any) -> bool:
    from isoline.recipes.server import is_whole

    return (
        isinstance(before, dict) and isinstance(value, dict) and not is_whole(before) and not is_whole(value)
    )


def _shifted(node: Any, offset: int) -> Any:
    """A copy of a tree whose lines are moved by ``offset``."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    if isinstance(node, CommentedMap):
        made = CommentedMap()
        for key, value in node.items():
            _put(made, key, _shifted(value, offset), node.lc.data[key][0] + offset)
        return made
    if isinstance(node, CommentedSeq):
        listed = CommentedSeq([_shifted(item, offset) for item in node])
        for index in range(len(node)):
            listed.lc.add_idx_line_col(index, [node.lc.data[index][0] + offset, 0])
        return listed
    return node


def _put(node: CommentedMap, key: Any, value: Any, line: int) -> None:
    node[key] = value
    node.lc.add_kv_line_col(key, [line, 0, line, 0])


def _merged(base: CommentedMap, own: CommentedMap, path: tuple[str, ...] = ()) -> CommentedMap:
    """``own`` on ``base``, whose lines are shifted already, as the module says."""
    from ruamel.yaml.comments import CommentedMap

    made = CommentedMap()
    for key, value in base.items():
        _put(made, key, value, base.lc.data[key][0])
    for key, value in own.items():
        here, line = (*path, str(key)), own.lc.data[key][0]
        before = made.get(key)
        if value is None and not keeps_null(here):
            made.pop(key, None)
        elif _are_mappings(before, value):
            _put(made, key, _merged(before, value, here), line)
        else:
            _put(made, key, value, line)
    return made


def read_tree(project: Path, recipe_id: str) -> Any:
    """The YAML of one recipe as a tree that knows its lines.

    :raises DocumentError: when it cannot be read.
    """
    where = f"recipes/{recipe_id}.yaml"
    return parse_yaml(read_text(project / where, where), where)


def base_id(tree: Any) -> str | None:
    """The recipe that a tree names as its base, or None."""
    value = tree.get(KEY) if isinstance(tree, dict) else None
    return None if value is None else str(value)


def read_base(project: Path, recipe_id: str, tree: Any) -> tuple[str, Any]:
    """(id, tree) of the base that ``tree`` names.

    :raises DocumentError: at the line of ``extends`` when there is no such base, or it extends another.
    """
    where = f"recipes/{recipe_id}.yaml:{line_of(tree, [KEY])}"
    base = base_id(tree)
    assert base is not None

    def wrong(what: str) -> DocumentError:
        return DocumentError([(where, f"{KEY}: {what}")])

    if not RECIPE_ID.match(base) or not (project / f"recipes/{base}.yaml").is_file():
        folder = project / "recipes"
        known = [path.relative_to(folder).with_suffix("").as_posix() for path in folder.glob("*/*.yaml")]
        raise wrong(f"unknown recipe {base!r}; {nearest(base, set(known) - {recipe_id})}")
    if base == recipe_id:
        raise wrong("a recipe cannot extend itself; name another one")
    below = read_tree(project, base)
    if not isinstance(below, dict):
        raise DocumentError([(f"recipes/{base}.yaml:1", "`key: value` lines are expected")])
    if (second := base_id(below)) is not None:
        raise wrong(f"{base} itself extends {second}, and one level is all there is; extend {second}")
    return base, below


def merged_tree(base: CommentedMap, own: CommentedMap) -> CommentedMap:
    """Base and own as one tree without ``extends``; :func:`place` tells whose a line is."""
    made = _merged(_shifted(base, _BASE), own)
    made.pop(KEY, None)
    return made


def place(line: int, own: str, base: str) -> str:
    """``file:line`` of a line (from 1) of a merged tree."""
    file, number = (base, line - _BASE) if line > _BASE else (own, line)
    return f"recipes/{file}.yaml:{number}"


def validate_extended(project: Path, recipe_id: str, tree: Any, model: type[M]) -> M:
    """The recipe that ``tree`` and its base make together.

    :raises DocumentError: each line in the file that it is in, the own file's mistakes first.
    """
    base, below = read_base(project, recipe_id, tree)
    try:
        return validate(merged_tree(below, tree), model, recipe_id)
    except DocumentError as error:
        problems = []
        for where, what in error.problems:
            line = int(where.rpartition(":")[2])
            problems.append((place(line, recipe_id, base), what))
        raise DocumentError(problems) from None


def has(tree: Any, loc: Loc) -> bool:
    """Whether a tree says something at exactly this place."""
    node = tree
    for part in loc:
        found = step(node, part)
        if found is None:
            return False
        node = found[1]
    return True
