"""What planning asks of a recipe and of its launches, as plain values that can be kept. Pure.

A plan of a fleet names hundreds of recipes that did not change since yesterday. What is here of them
is all that planning needs; the recipe itself is validated and rendered only where it is not known yet
(:mod:`isoline.sweeps.planning.kept`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Pool
from isoline.recipes.inputs import Inputs, Shape
from isoline.recipes.load import LoadedRecipe
from isoline.sweeps.planning.estimates import launch_s


class TopologyOutline(NamedTuple):
    """One topology of a recipe: its label, its accelerators."""

    label: str
    gpus: int
    is_disaggregated: bool

    def deployment_class(self, per_node: int) -> str:
        """``single_node``, ``multi_node`` or ``disaggregated``, by the devices of a node."""
        if self.is_disaggregated:
            return "disaggregated"
        return "single_node" if self.gpus <= per_node else "multi_node"


class Start(NamedTuple):
    """One rendered launch, as it stands in a plan; ``launch_s``: from start to ready, seconds."""

    launch_digest: str
    argv: list[str]
    env: dict[str, str]
    identity: dict[str, Any]
    launch_s: float


@dataclass(frozen=True)
class Outline:
    """A valid recipe, as planning sees it.

    :ivar speculative: the word of the curve; ``speculative_twin``: that of accuracy twins.
    :ivar by_level: whether a launch depends on the concurrency.
    :ivar channel: of its image, if it has one.
    :ivar scenarios: scenario -> label of a topology -> the concurrencies that it is meant for.
    :ivar content: resolved, mappings in the order of their names.
    """

    model: str
    model_revision: str | None
    engine: str
    sku: str
    weight_precision: str
    kv_precision: str
    speculative: str
    speculative_twin: str
    kv_offload: str
    is_pinned: bool
    by_level: bool
    channel: str | None
    canary: str | None
    files: list[str]
    topologies: list[TopologyOutline]
    scenarios: dict[str, dict[str, list[int]]]
    recipe_digest: str
    content: dict[str, Any]

    def levels(self, scenario: str) -> list[int] | None:
        """Every concurrency of any topology in a scenario, ascending; None: not meant for it."""
        by_topology = self.scenarios.get(scenario)
        if by_topology is None:
            return None
        return sorted({level for levels in by_topology.values() for level in levels})


def outline_of(loaded: LoadedRecipe) -> Outline:
    """The outline of a recipe, with the facts of the catalog that hold now."""
    from isoline.recipes.render import revision_of  # rendering is loaded where something is new

    recipe = loaded.recipe
    real = recipe.speculative.model_copy(update={"acceptance": "real"})
    labels = [topology.label() for topology in recipe.topologies]
    return Outline(
        model=recipe.model,
        model_revision=revision_of(recipe, load_catalog().models[recipe.model]),
        engine=recipe.engine,
        sku=recipe.sku,
        weight_precision=recipe.precision.weights,
        kv_precision=recipe.precision.kv,
        speculative=recipe.speculative.label(),
        speculative_twin=real.label(),
        kv_offload=recipe.kv_offload.label(),
        is_pinned=recipe.speculative.acceptance == "pinned",
        by_level=recipe.depends_on_concurrency(),
        channel=recipe.image.channel,
        canary=recipe.canary,
        files=recipe.files,
        topologies=[
            TopologyOutline(label, topology.gpus, topology.is_disaggregated)
            for label, topology in zip(labels, recipe.topologies, strict=True)
        ],
        scenarios={
            name: {label: use.at(label) for label in labels} for name, use in recipe.scenarios.items()
        },
        recipe_digest=loaded.recipe_digest,
        content=loaded.sorted_content,
    )


@dataclass(frozen=True)
class Draft:
    """A recipe that is planned. It is read in full only where something of it has to be rendered.

    :ivar file: that it was read from, relative to the project.
    :ivar key: decides the outline and, with what :func:`start_of` is given, every launch; None: not kept.
    """

    recipe_id: str
    file: str
    outline: Outline
    key: str | None
    load: Callable[[], LoadedRecipe]

    @classmethod
    def of(cls, loaded: LoadedRecipe, key: str | None = None) -> Draft:
        """The draft of a recipe that was read."""
        return cls(loaded.recipe_id, loaded.file, outline_of(loaded), key, lambda: loaded)

    @cached_property
    def loaded(self) -> LoadedRecipe:
        """The recipe itself."""
        return self.load()


class Case(NamedTuple):
    """For what a launch is rendered: a topology by its place in the recipe, and what else differs."""

    topology: int
    shape: Shape
    concurrency: int
    is_twin: bool

    def name(self, *, by_level: bool) -> str:
        """Its name among the cases of one recipe, pool and inputs; equal ones are rendered equally."""
        level = self.concurrency if by_level else "any"
        return f"{self.topology} {self.shape!r} {level} {self.is_twin}"


def start_of(draft: Draft, pool: Pool, inputs: Inputs, case: Case) -> Start:
    """Render one launch.

    :raises InputError: when the pool cannot serve the recipe.
    """
    from isoline.recipes.render import render

    loaded = draft.loaded
    topology = loaded.recipe.topologies[case.topology]
    made = render(loaded, topology, pool, case.shape, case.concurrency, inputs, is_twin=case.is_twin)
    seconds = launch_s(loaded.recipe, topology)
    return Start(made.launch_digest, made.argv, made.env, made.identity, seconds)
