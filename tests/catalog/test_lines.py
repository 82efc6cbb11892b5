"""The quick way to lines says the same as the careful one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isoline.catalog.lines import quick_lines
from isoline.catalog.trees import line_of, parse_yaml, to_plain


def every_loc(node: Any, loc: tuple[int | str, ...] = ()) -> list[tuple[int | str, ...]]:
    found = [loc]
    if isinstance(node, dict):
        for key, value in node.items():
            found += every_loc(value, (*loc, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            found += every_loc(value, (*loc, index))
    return found


def test_both_ways_name_the_same_line(project_root: Path) -> None:
    """For every value of the project's own documents, and for places that are not there."""
    files = sorted((project_root / "recipes").glob("*/*.yaml"))[::7]
    files += [*(project_root / "sweeps").rglob("*.yaml"), *(project_root / "runners").glob("*.yaml")]
    assert len(files) > 3
    for path in files:
        text = path.read_text(encoding="utf-8")
        tree, quick = parse_yaml(text, path.name), quick_lines(text, path.name)
        for loc in every_loc(to_plain(tree)):
            assert quick.line_of(loc) == line_of(tree, loc), (path, loc)
            assert quick.line_of((*loc, "absent")) == line_of(tree, (*loc, "absent"))


def test_odd_forms() -> None:
    """Keys that are no text, flow forms and nested lists have their lines too."""
    text = "# first\n8: {a: [1,\n  2], b: x}\ntrue: y\nlist:\n- - 1\n  - 2\n- k: |\n    block\n\n  m: 3\n"
    tree, quick = parse_yaml(text, "x"), quick_lines(text, "x")
    for loc in (
        ("8",),
        ("8", "a", 1),
        ("true",),
        ("list", 0, 1),
        ("list", 1, "k"),
        ("list", 1, "m"),
        ("LIST",),
    ):
        assert quick.line_of(loc) == line_of(tree, loc), loc
