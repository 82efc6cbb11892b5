"""Plan: sweep + recipes + scenarios + pool -> the expected set of a run. Pure: no files, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Pool
from isoline.datasets.schema import Dataset
from isoline.errors import InputError
from isoline.load.profile import profile
from isoline.recipes.channels import images_for
from isoline.recipes.load import LoadedRecipe
from isoline.recipes.render import (
    Inputs,
    RenderedLaunch,
    Shape,
    deployment_class,
    render,
    revision_of,
)
from isoline.recipes.resolve import depends_on_concurrency
from isoline.recipes.topology import Topology
from isoline.results import identity
from isoline.results.records import Excluded, Plan, PlanLaunch, PlanPoint
from isoline.sweeps.assemble import assemble, joined
from isoline.sweeps.estimates import Past, launch_s, point_s
from isoline.sweeps.schema import Scenario, Selection, Sweep


@dataclass(frozen=True)
class Sources:
    """Everything that a plan is made of, already read and checked.

    :param pools: by SKU; a recipe is planned on the pool of its SKU.
    :param recipes: by recipe id; those that the sweep selects.
    :param scripts: engine -> SHA-256 of its start script, where it has one.
    :param channels: channel -> CPU architecture -> image reference, resolved once for the run.
    :param files: recipe id -> file of its folder -> SHA-256.
    """

    sweep: Sweep
    pools: Mapping[str, Pool]
    recipes: Mapping[str, LoadedRecipe]
    selected: Mapping[int, list[str]]  # index of a selection -> recipe ids
    scenarios: Mapping[str, Scenario]
    datasets: Mapping[str, Dataset]
    scripts: Mapping[str, str]
    channels: Mapping[str, Mapping[Any, str]] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    past: Past = field(default_factory=Past)

    @cached_property
    def dataset_digests(self) -> dict[str, str]:
        """Dataset -> its digest."""
        return {item.name: item.digest() for item in self.datasets.values()}

    @cached_property
    def scenario_identities(self) -> dict[str, dict[str, Any]]:
        """Scenario -> what a point's digest covers of it."""
        return {item.name: item.identity() for item in self.scenarios.values()}

    @cached_property
    def scenario_bytes(self) -> dict[str, bytes]:
        """Scenario -> the canonical bytes of its identity."""
        return {name: identity.canonical_json(item) for name, item in self.scenario_identities.items()}

    @property
    def pool(self) -> Pool:
        """The only pool.

        :raises InputError: when there are several: a run works on one.
        """
        if len(self.pools) != 1:
            names = ", ".join(sorted(pool.name for pool in self.pools.values()))
            raise InputError(
                f"the sweep names the pools {names}",
                where=f"sweeps/{self.sweep.name}.yaml",
                remedy="run one of them with --pool",
            )
        return next(iter(self.pools.values()))


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
    return _seed(tuple(key))


@lru_cache(maxsize=1 << 14)
def _seed(key: tuple[str | int, ...]) -> int:
    # The same few seeds for every recipe: the same prompts.
    return int(identity.digest(list(key))[:8], 16) & 0x7FFFFFFF


def _levels(sources: Sources, index: int) -> tuple[dict[str, list[int]], list[Excluded]]:
    """recipe id -> the concurrencies that one selection takes of it; and what it leaves out, and why.

    :raises InputError: for a concurrency that no selected recipe is meant for.
    """
    selection = sources.sweep.select[index]
    where = f"sweeps/{sources.sweep.name}.yaml"
    meant = {
        recipe_id: use.all
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
    loaded: LoadedRecipe, topology: Topology, scenario: Scenario, dataset: str, pool: Pool, speculative: str
) -> dict[str, Any]:
    recipe = loaded.recipe
    return {
        "model": recipe.model,
        "model_revision": revision_of(recipe, load_catalog().models[recipe.model]),
        "sku": recipe.sku,
        "engine": recipe.engine,
        "weight_precision": recipe.precision.weights,
        "kv_precision": recipe.precision.kv,
        "scenario": scenario.name,
        "scenario_version": scenario.version,
        "dataset_digest": dataset,
        "speculative": speculative,
        "kv_offload": recipe.kv_offload.label(),
        "deployment_class": deployment_class(topology, pool.accelerators),
        "client_class": pool.client_profile,
        "kind": "measured",
        "source": "own",
    }


