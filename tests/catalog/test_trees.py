"""YAML text as trees: what is refused, and at which line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isoline.catalog.trees import (
    MAX_BYTES,
    MAX_DEPTH,
    DocumentError,
    line_of,
    parse_yaml,
    read_text,
    to_plain,
)


def refusal(text: str) -> str:
    """The one line that a text is refused with."""
    with pytest.raises(DocumentError) as caught:
        to_plain(parse_yaml(text, "f.yaml"), "f.yaml")
    assert "\n" not in caught.value.line()
    return caught.value.line()


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 'duplicate key "a"'),
        ("a: 1\nb:\n  8: 1\n  '8': 2\n", 4, "duplicate key '8'"),
        ("a: 1\n\tb: 2\n", 2, "a tab"),
        ("a: 1\nb: [1, 2\n", 3, "not valid YAML"),
        ("a: 'x\n", 2, "not valid YAML"),
        ("a: 1\n---\nb: 2\n", 2, "another document"),
        ("a: 1\nb: &x 2\n", 2, "anchors and aliases"),
        ("a: 1\nb: *x\n", 2, "anchors and aliases"),
        ("a: 1\nb: !!int '2'\n", 2, "tags"),
        ("a: 1\nb: !!python/object:os.system {}\n", 2, "tags"),
        ("a: 1\n<<: {b: 2}\n", 2, "merge keys"),
        ("a: 1\nb: .nan\n", 2, "NaN"),
        ("a: 1\nb: [1, -.inf]\n", 2, "infinity"),
        ("a: 1\nb: 1e999\n", 2, "infinity"),
        (f"a: 1\nb: {'9' * 5000}\n", 2, "a number this large"),
        (f"a: 1\nb: 0x{'f' * 40}\n", 2, "a number this large"),
        (f"a: 1\nb: {'[' * 60}{']' * 60}\n", 2, f"more than {MAX_DEPTH} deep"),
        ("a: 1\nb: x\x00y\n", 2, "special characters"),
    ],
)
def test_mistakes_have_their_line(text: str, line: int, word: str) -> None:
    """Each mistake of YAML is one line with the file, the right line number and a word that helps."""
    said = refusal(text)
    assert said.startswith(f"f.yaml:{line}: ")
    assert word in said


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    """Nested aliases, which would be millions of items, are refused at the first anchor."""
    rows = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))]
    assert refusal("\n".join(rows)).startswith("f.yaml:1: anchors")


def test_deep_nesting_ends_quickly() -> None:
    """Half a megabyte of open brackets is one line, not a stack overflow."""
    assert "deep" in refusal("a: " + "[" * 500_000)


def test_plain_values_are_plain() -> None:
    """A tree becomes dict, list, str, int, float, bool and None of Python itself; dates stay text."""
    plain = to_plain(parse_yaml("a: [1, 2.5, x, true, null, 2026-12-01]\n8: {on: 0x10}\n", "f"), "f")
    assert plain == {"a": [1, 2.5, "x", True, None, "2026-12-01"], "8": {"on": 16}}
    assert [type(item) for item in plain["a"]] == [int, float, str, bool, type(None), str]


def test_line_of_stops_at_what_is_there() -> None:
    """The line of a value is that of its deepest part that exists; names of union branches are passed."""
    tree = parse_yaml("a:\n  - x: 1\n  - y:\n      z: 2\n", "f")
    assert line_of(tree, ("a", 1, "y", "z")) == 4
    assert line_of(tree, ("a", 1, "some-branch", "y", "z")) == 4
    assert line_of(tree, ("a", 1, "missing")) == 3
    assert line_of(tree, ()) == 1


def test_files_that_are_no_documents(tmp_path: Path) -> None:
    """A folder, a pipe, a huge file, binary bytes and a missing file each say what they are."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge").write_bytes(b"#" * (MAX_BYTES + 1))
    (tmp_path / "binary").write_bytes(b"a: 1\nb: \xff\xfe\n")
    said = {}
    for name in ("folder", "pipe", "huge", "binary", "missing"):
        with pytest.raises(DocumentError) as caught:
            read_text(tmp_path / name, name)
        said[name] = caught.value.line()
    assert said == {
        "folder": "folder: this is a folder, not a file",
        "pipe": "pipe: this is not a plain file",
        "huge": f"huge: larger than {MAX_BYTES} bytes",
        "binary": "binary:2: not UTF-8 text",
        "missing": "missing: no such file",
    }


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    """The limit is for what is above it."""
    (tmp_path / "f").write_bytes(b"#" * MAX_BYTES)
    assert len(read_text(tmp_path / "f", "f")) == MAX_BYTES
