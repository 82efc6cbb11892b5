"""Values of recipes: null as a value, removals, entries, differences."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from isoline.recipes.resolve import Situation, resolve
from isoline.recipes.schema import Difference
from isoline.recipes.server import RoleServer, Server
from isoline.recipes.sidecars import Sidecar


def at(topology: str, concurrency: int = 1) -> Situation:
    return Situation(
        role="aggregated",
        topology=topology,
        scenario="8k1k",
        concurrency=concurrency,
        values={"concurrency": concurrency},
    )


def server(**parts: Any) -> Server:
    return Server.model_validate(parts)


def test_null_in_a_file_is_said_apart_from_a_removal() -> None:
    """``{literal: null}`` writes null into a file; ``null`` takes a key away."""
    base = server(
        config_files={"config.yaml": {"cuda_graph_config": {"padding": True}, "other": 1}},
        when=[
            {
                "if": {"topology": ["tp4"]},
                "config_files": {"config.yaml": {"cuda_graph_config": {"literal": None}}},
            },
            {"if": {"topology": ["tp8"]}, "config_files": {"config.yaml": {"cuda_graph_config": None}}},
        ],
    )
    assert resolve(base, None, at("tp4")).config_files == {
        "config.yaml": {"cuda_graph_config": None, "other": 1}
    }
    assert resolve(base, None, at("tp8")).config_files == {"config.yaml": {"other": 1}}
    assert resolve(base, None, at("tp2")).config_files["config.yaml"]["cuda_graph_config"] == {
        "padding": True
    }


def test_a_role_goes_without_what_every_role_gets() -> None:
    """A role's null removes an argument of ``server``, and its keys lie on JSON arguments."""
    base = server(args={"a": 1, "json": {"x": 1, "y": 2}})
    role = RoleServer.model_validate({"args": {"a": None, "json": {"y": 3}}})
    assert resolve(base, role, at("tp8")).args == {"json": {"x": 1, "y": 3}}


def test_a_sidecar_counts_for_the_topologies_of_its_condition() -> None:
    """Without a condition it is there in each."""
    named = {"name": "router", "command": ["router"], "when": {"topology": ["tp8-dpa8"]}}
    assert Sidecar.model_validate(named).counts_for("tp8-dpa8")
    assert not Sidecar.model_validate(named).counts_for("tp8")
    assert Sidecar.model_validate({"name": "router", "command": ["router"]}).counts_for("tp8")


def test_a_difference_has_a_reason() -> None:
    """A place without words is refused."""
    with pytest.raises(ValidationError, match="at least 10 characters"):
        Difference(what="args.x", why="because")


def test_an_expression_with_a_suffix_is_a_text() -> None:
    """A size with its unit follows the pool's memory; a suffix that is no text is refused."""
    found = resolve(server(args={"size": {"expr": "4 * concurrency", "suffix": "GB"}}), None, at("tp8", 8))
    assert found.args == {"size": "32GB"}
    with pytest.raises(ValidationError, match="a suffix is a text"):
        server(args={"size": {"expr": "1", "suffix": 3}})