@lru_cache
def _generator(client_profile: str) -> tuple[dict[str, Any], bytes]:
    """What a point's digest covers of a client profile, and its canonical bytes."""
    known = profile(client_profile).identity()
    return known, identity.canonical_json(known)


@dataclass(frozen=True)
class _Place:
    """Where a point is: its recipe, topology, pool and rendered launch."""

    loaded: LoadedRecipe
    topology: Topology
    pool: Pool
    rendered: RenderedLaunch
    is_twin: bool
    label: str
    curves: dict[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    whos: dict[str, tuple[dict[str, Any], dict[str, bytes]]] = field(default_factory=dict)

    def who(self, sources: Sources, scenario: Scenario) -> tuple[dict[str, Any], dict[str, bytes]]:
        """What a point's digest covers, but for its concurrency; and the canonical bytes of it."""
        if scenario.name not in self.whos:
            generator, generator_bytes = _generator(self.pool.client_profile)
            who = {
                "launch_digest": self.rendered.launch_digest,
                "scenario": sources.scenario_identities[scenario.name],
                "dataset_digest": sources.dataset_digests[scenario.dataset],
                "concurrency": None,
                "load_generator": generator,
            }
            known = {
                "launch_digest": identity.canonical_json(who["launch_digest"]),
                "scenario": sources.scenario_bytes[scenario.name],
                "dataset_digest": identity.canonical_json(who["dataset_digest"]),
                "load_generator": generator_bytes,
            }
            self.whos[scenario.name] = who, known
        return self.whos[scenario.name]

    def curve(self, sources: Sources, scenario: Scenario) -> tuple[dict[str, Any], str]:
        """(the curve's fields, its key) in a scenario; the same for all concurrencies."""
        if scenario.name not in self.curves:
            speculative = self.loaded.recipe.speculative
            if self.is_twin:
                speculative = speculative.model_copy(update={"acceptance": "real"})
            dataset = sources.dataset_digests[scenario.dataset]
            fields = _curve(self.loaded, self.topology, scenario, dataset, self.pool, speculative.label())
            self.curves[scenario.name] = (fields, identity.curve_key(fields))
        return self.curves[scenario.name]


def _point(sources: Sources, place: _Place, row: _Wanted, repetition: int, tasks: list[str]) -> PlanPoint:
    recipe_id, recipe = place.loaded.recipe_id, place.loaded.recipe
    dataset = sources.datasets[row.scenario.dataset]
    who, known = place.who(sources, row.scenario)
    who = {**who, "concurrency": row.concurrency}
    point_digest = identity.digest_of_parts({**known, "concurrency": b"%d" % row.concurrency})
    curve, key = place.curve(sources, row.scenario)
    for task in [*([recipe.canary] if recipe.canary else []), *tasks]:
        if sources.datasets[task].kind != "questions":
            raise InputError(f"dataset {task!r} holds no questions", where=recipe_id)
    point_id = identity.point_id(
        recipe_id, place.label, row.scenario.name, row.concurrency, repetition, point_digest
    )
    return PlanPoint(
        point_id=point_id,
        point_digest=point_digest,
        scenario=row.scenario.name,
        concurrency=row.concurrency,
        repetition=repetition,
        seed=seed_for(sources.dataset_digests[dataset.name], row.scenario, row.concurrency, repetition),
        accuracy=tasks,
        estimate_s=sources.past.points.get(point_id)
        or point_s(row.scenario, dataset, row.concurrency, recipe.sku) + 20.0 * len(tasks),
        curve=curve,
        curve_key=key,
        series_key=identity.series_key(key, place.label, row.concurrency),
        identity=who,
    )


def _shape(scenario: Scenario) -> Shape:
    return Shape(scenario.name, scenario.isl, scenario.osl)


def _launches(
    sources: Sources, loaded: LoadedRecipe, topology: Topology, rows: Iterable[_Wanted]
) -> list[PlanLaunch]:
    """The launches of one topology: points whose rendered server is the same share one.

    Where acceptance is pinned the timed text is garbage by design, so accuracy is checked on a twin:
    a launch that differs in the acceptance alone.
    """
    recipe = loaded.recipe
    pool = sources.pools.get(recipe.sku) or sources.pool
    inputs = Inputs(
        sources.scripts.get(recipe.engine),
        images_for(sources.channels, recipe.sku),
        sources.files.get(loaded.recipe_id, {}),
    )
    is_pinned = recipe.speculative.acceptance == "pinned"
    by_level = depends_on_concurrency(recipe.server, recipe.roles.values()) or any(
        item.when and item.when.concurrency for item in recipe.sidecars
    )
    groups: dict[str, tuple[_Place, list[PlanPoint]]] = {}
    twins: dict[str, str] = {}
    made: dict[tuple[Shape, int, bool], _Place] = {}
    label = topology.label()

    def add(row: _Wanted, repetition: int, tasks: list[str], *, is_twin: bool) -> str:
        key = (_shape(row.scenario), row.concurrency if by_level else 0, is_twin)
        if key not in made:
            rendered = render(loaded, topology, pool, key[0], row.concurrency, inputs, is_twin=is_twin)
            made[key] = _Place(loaded, topology, pool, rendered, is_twin, label)
        place = made[key]
        digest = place.rendered.launch_digest
        points = groups.setdefault(digest, (place, []))[1]
        points.append(_point(sources, place, row, repetition, tasks))
        return digest

    for row in rows:
        use = recipe.scenarios.get(row.scenario.name)
        if use is None or row.concurrency not in use.at(label):
            continue
        for repetition in range(1, row.repetitions + 1):
            # A check costs time and says the same each time: the first repetition has it.
            tasks = sorted(row.accuracy) if repetition == 1 else []
            timed = add(row, repetition, [] if is_pinned else tasks, is_twin=False)
            if is_pinned and tasks:
                twins[add(row, repetition, tasks, is_twin=True)] = timed
    return [
        PlanLaunch(
            launch_digest=digest,
            recipe_id=loaded.recipe_id,
            recipe_digest=loaded.recipe_digest,
            topology=label,
            gpus=topology.gpus,
            pool=pool.name,
            argv=place.rendered.argv,
            env=place.rendered.env,
            twin_of=twins.get(digest),
            estimate_s=round(
                (sources.past.launches.get(digest) or launch_s(recipe, topology))
                + sum(point.estimate_s for point in points),
                1,
            ),
            identity=place.rendered.identity,
            recipe=loaded.sorted_content,
            points=points,
        )
        for digest, (place, points) in groups.items()
    ]


def make_plan(sources: Sources, created_from: Mapping[str, Any]) -> Plan:
    """Expand a sweep. Deterministic in order and bytes.

    Two recipes that render to the same launch are one launch (:func:`joined`): else points would be
    measured twice under one identity.

    :raises InputError: for contradictions between sweep, recipes and pool.
    """
    wanted, excluded = _collect(sources)
    launches: dict[str, PlanLaunch] = {}
    for recipe_id, rows in wanted.items():
        loaded = sources.recipes[recipe_id]
        if loaded.recipe.sku not in sources.pools and len(sources.pools) > 1:
            excluded.append(Excluded(what=recipe_id, why=f"no pool of the sweep has SKU {loaded.recipe.sku}"))
            continue
        for topology in loaded.recipe.topologies:
            for launch in _launches(sources, loaded, topology, rows.values()):
                first = launches.setdefault(launch.launch_digest, launch)
                if first is not launch:
                    launches[launch.launch_digest], note = joined(first, launch)
                    excluded.append(note)
    if not launches:
        raise InputError("nothing is selected", where=f"sweeps/{sources.sweep.name}.yaml")
    channels = {
        f"{name} {arch}": ref for name, refs in sources.channels.items() for arch, ref in refs.items()
    }
    return assemble(
        sources.sweep,
        list(launches.values()),
        reused=[],
        excluded=excluded,
        created_from=created_from,
        channels=channels,
    )
