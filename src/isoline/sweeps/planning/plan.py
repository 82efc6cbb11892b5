"""Plan: sweep + recipes + scenarios + pool -> the expected set of a run. Pure: no files, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from isoline.catalog.pools import Pool
from isoline.catalog.prices import Rates
from isoline.datasets.schema import Dataset
from isoline.errors import InputError
from isoline.load.profile import profile
from isoline.recipes.channels import images_for
from isoline.recipes.inputs import Inputs, Shape
from isoline.results import identity
from isoline.results.bundles.records import Excluded, Plan, PlanLaunch, PlanPoint
from isoline.sweeps.planning.assemble import assemble, joined
from isoline.sweeps.planning.estimates import Past, Terms, point_s
from isoline.sweeps.planning.kept import current, launches_key
from isoline.sweeps.planning.outline import Case, Draft, Start, TopologyOutline, start_of
from isoline.sweeps.planning.schema import Scenario, Sweep
from isoline.sweeps.planning.wanted import Wanted, collect


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
    recipes: Mapping[str, Draft]
    selected: Mapping[int, list[str]]  # index of a selection -> recipe ids
    scenarios: Mapping[str, Scenario]
    datasets: Mapping[str, Dataset]
    scripts: Mapping[str, str]
    channels: Mapping[str, Mapping[Any, str]] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    past: Past = field(default_factory=Past)
    rates: Rates | None = None

    @property
    def terms(self) -> Terms:
        """What the plan is priced and timed by."""
        return Terms(self.rates, {pool.name: pool.lanes for pool in self.pools.values()})

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

    @cached_property
    def pool_bytes(self) -> dict[str, bytes]:
        """Pool -> its canonical bytes."""
        pools = self.pools.values()
        return {pool.name: identity.canonical_json(pool.model_dump(mode="json")) for pool in pools}

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

    def pool_of(self, sku: str) -> Pool:
        """The pool that recipes of a SKU are planned on.

        :raises InputError: where none has it and there is not just one.
        """
        return self.pools.get(sku) or self.pool

    def inputs_for(self, draft: Draft) -> Inputs:
        """What decides the launches of a recipe and is not in it: nothing of other recipes."""
        outline = draft.outline
        images = images_for(self.channels, outline.sku)
        return Inputs(
            self.scripts.get(outline.engine),
            {name: ref for name, ref in images.items() if name == outline.channel},
            self.files.get(draft.recipe_id, {}),
        )


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


def _curve(place: _Place, scenario: Scenario, dataset: str) -> dict[str, Any]:
    outline = place.draft.outline
    return {
        "model": outline.model,
        "model_revision": outline.model_revision,
        "sku": outline.sku,
        "engine": outline.engine,
        "weight_precision": outline.weight_precision,
        "kv_precision": outline.kv_precision,
        "scenario": scenario.name,
        "scenario_version": scenario.version,
        "dataset_digest": dataset,
        "speculative": outline.speculative_twin if place.is_twin else outline.speculative,
        "kv_offload": outline.kv_offload,
        "deployment_class": place.topology.deployment_class(place.pool.accelerators),
        "client_class": place.pool.client_profile,
        "kind": "measured",
        "source": "endpoint" if place.pool.launcher == "endpoint" else "own",
    }


@lru_cache
def _generator(client_profile: str) -> tuple[dict[str, Any], bytes]:
    """What a point's digest covers of a client profile, and its canonical bytes."""
    known = profile(client_profile).identity()
    return known, identity.canonical_json(known)


