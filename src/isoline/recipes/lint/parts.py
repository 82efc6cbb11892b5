"""Resolved parts of a recipe for each case, without a pool: what rules about arguments look at. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from isoline.recipes.expressions import ExpressionError, Number, evaluate, port_in
from isoline.recipes.lint.base import Case, Context
from isoline.recipes.resolve import Resolved, Situation, resolve
from isoline.recipes.server import is_expression
from isoline.recipes.sidecars import flat_words

STAND_IN_DRAM_GB = 1024
"""Node memory that offload budgets are computed with here: no pool is known, any number will do."""

Place = tuple[str | int, ...]


def values_for(context: Context, case: Case) -> dict[str, Number | None]:
    """What an expression may use in a case; ``dram_gb`` is a stand-in where the recipe offloads KV."""
    return {
        "concurrency": case.sized_for,
        "isl": case.scenario.isl,
        "osl": case.scenario.osl,
        "tp": case.role.tp,
        "dp": case.role.dp_attention,
        "gpus": case.role.gpus_per_worker,
        "dram_gb": STAND_IN_DRAM_GB if context.recipe.kv_offload.utilization else None,
    }


def situation(context: Context, case: Case) -> Situation:
    """The situation that a case is rendered in."""
    return Situation(
        role=case.role_name,
        topology=case.topology.label(),
        scenario=case.scenario.name,
        concurrency=case.sized_for,
        values=values_for(context, case),
    )


def part(context: Context, case: Case) -> Resolved | None:
    """A case's part; None where an expression has no value (the rule ``expressions`` says so)."""
    try:
        return resolve(
            context.recipe.server, context.recipe.roles.get(case.role_name), situation(context, case)
        )
    except ExpressionError:
        return None


def parts(context: Context) -> list[tuple[Case, Resolved]]:
    """All cases that can be resolved; computed once a recipe."""
    if "parts" not in context.memo:
        context.memo["parts"] = [
            (case, found) for case in context.cases if (found := part(context, case)) is not None
        ]
    known: list[tuple[Case, Resolved]] = context.memo["parts"]
    return known


@dataclass(frozen=True)
class Text:
    """A text somewhere in a recipe, with its place and the name of what it is a value of."""

    loc: Place
    name: str
    value: str


def _texts(node: Any, loc: Place, name: str) -> Iterator[Text]:
    if isinstance(node, Mapping):
        if is_expression(node):
            if (port := port_in(node["expr"])) is not None:
                yield Text(loc, name, f"{{{port}}}")
            return
        for key, item in node.items():
            yield Text((*loc, key), name, str(key))
            yield from _texts(item, (*loc, key), name)
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _texts(item, (*loc, index), name)
    elif isinstance(node, str):
        yield Text(loc, name, node)


def texts(context: Context) -> Iterator[Text]:
    """Every text that reaches a command line, an environment or a configuration file."""
    for loc, layer, _ in context.layers():
        for kind in ("args", "env", "config_files"):
            for name, value in getattr(layer, kind).items():
                yield from _texts(value, (*loc, kind, name), name)
    for index, sidecar in enumerate(context.recipe.sidecars):
        for place, text in flat_words(sidecar.command):
            yield from _texts(text, ("sidecars", index, "command", *place), sidecar.name)
        for name, value in sidecar.env.items():
            yield from _texts(value, ("sidecars", index, "env", name), name)
        if sidecar.ready is not None:
            yield Text(("sidecars", index, "ready"), sidecar.name, sidecar.ready)


def expressions(node: Any, loc: Place) -> Iterator[tuple[Place, str]]:
    """(place, text) of each expression inside a value."""
    if is_expression(node):
        if port_in(node["expr"]) is None:
            yield loc, node["expr"]
    elif isinstance(node, Mapping):
        for key, item in node.items():
            yield from expressions(item, (*loc, key))
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from expressions(item, (*loc, index))


def evaluated(text: str, values: Mapping[str, Number | None]) -> tuple[Number | None, str]:
    """(value, "") or (None, why there is none)."""
    try:
        return evaluate(text, values), ""
    except ExpressionError as error:
        return None, str(error)


def counts_in(context: Context, case: Case, condition: Any) -> bool:
    """Whether a part under ``condition`` (None: always) counts in a case."""
    return condition is None or case.meets(condition.if_)


def value_loc(context: Context, case: Case, kind: str, name: str, *keys: str) -> Place:
    """Where a resolved value was written last: the layer that set it in this case."""
    found: Place = ("server", kind, name, *keys)
    for loc, layer, condition in context.layers(case.role_name):
        node = getattr(layer, kind).get(name)
        if node is not None and counts_in(context, case, condition):
            found = (*loc, kind, name, *keys)
    return found
