"""Plan: sweep + recipes + scenarios + pool -> the expected set of a run. Pure: no files, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Pool
from isoline.datasets.schema import Dataset
from isoline.errors import InputError
from isoline.load.profile import profile
from isoline.recipes.load import LoadedRecipe
from isoline.recipes.render import deployment_class, render
from isoline.recipes.schema import Topology
from isoline.results import identity
from isoline.results.checks import plan_digest
from isoline.results.records import Excluded, Plan, PlanLaunch, PlanPoint, Reused
from isoline.sweeps.schema import Scenario, Selection, Sweep

# Stated assumptions for estimates until there are measured durations: they only feed the progress
# line and the budget check, never a number that is published.
ASSUMED_OVERHEAD_S = 18.0
ASSUMED_LAUNCH_S = 5.0
ASSUMED_PREFILL_TPS = 300.0
ASSUMED_DECODE_TPS = 70.0
ASSUMED_TURN = (60, 24)  # uncached input and output tokens of a trace's turn


@dataclass(frozen=True)
class Sources:
    """Everything that a plan is made of, already read and checked.

    :param recipes: by recipe id; those that the sweep selects.
    :param scripts: engine -> SHA-256 of its start script.
    """

    sweep: Sweep
    pool: Pool
    recipes: Mapping[str, LoadedRecipe]
    selected: Mapping[int, list[str]]  # index of a selection -> recipe ids
    scenarios: Mapping[str, Scenario]
    datasets: Mapping[str, Dataset]
    scripts: Mapping[str, str]


@dataclass
class _Wanted:
    """A point while it is collected: several selections may name it."""

    scenario: Scenario
    concurrency: int
    repetitions: int
    accuracy: set[str] = field(default_factory=set)


def seed_for(dataset_digest: str, scenario: Scenario, concurrency: int, repetition: int) -> int:
    """The seed of a point's prompts: its own for each concurrency and repetition, equal across engines.

    Equal prompts for every engine make curves comparable; other prompts for every repetition keep a
    prompt cache from answering the second one.
    """
    key = [dataset_digest, scenario.name, scenario.version, concurrency, repetition]
    return int(identity.digest(key)[:8], 16) & 0x7FFFFFFF


def estimate_s(scenario: Scenario, dataset: Dataset, concurrency: int) -> float:
    """A rough duration of one point, seconds, from stated assumptions."""
    if scenario.kind == "fixed_length" and scenario.requests and scenario.isl and scenario.osl:
        count = scenario.requests.at(concurrency)
        tokens_in, tokens_out = scenario.isl, scenario.osl
    else:
        count = dataset.turns or 1
        tokens_in, tokens_out = ASSUMED_TURN
    work = count * (tokens_in / ASSUMED_PREFILL_TPS + tokens_out / ASSUMED_DECODE_TPS)
    return round(ASSUMED_OVERHEAD_S + work, 1)


def _levels(sources: Sources, index: int) -> tuple[dict[str, list[int]], list[Excluded]]:
    """recipe id -> the concurrencies that one selection takes of it; and what it leaves out, and why.

    :raises InputError: for a concurrency that no selected recipe is meant for.
    """
    selection = sources.sweep.select[index]
    where = f"sweeps/{sources.sweep.name}.yaml"
    meant = {
        recipe_id: use.concurrency
        for recipe_id in sources.selected[index]
        if (use := sources.recipes[recipe_id].recipe.scenarios.get(selection.scenario))
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
        taken[recipe_id] = [level for level in wanted if level in levels]
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


def _collect(sources: Sources) -> tuple[dict[str, dict[tuple[str, int], _Wanted]], list[Excluded]]:
    """recipe id -> (scenario, concurrency) -> what is wanted, in the sweep's order."""
    wanted: dict[str, dict[tuple[str, int], _Wanted]] = {}
    excluded: list[Excluded] = []
    for index, selection in enumerate(sources.sweep.select):
        scenario = sources.scenarios[selection.scenario]
        taken, left_out = _levels(sources, index)
        excluded += left_out
        for recipe_id, levels in taken.items():
            rows = wanted.setdefault(recipe_id, {})
            for concurrency in levels:
                row = rows.setdefault((scenario.name, concurrency), _Wanted(scenario, concurrency, 1))
                row.repetitions = max(row.repetitions, selection.repetitions_at(concurrency))
                row.accuracy |= {task for task, at in selection.accuracy.items() if concurrency in at}
    return wanted, excluded


def _curve(
    loaded: LoadedRecipe, topology: Topology, scenario: Scenario, dataset: str, pool: Pool
) -> dict[str, Any]:
    recipe = loaded.recipe
    return {
        "model": recipe.model,
        "model_revision": recipe.revision or load_catalog().models[recipe.model].revision,
        "sku": recipe.sku,
        "engine": recipe.engine,
        "weight_precision": recipe.precision.weights,
        "kv_precision": recipe.precision.kv,
        "scenario": scenario.name,
        "scenario_version": scenario.version,
        "dataset_digest": dataset,
        "speculative": recipe.speculative,
        "kv_offload": recipe.kv_offload,
        "deployment_class": deployment_class(topology),
        "client_class": pool.client_profile,
        "kind": "measured",
        "source": "own",
    }


