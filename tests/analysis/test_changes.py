"""Steps in the history of a series, and what changed there."""

from __future__ import annotations

import numpy as np
import pytest

from isoline.analysis.changes import change_points, differences


def nights(*levels: tuple[int, float], cv: float = 0.01, seed: int = 3) -> np.ndarray:
    """So many nights at each level, with noise."""
    random = np.random.default_rng(seed)
    level = np.concatenate([np.full(count, value) for count, value in levels])
    return level * (1 + cv * random.standard_normal(level.size))


def test_a_step_is_told_with_what_changed_there() -> None:
    """A step names its night, its size and only those notes that differ across it."""
    values = nights((20, 1000.0), (20, 900.0))
    notes = [
        {"image": "old" if night < 20 else "new", "driver": "570", "node": None if night < 20 else "n1"}
        for night in range(40)
    ]
    (step,) = change_points(values, notes)
    assert step.index == 20
    assert step.change == pytest.approx(-0.1, abs=0.01)
    assert step.explained == {"image": ("old", "new")}


def test_nights_without_a_value_are_passed_over() -> None:
    """A gap moves no step: the index counts all nights, also those without a value."""
    values = nights((20, 1000.0), (20, 900.0))
    values[5] = values[19] = np.nan
    (step,) = change_points(values)
    assert step.index == 20


def test_a_change_too_small_to_count_is_no_step() -> None:
    """With little noise 2 % is certain, and still no step; 3 % is one."""
    assert change_points(nights((30, 1000.0), (30, 980.0), cv=0.001)) == []
    assert len(change_points(nights((30, 1000.0), (30, 970.0), cv=0.001))) == 1


def test_flat_series_have_hardly_a_step() -> None:
    """Of 100 flat series of 60 nights at most 3 get a step."""
    found = [change_points(nights((60, 1000.0), cv=0.02, seed=seed)) for seed in range(100)]
    assert sum(bool(steps) for steps in found) <= 3


def test_a_single_night_is_no_level() -> None:
    """One bad night makes no step, neither down nor up again."""
    values = nights((40, 1000.0))
    values[20] = 700
    assert change_points(values) == []


def test_short_and_constant_series() -> None:
    """Five nights have no history; equal values have no step, and a constant that jumps has one."""
    assert change_points([1.0, 2.0, 3.0, 1.0, 2.0]) == []
    assert change_points([5.0] * 20) == []
    assert [step.index for step in change_points([5.0] * 10 + [4.0] * 10)] == [10]


def test_notes_fit_the_values() -> None:
    """Notes for other nights than the values are refused; a name that one side lacks explains nothing."""
    with pytest.raises(ValueError, match="one note"):
        change_points([1.0] * 10, [{}])
    assert differences({"image": "a", "engine": "1"}, {"image": "b"}) == {"image": ("a", "b")}
