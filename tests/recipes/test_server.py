"""The server part of a recipe: every value that nobody means is refused with its place."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from isoline.catalog.documents import ValueAtError
from isoline.recipes.server import (
    NULL,
    Condition,
    RoleServer,
    Server,
    Span,
    When,
    is_expression,
    is_whole,
    uses,
)
from isoline.recipes.sidecars import Sidecar


def told(model: Any, content: Any) -> tuple[str, tuple[str | int, ...]]:
    """(what is said, where it lies) of the only mistake."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(content)
    (item,) = caught.value.errors()
    cause = item.get("ctx", {}).get("error")
    place = (*item["loc"], *cause.loc) if isinstance(cause, ValueAtError) else item["loc"]
    return str(cause or item["msg"]), place


ARGS = [
    ({"--tp": 8}, "without dashes in front", "--tp"),
    ({"max num": 8}, "letters, digits, - and _", "max num"),
    ({"": 8}, "letters, digits, - and _", ""),
    ({"a": False}, "leave it out, or name the flag that turns it off", "a"),
    ({"a": []}, "is an empty list", "a"),
    ({"a": {"expr": 8}}, "an expression is a text", "a"),
    ({"a": {"expr": "conc"}}, "unknown name 'conc'", "a"),
    ({"a": {"expr": "1 +"}}, "is no expression", "a"),
    ({"a": {"expr": "tp", "suffix": 5}}, "a suffix is a text", "a"),
    ({"a": {"expr": "tp", "more": 5}}, "expr stands alone", "a"),
    ({"a": {"b": [1, {"expr": "import os"}]}}, "is no expression", "a"),
]


@pytest.mark.parametrize(("args", "said", "name"), ARGS)
def test_arguments_that_are_none(args: dict[str, Any], said: str, name: str) -> None:
    """Names with dashes, values that no flag has and broken expressions, at any depth and in any part."""
    condition = {"if": {"scenario": ["8k1k"]}}
    for model, content in ((Server, {}), (RoleServer, {}), (When, condition)):
        words, place = told(model, {**content, "args": args})
        assert said in words
        assert place[:2] == ("args", name)


def test_the_place_of_a_deep_mistake() -> None:
    """A mistake inside a JSON argument is told where it lies."""
    content = {"args": {"kv": {"extra": [1, {"deep": {"expr": "os"}}]}}}
    assert told(Server, content)[1] == ("args", "kv", "extra", 1, "deep")


def test_null_removes_only_where_something_can_be_there() -> None:
    """``null`` takes an argument away in a role or condition; for all roles there is nothing to remove."""
    for name, empty in (("args", "has no value"), ("env", "is a text")):
        key = {"args": "a", "env": "A"}[name]
        assert empty in told(Server, {name: {key: None}})[0]
        RoleServer.model_validate({name: {key: None}})
        When.model_validate({"if": {"concurrency": {"to": 4}}, name: {key: None}})


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"a-b": "1"}, "upper-case letters, digits and _"),
        ({"lower": "1"}, "upper-case letters, digits and _"),
        ({"A=B": "1"}, "upper-case letters, digits and _"),
        ({"A": 1}, "is a text: write it in quotes"),
        ({"A": True}, "is a text: write it in quotes"),
        ({"A": {"expr": "1 +"}}, "is no expression"),
        ({"A": {"b": "c"}}, "is a text: write it in quotes"),
        ({"PATH": "/x"}, "is not a recipe's to set"),
        ({"PYTHONPATH": "/x"}, "is not a recipe's to set"),
        ({"HOME": "/x"}, "is not a recipe's to set"),
        ({"LD_PRELOAD": "/x"}, "is not a recipe's to set"),
        ({"ISOLINE_STORE": "/x"}, "is not a recipe's to set"),
    ],
)
def test_variables_that_are_none(env: dict[str, Any], said: str) -> None:
    """Variables are texts or expressions, and none that decide which program runs; sidecars' too."""
    condition = {"if": {"scenario": ["8k1k"]}}
    for model, content in ((Server, {}), (RoleServer, {}), (When, condition)):
        assert said in told(model, {**content, "env": env})[0]
    if all(isinstance(value, str) for value in env.values()):
        assert said in told(Sidecar, {"name": "router", "command": ["x"], "env": env})[0]


@pytest.mark.parametrize(
    "name", ["../x.yaml", "a/b.yaml", "/x.yaml", ".x.yaml", "x.sh", "x", "x.yaml.exe", ""]
)
def test_files_that_are_none(name: str) -> None:
    """A configuration file has a plain name and is YAML or JSON: never a script, never elsewhere."""
    words, place = told(Server, {"config_files": {name: {"a": 1}}})
    assert "a plain name that ends in .yaml or .json" in words
    assert place == ("config_files", name)
    Server.model_validate({"config_files": {"extra-llm.yaml": {"a": [1, {"b": None}]}}})


