"""Resolving a server part: the order of layers, what null removes, how mappings merge, expressions."""

from __future__ import annotations

from typing import Any

import pytest

from isoline.recipes.expressions import ExpressionError
from isoline.recipes.resolve import Situation, band_top, depends_on_concurrency, fill_in, merge, resolve
from isoline.recipes.server import RoleServer, Server

SITUATION = Situation(
    "decode", "ptp4_dtp8", "8k1k", 64, {"concurrency": 64, "tp": 8, "isl": 8192, "osl": 1024}
)


def args(server: dict[str, Any], role: dict[str, Any] | None = None, situation: Any = SITUATION) -> Any:
    """The resolved arguments."""
    made = RoleServer.model_validate(role) if role is not None else None
    return resolve(Server.model_validate(server), made, situation).args


def when(**more: Any) -> dict[str, Any]:
    """A condition that holds here."""
    return {"if": {"concurrency": {"from": 64, "to": 64}}, **more}


def test_the_order_of_layers() -> None:
    """All roles, the role, conditions for all, conditions of the role: the later one wins."""
    server = {"args": {"a": 1, "b": 1, "c": 1, "d": 1}, "when": [when(args={"c": 3, "d": 3, "b": 3})]}
    role = {"args": {"b": 2, "c": 2, "d": 2}, "when": [when(args={"d": 4})]}
    assert args(server, role) == {"a": 1, "b": 3, "c": 3, "d": 4}
    assert args(server) == {"a": 1, "b": 3, "c": 3, "d": 3}
    two = {"args": {"a": 1}, "when": [when(args={"a": 2}), when(args={"a": 3})]}
    assert args(two) == {"a": 3}


def test_conditions_that_do_not_hold() -> None:
    """Another concurrency, scenario or topology leaves the layer out."""
    for condition in ({"concurrency": {"to": 63}}, {"scenario": ["1k1k"]}, {"topology": ["tp8"]}):
        assert args({"args": {"a": 1}, "when": [{"if": condition, "args": {"a": 2}}]}) == {"a": 1}
    for condition in ({"concurrency": {"to": 64}}, {"scenario": ["8k1k"]}, {"topology": ["ptp4_dtp8"]}):
        assert args({"args": {"a": 1}, "when": [{"if": condition, "args": {"a": 2}}]}) == {"a": 2}


def test_null_removes() -> None:
    """``null`` takes away what was there before, and may name what was not; a later layer sets it again."""
    server = {"args": {"a": 1, "b": 1}, "when": [when(args={"b": None, "x": None}), when(args={"b": 5})]}
    assert args(server, {"args": {"a": None}}) == {"b": 5}
    found = resolve(
        Server.model_validate({"env": {"A": "1", "B": "1"}}),
        RoleServer.model_validate({"env": {"A": None}}),
        SITUATION,
    )
    assert found.env == {"B": "1"}


def test_mappings_are_merged_by_key() -> None:
    """A JSON argument is changed key by key, at any depth; ``null`` removes a key; a list is replaced."""
    server = {"args": {"kv": {"a": {"x": 1, "y": 1}, "b": [1, 2]}}}
    role = {"args": {"kv": {"a": {"y": 2, "x": None}, "b": [3], "c": True}}}
    assert args(server, role) == {"kv": {"a": {"y": 2}, "b": [3], "c": True}}


def test_an_expression_replaces_and_is_replaced() -> None:
    """An expression is one value: it is not merged with a mapping, nor a mapping with it."""
    assert merge({"a": {"x": 1}}, {"a": {"expr": "tp"}}) == {"a": {"expr": "tp"}}
    assert merge({"a": {"expr": "tp", "suffix": "GB"}}, {"a": {"expr": "isl"}}) == {"a": {"expr": "isl"}}
    assert merge({"a": {"expr": "tp"}}, {"a": {"x": 1}}) == {"a": {"x": 1}}
    assert merge({"a": {"x": 1}}, {"a": {"literal": None}}) == {"a": {"literal": None}}


