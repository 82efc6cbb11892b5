"""Rules about what a recipe's parts add up to: bands, conditions, expressions, points that are made twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from isoline.recipes.expressions import Number
from isoline.recipes.lint.base import Case, Context, Finding, Rule, Said
from isoline.recipes.lint.parts import Place, counts_in, evaluated, expressions, parts, values_for
from isoline.recipes.schema import ANNOTATIONS
from isoline.recipes.sidecars import Sidecar, flat_words
from isoline.results.identity import digest


def bands(context: Context) -> Iterable[Finding]:
    """Each band holds a concurrency, each concurrency lies in a band, and there is a reason for bands."""
    said = Said(context, "bands", "error")
    limits = context.recipe.launch_bands
    levels = sorted({level for use in context.recipe.scenarios.values() for level in use.all})
    if not limits or not levels:
        return said
    numbers = [item for item in limits if isinstance(item, int)]
    if "max" not in limits and levels[-1] > numbers[-1]:
        said.add(
            ("launch_bands",),
            f"concurrency {levels[-1]} lies above the last band, {numbers[-1]}",
            "end the bands with max",
        )
    below = 0
    for index, top in enumerate(numbers):
        if not any(below < level <= top for level in levels):
            said.add(
                ("launch_bands", index),
                f"no concurrency lies in the band {below + 1} to {top}",
                "leave the band out",
                severity="warning",
            )
        below = top
    if not context.recipe.depends_on_concurrency():
        said.add(
            ("launch_bands",),
            "no argument depends on the concurrency, so bands start more servers than are needed",
            "leave launch_bands out",
            severity="warning",
            key="none",
        )
    return said


def conditions(context: Context) -> Iterable[Finding]:
    """Each condition holds for a launch that this recipe can make."""
    said = Said(context, "conditions", "warning")
    if set(context.scenarios) != set(context.recipe.scenarios):
        return said  # what could not be read may be where it holds
    for loc, _, when in context.layers():
        if when is None:
            continue
        role = str(loc[1]) if loc[0] == "roles" else None
        cases = [case for case in context.cases if role in (None, case.role_name)]
        if cases and not any(counts_in(context, case, when) for case in cases):
            said.add((*loc, "if"), "this condition never holds", _nearest_case(when, cases))
    for index, sidecar in enumerate(context.recipe.sidecars):
        for place, condition in sidecar.conditions():
            if not context.cases or any(case.meets(condition) for case in context.cases):
                continue
            what = "this condition" if place[0] == "command" else f"the condition of sidecar {sidecar.name}"
            mend = "mend it, or leave out what it is for"
            said.add(("sidecars", index, *place), f"{what} never holds", mend)
    return said


def _nearest_case(when: Any, cases: list[Case]) -> str:
    levels = sorted({case.sized_for for case in cases})
    if when.if_.concurrency is not None and not any(when.if_.concurrency.holds(item) for item in levels):
        return f"servers are sized for concurrency {', '.join(map(str, levels))}; mend it, or leave it out"
    return "no listed scenario, topology and concurrency meet in it; mend it, or leave it out"


def expression_values(context: Context) -> Iterable[Finding]:
    """Each expression has a value wherever it counts, and none is below 1 that should count something."""
    said = Said(context, "expressions", "error")
    for case in context.cases:
        values = values_for(context, case)
        for loc, layer, when in context.layers(case.role_name):
            if not counts_in(context, case, when):
                continue
            for kind in ("args", "env", "config_files"):
                _values_of(said, expressions(getattr(layer, kind), (*loc, kind)), values, case)
        if case.role_name == next(iter(case.topology.roles)):
            for index, sidecar in enumerate(context.recipe.sidecars):
                if sidecar.when is None or case.meets(sidecar.when):
                    _values_of(said, _of_sidecar(sidecar, case, ("sidecars", index)), values, case)
    return said


def _of_sidecar(sidecar: Sidecar, case: Case, loc: Place) -> Iterator[tuple[Place, str]]:
    """The expressions of a sidecar that count in a case."""
    holds = {place[1]: case.meets(condition) for place, condition in sidecar.conditions() if len(place) > 1}
    for place, text in flat_words(sidecar.command):
        if holds.get(place[0], True):
            yield from expressions(text, (*loc, "command", *place))
    yield from expressions(sidecar.env, (*loc, "env"))


def _values_of(
    said: Said,
    found: Iterable[tuple[Place, str]],
    values: Mapping[str, Number | None],
    case: Case,
) -> None:
    for place, text in found:
        value, why = evaluated(text, values)
        if value is None:
            mend = "use only what every listed scenario has, or set it under when: {if: …}"
            if "dram_gb" in why:
                mend = "say kv_offload.tier, backend and utilization: they give the budget"
            said.add(place, f"{text!r} has no value for {case.label}: {why}", mend)
        elif value <= 0:
            said.add(
                place,
                f"{text!r} gives {value} for {case.label}",
                "keep it above 0, for example max(1, …)",
                severity="warning",
            )


def topologies(context: Context) -> Iterable[Finding]:
    """Each topology has a concurrency in some scenario."""
    said = Said(context, "topologies", "warning")
    for index, topology in enumerate(context.recipe.topologies):
        label = topology.label()
        if not any(use.at(label) for use in context.recipe.scenarios.values()):
            said.add(
                ("topologies", index),
                f"no scenario lists a concurrency for topology {label}",
                "list one, or leave the topology out",
            )
    return said


def point_keys(context: Context) -> dict[str, tuple[str, str, int]]:
    """digest of all that decides a point -> (topology, scenario, concurrency).

    Without a pool, so launcher and devices are left out: they are the same for all on one pool.
    """
    fields = context.recipe.model_dump(
        mode="json",
        exclude={*ANNOTATIONS, "server", "roles", "topologies", "launch_bands", "sidecars", "schema_version"},
    )
    if context.recipe.files:
        fields["folder"] = str(context.folder)  # equal names in two folders are two files
    base = digest(fields)
    rows: dict[tuple[str, str, int], list[Any]] = {}
    for case, part in parts(context):
        row = rows.setdefault((case.topology.label(), case.scenario.name, case.concurrency), [base])
        row.append([case.role_name, case.role.model_dump(), part.args, part.env, part.config_files])
    sidecars = [item.model_dump(mode="json") for item in context.recipe.sidecars]
    return {digest([*row, *key, sidecars]): key for key, row in rows.items()}


def same_point(contexts: list[Context]) -> Iterable[Finding]:
    """No two recipes make one and the same point."""
    makers: dict[str, tuple[Context, str]] = {}
    for context in contexts:
        twins: dict[tuple[str, str], list[int]] = {}
        for key, (topology, scenario, concurrency) in point_keys(context).items():
            first = makers.setdefault(key, (context, topology))
            if first[0] is not context:
                twins.setdefault((first[0].loaded.recipe_id, scenario), []).append(concurrency)
        for (other, scenario), levels in twins.items():
            listed = ", ".join(map(str, sorted(set(levels))))
            yield context.finding(
                "same-point",
                "error",
                ("scenarios", scenario),
                f"the same points as {other}: {scenario} at concurrency {listed}",
                "leave them out of one of the two, or say what differs",
            )


RULES = (
    Rule("bands", "error", "launch bands cover the concurrencies and have a reason", bands),
    Rule("conditions", "warning", "each condition holds for some launch", conditions),
    Rule("expressions", "error", "each expression has a value at each listed concurrency", expression_values),
    Rule("topologies", "warning", "each topology has a concurrency in some scenario", topologies),
    Rule("same-point", "error", "no two recipes make the same point", run_all=same_point),
)