@pytest.mark.parametrize(
    ("model", "content", "said"),
    [
        (Span, {}, "a range has from, to, or both"),
        (Span, {"from": 8, "to": 4}, "from 8 is above to 4"),
        (Span, {"from": 0}, "greater than or equal to 1"),
        (Span, {"from_": 1}, "Extra inputs"),
        (Condition, {}, "names concurrency, scenario or topology"),
        (Condition, {"scenario": []}, "at least 1 item"),
        (When, {"if": {"scenario": ["a"]}}, "changes nothing"),
        (When, {"args": {"a": 1}}, "Field required"),
        (Sidecar, {"name": "Router", "command": ["x"]}, "should match pattern"),
        (Sidecar, {"name": "router", "command": []}, "at least 1 item"),
        (Sidecar, {"name": "router", "command": "sh -c x"}, "valid list"),
        (Sidecar, {"name": "router", "command": ["x"], "order": "beside"}, "'before' or 'after'"),
    ],
)
def test_parts_that_say_nothing(model: Any, content: Any, said: str) -> None:
    """Empty ranges, conditions without a condition, sidecars that are a shell line."""
    assert said in told(model, content)[0]


@pytest.mark.parametrize(
    ("span", "inside", "outside"),
    [({"from": 4}, [4, 5, 900], [1, 3]), ({"to": 4}, [1, 4], [5]), ({"from": 2, "to": 4}, [2, 3, 4], [1, 5])],
)
def test_ranges_hold_their_ends(span: dict[str, int], inside: list[int], outside: list[int]) -> None:
    """Both ends count; an end that is left out is open."""
    made = Span.model_validate(span)
    assert all(made.holds(value) for value in inside)
    assert not any(made.holds(value) for value in outside)


def test_every_part_of_a_condition_must_hold() -> None:
    """Concurrency, scenario and topology: all that are given must hold."""
    made = Condition.model_validate({"concurrency": {"to": 8}, "scenario": ["a"], "topology": ["tp8"]})
    assert made.holds(concurrency=8, scenario="a", topology="tp8")
    assert not made.holds(concurrency=9, scenario="a", topology="tp8")
    assert not made.holds(concurrency=8, scenario="b", topology="tp8")
    assert not made.holds(concurrency=8, scenario="a", topology="tp4")


def test_what_an_expression_is() -> None:
    """``{expr: …}`` with or without a suffix; ``{literal: null}`` is one value too; the rest are mappings."""
    assert is_expression({"expr": "tp"})
    assert is_expression({"expr": "tp", "suffix": "GB"})
    assert not is_expression({"expr": "tp", "more": 1})
    assert not is_expression("tp")
    assert is_whole(NULL)
    assert not is_whole({"literal": 1})
    nested = {"a": [{"expr": "tp"}, {"b": {"expr": "min(isl, osl)", "suffix": "x"}}], "c": "gpus"}
    assert uses(nested) == {"tp", "isl", "osl"}
    assert uses({}) == uses([]) == uses("tp") == set()


def test_where_a_sidecar_may_be() -> None:
    """A condition on the topology says in which ones it may be; without one it may be in all."""
    plain = Sidecar.model_validate({"name": "router", "command": ["x"]})
    bound = Sidecar.model_validate({"name": "router", "command": ["x"], "when": {"topology": ["tp8"]}})
    by_load = Sidecar.model_validate(
        {"name": "router", "command": ["x"], "when": {"concurrency": {"from": 8}}}
    )
    assert [item.counts_for("tp8") for item in (plain, bound, by_load)] == [True, True, True]
    assert [item.counts_for("tp4") for item in (plain, bound, by_load)] == [True, False, True]


@pytest.mark.parametrize(
    ("item", "said", "where"),
    [
        (8, "a word is a text (a number in quotes)", (1,)),
        ({"expr": "tq"}, "unknown name 'tq'", (1,)),
        ({"each": "router", "words": ["x"]}, "'router' is no role", (1, "each")),
        ({"each": "decode", "words": []}, "words is a list of words", (1, "words")),
        (
            {"each": "decode", "words": [{"each": "decode", "words": ["x"]}]},
            "a word is a text",
            (1, "words", 0),
        ),
        ({"if": {}, "words": ["x"]}, "a condition names concurrency, scenario or topology", (1, "if")),
        ({"if": {"topology": ["tp8"]}, "word": ["x"]}, "a word is a text", (1,)),
    ],
)
def test_words_of_a_sidecar(item: Any, said: str, where: tuple[str | int, ...]) -> None:
    """What is no word is refused where it stands."""
    what, loc = told(Sidecar, {"name": "router", "command": ["x", item]})
    assert said in what
    assert loc == ("command", *where)
