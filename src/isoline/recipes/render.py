"""Render: recipe + topology + scenario + concurrency + pool -> deployment and launch identity. Pure.

The launcher executes exactly what is rendered here; ``recipe render`` prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from isoline.catalog.facts import Engine, Model, WeightFile, load_catalog
from isoline.catalog.pools import Pool
from isoline.errors import InputError
from isoline.recipes.acceptance import acceptance_flags, golden_length
from isoline.recipes.deployment import Command, Deployment
from isoline.recipes.derived import check_packages
from isoline.recipes.engine_flags import topology_flags
from isoline.recipes.expressions import ExpressionError, Number
from isoline.recipes.inputs import Inputs as Inputs
from isoline.recipes.inputs import Shape as Shape
from isoline.recipes.load import LoadedRecipe
from isoline.recipes.locked import launch_key
from isoline.recipes.resolve import Resolved, Situation, band_top, merge, resolve
from isoline.recipes.schema import Recipe
from isoline.recipes.sidecars import sidecar_command
from isoline.recipes.topology import Role, RoleName, Topology
from isoline.recipes.worker import worker_command
from isoline.results.identity import digest


@dataclass(frozen=True)
class RenderedLaunch:
    """One launch with placeholders, and the identity that its digest covers.

    ``is_resolved``: False where the image is known by a tag only: such a launch is never reused and
    never official until a lock has its digest.
    """

    deployment: Deployment
    identity: dict[str, Any]
    is_resolved: bool

    @property
    def argv(self) -> list[str]:
        """The words of the first worker."""
        return self.deployment.workers[0].argv

    @property
    def env(self) -> dict[str, str]:
        """The environment of the first worker."""
        return self.deployment.workers[0].env

    @cached_property
    def launch_digest(self) -> str:
        return digest(self.identity)


def weights_of(recipe: Recipe, model: Model) -> WeightFile | None:
    """The weight file that the recipe's precision names; None where weights come from a hub."""
    return next((item for item in model.weights if item.precision == recipe.precision.weights), None)


def hub_of(recipe: Recipe, model: Model) -> str | None:
    """The hub id of the weights: the recipe's own, else the catalog's for its precision."""
    return recipe.checkpoint or model.checkpoint_of(recipe.precision.weights)


def revision_of(recipe: Recipe, model: Model) -> str | None:
    """The state of the weights that are loaded: the recipe's, else the catalog's; None: not pinned."""
    return recipe.revision or model.revision_of(hub_of(recipe, model))


def sized_for(recipe: Recipe, topology: str, scenario: str, concurrency: int) -> int:
    """The concurrency that the server is sized for: the top of the launch band."""
    use = recipe.scenarios.get(scenario)
    levels = use.at(topology) if use else []
    return band_top(concurrency, recipe.launch_bands, max([concurrency, *levels]))


def render(
    loaded: LoadedRecipe,
    topology: Topology,
    pool: Pool,
    shape: Shape,
    concurrency: int,
    inputs: Inputs,
    *,
    is_twin: bool = False,
) -> RenderedLaunch:
    """The deployment with placeholders, and the launch identity (DESIGN 5.1).

    :param is_twin: render the accuracy twin: acceptance real instead of pinned, nothing else differs.
    :raises InputError: when the pool cannot serve this recipe, or a value cannot be computed.
    """
    recipe, catalog = loaded.recipe, load_catalog()
    engine, model = catalog.engines[recipe.engine], catalog.models[recipe.model]
    _check_pool(loaded, topology, pool, engine)
    top = sized_for(recipe, topology.label(), shape.scenario, concurrency)
    workers = []
    for name, role in topology.roles.items():
        try:
            part = _resolved(recipe, engine, topology, name, role, pool, shape, top, is_twin=is_twin)
        except ExpressionError as error:
            raise InputError(f"{error} (role {name}, concurrency {top})", where=loaded.recipe_id) from None
        workers.append(worker_command(engine, pool, name, role, part, recipe.files))
    before, after = _sidecars(loaded, topology, pool, shape, top, workers[0].config_files)
    image = image_of(recipe, inputs.images)
    deployment = Deployment(image, before, tuple(workers), after)
    check_packages(deployment, pool, loaded.recipe_id)
    rendered = RenderedLaunch(
        deployment,
        _identity(loaded, model, topology, pool, inputs, deployment, is_twin=is_twin),
        is_resolved=image is None or "@sha256:" in image,
    )
    if recipe.locked is not None and recipe.locked.pool == pool.name and not is_twin:
        key = launch_key(topology.label(), shape.scenario, concurrency)
        was = recipe.locked.launches.get(key, rendered.launch_digest)
        if was != rendered.launch_digest:
            raise InputError(
                f"{key} was locked as launch {was}, it renders as {rendered.launch_digest} now",
                where=loaded.file,
                remedy=f"check out revision {recipe.locked.rev}, or lock the recipe again",
            )
    return rendered


def image_of(recipe: Recipe, images: Mapping[str, str]) -> str | None:
    """The image reference; None for packages. A channel that is not resolved gives ``channel:NAME``."""
    if recipe.image.channel is not None:
        return images.get(recipe.image.channel, f"channel:{recipe.image.channel}")
    return recipe.image.ref


