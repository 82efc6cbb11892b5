"""Writing recipes: what is written is read back as it was."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from isoline.catalog.trees import parse_yaml, to_plain
from isoline.recipes.yamltext import to_yaml

PLAIN = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=12)
NAMES = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=6)
TREES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)


def read(text: str) -> Any:
    """Back as plain values."""
    return to_plain(parse_yaml(text, "f"), "f")


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(NAMES, TREES, min_size=1, max_size=4))
def test_what_is_written_is_read_back(tree: dict[str, Any]) -> None:
    """Whatever the texts hold: quotes, colons, words that YAML takes for something else."""
    wanted = {
        name.lower() if name.lower() in ("true", "false") else name: value for name, value in tree.items()
    }
    if len({name.lower() for name in tree}) == len(tree):
        assert read(to_yaml(tree)) == tree or read(to_yaml(tree)) == wanted


def test_texts_that_look_like_something_else_are_quoted() -> None:
    """A version is no number, `no` is no false, a date no date."""
    texts = [
        "1.0",
        "no",
        "on",
        "null",
        "~",
        "2026-12-01",
        "0x10",
        "1e3",
        "",
        " x",
        "a: b",
        "#x",
        "8k1k",
        "x #y",
        "x\n",
    ]
    assert read(to_yaml({"texts": texts, "image": "vllm/x:v1.2", "tag": "a/b:1.0"})) == {
        "texts": texts,
        "image": "vllm/x:v1.2",
        "tag": "a/b:1.0",
    }


def test_long_mappings_are_blocks_and_short_ones_are_not() -> None:
    """As people write them."""
    tree = {"short": {"a": 1, "b": [1, 2]}, "list": [{"x": {"z": 1}}], "many": {str(n): n for n in range(6)}}
    text = to_yaml(tree, head=["Top."], notes={"list": "Why."})
    assert text.startswith("# Top.\n")
    assert "# Why.\nlist:\n  - {x: {z: 1}}\n" in text
    assert "many:\n" in text
    assert read(text) == tree
