"""Where staged things lie on the machines of a pool, and whether what a launch needs is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from isoline.catalog.pools import Pool
from isoline.errors import InputError
from isoline.results.bundles.records import PlanLaunch
from isoline.runners.envs import engine_env, env_is_ready
from isoline.runners.machine.hosts import Host, hosts_of, this_host
from isoline.runners.machine.nodes import run_job
from isoline.runners.ownership.orchestrators import Orchestrator, life_of
from isoline.runners.staging.images import find_image, image_file
from isoline.runners.staging.items import Item, items_of_launch
from isoline.runners.staging.weights import weights_path
from isoline.settings import Settings

FOREIGN_USE_H = 48.0
"""A use marker of an orchestrator that we cannot see is believed for so long."""


@dataclass(frozen=True)
class Spot:
    """One machine and the folder there that items lie in. ``cap_bytes``: of what we bring."""

    host: Host
    cache: str
    cap_bytes: int | None = None

    @property
    def node(self) -> str:
        """The machine's name."""
        return self.host.name


@dataclass
class Look:
    """What lies on one spot. ``records`` and ``uses`` as on the node; ``files``: name -> bytes."""

    spot: Spot
    records: dict[str, Any] = field(default_factory=dict)
    uses: dict[str, Any] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)

    @property
    def dead(self) -> list[str]:
        """Use markers whose launches are over."""
        return [name for name, marker in self.uses.items() if _is_over(marker)]


@dataclass(frozen=True)
class Staged:
    """What became of one item on one machine; ``state``: there, staged, missing, failed."""

    node: str
    item: Item
    state: str
    bytes: int | None = None
    downloaded: int | None = None
    code: str = ""
    detail: str = ""


def spots_of(settings: Settings, pool: Pool, place: str) -> list[Spot]:
    """Where items of a place go.

    :raises InputError: when the pool says no folder.
    """
    if place == "client" or pool.launcher == "process":
        return [Spot(this_host("here"), str(settings.state / "hf"))]
    if pool.container is None:
        raise InputError("the pool names no model cache", where=f"pool {pool.name}", remedy="add container")
    cap = None if pool.cache_cap_gb is None else int(pool.cache_cap_gb * 1e9)
    cache = str(pool.container.model_cache_in(settings.state))
    return [Spot(host, cache, cap) for host in hosts_of(pool)]


def look_at(spot: Spot, items: Sequence[Item] = ()) -> Look:
    """What lies on a spot.

    :param items: those of kind weights are looked for by name, also where we did not put them there.
    :raises NodeJobError, ToolUnavailableError: when nobody can say.
    """
    names = [model_path(item) for item in items if item.kind == "weights"]
    found = run_job(spot.host, {"job": "look", "cache": spot.cache, "files": names})
    return Look(spot, found["records"], found["uses"], found["files"])


def _is_over(marker: Mapping[str, Any]) -> bool:
    try:
        who = Orchestrator(**marker["orchestrator"])
        since = datetime.fromisoformat(marker["since"])
    except (KeyError, TypeError, ValueError):
        return True  # nobody's
    life = life_of(who)
    old = datetime.now(UTC) - since > timedelta(hours=FOREIGN_USE_H)
    return life == "dead" or (life == "elsewhere" and old)


def is_there(settings: Settings, pool: Pool, item: Item, look: Look) -> bool:
    """Whether an item lies whole where a launch would look for it.

    :raises ToolUnavailableError: when a container runtime does not say.
    """
    if item.kind == "packages":
        engine, *packages = item.id.split()
        name, wanted, locked = engine_env(engine, packages)
        return env_is_ready(settings, name, wanted, locked=locked)
    if item.kind == "weights" and item.place == "client":
        return item.weights is not None and weights_path(settings, item.weights).is_file()
    if item.kind == "weights":  # its hash is looked at when it is loaded
        return look.files.get(model_path(item)) == item.bytes
    if item.kind in ("image", "derived") and pool.launcher == "container":
        assert pool.container is not None
        return find_image(look.spot.host, pool.container.runtime, item.id) is not None
    if item.kind in ("image", "derived") and image_file(pool, item.id) is None:
        return True
    record = look.records.get(item.name)
    return bool(record and record["is_whole"])


def missing_inputs(
    settings: Settings, pool: Pool, launch: PlanLaunch, datasets: Mapping[str, Any] | None = None
) -> list[str]:
    """What a launch lacks, one line each; empty: it can start, and nothing will be downloaded.

    :raises ToolUnavailableError: when a machine gives no answer: that is not "not staged".
    """
    items = items_of_launch(pool, launch, datasets)
    return [
        f"{row.item.text} is not staged on {row.node}"
        for row in inventory(settings, pool, items)
        if row.state == "missing"
    ]


def inventory(settings: Settings, pool: Pool, items: Sequence[Item]) -> list[Staged]:
    """Each item on each of its machines: ``there`` or ``missing``."""
    found = []
    for place in ("pool", "client"):
        wanted = [item for item in items if item.place == place]
        for spot in spots_of(settings, pool, place) if wanted else ():
            look = look_at(spot, wanted)
            for item in wanted:
                state = "there" if is_there(settings, pool, item, look) else "missing"
                size = (look.records.get(item.name) or {}).get("bytes") or item.bytes
                found.append(Staged(spot.node, item, state, size))
    return found


def model_path(item: Item) -> str:
    """Where an engine finds a staged model, relative to the model cache.

    ``<sha256>/<file>`` for a file of the catalog, ``<org>--<name>/<revision>`` for a model of the hub.
    """
    if item.kind == "weights":
        return item.weights.place if item.weights else f"unknown/{Path(item.id).name}"
    assert item.link is not None
    return item.link
