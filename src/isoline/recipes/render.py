"""Render: recipe + topology + pool -> argument vector and launch identity. Pure.

The launcher executes exactly what is rendered here; ``recipe render`` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isoline.catalog.facts import Engine, Model, WeightFile, load_catalog
from isoline.catalog.pools import Pool
from isoline.errors import InputError
from isoline.recipes.load import LoadedRecipe
from isoline.recipes.schema import Recipe, Topology
from isoline.results.identity import digest

PLACEHOLDERS = ("python", "script", "model_path", "model_alias", "host", "port", "scratch")


@dataclass(frozen=True)
class RenderedLaunch:
    """One server start with placeholders, and the identity that its digest covers."""

    argv: list[str]
    env: dict[str, str]
    identity: dict[str, Any]

    @property
    def launch_digest(self) -> str:
        return digest(self.identity)


def flags(args: dict[str, Any]) -> list[str]:
    """``{"ctx-size": 8192, "no-warmup": True}`` as ``--ctx-size 8192 --no-warmup``.

    In the order of the names: a mapping has none of its own, so moving a line is no other launch.
    """
    argv: list[str] = []
    for name, value in sorted(args.items()):
        if value is True:
            argv.append(f"--{name}")
            continue
        for item in value if isinstance(value, list) else [value]:
            argv += [f"--{name}", str(item)]
    return argv


def weights_of(recipe: Recipe, model: Model) -> WeightFile:
    """The weight file that the recipe's precision names."""
    return next(item for item in model.weights if item.precision == recipe.precision.weights)


def deployment_class(topology: Topology) -> str:
    """Single node, multi-node or disaggregated. This form knows single nodes only."""
    return "single_node"


def render(loaded: LoadedRecipe, topology: Topology, pool: Pool, script_sha256: str) -> RenderedLaunch:
    """The argument vector with placeholders, and the launch identity (DESIGN 5.1).

    :param script_sha256: digest of the engine's start script, part of what decides a start.
    :raises InputError: when the pool cannot serve this recipe.
    """
    recipe = loaded.recipe
    catalog = load_catalog()
    engine: Engine = catalog.engines[recipe.engine]
    model = catalog.models[recipe.model]
    if pool.sku != recipe.sku:
        raise InputError(
            f"recipe is for SKU {recipe.sku!r}, pool {pool.name!r} has {pool.sku!r}", where=loaded.recipe_id
        )
    if topology.gpus > pool.accelerators:
        raise InputError(
            f"topology {topology.label()} needs {topology.gpus} accelerators, "
            f"pool {pool.name!r} has {pool.accelerators}",
            where=loaded.recipe_id,
        )
    if engine.process is None:
        raise InputError(
            f"engine {recipe.engine!r} cannot be started as a plain process", where=loaded.recipe_id
        )
    if topology.gpus != 1:
        raise InputError("launcher 'process' starts one worker on one accelerator", where=loaded.recipe_id)
    argv = [*engine.process.command, *flags(recipe.server.args)]
    env = dict(sorted(recipe.server.env.items()))
    weights = weights_of(recipe, model)
    identity = {
        "model": recipe.model,
        "model_revision": recipe.revision or model.revision,
        "weights": [{"file": weights.file, "sha256": weights.sha256}],
        "weight_precision": recipe.precision.weights,
        "kv_precision": recipe.precision.kv,
        "engine": recipe.engine,
        "image": {"packages": recipe.image.packages, "script_sha256": script_sha256},
        "launcher": pool.launcher,
        "device_profile": None,
        "sku": recipe.sku,
        "topology": topology.model_dump(mode="json"),
        "speculative": recipe.speculative,
        "kv_offload": recipe.kv_offload,
        "argv": argv,
        "env": env,
    }
    return RenderedLaunch(argv=argv, env=env, identity=identity)
