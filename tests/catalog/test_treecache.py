"""Parsed documents are kept by content, and a cache that is gone, damaged or old changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from isoline.catalog import fastyaml
from isoline.catalog.fastyaml import UNSURE, fast_parse
from isoline.catalog.treecache import FILE, FORMAT, TreeCache, cached_trees

TEXT = "a: {b: [1, 2.5, true, null, 'x']}\n8: eight\n"


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many texts were parsed since the last question."""
    real, seen = fastyaml._parse, []

    def counted(text: str) -> object:
        seen.append(text)
        return real(text)

    monkeypatch.setattr(fastyaml, "_parse", counted)

    def count() -> int:
        number = len(seen)
        seen.clear()
        return number

    return count


def test_a_text_that_was_read_before_is_not_parsed(tmp_path: Path, parses: Callable[[], int]) -> None:
    """The second process takes the tree from the cache, equal to the first one's."""
    with cached_trees(tmp_path):
        first = fast_parse(TEXT)
    assert parses() == 1
    with cached_trees(tmp_path):
        again = fast_parse(TEXT)
    assert parses() == 0
    assert repr(again) == repr(first)


def test_one_changed_letter_is_another_text(tmp_path: Path, parses: Callable[[], int]) -> None:
    """What changed is parsed, whatever the file's name or time."""
    with cached_trees(tmp_path):
        fast_parse(TEXT)
    parses()
    with cached_trees(tmp_path):
        assert fast_parse(TEXT.replace("eight", "eighT"))["8"] == "eighT"
    assert parses() == 1


def test_texts_that_nobody_is_sure_about_are_not_kept(tmp_path: Path) -> None:
    """A text for the careful reader stays one."""
    for _ in range(2):
        with cached_trees(tmp_path):
            assert fast_parse("a: &x 1\n") is UNSURE
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"format": 0, "trees": {}}', '{"format": 1, "trees": []}', "\x00", "[" * 100_000],
)
def test_a_damaged_cache_counts_as_none(tmp_path: Path, content: str, parses: Callable[[], int]) -> None:
    """It is parsed anew, and the file is mended."""
    (tmp_path / FILE).write_text(content)
    with cached_trees(tmp_path):
        assert fast_parse(TEXT)["8"] == "eight"
    assert parses() == 1
    written = json.loads((tmp_path / FILE).read_text())
    assert written["format"] == FORMAT
    assert list(written["trees"]) == [TreeCache.key(TEXT)]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    """The cache is a convenience."""
    (tmp_path / "file").write_text("")
    with cached_trees(tmp_path / "file"):
        assert fast_parse(TEXT)["8"] == "eight"


def test_what_is_no_longer_used_goes_in_time(tmp_path: Path) -> None:
    """The file does not grow for ever: once most of it is unused only what is used stays."""
    with cached_trees(tmp_path):
        for number in range(20):
            fast_parse(f"a: {number}\n")
    with cached_trees(tmp_path):
        fast_parse("b: 1\n")
    assert len(json.loads((tmp_path / FILE).read_text())["trees"]) == 1


def test_outside_the_block_nothing_is_kept(tmp_path: Path, parses: Callable[[], int]) -> None:
    """Programs that did not ask for a cache have none."""
    with cached_trees(tmp_path):
        fast_parse(TEXT)
    fast_parse(TEXT)
    assert parses() == 2
