"""From recorded values to expressions and conditions: nothing is interpolated."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def fitting() -> ModuleType:
    if str(TOOLS) not in sys.path:
        sys.path.insert(0, str(TOOLS))
    import recorded_fit

    return recorded_fit


def point(fitting: ModuleType, label: str, concurrency: int, dp: int = 1) -> Any:
    return fitting.Point(label, concurrency, (("concurrency", concurrency), ("dp", dp), ("tp", 8)))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({1: 2, 8: 16, 64: 128}, "2 * concurrency"),
        ({4: 4, 32: 32, 256: 128}, "min(concurrency, 128)"),
        ({1: 8, 16: 16, 64: 64}, "max(concurrency, 8)"),
        ({8: 4, 64: 32}, "concurrency / 2"),
    ],
)
def test_an_expression_gives_every_recorded_value(
    fitting: ModuleType, values: dict[int, int], text: str
) -> None:
    """The simplest one that is exact at all points counts for all."""
    rows = [(point(fitting, "tp8", c), v) for c, v in values.items()]
    assert fitting.fit(rows) == ({"expr": text}, [])


def test_dp_attention_divides(fitting: ModuleType) -> None:
    """One expression over topologies with and without DP attention."""
    rows = [
        (point(fitting, "tp8", 16), 32),
        (point(fitting, "dep8", 64, dp=8), 16),
        (point(fitting, "dep8", 128, dp=8), 32),
    ]
    assert fitting.fit(rows) == ({"expr": "2 * concurrency / dp"}, [])


def test_a_step_becomes_conditions_of_recorded_concurrencies(fitting: ModuleType) -> None:
    """No expression is exact, so each value stands at the recorded concurrencies that have it."""
    rows = [(point(fitting, "tp8", c), v) for c, v in {1: 0.9, 8: 0.9, 16: 0.83}.items()]
    base, rules = fitting.fit(rows)
    assert base is fitting.MISSING
    assert rules == [((None, (1, 8)), 0.9), ((None, (16, 16)), 0.83)]


def test_two_points_do_not_make_a_clamp(fitting: ModuleType) -> None:
    """A clamp has a free number: with one point on the slope it would fit anything."""
    rows = [(point(fitting, "tp8", c), v) for c, v in {4: 4, 256: 100}.items()]
    assert fitting.expression(rows) is None


def test_what_most_topologies_have_is_the_rule(fitting: ModuleType) -> None:
    """The others say what they have, or null for nothing; an emptied mapping goes as a whole."""
    wide = {("args", "moe"): "mega", ("args", "json", "a"): 1, ("args", "json", "b"): 2}
    rows = [(point(fitting, label, 8), wide) for label in ("a", "b", "c")]
    rows.append((point(fitting, "d", 8), {("args", "other"): True}))
    base, rules = fitting.fit_tree(rows, follows_concurrency=False)
    assert base == wide
    assert rules == [
        ((("d",), None), {("args", "moe"): None, ("args", "json"): None, ("args", "other"): True})
    ]


def test_true_is_not_one(fitting: ModuleType) -> None:
    """A switch and the number 1 are two values."""
    rows = [(point(fitting, "a", 1), True), (point(fitting, "b", 1), 1)]
    _, rules = fitting.fit(rows)
    assert len(rules) == 2
