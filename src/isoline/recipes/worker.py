"""The command of one role's workers: one vector, or one for each node that a worker spans. Pure."""

from __future__ import annotations

from typing import Any

from isoline.catalog.engines import Engine
from isoline.catalog.pools import Pool
from isoline.catalog.topology import Layout
from isoline.errors import InputError
from isoline.recipes.deployment import Command, placeholders_in
from isoline.recipes.placement import nodes_of_worker
from isoline.recipes.resolve import Resolved
from isoline.recipes.topology import Role, RoleName
from isoline.recipes.words import flags


def engine_words(engine: Engine, pool: Pool) -> list[str]:
    """The words that begin every worker's command line on one node.

    :raises InputError: when the engine cannot be started that way.
    """
    if pool.launcher == "process" or (pool.launcher == "endpoint" and engine.container is None):
        if engine.process is None:
            raise InputError(f"engine {engine.name} cannot be started as a plain process")
        return list(engine.process.command)
    if engine.container is None:
        raise InputError(f"engine {engine.name} has no container command in the catalog")
    return list(engine.container.command)


def worker_command(
    engine: Engine, pool: Pool, name: RoleName, role: Role, part: Resolved, files: list[str]
) -> Command:
    """The workers of a role, with what their nodes need to find each other.

    What the recipe says itself about that stays as it is.

    :param files: the files of the recipe's folder, which its words may name.
    :raises InputError: when a worker does not come out even on whole nodes, or nothing is known about how
        this engine spans nodes, or a file is named that is not there.
    """
    nodes = nodes_of_worker(role.gpus_per_worker, pool.accelerators)
    base, args = engine_words(engine, pool), part.args
    followers: tuple[list[str], ...] = ()
    is_mpi = False
    if nodes > 1:
        told = engine.multi_node
        if told is None:
            raise InputError(
                f"nothing says how {engine.name} spreads a worker of {role.gpus_per_worker} accelerators "
                f"over {nodes} nodes",
                remedy=f"choose workers of at most {pool.accelerators}, or add multi_node to the catalog",
            )
        if told.command is not None:
            base, is_mpi = list(told.command), True
        else:
            ranks = [_rank_args(engine, role, part.args, nodes, rank) for rank in range(nodes)]
            args, followers = ranks[0], tuple([*base, *flags(item)] for item in ranks[1:])
    command = Command(
        name=name,
        argv=[*base, *flags(args)],
        env=part.env,
        config_files=part.config_files,
        role=name,
        workers=role.workers,
        gpus=role.gpus_per_worker,
        nodes=nodes,
        followers=followers,
        mpi=is_mpi,
    )
    for found in sorted(placeholders_in(command.argv)):
        kind, _, rest = found.partition(".")
        if kind == "file" and rest not in command.config_files and rest not in files:
            raise InputError(
                f"role {name}: {{{found}}} names a file that is not there",
                remedy=f"write it in config_files of the server, as {rest}",
            )
    return command


def _rank_args(engine: Engine, role: Role, given: dict[str, Any], nodes: int, rank: int) -> dict[str, Any]:
    """A rank's arguments: the recipe's, and what tells the nodes of each other where it does not."""
    assert engine.multi_node is not None
    layout = Layout(role.tp, role.pp, role.ep, role.dp_attention, role.dcp)
    how = engine.topology.rendezvous(layout, nodes) if engine.topology else None
    added, without = engine.multi_node.args(how, nodes, rank)
    said = {engine.canonical(name) for name in given}
    kept = {name: value for name, value in given.items() if engine.canonical(name) not in without}
    return {**kept, **{name: value for name, value in added.items() if engine.canonical(name) not in said}}
