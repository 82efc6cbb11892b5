"""Expressions in recipes: + − × ÷ min max over a few numbers of a launch. Pure, and nothing else runs.

An expression is written ``{expr: "min(2 * concurrency, 512)"}``. The names that it may use are in
:data:`NAMES`; ``port.NAME`` (a leased port of a sidecar) stands alone, as ``{port.NAME}`` does in a text:
its number is known when the launch starts. ÷ between whole numbers rounds down, as the arithmetic of
shells does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping

NAMES: tuple[str, ...] = ("concurrency", "isl", "osl", "tp", "dp", "gpus", "dram_gb")
"""What an expression may use. ``tp``, ``dp`` (DP attention ways) and ``gpus`` are of the role's worker;
``dram_gb`` is the node memory that the pool gives to KV offload, in GB."""

MAX_LENGTH = 200
MAX_NODES = 60
MAX_VALUE = 10**15

Number = int | float

_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
}


class ExpressionError(ValueError):
    """An expression that cannot be used; the message says why. Remedy: only + - * / min max and names."""


def _parse(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"longer than {MAX_LENGTH} characters")
    try:
        tree = ast.parse(text.strip().replace("×", "*").replace("÷", "/").replace("−", "-"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"{text!r} is no expression; use + - * / min max and names") from None
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise ExpressionError(f"more than {MAX_NODES} parts")
    return tree


_PORT = re.compile(r"^\s*(port\.[a-z][a-z0-9_]*)\s*\Z")


def port_in(text: str) -> str | None:
    """``port.NAME`` where an expression is nothing else."""
    found = _PORT.match(text)
    return found[1] if found else None


def names_in(text: str) -> set[str]:
    """The names that an expression uses.

    :raises ExpressionError: when it is none, or uses an unknown name.
    """
    tree = _parse(text)
    used: set[str] = set()
    if port_in(text) is not None:
        return used
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.func.id not in ("min", "max"):
                raise ExpressionError("only min(…) and max(…) can be called")
            if node.keywords or len(node.args) < 2:
                raise ExpressionError(f"{node.func.id}(…) takes two or more values")
        elif isinstance(node, ast.Name):
            if id(node) in called:
                continue
            if node.id not in NAMES:
                raise ExpressionError(f"unknown name {node.id!r}; known: {', '.join(NAMES)}")
            used.add(node.id)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
                raise ExpressionError(f"{node.value!r} is no number")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "port":
            raise ExpressionError(f"port.{node.attr} stands alone: it is leased when the launch starts")
        elif not isinstance(
            node,
            (ast.BinOp, ast.UnaryOp, ast.USub, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Load),
        ):
            raise ExpressionError(f"{type(node).__name__} is not allowed; use + - * / min max and names")
    return used


def evaluate(text: str, values: Mapping[str, Number | None]) -> Number:
    """The value of an expression.

    :param values: by name; a name that the expression uses and that is None or absent is an error.
    :raises ExpressionError: for anything but a finite number.
    """
    names_in(text)
    result = _value(_parse(text), values)
    if abs(result) > MAX_VALUE or result != result:
        raise ExpressionError(f"{text!r} gives {result}, which is out of range")
    return result


def _value(node: ast.expr, values: Mapping[str, Number | None]) -> Number:
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, (int, float))
        return node.value
    if isinstance(node, ast.Name):
        value = values.get(node.id)
        if value is None:
            raise ExpressionError(f"{node.id} is not known here")
        return value
    if isinstance(node, ast.UnaryOp):
        return -_value(node.operand, values)
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        numbers = [_value(item, values) for item in node.args]
        return min(numbers) if node.func.id == "min" else max(numbers)
    assert isinstance(node, ast.BinOp)
    left, right = _value(node.left, values), _value(node.right, values)
    if isinstance(node.op, ast.Div):
        if right == 0:
            raise ExpressionError("division by zero")
        return left // right if isinstance(left, int) and isinstance(right, int) else left / right
    return _OPERATORS[type(node.op)](left, right)
