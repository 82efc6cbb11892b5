"""What a sweep selects of each recipe, and what it leaves out and why. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from isoline.errors import InputError
from isoline.results.bundles.records import Excluded
from isoline.sweeps.planning.schema import Scenario, Selection

if TYPE_CHECKING:
    from isoline.sweeps.planning.plan import Sources


@dataclass
class Wanted:
    """A point while it is collected: several selections may name it."""

    scenario: Scenario
    concurrency: int
    repetitions: int
    accuracy: set[str] = field(default_factory=set)


def _levels(sources: Sources, index: int) -> tuple[dict[str, list[int]], list[Excluded]]:
    """recipe id -> the concurrencies that one selection takes of it; and what it leaves out, and why.

    :raises InputError: for a concurrency that no selected recipe is meant for.
    """
    selection = sources.sweep.select[index]
    where = f"sweeps/{sources.sweep.name}.yaml"
    meant = {
        recipe_id: found
        for recipe_id in sources.selected[index]
        if (found := sources.recipes[recipe_id].outline.levels(selection.scenario)) is not None
    }
    excluded = [
        Excluded(what=f"{recipe_id} × {selection.scenario}", why="the recipe is not meant for this scenario")
        for recipe_id in sources.selected[index]
        if recipe_id not in meant
    ]
    if not meant:
        return {}, excluded
    known = sorted({level for levels in meant.values() for level in levels})
    wanted = known if selection.concurrency == "all" else selection.concurrency
    numbers = selection.repetitions if isinstance(selection.repetitions, dict) else {}
    for what, levels, allowed, remedy in (
        ("concurrency", wanted, known, "add it to the recipe's scenarios, or leave it out of the sweep"),
        ("accuracy is asked for at concurrency", _flat(selection), wanted, "select it, or leave it out"),
        ("repetitions are given for concurrency", numbers, wanted, "select it, or leave it out"),
    ):
        for level in levels:
            if level not in allowed:
                raise InputError(
                    f"{what} {level}, which is not among {', '.join(map(str, allowed))} "
                    f"of scenario {selection.scenario!r}",
                    where=where,
                    remedy=remedy,
                )
    taken: dict[str, list[int]] = {}
    for recipe_id, levels in meant.items():
        meant_for = set(levels)
        taken[recipe_id] = [level for level in wanted if level in meant_for]
        if selection.concurrency != "all":
            excluded += [
                Excluded(
                    what=f"{recipe_id} × {selection.scenario} c{level}",
                    why="the recipe is not meant for this concurrency",
                )
                for level in wanted
                if level not in levels
            ]
    return taken, excluded


def _flat(selection: Selection) -> list[int]:
    return [level for levels in selection.accuracy.values() for level in levels]


def collect(sources: Sources) -> tuple[dict[str, dict[tuple[str, int], Wanted]], list[Excluded]]:
    """recipe id -> (scenario, concurrency) -> what is wanted, in the sweep's order."""
    wanted: dict[str, dict[tuple[str, int], Wanted]] = {}
    excluded: list[Excluded] = []
    for index, selection in enumerate(sources.sweep.select):
        scenario = sources.scenarios[selection.scenario]
        taken, left_out = _levels(sources, index)
        excluded += left_out
        for recipe_id, levels in taken.items():
            rows = wanted.setdefault(recipe_id, {})
            for concurrency in levels:
                row = rows.setdefault((scenario.name, concurrency), Wanted(scenario, concurrency, 1))
                row.repetitions = max(row.repetitions, selection.repetitions_at(concurrency))
                row.accuracy |= {task for task, at in selection.accuracy.items() if concurrency in at}
    return wanted, excluded
