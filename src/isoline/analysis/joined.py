"""Two frontiers beside each other, and several as one: a labelled second step (DESIGN 5.1). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isoline.analysis.frontier import Frontier, frontier_of, sign
from isoline.errors import InputError
from isoline.results.identity import CURVE_FIELDS

NEVER_JOINED: tuple[str, ...] = ("model", "kind", "source", "scenario", "scenario_version", "window")
"""What all curves of one best-of must have in common."""


@dataclass(frozen=True)
class Joined:
    """The best of several curves.

    :param frontier: its points; ``ids`` are those of the points.
    :param curves: for each point of it, which of the curves it is from.
    :param n: how many curves had a point to offer.
    :param differ: the parts of the curves' identity that are not the same in all.
    :param label: for people, such as "best of 3 (engine, weight_precision differ)".
    """

    frontier: Frontier
    curves: tuple[int, ...]
    n: int
    differ: tuple[str, ...]
    label: str


def best_of(curves: Sequence[tuple[Mapping[str, Any], Frontier]]) -> Joined:
    """The frontier over several frontiers. Exact ties: the curve that comes first.

    :param curves: (what its points share: the fields of a curve, and ``window``; its frontier).
    :raises InputError: without a curve, and for curves that have no common ground: other model, kind,
        source, scenario, window or directions.
    """
    if not curves:
        raise InputError("best of no curve", remedy="choose at least one")
    for name in NEVER_JOINED:
        found = sorted({str(shared.get(name)) for shared, _ in curves})
        if len(found) > 1:
            raise InputError(
                f"curves of two {name}s are never joined: {', '.join(found)}", remedy="select one of them"
            )
    if len({(one.x_better, one.y_better) for _, one in curves}) > 1:
        raise InputError("curves with other directions are never joined", remedy="use one pair of axes")
    offered = [
        (number, x, y, name)
        for number, (_, one) in enumerate(curves)
        for x, y, name in zip(one.x, one.y, one.ids, strict=True)
    ]
    first = curves[0][1]
    # Two runs may name their points alike, so the place in the list is the id while joining.
    joined = frontier_of(
        [x for _, x, _, _ in offered],
        [y for _, _, y, _ in offered],
        [str(place) for place in range(len(offered))],
        x_better=first.x_better,
        y_better=first.y_better,
        ties=([number for number, *_ in offered],),
    )
    places = [int(place) for place in joined.ids]
    n = sum(bool(one.x) for _, one in curves)
    differ = tuple(name for name in CURVE_FIELDS if len({str(shared.get(name)) for shared, _ in curves}) > 1)
    return Joined(
        frontier=Frontier(
            joined.x, joined.y, tuple(offered[place][3] for place in places), first.x_better, first.y_better
        ),
        curves=tuple(offered[place][0] for place in places),
        n=n,
        differ=differ,
        label=f"best of {n}" + (f" ({', '.join(differ)} differ)" if differ else ""),
    )


def epsilon(new: Frontier, old: Frontier) -> float | None:
    """The multiplicative epsilon indicator: how much worse ``new`` may be anywhere.

    The smallest factor by which every point of ``new`` would have to be better, on both axes, so that each
    point of ``old`` is reached. At most 1: ``new`` is nowhere worse. 1.1: somewhere 10 % are lacking.

    :returns: None where one has no point, or where a coordinate is not above 0 (it has no ratio).
    :raises InputError: when the directions differ.
    """
    if (new.x_better, new.y_better) != (old.x_better, old.y_better):
        raise InputError("two frontiers of other directions have no ratio", remedy="use one pair of axes")
    if not new.x or not old.x or min(*new.x, *new.y, *old.x, *old.y) <= 0:
        return None
    by_x, by_y = sign(new.x_better), sign(new.y_better)
    lacking: float = max(
        min(max((wx / x) ** by_x, (wy / y) ** by_y) for x, y in zip(new.x, new.y, strict=True))
        for wx, wy in zip(old.x, old.y, strict=True)
    )
    return lacking
