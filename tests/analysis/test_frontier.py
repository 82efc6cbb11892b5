"""The frontier against a brute-force oracle, and its rules for ties, gaps and mixtures."""

from __future__ import annotations

import numpy as np
import pytest

from isoline.analysis.frontier import frontier, frontier_of, medians, require_one_curve
from isoline.errors import InputError


def dominates(a: tuple[float, float], b: tuple[float, float], signs: tuple[float, float]) -> bool:
    """Whether a is at least as good as b on both axes and better on one."""
    gains = [s * (p - q) for s, p, q in zip(signs, a, b, strict=True)]
    return all(gain >= 0 for gain in gains) and any(gain > 0 for gain in gains)


def oracle(x, y, signs, keys) -> set[int]:
    """Every point against every other, straight from the definition. O(n²)."""
    points = [(float(a), float(b)) for a, b in zip(x, y, strict=True)]
    usable = [i for i, point in enumerate(points) if np.isfinite(point).all()]
    kept = set()
    for i in usable:
        beaten = any(dominates(points[j], points[i], signs) for j in usable)
        twins = [j for j in usable if points[j] == points[i]]
        if not beaten and i == min(twins, key=lambda j: (*(key[j] for key in keys), j)):
            kept.add(i)
    return kept


@pytest.mark.parametrize(("x_better", "y_better"), [(a, b) for a in ("max", "min") for b in ("max", "min")])
def test_equals_brute_force_on_random_sets(x_better: str, y_better: str) -> None:
    """On 400 sets a direction pair, with ties, zeros, NaN and infinities, it is the oracle's set."""
    random = np.random.default_rng([1, len(x_better + y_better), ord(x_better[1]), ord(y_better[1])])
    signs = (1.0 if x_better == "max" else -1.0, 1.0 if y_better == "max" else -1.0)
    for _ in range(400):
        n = int(random.integers(0, 30))
        coarse = random.integers(1, 8)  # few values, so that ties are many
        x, y = (random.integers(-1, coarse, n) / 2.0 for _ in range(2))
        for values in (x, y):
            strange = random.random(n) < 0.1
            values[strange] = random.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], strange.sum())
        keys = [random.integers(0, 3, n), random.integers(0, 3, n)]
        found = frontier(x, y, x_better=x_better, y_better=y_better, ties=keys)
        assert set(found.tolist()) == oracle(x, y, signs, keys)
        assert len(set(found.tolist())) == len(found)


def test_order_is_ascending_x_and_y_gets_worse() -> None:
    """The result is drawn as it comes: x ascends strictly, y moves strictly one way."""
    random = np.random.default_rng(2)
    for x_better, y_better in (("max", "max"), ("min", "max"), ("max", "min"), ("min", "min")):
        x, y = random.random((2, 500))
        kept = frontier(x, y, x_better=x_better, y_better=y_better)
        assert (np.diff(x[kept]) > 0).all()
        assert (np.diff(y[kept]) * (1 if x_better != y_better else -1) > 0).all()


def test_nan_and_infinity_are_never_on_it() -> None:
    """A point without a number, or with an infinite one, hides no measured point."""
    assert frontier([np.inf, 1, np.nan, 2], [9, np.nan, 9, 1]).tolist() == [3]
    assert frontier([np.inf, -np.inf], [1, 1]).tolist() == []
    assert frontier([], []).tolist() == []


def test_exact_tie_keeps_lower_concurrency_then_fewer_gpus() -> None:
    """Of equal points the lower concurrency stays, then the smaller GPU count, then the first."""
    assert frontier([5, 5, 5], [7, 7, 7], ties=([8, 4, 4], [1, 8, 2])).tolist() == [2]
    assert frontier([5, 5], [7, 7], ties=([4, 4], [2, 2])).tolist() == [0]
    assert frontier([5, 5], [7, 8], ties=([1, 2],)).tolist() == [1]  # a better y is no tie


def test_direction_must_be_known() -> None:
    """A metric of which neither direction is better gets no frontier."""
    with pytest.raises(InputError, match="better direction"):
        frontier([1], [1], x_better=None)  # type: ignore[arg-type]


def test_shapes_must_agree() -> None:
    """Arrays of two lengths are refused instead of being broadcast."""
    with pytest.raises(ValueError, match="one length"):
        frontier([1, 2], [1])
    with pytest.raises(ValueError, match="one id"):
        frontier_of([1.0], [1.0], [])


def test_medians_come_before_dominance() -> None:
    """One lucky repetition does not carry its point onto the frontier."""
    values = [[10, 100], [10, 100], [30, 300], [20, 150]]  # A, A, A (lucky), B
    names, middle, counts = medians(values, ["A", "A", "A", "B"])
    assert (names, counts.tolist()) == (["A", "B"], [3, 1])
    assert middle.tolist() == [[10, 100], [20, 150]]
    assert frontier(*middle.T).tolist() == [1]


def test_medians_use_valid_and_whole_repetitions_only() -> None:
    """An invalid repetition, and one with a missing coordinate, changes neither coordinate."""
    values = [[1, 10], [3, 30], [99, 99], [np.nan, 50], [2, np.inf]]
    names, middle, counts = medians(values, ["A"] * 3 + ["A", "B"], valid=[True, True, False, True, True])
    assert middle[0].tolist() == [2, 20]
    assert counts.tolist() == [2, 0]
    assert np.isnan(middle[1]).all()
    assert names == ["A", "B"]


@pytest.mark.parametrize(
    ("mixed", "word"),
    [
        ((["a", "b"], ["full"], ["r"]), "curves"),
        ((["a"], ["full", "steady"], ["r"]), "windows"),
        ((["a"], ["full"], ["r1", "r2"]), "runs"),
    ],
)
def test_mixtures_are_refused(mixed: tuple[list[str], list[str], list[str]], word: str) -> None:
    """Two curves, two windows or two runs have no common frontier, and the error says which."""
    with pytest.raises(InputError, match=word):
        require_one_curve(*mixed)
    require_one_curve(["a", "a"], ["full", "full"], ["r", "r"])
