"""Plans of single recipes over everything that they are meant for; no registry is asked.

Load it by path through a fixture (see ``tests/sweeps/conftest.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Pool, pools_of
from isoline.datasets.schema import load_dataset
from isoline.recipes.channels import read_channels, resolve_channels
from isoline.recipes.load import LoadedRecipe
from isoline.recipes.schema import Recipe
from isoline.results.bundles.records import Plan
from isoline.sweeps.planning.outline import Draft
from isoline.sweeps.planning.plan import Sources, make_plan
from isoline.sweeps.planning.schema import Sweep, load_scenario
from isoline.sweeps.planning.sources import file_digests

SCRIPT = "ab" * 32


def pool_for(root: Path, recipe: Recipe) -> Pool:
    """The first pool of a recipe's SKU that starts its kind of image and holds its largest topology."""
    largest = max(topology.gpus for topology in recipe.topologies)
    is_bare = recipe.image.packages is not None
    of_sku = [pool for pool in pools_of(root) if pool.sku == recipe.sku]
    pools = [pool for pool in of_sku if (pool.launcher == "process") == is_bare]
    return next(pool for pool in pools if pool.total_accelerators >= largest)


def sources_for(
    root: Path,
    *loaded: LoadedRecipe,
    pools: Mapping[str, Pool] | None = None,
    images: Mapping[str, str] | None = None,
    accuracy: str | None = None,
) -> Sources:
    """The sources of a sweep over all scenarios, topologies and concurrencies of recipes.

    :param accuracy: a task that is asked for at every concurrency.
    """
    found = pools or {item.recipe.sku: pool_for(root, item.recipe) for item in loaded}
    select: list[dict[str, Any]] = []
    for item in loaded:
        for name, use in item.recipe.scenarios.items():
            tasks = {accuracy: use.all} if accuracy else {}
            select.append({"recipes": [item.recipe_id], "scenario": name, "accuracy": tasks})
    sweep = Sweep.model_validate(
        {
            "schema_version": 1,
            "name": "all",
            "pool": sorted(pool.name for pool in found.values()),
            "select": select,
        }
    )
    scenarios = {name: load_scenario(root, name) for name in {row["scenario"] for row in select}}
    names = {item.dataset for item in scenarios.values()}
    names |= {item.recipe.canary for item in loaded if item.recipe.canary}
    names |= {accuracy} if accuracy else set()
    engines = load_catalog().engines
    recipes = [item.recipe for item in loaded]
    return Sources(
        sweep=sweep,
        pools=found,
        recipes={item.recipe_id: Draft.of(item) for item in loaded},
        selected={number: [row["recipes"][0]] for number, row in enumerate(select)},
        scenarios=scenarios,
        datasets={name: load_dataset(root, name) for name in names},
        scripts={item.engine: SCRIPT for item in recipes if engines[item.engine].process},
        channels=resolve_channels(recipes, read_channels(root), images or {}, lambda ref, arch: None),
        files={item.recipe_id: file_digests(root, item) for item in loaded},
    )


def plan_of(root: Path, *loaded: LoadedRecipe, **more: Any) -> Plan:
    """The plan of these sources."""
    return make_plan(sources_for(root, *loaded, **more), {})


def points_of(plan: Plan) -> dict[tuple[str, str, str, int, bool], tuple[str, str]]:
    """(recipe, topology, scenario, concurrency, is it a twin's) -> (launch digest, point digest)."""
    return {
        (launch.recipe_id, launch.topology, point.scenario, point.concurrency, launch.twin_of is not None): (
            launch.launch_digest,
            point.point_digest,
        )
        for launch in plan.launches
        for point in launch.points
    }
