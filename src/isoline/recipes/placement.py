"""Where the programs of a deployment run: on which of its nodes, with which of a node's devices. Pure.

Nodes are counted from 0; the first one also has the sidecars, the one that answers among them. A
worker is not split over more nodes than it must be, and workers share a node where they fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from isoline.errors import InputError
from isoline.recipes.deployment import Deployment


@dataclass(frozen=True)
class Place:
    """One node of a program: its number, and the indices of the devices that the program has there."""

    node: int
    devices: tuple[int, ...] = ()


def nodes_of_worker(gpus: int, per_node: int) -> int:
    """Over how many nodes a worker of so many devices is spread: the same number on each.

    :raises InputError: when that does not come out even.
    """
    if gpus <= per_node:
        return 1
    if gpus % per_node:
        raise InputError(
            f"a worker of {gpus} accelerators does not come out even on nodes of {per_node}",
            remedy="choose a topology whose workers fill whole nodes",
        )
    return gpus // per_node


def placed(deployment: Deployment, per_node: int) -> dict[tuple[str, int], tuple[Place, ...]]:
    """(command, worker) -> its nodes, one for each rank of a worker that spans several.

    :raises InputError: when a worker does not come out even on whole nodes.
    """
    found: dict[tuple[str, int], tuple[Place, ...]] = {}
    used, free = 0, 0  # nodes begun, devices left on the last of them
    for command in deployment.workers:
        for worker in range(command.workers):
            if used and command.gpus <= free:
                first = per_node - free
                devices = tuple(range(first, first + command.gpus))
                found[command.name, worker] = (Place(used - 1, devices),)
                free -= command.gpus
                continue
            nodes = nodes_of_worker(command.gpus, per_node)
            each = command.gpus // nodes
            found[command.name, worker] = tuple(
                Place(used + rank, tuple(range(each))) for rank in range(nodes)
            )
            used, free = used + nodes, per_node - each
    for command in (*deployment.before, *deployment.after):
        for worker in range(command.workers):
            found[command.name, worker] = (Place(0),)
    return found


def nodes_for(deployment: Deployment, per_node: int) -> int:
    """Nodes that a deployment takes, one at least.

    :raises InputError: when a worker does not come out even on whole nodes.
    """
    return 1 + max(place.node for places in placed(deployment, per_node).values() for place in places)
