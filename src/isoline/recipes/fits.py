"""Which topologies of a recipe a pool can start, and why it cannot start the others. Pure."""

from __future__ import annotations

from isoline.catalog.engines import Engine
from isoline.catalog.pools import Pool
from isoline.errors import InputError
from isoline.recipes.derived import why_no_image
from isoline.recipes.placement import nodes_of_worker
from isoline.recipes.schema import Recipe
from isoline.recipes.topology import Topology


def why_not(recipe: Recipe, topology: Topology, pool: Pool, engine: Engine) -> str | None:
    """What stands in the way of one topology on a pool; None when nothing does that can be known here."""
    if pool.sku != recipe.sku:
        return f"it has {pool.sku}, the recipe is for {recipe.sku}"
    if recipe.incomplete:
        return f"the recipe is incomplete: {', '.join(recipe.incomplete)}"
    if (pool.launcher == "process") != (recipe.image.packages is not None):
        needs = "packages" if pool.launcher == "process" else "a container image"
        return f"launcher {pool.launcher} needs {needs}"
    if pool.launcher in ("endpoint", "simulated"):
        return f"launcher {pool.launcher} starts nothing"
    if topology.gpus > pool.total_accelerators:
        return f"{topology.gpus} accelerators are needed, a launch has {pool.total_accelerators}"
    sidecars = [item for item in recipe.sidecars if item.counts_for(topology.label())]
    packages = sorted({package for item in sidecars for package in item.packages})
    if found := why_no_image(packages, pool):
        return found[0]
    for role in topology.roles.values():
        try:
            nodes = nodes_of_worker(role.gpus_per_worker, pool.accelerators)
        except InputError as error:
            return error.what
        if nodes > 1 and engine.multi_node is None:
            return f"nothing says how {engine.name} spreads a worker over {nodes} nodes"
        by_mpi = engine.multi_node is not None and engine.multi_node.command is not None
        starts_by_mpi = pool.slurm is not None and pool.slurm.container in ("pyxis", "apptainer", "none")
        if nodes > 1 and by_mpi and not starts_by_mpi:
            return "a worker over several nodes is started by MPI, from a Slurm job with pyxis or apptainer"
    return None


def fitting(recipe: Recipe, pool: Pool, engine: Engine) -> list[str]:
    """The labels of the topologies that a pool can start."""
    return [item.label() for item in recipe.topologies if why_not(recipe, item, pool, engine) is None]
