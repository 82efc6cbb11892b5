"""Making locks: a recipe with its image resolved and the digests of everything that it renders to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from isoline.catalog.pools import Pool
from isoline.recipes.channels import Architecture, Channel, architecture_of, images_for, resolve_channels
from isoline.recipes.load import LoadedRecipe
from isoline.recipes.locked import launch_key, lock_digest
from isoline.recipes.render import Inputs, Shape, render
from isoline.recipes.schema import Recipe
from isoline.recipes.shown import Shown, as_yaml, from_catalog, shown


def pinned_image(
    recipe: Recipe,
    channels: Mapping[str, Channel],
    digest_of: Callable[[str, Architecture], str | None],
) -> str | None:
    """The image with its digest, or by its tag where nobody can say the digest; None for packages.

    :param digest_of: asks a registry; None where it cannot say.
    """
    if recipe.image.channel is not None:
        found = resolve_channels([recipe], channels, {}, digest_of)
        return images_for(found, recipe.sku)[recipe.image.channel]
    ref = recipe.image.ref
    if ref is None or "@" in ref:
        return ref
    digest = digest_of(ref, architecture_of(recipe.sku))
    return f"{ref}@{digest}" if digest else ref


def lock_text(
    project: Path,
    loaded: LoadedRecipe,
    pool: Pool,
    shapes: Mapping[str, Shape],
    inputs: Inputs,
    image: str | None,
    rev: str | None,
) -> str:
    """The lock of a recipe on a pool, as YAML: itself a recipe, with the block ``locked``.

    :param shapes: scenario -> what rendering needs of it, for each scenario of the recipe.
    :param image: what :func:`pinned_image` gave.
    :raises InputError: when the pool cannot serve one of the recipe's launches.
    """
    what = shown(project, loaded)
    content: dict[str, Any] = {**loaded.content, **from_catalog(loaded)}
    origins = dict(what.origins)
    if image is not None and image != loaded.recipe.image.ref:
        content["image"] = {"ref": image, "channel": None, "packages": None}
        origins = {loc: origin for loc, origin in origins.items() if loc[0] != "image"}
    made = replace(loaded, recipe=Recipe.model_validate(content))
    block: dict[str, Any] = {
        "recipe_id": loaded.recipe_id,
        "recipe_digest": made.recipe_digest,
        "pool": pool.name,
        "rev": rev,
        "launches": _launches(made, pool, shapes, inputs),
    }
    block["digest"] = lock_digest(block)
    head = f"# The lock of {loaded.recipe_id}, by `isoline recipe render --lock`; an edit is refused.\n"
    return head + as_yaml(Shown({**made.content, "locked": block}, origins))


def _launches(
    loaded: LoadedRecipe, pool: Pool, shapes: Mapping[str, Shape], inputs: Inputs
) -> dict[str, str]:
    recipe = loaded.recipe
    return {
        launch_key(topology.label(), name, level): render(
            loaded, topology, pool, shapes[name], level, inputs
        ).launch_digest
        for topology in recipe.topologies
        for name, use in recipe.scenarios.items()
        for level in use.at(topology.label())
    }
