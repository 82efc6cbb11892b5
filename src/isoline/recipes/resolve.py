"""Resolve: a recipe's server part for one role, topology, scenario and concurrency. Pure.

Order: what every role gets, then the role's own, then the conditions that hold (every role's, then
the role's), each in the file's order; a later one wins, ``null`` removes. Expressions are evaluated
last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from isoline.recipes.expressions import Number, evaluate, port_in
from isoline.recipes.server import NULL, Parts, RoleServer, Server, When, is_expression, is_whole, uses
from isoline.recipes.topology import RoleName


@dataclass(frozen=True)
class Situation:
    """What a launch is rendered for. ``concurrency`` is the upper end of its band."""

    role: RoleName
    topology: str
    scenario: str
    concurrency: int
    values: Mapping[str, Number | None]  # names of expressions.NAMES


@dataclass(frozen=True)
class Resolved:
    """A server part without conditions and expressions."""

    args: dict[str, Any]
    env: dict[str, str]
    config_files: dict[str, dict[str, Any]]


def fill_in(value: Any, values: Mapping[str, Number | None]) -> Any:
    """A value with every expression in it evaluated.

    :raises ExpressionError: when one has no finite value here.
    """
    if is_expression(value):
        if (port := port_in(value["expr"])) is not None:
            return f"{{{port}}}{value.get('suffix', '')}"
        number = evaluate(value["expr"], values)
        return f"{number}{value['suffix']}" if "suffix" in value else number
    if value == NULL:
        return None
    if isinstance(value, dict):
        return {name: fill_in(item, values) for name, item in value.items()}
    if isinstance(value, list):
        return [fill_in(item, values) for item in value]
    return value


def merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` on ``base``, mapping into mapping; ``null`` removes. An expression is a value, no mapping."""
    merged = dict(base)
    for name, value in over.items():
        before = merged.get(name)
        if value is None:
            merged.pop(name, None)
        elif (
            isinstance(value, dict)
            and isinstance(before, dict)
            and not is_whole(value)
            and not is_whole(before)
        ):
            merged[name] = merge(before, value)
        else:
            merged[name] = value
    return merged


def _layers(server: Server, role: RoleServer | None, situation: Situation) -> Iterable[Parts]:
    yield server
    if role is not None:
        yield role
    conditions: list[When] = [*server.when, *(role.when if role else [])]
    for item in conditions:
        if item.if_.holds(
            concurrency=situation.concurrency, scenario=situation.scenario, topology=situation.topology
        ):
            yield item


def resolve(server: Server, role: RoleServer | None, situation: Situation) -> Resolved:
    """The server part for a situation.

    :raises ExpressionError: when an expression has no value here.
    """
    args: dict[str, Any] = {}
    env: dict[str, Any] = {}
    files: dict[str, Any] = {}
    for layer in _layers(server, role, situation):
        # A mapping is one JSON argument: a later layer changes single keys of it.
        args, env, files = merge(args, layer.args), merge(env, layer.env), merge(files, layer.config_files)
    return Resolved(
        args=fill_in(args, situation.values),
        env={name: str(fill_in(value, situation.values)) for name, value in sorted(env.items())},
        config_files=fill_in(files, situation.values),
    )


def depends_on_concurrency(server: Server, roles: Iterable[RoleServer]) -> bool:
    """Whether any argument, variable or file depends on the concurrency."""
    parts: list[Server | RoleServer] = [server, *roles]
    for part in parts:
        layers: list[Parts] = [part, *part.when]
        if any(item.if_.concurrency is not None for item in part.when):
            return True
        for layer in layers:
            if "concurrency" in uses(layer.args) | uses(layer.env) | uses(layer.config_files):
                return True
    return False


def band_top(concurrency: int, bands: Iterable[int | str], highest: int) -> int:
    """The concurrency that a server for ``concurrency`` is sized for: the top of its band.

    :param bands: ascending upper ends; ``max`` is ``highest``. Empty: each concurrency for itself.
    """
    tops = [highest if band == "max" else int(band) for band in bands]
    return next(
        (min(top, highest) for top in tops if top >= concurrency), concurrency if not tops else highest
    )
