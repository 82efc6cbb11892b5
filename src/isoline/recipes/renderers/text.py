"""A deployment as text for people: one line a command, one for each node of a worker that spans several."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from isoline.catalog.pools import Pool
from isoline.recipes.deployment import PLACEHOLDER, Command, Deployment, config_text
from isoline.recipes.renderers.container import container_argv

_BARE = re.compile(r"^[A-Za-z0-9_@%+=:,./{}\[\]*-]+\Z")


def quoted(word: str) -> str:
    """A word for a shell; one that is plain but for placeholders stays readable."""
    if _BARE.match(word) and (PLACEHOLDER.search(word) or not set(word) & set("{}[]*")):
        return word
    return shlex.quote(word)


def line(argv: list[str], env: dict[str, str] | None = None) -> str:
    """One line that a person could paste: environment, then the words."""
    words = [f"{name}={quoted(value)}" for name, value in (env or {}).items()]
    return " ".join([*words, *(quoted(word) for word in argv)])


def image_text(deployment: Deployment) -> list[str]:
    """A comment that says what image programs run in, and what it is made of."""
    if not deployment.image:
        return []
    if not deployment.packages:
        return [f"# image {deployment.image}"]
    return [
        f"# image {deployment.used_image}, which `isoline pool stage` makes of",
        f"#   {deployment.image} and {', '.join(deployment.packages)}",
    ]


def files_text(command: Command) -> list[str]:
    """The configuration files of a command, as comments with their content."""
    lines = []
    for name, content in sorted(command.config_files.items()):
        lines.append(f"# file {name}:")
        lines += [f"#   {row}" for row in config_text(content).splitlines()]
    return lines


def header(command: Command) -> str:
    """A comment that says what comes: ``# decode: 2 workers, 8 accelerators each``."""
    if command.role is None:
        return f"# sidecar {command.name}"
    each = " each" if command.workers > 1 else ""
    count = f"{command.workers} worker{'s' if command.workers > 1 else ''}"
    spread = f" on {command.nodes} nodes" if command.nodes > 1 else ""
    spread += ", started by MPI once for each accelerator" if command.mpi else ""
    devices = f"{command.gpus} accelerator{'s' if command.gpus != 1 else ''}"
    return f"# {command.role}: {count}, {devices}{each}{spread}"


def ranks(command: Command) -> list[Command]:
    """A command once for each node of a worker, with that node's words."""
    if command.nodes == 1:
        return [command]
    if command.mpi:
        return [command]  # MPI starts it once for each device
    return [replace(command, argv=command.argv_of(rank)) for rank in range(command.nodes)]


def plain(deployment: Deployment) -> str:
    """What a person would paste inside the image, one line a command."""
    rows: list[str] = []
    rows += image_text(deployment)
    for command in deployment.commands:
        rows += [header(command), *files_text(command)]
        rows += [line(item.argv, item.env) for item in ranks(command)]
    return "\n".join(rows) + "\n"


def containers(deployment: Deployment, pool: Pool) -> str:
    """What a container launcher executes, one line a command."""
    assert pool.container is not None
    rows = image_text(deployment) if deployment.packages else []
    for command in deployment.commands:
        rows += [header(command), *files_text(command)]
        rows += [
            line(container_argv(deployment, item, pool.container, keeps_compiled=True))
            for item in ranks(command)
        ]
    return "\n".join(rows) + "\n"