def _check_pool(loaded: LoadedRecipe, topology: Topology, pool: Pool, engine: Engine) -> None:
    recipe = loaded.recipe
    if pool.sku != recipe.sku:
        raise InputError(
            f"recipe is for SKU {recipe.sku!r}, pool {pool.name!r} has {pool.sku!r}",
            where=loaded.recipe_id,
            remedy="name a pool with that SKU, --pool, or another recipe, --recipe",
        )
    if topology.gpus > pool.total_accelerators:
        raise InputError(
            f"topology {topology.label()} needs {topology.gpus} accelerators, "
            f"pool {pool.name!r} has {pool.total_accelerators}",
            where=loaded.recipe_id,
        )
    if pool.launcher == "process":
        if engine.process is None:
            raise InputError(
                f"engine {recipe.engine!r} cannot be started as a plain process", where=loaded.recipe_id
            )
        if topology.gpus != 1:
            raise InputError(
                "launcher 'process' starts one worker on one accelerator", where=loaded.recipe_id
            )
        if recipe.image.packages is None:
            raise InputError("launcher 'process' needs image.packages", where=loaded.recipe_id)
    elif recipe.image.packages is not None and pool.launcher != "endpoint":
        raise InputError(
            f"launcher {pool.launcher!r} needs an image reference or a channel", where=loaded.recipe_id
        )


def _resolved(
    recipe: Recipe,
    engine: Engine,
    topology: Topology,
    name: RoleName,
    role: Role,
    pool: Pool,
    shape: Shape,
    top: int,
    *,
    is_twin: bool,
) -> Resolved:
    """A role's part, with what the topology and the acceptance add."""
    situation = Situation(
        role=name,
        topology=topology.label(),
        scenario=shape.scenario,
        concurrency=top,
        values=_values(recipe, role, pool, shape, top),
    )
    part = resolve(recipe.server, recipe.roles.get(name), situation)
    split = topology_flags(recipe.engine, role, part.args)
    args = merge(part.args, split.args)
    files, env = part.config_files, part.env
    if split.config:
        target = next(iter(files), "config.yaml")
        files = {**files, target: {**files.get(target, {}), **split.config}}
    spec = recipe.speculative
    # An incomplete recipe is never started: without a draft length there is nothing to look up.
    if spec.acceptance == "pinned" and not is_twin and spec.draft_tokens is not None:
        length = golden_length(recipe.model, spec.method, spec.draft_tokens, spec.draft_model)
        pinned = acceptance_flags(engine, length, spec.draft_tokens, spec.pinned_as)
        args, env = merge(args, pinned.args), {**env, **pinned.env}
    return Resolved(args, dict(sorted(env.items())), files)


def _sidecars(
    loaded: LoadedRecipe,
    topology: Topology,
    pool: Pool,
    shape: Shape,
    top: int,
    files: Mapping[str, dict[str, Any]],
) -> tuple[tuple[Command, ...], tuple[Command, ...]]:
    sides: dict[str, list[Command]] = {"before": [], "after": []}
    values = _values(loaded.recipe, next(iter(topology.roles.values())), pool, shape, top)
    for item in loaded.recipe.sidecars:
        try:
            command = sidecar_command(item, topology, shape.scenario, top, values, files)
        except ExpressionError as error:
            what = f"{error} (sidecar {item.name}, concurrency {top})"
            raise InputError(what, where=loaded.recipe_id) from None
        if command is not None:
            sides[item.order].append(command)
    return tuple(sides["before"]), tuple(sides["after"])


def _values(recipe: Recipe, role: Role, pool: Pool, shape: Shape, top: int) -> dict[str, Number | None]:
    """What expressions may use of a role's worker."""
    utilization = recipe.kv_offload.utilization
    return {
        "concurrency": top,
        "isl": shape.isl,
        "osl": shape.osl,
        "tp": role.tp,
        "dp": role.dp_attention,
        "gpus": role.gpus_per_worker,
        "dram_gb": pool.offload_gb(role.gpus_per_worker, utilization) if utilization else None,
    }


def _identity(
    loaded: LoadedRecipe,
    model: Model,
    topology: Topology,
    pool: Pool,
    inputs: Inputs,
    deployment: Deployment,
    *,
    is_twin: bool,
) -> dict[str, Any]:
    recipe = loaded.recipe
    file = weights_of(recipe, model)
    weights: list[dict[str, Any]]
    if file is not None:
        weights = [{"file": file.file, "sha256": file.sha256}]
    else:
        weights = [{"hub_id": hub_of(recipe, model), "revision": revision_of(recipe, model)}]
    image: dict[str, Any] = {"ref": deployment.image}
    if recipe.image.packages is not None:
        image = {"packages": recipe.image.packages, "script_sha256": inputs.script_sha256}
    spec = recipe.speculative
    if is_twin:
        spec = spec.model_copy(update={"acceptance": "real"})
    # Two launches whose arguments nobody knows are never held to be the same one.
    unknown = {"incomplete": recipe.incomplete, "upstream": recipe.upstream} if recipe.incomplete else {}
    return {
        **unknown,
        "model": recipe.model,
        "model_revision": revision_of(recipe, model),
        "weights": weights,
        "weight_precision": recipe.precision.weights,
        "kv_precision": recipe.precision.kv,
        "engine": recipe.engine,
        "image": image,
        "launcher": pool.launcher,
        "device_profile": pool.container.device_profile if pool.container else None,
        "sku": recipe.sku,
        "topology": topology.model_dump(mode="json"),
        "speculative": spec.label(),
        "speculative_detail": spec.detail(),
        "kv_offload": recipe.kv_offload.label(),
        "kv_offload_detail": recipe.kv_offload.model_dump(mode="json"),
        "kv_transfer": recipe.kv_transfer.connector if recipe.kv_transfer else None,
        "features": recipe.features.model_dump(mode="json"),
        "files": {name: inputs.files.get(name) for name in recipe.files},
        "argv": deployment.workers[0].argv,
        "env": deployment.workers[0].env,
        "commands": [command.identity() for command in deployment.commands],
    }