@dataclass(frozen=True)
class _Place:
    """Where a point is: its recipe, topology, pool and rendered launch."""

    draft: Draft
    topology: TopologyOutline
    pool: Pool
    start: Start
    is_twin: bool
    curves: dict[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    whos: dict[str, tuple[dict[str, Any], dict[str, bytes]]] = field(default_factory=dict)

    def who(self, sources: Sources, scenario: Scenario) -> tuple[dict[str, Any], dict[str, bytes]]:
        """What a point's digest covers, but for its concurrency; and the canonical bytes of it."""
        if scenario.name not in self.whos:
            generator, generator_bytes = _generator(self.pool.client_profile)
            who = {
                "launch_digest": self.start.launch_digest,
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
            fields = _curve(self, scenario, sources.dataset_digests[scenario.dataset])
            self.curves[scenario.name] = (fields, identity.curve_key(fields))
        return self.curves[scenario.name]


def _point(sources: Sources, place: _Place, row: Wanted, repetition: int, tasks: list[str]) -> PlanPoint:
    recipe_id, outline, label = place.draft.recipe_id, place.draft.outline, place.topology.label
    dataset = sources.datasets[row.scenario.dataset]
    who, known = place.who(sources, row.scenario)
    who = {**who, "concurrency": row.concurrency}
    point_digest = identity.digest_of_parts({**known, "concurrency": b"%d" % row.concurrency})
    curve, key = place.curve(sources, row.scenario)
    for task in [*([outline.canary] if outline.canary else []), *tasks]:
        if sources.datasets[task].kind != "questions":
            raise InputError(f"dataset {task!r} holds no questions", where=recipe_id)
    point_id = identity.point_id(
        recipe_id, label, row.scenario.name, row.concurrency, repetition, point_digest
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
        or point_s(row.scenario, dataset, row.concurrency, outline.sku) + 20.0 * len(tasks),
        curve=curve,
        curve_key=key,
        series_key=identity.series_key(key, label, row.concurrency),
        identity=who,
    )


def _shape(scenario: Scenario) -> Shape:
    return Shape(scenario.name, scenario.isl, scenario.osl)


def _starter(sources: Sources, draft: Draft) -> Callable[[Case], Start]:
    """What renders the launches of a recipe, or finds those that were rendered before."""
    kept, pool, inputs = current(), sources.pool_of(draft.outline.sku), sources.inputs_for(draft)
    key = launches_key(draft, sources.pool_bytes[pool.name], inputs) if kept is not None else None
    if kept is None or key is None:
        return lambda case: start_of(draft, pool, inputs, case)
    launches = kept.launches(key)
    return lambda case: kept.start(launches, draft, pool, inputs, case)


def _launches(
    sources: Sources, draft: Draft, number: int, start: Callable[[Case], Start], rows: Iterable[Wanted]
) -> list[PlanLaunch]:
    """The launches of one topology: points whose rendered server is the same share one.

    Where acceptance is pinned the timed text is garbage by design, so accuracy is checked on a twin:
    a launch that differs in the acceptance alone.

    :param number: of the topology in its recipe.
    """
    outline = draft.outline
    topology, pool = outline.topologies[number], sources.pool_of(outline.sku)
    groups: dict[str, tuple[_Place, list[PlanPoint]]] = {}
    twins: dict[str, str] = {}
    made: dict[tuple[Shape, int, bool], _Place] = {}

    def add(row: Wanted, repetition: int, tasks: list[str], *, is_twin: bool) -> str:
        key = (_shape(row.scenario), row.concurrency if outline.by_level else 0, is_twin)
        if key not in made:
            found = start(Case(number, key[0], row.concurrency, is_twin))
            made[key] = _Place(draft, topology, pool, found, is_twin)
        place = made[key]
        digest = place.start.launch_digest
        points = groups.setdefault(digest, (place, []))[1]
        points.append(_point(sources, place, row, repetition, tasks))
        return digest

    for row in rows:
        if row.concurrency not in outline.scenarios.get(row.scenario.name, {}).get(topology.label, ()):
            continue
        for repetition in range(1, row.repetitions + 1):
            # A check costs time and says the same each time: the first repetition has it.
            tasks = sorted(row.accuracy) if repetition == 1 else []
            timed = add(row, repetition, [] if outline.is_pinned else tasks, is_twin=False)
            if outline.is_pinned and tasks:
                twins[add(row, repetition, tasks, is_twin=True)] = timed
    return [
        PlanLaunch(
            launch_digest=digest,
            recipe_id=draft.recipe_id,
            recipe_digest=outline.recipe_digest,
            topology=topology.label,
            gpus=topology.gpus,
            pool=pool.name,
            argv=place.start.argv,
            env=place.start.env,
            twin_of=twins.get(digest),
            estimate_s=round(
                (sources.past.launches.get(digest) or place.start.launch_s)
                + sum(point.estimate_s for point in points),
                1,
            ),
            identity=place.start.identity,
            recipe=outline.content,
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
    wanted, excluded = collect(sources)
    launches: dict[str, PlanLaunch] = {}
    for recipe_id, rows in wanted.items():
        draft = sources.recipes[recipe_id]
        sku = draft.outline.sku
        if sku not in sources.pools and len(sources.pools) > 1:
            excluded.append(Excluded(what=recipe_id, why=f"no pool of the sweep has SKU {sku}"))
            continue
        start = _starter(sources, draft)
        declared = sources.pool_of(sku).endpoint
        for number, topology in enumerate(draft.outline.topologies):
            if declared is not None and topology.label != declared.topology:
                what = f"{recipe_id} {topology.label}"
                excluded.append(Excluded(what=what, why=f"the endpoint is declared as {declared.topology}"))
                continue
            for launch in _launches(sources, draft, number, start, rows.values()):
                first = launches.setdefault(launch.launch_digest, launch)
                if first is not launch:
                    launches[launch.launch_digest], note = joined(first, launch)
                    excluded.append(note)
    if not launches:
        if declared_as := [pool.endpoint.topology for pool in sources.pools.values() if pool.endpoint]:
            labels = {item.label for draft in sources.recipes.values() for item in draft.outline.topologies}
            raise InputError(
                f"no recipe of the sweep has topology {declared_as[0]}",
                where="--topology",
                remedy=f"there are: {', '.join(sorted(labels))}",
            )
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
        terms=sources.terms,
    )
