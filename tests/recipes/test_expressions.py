"""Expressions: arithmetic over a few numbers, and nothing else runs."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isoline.recipes.expressions import MAX_VALUE, NAMES, ExpressionError, evaluate, names_in
from isoline.recipes.resolve import fill_in

VALUES: dict[str, Any] = {
    "concurrency": 64,
    "isl": 8192,
    "osl": 1024,
    "tp": 8,
    "dp": 4,
    "gpus": 8,
    "dram_gb": 1500,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("concurrency", 64),
        ("2 * concurrency + 1", 129),
        ("min(2 * concurrency, 100)", 100),
        ("max(concurrency, 100, isl)", 8192),
        ("concurrency / dp", 16),
        ("(concurrency + 1) / dp", 16),  # whole numbers round down, as in a shell
        ("(0 - 7) / 2", -4),  # down, not towards 0
        ("concurrency / 2.5", 25.6),
        ("-concurrency", -64),
        ("isl + osl - 16", 9200),
        ("0.5 * dram_gb", 750.0),
        ("2 × concurrency ÷ 4 − 1", 31),
        ("  tp  ", 8),
    ],
)
def test_arithmetic(text: str, value: float) -> None:
    """The four operations, min and max give what they say, in whole numbers where those go in."""
    found = evaluate(text, VALUES)
    assert found == value
    assert type(found) is type(value)


HOSTILE = {
    "a name that is none": ("conc", "unknown name 'conc'; known: concurrency, isl"),
    "a builtin": ("__import__", "unknown name '__import__'"),
    "a call": ("__import__('os').system('true')", "only min"),
    "a call of a name": ("abs(concurrency)", "only min"),
    "min of one": ("min(concurrency)", "takes two or more"),
    "min by name": ("min(1, 2, key=3)", "takes two or more"),
    "min unpacked": ("min(*isl, 2)", "Starred is not allowed"),
    "min uncalled": ("min + 1", "unknown name 'min'"),
    "min of min": ("min(min, 2)", "unknown name 'min'"),
    "an attribute": ("concurrency.bit_length", "Attribute is not allowed"),
    "a called attribute": ("concurrency.bit_length()", "only min"),
    "a subscript": ("concurrency[0]", "Subscript is not allowed"),
    "a power": ("9 ** 9 ** 9 ** 9", "Pow is not allowed"),
    "a shift": ("1 << 999999", "LShift is not allowed"),
    "a remainder": ("isl % 2", "Mod is not allowed"),
    "floor division": ("isl // 2", "FloorDiv is not allowed"),
    "a comparison": ("isl > 2", "Compare is not allowed"),
    "a choice": ("1 if isl else 2", "IfExp is not allowed"),
    "a lambda": ("lambda: 1", "Lambda is not allowed"),
    "a comprehension": ("[x for x in isl]", "is not allowed"),
    "an assignment": ("(x := 1)", "NamedExpr is not allowed"),
    "a list": ("[1, 2]", "List is not allowed"),
    "a text": ("'a' * 999999999", "'a' is no number"),
    "a formatted text": ("f'{isl}'", "is not allowed"),
    "a truth": ("True + 1", "True is no number"),
    "nothing": ("None", "None is no number"),
    "an imaginary number": ("1j", "1j is no number"),
    "dots": ("...", "is no number"),
    "inverted": ("~isl", "Invert is not allowed"),
    "negated": ("not isl", "Not is not allowed"),
    "empty": ("", "is no expression"),
    "blank": ("   ", "is no expression"),
    "cut off": ("isl +", "is no expression"),
    "two": ("isl; osl", "is no expression"),
    "two lines": ("isl\nosl", "is no expression"),
    "a NUL": ("isl\0", "is no expression"),
    "deep": ("(" * 99 + "1" + ")" * 99, None),
    "deeper": ("(" * 198, "is no expression"),
    "many minus": ("-" * 199 + "1", "more than 60 parts"),
    "many": ("+".join("1" * 60), "more than 60 parts"),
    "long": ("1" * 201, "longer than 200 characters"),
    "a port": ("port.router + 1", "port.router stands alone: it is leased when the launch starts"),
    "part of a thing": ("tp.real", "Attribute is not allowed"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_refused(name: str) -> None:
    """Whatever is not arithmetic over known names is refused with a reason, and nothing is run."""
    text, said = HOSTILE[name]
    if said is None:
        assert names_in(text) == set()  # only brackets: it is 1
        return
    for ask in (lambda: names_in(text), lambda: evaluate(text, VALUES)):
        with pytest.raises(ExpressionError) as caught:
            ask()
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "division by zero"),
        ("isl / (tp - 8)", "division by zero"),
        ("isl / 0.0", "division by zero"),
        ("9999999999 * 9999999999", "out of range"),
        ("0 - 1e300 * 1e300", "out of range"),
        ("1e999", "out of range"),
        ("1e999 - 1e999", "out of range"),
        ("9" * 190, "out of range"),
    ],
)
def test_values_that_are_no_numbers(text: str, said: str) -> None:
    """A division by zero and a value that is not finite, or absurdly large, are errors."""
    names_in(text)
    with pytest.raises(ExpressionError, match=said):
        evaluate(text, VALUES)


@pytest.mark.parametrize("name", NAMES)
def test_a_value_that_is_not_there(name: str) -> None:
    """A name without a value (a trace has no lengths, a pool may not say its memory) is an error, not 0."""
    for values in ({}, {name: None}):
        with pytest.raises(ExpressionError, match=f"{name} is not known here"):
            evaluate(f"1 + {name}", values)
    assert names_in(f"min({name}, 2)") == {name}


@given(st.text(alphabet="0123456789+-*/() .minax,tpisl_'[]{}=<>&|~^%@!:", max_size=60))
def test_no_text_does_anything_else(text: str) -> None:
    """Any text is a finite number or an expression's error: never another exception."""
    try:
        found = evaluate(text, VALUES)
    except ExpressionError:
        return
    assert math.isfinite(found)
    assert abs(found) <= MAX_VALUE


def test_a_port_stands_alone() -> None:
    """A leased port has no number yet: alone it is the placeholder that a text has too."""
    assert names_in("port.router") == names_in(" port.router ") == set()
    assert fill_in([{"expr": "port.kv_0"}, {"expr": "port.kv_0", "suffix": "/x"}], {}) == [
        "{port.kv_0}",
        "{port.kv_0}/x",
    ]
