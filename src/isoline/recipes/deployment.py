"""A deployment: what one launch starts, with placeholders; the value between recipe and launcher."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isoline.recipes.topology import RoleName
from isoline.results.identity import digest

PLACEHOLDER = re.compile(
    r"\{(?:port\.[a-z][a-z0-9_]*|(?:file|content)\.[A-Za-z0-9._-]+|host\.[a-z][a-z0-9_]*|owner\.[a-z]+"
    r"|url\.(?:aggregated|prefill|decode)(?:\.[0-9]+)?|[a-z_]+)\}"
)

PLACEHOLDERS: tuple[str, ...] = (
    "python",
    "script",
    "model_path",
    "model_alias",
    "host",
    "port",
    "scratch",
    "url",
    "role",
    "worker",
    "master_host",
)
"""Names that a launcher fills in, besides those of :data:`DOTTED`.

``{host}`` is the address to listen on, ``{port}`` the worker's own, ``{url}`` the address of the first
worker; a word that is nothing but ``{url}`` or ``{url.ROLE}`` becomes one word for each worker.
``{master_host}`` is the address of the first node of a worker that spans several."""

DOTTED: dict[str, str] = {
    "port": "port.NAME: a leased port of a sidecar; port.rendezvous and port.data_parallel: of a worker "
    "that spans nodes, leased on its first",
    "file": "file.NAME: the path of a file of the recipe, or of one that its config_files write",
    "url": "url.ROLE: the addresses of the role's workers; url.ROLE.N: of one, counted from 0",
    "host": "host.NAME: the address of the node where the program NAME (its first worker) runs",
}
"""Placeholders with a dot: what stands before it, and what it is."""


@dataclass(frozen=True)
class Command:
    """One program: a worker of a role, or a sidecar. ``gpus`` devices are visible to each worker.

    :ivar nodes: over how many nodes each worker is spread, the same number of devices on each.
    :ivar followers: argument vectors of the worker's ranks after the first, one a node.
    :ivar mpi: one task a device, all with the same words, started by MPI (``srun --mpi``); then there
        are no followers.
    """

    name: str
    argv: list[str]
    env: dict[str, str]
    config_files: dict[str, dict[str, Any]] = field(default_factory=dict)
    role: RoleName | None = None
    workers: int = 1
    gpus: int = 0
    ports: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    ready: str | None = None
    is_entry: bool = False
    nodes: int = 1
    followers: tuple[list[str], ...] = ()
    mpi: bool = False

    def argv_of(self, rank: int) -> list[str]:
        """The words of one rank of a worker, counted from 0."""
        return self.argv if rank == 0 or self.mpi else self.followers[rank - 1]

    def identity(self) -> dict[str, Any]:
        """What a launch digest covers of it."""
        return {
            "name": self.name,
            "argv": self.argv,
            "env": self.env,
            "config_files": self.config_files,
            "workers": self.workers,
            "gpus": self.gpus,
            "ports": list(self.ports),
            "packages": list(self.packages),
            "ready": self.ready,
            "is_entry": self.is_entry,
            **(
                {"nodes": self.nodes, "followers": list(self.followers), "mpi": self.mpi}
                if self.nodes > 1
                else {}
            ),
        }


@dataclass(frozen=True)
class Deployment:
    """One launch: sidecars that come before, the workers of each role, sidecars that come after."""

    image: str | None  # the engine's, a reference; None for launcher process
    before: tuple[Command, ...]
    workers: tuple[Command, ...]
    after: tuple[Command, ...]

    @property
    def commands(self) -> tuple[Command, ...]:
        """All programs in the order of their start."""
        return (*self.before, *self.workers, *self.after)

    @property
    def packages(self) -> tuple[str, ...]:
        """What the image lacks, of all programs: workers import what their sidecars brought."""
        return tuple(sorted({package for item in self.commands for package in item.packages}))

    @property
    def used_image(self) -> str | None:
        """What programs run in: the image itself, or the one that staging makes of it and the packages."""
        return derived_name(self.image, self.packages) if self.image and self.packages else self.image

    @property
    def entry(self) -> Command:
        """Who answers requests: the entry sidecar, else the only role's worker."""
        return next((item for item in self.after if item.is_entry), self.workers[0])

    @property
    def gpus(self) -> int:
        """Devices of all workers."""
        return sum(item.gpus * item.workers for item in self.workers)


DERIVED = "localhost/isoline-derived"
"""Images that staging makes. No registry has them, so none is asked."""


def derived_name(base: str, packages: Sequence[str]) -> str:
    """The name of an image with packages: the same for the same base and packages, nothing else."""
    return f"{DERIVED}:{digest({'base': base, 'packages': sorted(packages)})[:32]}"


def deployment_of(identity: Mapping[str, Any]) -> Deployment:
    """The deployment that a launch's identity describes: what a plan holds of it."""
    roles = {name for name, role in identity["topology"].items() if role}
    before: list[Command] = []
    workers: list[Command] = []
    after: list[Command] = []
    for item in identity["commands"]:
        is_worker = item["name"] in roles
        command = Command(
            **{
                **item,
                **{name: tuple(item[name]) for name in ("ports", "packages", "followers") if name in item},
            },
            role=item["name"] if is_worker else None,
        )
        (workers if is_worker else after if workers else before).append(command)
    return Deployment(identity["image"].get("ref"), tuple(before), tuple(workers), tuple(after))


def config_text(content: Mapping[str, Any]) -> str:
    """A configuration file of a command as it is written, without a line end."""
    return json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True)


def placeholders_in(words: list[str]) -> set[str]:
    """The placeholders that words hold, without braces."""
    return {match[1:-1] for word in words for match in PLACEHOLDER.findall(word)}


def filled(text: str, values: Mapping[str, str]) -> str:
    """``text`` with each known placeholder replaced; other braces stay (JSON arguments)."""
    return PLACEHOLDER.sub(lambda match: values.get(match.group()[1:-1], match.group()), text)
