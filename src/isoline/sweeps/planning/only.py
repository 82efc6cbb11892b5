"""One recipe of a sweep instead of all: ``sweep run S --recipe R``. Pure but for reading that recipe."""

from __future__ import annotations

from pathlib import Path

from isoline.catalog.pools import Pool, load_pool, own_pools, pools_of
from isoline.errors import InputError
from isoline.recipes.load import load_recipe, match_recipes
from isoline.recipes.schema import Recipe
from isoline.results.bundles.records import Plan
from isoline.sweeps.planning.schema import Selection, Sweep


def narrowed(project: Path, sweep: Sweep, recipe: str, pool: str | Pool | None) -> tuple[Sweep, str | Pool]:
    """The sweep with one recipe, and the pool that it is measured on.

    A sweep that selects the recipe keeps what it asks for it. A try-out (``publish: false``) takes any other
    recipe in place of its own, at the fewest requests in flight of the recipe's first scenario: one point.

    :param pool: as the person named or declared it; None: the sweep's own where its SKU is the recipe's,
        else the only pool of runners/ with that SKU.
    :raises InputError: for an official sweep that does not select it, or where no single pool fits.
    """
    loaded = load_recipe(project, recipe)
    mine = [
        item.model_copy(update={"recipes": [recipe]})
        for item in sweep.select
        if loaded.recipe_id in match_recipes(project, item.recipes)
    ]
    if not mine and sweep.publish:
        raise InputError(
            f"the sweep does not select {loaded.recipe_id}",
            where=f"sweeps/{sweep.name}.yaml",
            remedy="add it there, or try it with `isoline sweep run smoke --recipe`",
        )
    if not mine:
        scenario = next(iter(loaded.recipe.scenarios))
        levels = loaded.recipe.scenarios[scenario].all
        mine = [Selection(recipes=[recipe], scenario=scenario, concurrency=[min(levels)])]
    where = pool or _pool_for(project, sweep, loaded.recipe, loaded.recipe_id)
    name = where if isinstance(where, str) else where.name
    return sweep.model_copy(update={"select": mine, "pool": name}), where


def parts_of(plan: Plan, whole: Plan) -> list[str]:
    """The curves of a narrowed plan of which the whole sweep has more: points of another recipe."""

    def places(of: Plan) -> dict[str, set[tuple[str, str]]]:
        found: dict[str, set[tuple[str, str]]] = {}
        for launch in of.launches:
            for point in launch.points:
                found.setdefault(point.curve_key, set()).add((launch.recipe_id, point.series_key))
        return found

    mine, all_of_it = places(plan), places(whole)
    return sorted(key for key, own in mine.items() if not all_of_it.get(key, set()) <= own)


def _pool_for(project: Path, sweep: Sweep, recipe: Recipe, recipe_id: str) -> str:
    own = [sweep.pool] if isinstance(sweep.pool, str) else sweep.pool
    of_sku = [name for name in own if load_pool(project, name).sku == recipe.sku]
    for name in of_sku:
        if _starts(load_pool(project, name), recipe):
            return name
    if of_sku and not any(item.sku == recipe.sku and _starts(item, recipe) for item in own_pools(project)):
        return of_sku[0]
    return only_pool(project, recipe, recipe_id)


def _starts(pool: Pool, recipe: Recipe) -> bool:
    """Whether a pool starts a recipe's kind of image: packages as a process, anything else in containers."""
    return (pool.launcher == "process") == (recipe.image.packages is not None)


def only_pool(project: Path, recipe: Recipe, where: str) -> str:
    """The only pool of runners/ with a recipe's SKU that starts its kind of image.

    :raises InputError: when there is none, or several.
    """
    sku = recipe.sku
    of_sku = [item for item in own_pools(project) if item.sku == sku]
    fits = [item for item in of_sku if _starts(item, recipe)] or of_sku
    if len(fits) == 1:
        return fits[0].name
    if fits:
        names = ", ".join(item.name for item in fits)
        raise InputError(f"several pools have SKU {sku}: {names}", where=where, remedy="name one, --pool")
    like = [item.name for item in pools_of(project) if item.sku == sku]
    shown = f", such as examples/{like[0]} to see what would be executed" if like else ""
    raise InputError(
        f"no pool of runners/ has SKU {sku}",
        where=where,
        remedy=f"run `isoline pool new` on such a machine, or name one with --pool{shown}",
    )
