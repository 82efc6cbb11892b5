"""Documents: each mistake once, at its line, with the nearest known name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, Strict, field_validator

from isoline.catalog.documents import (
    Document,
    DocumentError,
    UnknownNameError,
    ValueAtError,
    load_named,
    must_know,
    named_at,
    nearest,
    validate,
)
from isoline.catalog.trees import parse_yaml


class Inner(Document):
    width: int = Field(default=1, ge=1)
    share: float = 0.5
    flag: bool = False


class Outer(Document):
    name: str
    kind: Literal["a", "b"] = "a"
    inner: Inner = Inner()
    rows: list[Inner] = []
    by_name: dict[str, Inner] = {}
    counts: int | dict[Annotated[int, Strict(False)], int] = 1
    value: bool | int | str | list[str | int] = 1
    words: list[str] = []

    @field_validator("words")
    @classmethod
    def _no_fools(cls, value: list[str]) -> list[str]:
        for index, item in enumerate(value):
            if item == "fool":
                raise ValueAtError("no fools here", index)
        return value


def problems(text: str) -> list[str]:
    """Every line that a document is refused with; empty when it is fine."""
    try:
        validate(parse_yaml(text, "f"), Outer, "f")
    except DocumentError as error:
        return error.lines()
    return []


def test_a_good_document_has_no_problems() -> None:
    """Every kind of field is accepted in its right type, whole numbers for fractions too."""
    text = "name: x\ninner: {share: 1}\nrows: [{}, {width: 2}]\ncounts: {4: 2}\nvalue: [a, 1]\n"
    assert problems(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nam: x\n", "f:1: unknown key 'nam'; did you mean 'name'?"),
        ("name: x\ninner:\n  widht: 2\n", "f:3: unknown key 'widht'; did you mean 'width'?"),
        ("name: x\nrows:\n  - {}\n  - flg: 1\n", "f:4: unknown key 'flg'; did you mean 'flag'?"),
        ("name: x\nby_name:\n  k:\n    shar: 1\n", "f:4: unknown key 'shar'; did you mean 'share'?"),
        ("name: x\nzzz: 1\n", "f:2: unknown key 'zzz'; known: by_name, counts, inner, kind, name, rows, "
         "value, words"),
        ("kind: a\n", "f:1: 'name' is missing"),
        ("name: 3\n", "f:1: name: input should be a valid string, got 3"),
        ("name: x\nkind: c\n", "f:2: kind: input should be 'a' or 'b', got 'c'"),
        ("name: x\ninner: {width: true}\n", "f:2: inner.width: input should be a valid integer, got True"),
        ("name: x\ninner: {width: '2'}\n", "f:2: inner.width: input should be a valid integer, got '2'"),
        ("name: x\ninner: {width: 2.0}\n", "f:2: inner.width: input should be a valid integer, got 2.0"),
        ("name: x\ninner: {flag: 1}\n", "f:2: inner.flag: input should be a valid boolean, got 1"),
        ("name: x\ninner: 7\n", "f:2: inner: input should be a valid dictionary or instance of Inner, got 7"),
        ("name: x\nrows: {width: 1}\n", "f:2: rows: input should be a valid list, got {'width': 1}"),
        ("name: x\nvalue: {a: 1}\n", "f:2: value: input should be a valid boolean, integer, string or list, "
         "got {'a': 1}"),
        ("name: x\ncounts:\n  4: x\n", "f:3: counts.4: input should be a valid integer, got 'x'"),
        ("name: x\nwords:\n  - wise\n  - fool\n", "f:4: words.1: no fools here"),
        ("", "f:1: the file is empty"),
        ("# only a comment\n", "f:1: the file is empty"),
        ("- a\n- b\n", "f:1: `key: value` lines are expected, not a list"),
        ("just text\n", "f:1: `key: value` lines are expected, not a single value"),
    ],
)  # fmt: skip
def test_one_mistake_is_one_line(text: str, expected: str) -> None:
    """Each single mistake gives exactly one line: place, what, and the nearest known name."""
    assert problems(text) == [expected]


def test_all_mistakes_are_told_in_order() -> None:
    """Several mistakes are all told, by line; the error's own line counts the others."""
    text = "name: 3\ninner: {width: 0}\nzzz: 1\n"
    found = problems(text)
    assert [line.split(": ")[0] for line in found] == ["f:1", "f:2", "f:3"]
    with pytest.raises(DocumentError) as caught:
        validate(parse_yaml(text, "f"), Outer, "f")
    assert caught.value.line().endswith("; and 2 more in this file")


def test_long_values_are_cut() -> None:
    """A value of a thousand letters does not fill the screen."""
    (line,) = problems(f"name: x\ninner: {{width: {'y' * 1000}}}\n")
    assert len(line) < 150


def test_nearest_names_few_or_all() -> None:
    """A near name is offered; without one the known ones are listed, at most twelve."""
    assert nearest("lamacpp", ["llamacpp", "vllm"]) == "did you mean 'llamacpp'?"
    assert nearest("zzz", ["b", "a"]) == "known: a, b"
    assert nearest("zzz", [f"n{i:02d}" for i in range(20)]).endswith("n11, …")
    with pytest.raises(ValueError, match="unknown engine 'x'"):
        must_know("x", ["llamacpp"], "engine")


class Named(Document):
    name: str


def test_load_named(tmp_path: Path) -> None:
    """A document is found by name; a wrong one, a wrong name inside and a way out of the folder are not."""
    (tmp_path / "things").mkdir()
    (tmp_path / "outside.yaml").write_text("name: outside\n")
    (tmp_path / "things" / "good.yaml").write_text("name: good\n")
    (tmp_path / "things" / "other.yaml").write_text("# a comment\nname: good\n")
    (tmp_path / "things" / "folder.yaml").mkdir()
    assert load_named(tmp_path, "things", "good", "thing", Named).name == "good"
    with pytest.raises(DocumentError, match=r"things/other.yaml:2: name 'good' is not the file's, 'other'"):
        load_named(tmp_path, "things", "other", "thing", Named)
    with pytest.raises(DocumentError, match=r"things/folder.yaml: this is a folder"):
        load_named(tmp_path, "things", "folder", "thing", Named)
    for name in ("gud", "../outside", "/etc/passwd", "", "Good", "good\n"):
        with pytest.raises(UnknownNameError, match="no such thing"):
            load_named(tmp_path, "things", name, "thing", Named)


def test_an_unknown_name_is_the_mistake_of_who_names_it(tmp_path: Path) -> None:
    """Inside ``named_at`` a missing document becomes a line of the document that asks for it."""
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "good.yaml").write_text("name: good\n")
    (tmp_path / "list.yaml").write_text("a: 1\nwants:\n  - good\n  - goood\n")

    def want(name: str, *loc: Any) -> None:
        with named_at(tmp_path, "list.yaml", *loc):
            load_named(tmp_path, "things", name, "thing", Named)

    want("good", "wants", 0)
    with pytest.raises(DocumentError) as caught:
        want("goood", "wants", 1)
    assert caught.value.line() == "list.yaml:4: wants.1: unknown thing 'goood'; did you mean 'good'?"