def test_merging_changes_neither_side() -> None:
    """Layers are values of a recipe that others read too: none is changed in place."""
    base, over = {"a": {"x": 1, "y": {"z": 1}}}, {"a": {"y": {"z": 2}}}
    assert merge(base, over) == {"a": {"x": 1, "y": {"z": 2}}}
    assert base == {"a": {"x": 1, "y": {"z": 1}}}
    assert over == {"a": {"y": {"z": 2}}}


def test_expressions_are_evaluated_last() -> None:
    """In mappings, lists, variables and files; with a suffix they are a text; null may be a value."""
    server = {
        "args": {
            "n": {"expr": "2 * concurrency"},
            "j": {"k": [{"expr": "tp"}, {"expr": "tp", "suffix": "GB"}]},
        },
        "env": {"N": {"expr": "concurrency / tp"}, "A": "text"},
        "config_files": {"c.yaml": {"off": {"literal": None}, "size": {"expr": "isl + osl"}}},
    }
    found = resolve(Server.model_validate(server), None, SITUATION)
    assert found.args == {"n": 128, "j": {"k": [8, "8GB"]}}
    assert found.env == {"A": "text", "N": "8"}
    assert list(found.env) == ["A", "N"]
    assert found.config_files == {"c.yaml": {"off": None, "size": 9216}}


def test_an_expression_that_was_replaced_is_not_evaluated() -> None:
    """What a later layer took away needs no value."""
    server = {"args": {"gb": {"expr": "dram_gb"}}}
    with pytest.raises(ExpressionError, match="dram_gb is not known here"):
        args(server)
    assert args(server, {"args": {"gb": None}}) == {}
    assert args(server, {"args": {"gb": 7}}) == {"gb": 7}


def test_fill_in_leaves_the_rest() -> None:
    """Texts that look like names or braces stay as they are."""
    value = {"a": "concurrency", "b": "{port.x}", "c": [True, None, 1.5]}
    assert fill_in(value, {"concurrency": 1}) == value


@pytest.mark.parametrize(
    ("server", "role", "depends"),
    [
        ({"args": {"a": 1}}, {}, False),
        ({"args": {"a": {"expr": "isl + tp"}}}, {}, False),
        ({"args": {"a": {"expr": "concurrency"}}}, {}, True),
        ({"args": {"a": {"b": [{"expr": "min(concurrency, 9)"}]}}}, {}, True),
        ({"env": {"A": {"expr": "concurrency"}}}, {}, True),
        ({"config_files": {"c.yaml": {"a": {"expr": "concurrency"}}}}, {}, True),
        ({}, {"args": {"a": {"expr": "concurrency"}}}, True),
        ({"when": [{"if": {"concurrency": {"to": 4}}, "args": {"a": 1}}]}, {}, True),
        ({"when": [{"if": {"scenario": ["8k1k"]}, "args": {"a": 1}}]}, {}, False),
        ({"when": [{"if": {"scenario": ["8k1k"]}, "env": {"A": {"expr": "concurrency"}}}]}, {}, True),
        ({}, {"when": [{"if": {"concurrency": {"from": 4}}, "args": {"a": 1}}]}, True),
    ],
)
def test_what_depends_on_the_concurrency(server: Any, role: Any, depends: bool) -> None:
    """A condition on it or an expression with it, anywhere: else all concurrencies share a server."""
    made = RoleServer.model_validate(role)
    assert depends_on_concurrency(Server.model_validate(server), [made]) is depends


@pytest.mark.parametrize(
    ("bands", "tops"),
    [
        ([], {1: 1, 16: 16, 17: 17, 128: 128, 512: 512}),
        (["max"], {1: 512, 16: 512, 512: 512}),
        ([16, 128, "max"], {1: 16, 16: 16, 17: 128, 128: 128, 129: 512, 512: 512}),
        ([16], {1: 16, 16: 16, 17: 512, 512: 512}),  # above the last end: one band up to the highest
        ([1024], {1: 512, 512: 512}),  # no server is sized for more than is asked for
    ],
)
def test_the_top_of_a_band(bands: list[Any], tops: dict[int, int]) -> None:
    """A server is sized for the top of its band; without bands each concurrency has its own."""
    assert {level: band_top(level, bands, 512) for level in tops} == tops
