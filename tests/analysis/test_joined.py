"""Several frontiers as one, and the factor that one lacks to reach another."""

from __future__ import annotations

import numpy as np
import pytest

from isoline.analysis.frontier import Frontier, frontier, frontier_of
from isoline.analysis.joined import best_of, epsilon
from isoline.errors import InputError

SHARED = {
    "model": "m",
    "kind": "measured",
    "source": "own",
    "scenario": "s",
    "scenario_version": 1,
    "window": "full",
}


def curve(*points: tuple[float, float], x_better: str = "max", y_better: str = "max") -> Frontier:
    x, y = zip(*points, strict=True) if points else ((), ())
    return frontier_of(x, y, [f"p{i}" for i in range(len(x))], x_better=x_better, y_better=y_better)  # type: ignore[arg-type]


def test_best_of_says_how_many_and_what_differs() -> None:
    """The joined frontier names of each point its curve; an empty curve does not count as one of N."""
    a, b = curve((10, 100), (30, 20)), curve((10, 90), (20, 80))
    joined = best_of(
        [
            ({**SHARED, "engine": "x"}, a),
            ({**SHARED, "engine": "y"}, b),
            ({**SHARED, "engine": "y"}, curve()),
        ]
    )
    assert (joined.frontier.x, joined.frontier.y) == ((10, 20, 30), (100, 80, 20))
    assert joined.curves == (0, 1, 0)
    assert (joined.n, joined.label) == (2, "best of 2 (engine differ)")


def test_best_of_is_the_frontier_of_all_points() -> None:
    """On random sets joining frontiers equals the frontier over all points at once."""
    random = np.random.default_rng(4)
    for _ in range(50):
        sets = [random.integers(1, 12, (int(random.integers(1, 15)), 2)) for _ in range(3)]
        joined = best_of([(SHARED, curve(*map(tuple, points))) for points in sets])
        every = np.concatenate(sets)
        kept = frontier(every[:, 0], every[:, 1])
        assert list(zip(joined.frontier.x, joined.frontier.y, strict=True)) == [tuple(every[i]) for i in kept]


@pytest.mark.parametrize("name", ["model", "kind", "source", "scenario", "scenario_version", "window"])
def test_what_is_never_joined(name: str) -> None:
    """Another kind, source, scenario or window is refused, and named."""
    other = {**SHARED, name: "other"}
    with pytest.raises(InputError, match=name):
        best_of([(SHARED, curve((1, 1))), (other, curve((1, 1)))])


def test_directions_must_agree_and_something_must_be_there() -> None:
    """Curves of two directions, and no curve at all, are refused."""
    with pytest.raises(InputError, match="directions"):
        best_of([(SHARED, curve((1, 1))), (SHARED, curve((1, 1), x_better="min"))])
    with pytest.raises(InputError, match="no curve"):
        best_of([])
    with pytest.raises(InputError, match="directions"):
        epsilon(curve((1, 1)), curve((1, 1), y_better="min"))


def test_epsilon_is_the_lacking_factor() -> None:
    """A curve 10 % below lacks 1.1 somewhere; the better one lacks nothing; a curve against itself is 1."""
    new, old = curve((10, 90), (20, 45)), curve((10, 99), (20, 44))
    assert epsilon(new, old) == pytest.approx(1.1)
    assert epsilon(old, new) == pytest.approx(45 / 44)
    assert epsilon(old, old) == 1
    assert epsilon(curve((20, 200)), curve((10, 100))) == pytest.approx(0.5)


def reached(new: Frontier, old: Frontier, factor: float) -> bool:
    """Whether each old point is reached by a new one that is better by the factor on both axes."""

    def good(have: float, want: float, better: str) -> bool:
        return have * factor >= want if better == "max" else have / factor <= want

    return all(
        any(
            good(x, wx, new.x_better) and good(y, wy, new.y_better) for x, y in zip(new.x, new.y, strict=True)
        )
        for wx, wy in zip(old.x, old.y, strict=True)
    )


@pytest.mark.parametrize(("x_better", "y_better"), [(a, b) for a in ("max", "min") for b in ("max", "min")])
def test_epsilon_equals_its_definition(x_better: str, y_better: str) -> None:
    """Made better by it, each old point is reached on both axes; made better by a bit less, one is not."""
    random = np.random.default_rng(9)
    for _ in range(100):
        new, old = (
            curve(
                *map(tuple, random.uniform(1, 50, (int(random.integers(1, 9)), 2))),
                x_better=x_better,
                y_better=y_better,
            )
            for _ in range(2)
        )
        found = epsilon(new, old)
        assert found is not None
        assert reached(new, old, found * (1 + 1e-9))
        assert not reached(new, old, found * (1 - 1e-9))


def test_no_ratio_no_epsilon() -> None:
    """An empty curve, and a coordinate of 0, have no factor."""
    assert epsilon(curve(), curve((1, 1))) is None
    assert epsilon(curve((1, 1)), curve()) is None
    assert epsilon(curve((1, 0)), curve((1, 1))) is None