def _point(
    sources: Sources,
    loaded: LoadedRecipe,
    topology: Topology,
    launch_digest: str,
    row: _Wanted,
    repetition: int,
) -> PlanPoint:
    dataset = sources.datasets[row.scenario.dataset]
    canary = sources.datasets[loaded.recipe.canary]
    who = {
        "launch_digest": launch_digest,
        "scenario": row.scenario.identity(),
        "dataset_digest": dataset.digest(),
        "concurrency": row.concurrency,
        "load_generator": profile(sources.pool.client_profile).identity(),
    }
    point_digest = identity.digest(who)
    curve = _curve(loaded, topology, row.scenario, dataset.digest(), sources.pool)
    key = identity.curve_key(curve)
    label = topology.label()
    # A check costs time and says the same each time: the first repetition has it.
    tasks = sorted(row.accuracy) if repetition == 1 else []
    estimate = estimate_s(row.scenario, dataset, row.concurrency) + 20.0 * len(tasks)
    for task in [canary.name, *tasks]:
        if sources.datasets[task].kind != "questions":
            raise InputError(f"dataset {task!r} holds no questions", where=loaded.recipe_id)
    return PlanPoint(
        point_id=identity.point_id(
            loaded.recipe_id, label, row.scenario.name, row.concurrency, repetition, point_digest
        ),
        point_digest=point_digest,
        scenario=row.scenario.name,
        concurrency=row.concurrency,
        repetition=repetition,
        seed=seed_for(dataset.digest(), row.scenario, row.concurrency, repetition),
        accuracy=tasks,
        estimate_s=estimate,
        curve=curve,
        curve_key=key,
        series_key=identity.series_key(key, label, row.concurrency),
        identity=who,
    )


def _launch(
    sources: Sources, loaded: LoadedRecipe, topology: Topology, rows: Iterable[_Wanted]
) -> PlanLaunch | None:
    rendered = render(loaded, topology, sources.pool, sources.scripts[loaded.recipe.engine])
    launch_digest = rendered.launch_digest
    points = [
        _point(sources, loaded, topology, launch_digest, row, repetition)
        for row in rows
        for repetition in range(1, row.repetitions + 1)
    ]
    if not points:
        return None
    return PlanLaunch(
        launch_digest=launch_digest,
        recipe_id=loaded.recipe_id,
        recipe_digest=loaded.recipe_digest,
        topology=topology.label(),
        gpus=topology.gpus,
        pool=sources.pool.name,
        argv=rendered.argv,
        env=rendered.env,
        twin_of=None,
        estimate_s=round(ASSUMED_LAUNCH_S + sum(point.estimate_s for point in points), 1),
        identity=rendered.identity,
        recipe=dict(loaded.content),
        points=points,
    )


def make_plan(sources: Sources, created_from: Mapping[str, Any]) -> Plan:
    """Expand a sweep. Deterministic in order and bytes.

    Two recipes that render to the same launch are one launch: the second one's points would be
    measured twice under one identity, so it is excluded with the reason.

    :raises InputError: for contradictions between sweep, recipes and pool, and over the budget.
    """
    wanted, excluded = _collect(sources)
    launches: list[PlanLaunch] = []
    owner: dict[str, str] = {}
    for recipe_id, rows in wanted.items():
        loaded = sources.recipes[recipe_id]
        for topology in loaded.recipe.topologies:
            launch = _launch(sources, loaded, topology, rows.values())
            if launch is None:
                continue
            twin = owner.setdefault(launch.launch_digest, recipe_id)
            if twin != recipe_id:
                excluded.append(
                    Excluded(
                        what=f"{recipe_id} {launch.topology}",
                        why=f"the same launch as {twin}, which is planned",
                    )
                )
                continue
            launches.append(launch)
    if not launches:
        raise InputError("nothing is selected", where=f"sweeps/{sources.sweep.name}.yaml")
    return assemble(sources.sweep, launches, reused=[], excluded=excluded, created_from=created_from)


def assemble(
    sweep: Sweep,
    launches: list[PlanLaunch],
    *,
    reused: list[Reused],
    excluded: list[Excluded],
    created_from: Mapping[str, Any],
) -> Plan:
    """A plan with its digest and its budget.

    :raises InputError: when it is over the sweep's budget.
    """
    gpu_minutes = round(sum(launch.estimate_s * launch.gpus for launch in launches) / 60, 1)
    if sweep.budget.gpu_minutes is not None and gpu_minutes > sweep.budget.gpu_minutes:
        raise InputError(
            f"the plan takes about {gpu_minutes:g} GPU-minutes, the budget is {sweep.budget.gpu_minutes:g}",
            where=f"sweeps/{sweep.name}.yaml",
            remedy="select less, or raise the budget",
        )
    plan = Plan(
        plan_digest="",
        sweep=sweep.name,
        created_from=dict(created_from),
        channels={},
        launches=launches,
        reused=reused,
        excluded=excluded,
        shards=1,
        budget={"gpu_minutes": gpu_minutes, "usd": None},
        publish=sweep.publish,
    )
    return plan.model_copy(update={"plan_digest": plan_digest(plan)})
