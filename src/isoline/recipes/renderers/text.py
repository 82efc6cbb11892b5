"""A deployment as text for people: one line a command, or a batch script for Slurm."""

from __future__ import annotations

import json
import re
import shlex

from isoline.catalog.pools import Pool, Slurm
from isoline.recipes.deployment import PLACEHOLDER, Command, Deployment
from isoline.recipes.renderers.container import container_argv

_BARE = re.compile(r"^[A-Za-z0-9_@%+=:,./{}\[\]*-]+$")


def quoted(word: str) -> str:
    """A word for a shell; one that is plain but for placeholders stays readable."""
    if _BARE.match(word) and (PLACEHOLDER.search(word) or not set(word) & set("{}[]*")):
        return word
    return shlex.quote(word)


def line(argv: list[str], env: dict[str, str] | None = None) -> str:
    """One line that a person could paste: environment, then the words."""
    words = [f"{name}={quoted(value)}" for name, value in (env or {}).items()]
    return " ".join([*words, *(quoted(word) for word in argv)])


def files_text(command: Command) -> list[str]:
    """The configuration files of a command, as comments with their content."""
    lines = []
    for name, content in sorted(command.config_files.items()):
        lines.append(f"# file {name}:")
        text = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True)
        lines += [f"#   {row}" for row in text.splitlines()]
    return lines


def header(command: Command) -> str:
    """A comment that says what comes: ``# decode: 2 workers, 8 accelerators each``."""
    if command.role is None:
        return f"# sidecar {command.name}"
    each = " each" if command.workers > 1 else ""
    count = f"{command.workers} worker{'s' if command.workers > 1 else ''}"
    return f"# {command.role}: {count}, {command.gpus} accelerator{'s' if command.gpus != 1 else ''}{each}"


def plain(deployment: Deployment) -> str:
    """What a person would paste inside the image, one line a command."""
    rows: list[str] = []
    if deployment.image:
        rows.append(f"# image {deployment.image}")
    for command in deployment.commands:
        rows += [header(command), *files_text(command), line(command.argv, command.env)]
    return "\n".join(rows) + "\n"


def containers(deployment: Deployment, pool: Pool) -> str:
    """What a container launcher executes, one line a command."""
    assert pool.container is not None
    rows: list[str] = []
    for command in deployment.commands:
        rows += [
            header(command),
            *files_text(command),
            line(container_argv(deployment, command, pool.container)),
        ]
    return "\n".join(rows) + "\n"


def _options(slurm: Slurm, nodes: int, accelerators: int) -> list[str]:
    options = [
        "--job-name={launch_id}",
        f"--partition={slurm.partition}",
        f"--nodes={nodes}",
        f"--gpus-per-node={accelerators}",
        f"--time={slurm.time_limit_min}",
        "--output={scratch}/job.log",
    ]
    for name in ("account", "qos", "reservation", "constraint"):
        if (value := getattr(slurm, name)) is not None:
            options.append(f"--{name}={value}")
    if slurm.exclusive:
        options.append("--exclusive")
    return [*options, *slurm.extra]


def nodes_for(deployment: Deployment, per_node: int) -> int:
    """Nodes that a deployment takes: a worker is not split over more nodes than it must be."""
    nodes = 0
    free = 0
    for command in deployment.workers:
        for _ in range(command.workers):
            if command.gpus <= free:
                free -= command.gpus
                continue
            whole = -(-command.gpus // per_node)
            nodes += whole
            free = whole * per_node - command.gpus
    return max(nodes, 1)


def slurm_script(deployment: Deployment, pool: Pool) -> str:
    """The batch script of one launch. One step a program; the first that ends ends the job."""
    assert pool.slurm is not None
    nodes = nodes_for(deployment, pool.accelerators)
    rows = ["#!/bin/bash"]
    rows += [f"#SBATCH {quoted(option)}" for option in _options(pool.slurm, nodes, pool.accelerators)]
    rows += ["set -eu", ""]
    if deployment.image and pool.slurm.container != "none":
        rows.append(f"# image {deployment.image}")
    for command in deployment.commands:
        rows += [header(command), *files_text(command)]
        for worker in range(command.workers):
            rows.append(f"{_step(deployment, command, pool, worker)} &")
    rows += ["", "wait -n"]
    return "\n".join(rows) + "\n"


def _step(deployment: Deployment, command: Command, pool: Pool, worker: int) -> str:
    slurm = pool.slurm
    assert slurm is not None
    nodes = max(1, -(-command.gpus // pool.accelerators))
    place = f"{{nodes.{command.name}.{worker}}}"
    words = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", f"--nodelist={place}", "--overlap"]
    if command.gpus:
        words.append(f"--gpus-per-node={min(command.gpus, pool.accelerators)}")
    match slurm.container:
        case "pyxis":
            assert pool.container is not None
            words += [
                "--container-image={image_file}",
                f"--container-mounts={pool.container.model_cache}:/models:ro,{{scratch}}:/scratch",
                "--no-container-mount-home",
            ]
            words += ["env", *(f"{name}={value}" for name, value in command.env.items()), *command.argv]
        case "docker" | "podman":
            assert pool.container is not None
            runtime = pool.container.model_copy(update={"runtime": slurm.container})
            words += container_argv(deployment, command, runtime)
        case "apptainer":
            assert pool.container is not None
            words += ["apptainer", "exec", "--cleanenv"]
            words += ["--bind", f"{pool.container.model_cache}:/models:ro,{{scratch}}:/scratch"]
            for name, value in command.env.items():
                words += ["--env", f"{name}={value}"]
            words += ["{image_file}", *command.argv]
        case "none":
            words += ["env", *(f"{name}={value}" for name, value in command.env.items()), *command.argv]
    return line(words)
