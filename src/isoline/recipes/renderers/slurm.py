"""A deployment as one batch script for Slurm: what a launcher fills in and submits, byte for byte. Pure.

The script places every program on the nodes of its job, writes its files there, starts the programs in
order and ends with the first that ends. What it leaves in its scratch folder on the first node:
``nodes`` and ``hosts`` (Slurm's names and the addresses to connect to, one a line), for each program
``NAME.I.log`` and, once it ended, ``NAME.I.exit`` (its code); the ranks of a worker after the first are
``NAME.I.rankR``. ``compiled`` is ``cold`` or ``warm`` and the folder of compiled kernels. Of several
programs each has a folder ``NAME.I`` of its own as its scratch. No other folder has to be shared. Codes
of the script's own: 90 scratch cannot be made, 91 too few nodes, 92 files cannot be written, 93 and 94 a
program ended, or was not ready in time, while another waited for it; 95 nodes have different drivers,
96 a node's devices are used by somebody else, 97 it lacks some; 143 told to end.

What :func:`placeholders_in` finds in the text a launcher fills in with :func:`filled_script`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Container, Pool, Slurm
from isoline.errors import InputError
from isoline.recipes.deployment import PLACEHOLDER, Command, Deployment, config_text, filled, placeholders_in
from isoline.recipes.device_profiles import PROFILES
from isoline.recipes.placement import Place, nodes_for, placed
from isoline.recipes.renderers import slurm_parts as parts
from isoline.recipes.renderers.container import (
    COMPILED_ENV,
    INSIDE_COMPILED,
    INSIDE_SCRATCH,
    OFFLINE_ENV,
    compile_key,
    container_argv,
    keeps_kernels,
)
from isoline.recipes.renderers.slurm_words import (
    COMPILED,
    MARKS,
    NODE,
    SHELL,
    addressed,
    node_at,
    shell_word,
)
from isoline.recipes.renderers.text import header, image_text, quoted

INSIDE_FILES = "/files"
FILES_MOUNT = f"{{scratch}}/files:{INSIDE_FILES}:ro"
"""Where the files of a launch are in containers whose scratch is one program's own folder."""

PREPARE_S = 120
LOAD_S = 1800
"""Seconds for the files of a launch on every node; with an image of tens of gigabytes to load."""

READY_S = 3600
"""How long a program waits for those before it, where nobody says."""

_SAFE = re.compile(r"^[A-Za-z0-9_@%+=:,./-]*\Z")
_BASE64 = re.compile(r"^[A-Za-z0-9+/=\n]*\Z")


def slurm_script(
    deployment: Deployment, pool: Pool, *, ready_s: int = READY_S, health: str | None = None
) -> str:
    """The batch script of one launch.

    :param ready_s: how long a program waits for those before it, s.
    :param health: the page of a worker that answers 200 once it serves; None: only its port is looked at.
    :raises InputError: where workers do not fit the pool's nodes, or need what its jobs do not have, or a
        word holds a control character.
    """
    assert pool.slurm is not None
    script = _Script(deployment, pool, pool.slurm, ready_s, health)
    return "\n".join(script.rows()) + "\n"


def filled_script(text: str, values: Mapping[str, str]) -> str:
    """The script with every placeholder filled in.

    :param values: by name; ``content.NAME`` is a file in base64.
    :raises InputError: when one is missing, or a value would not be one plain word in a shell.
    """
    for name in sorted(placeholders_in([text])):
        value = values.get(name)
        if value is None:
            raise InputError(f"{{{name}}} has no value", where="batch script")
        if not (_BASE64 if name.startswith("content.") else _SAFE).fullmatch(value):
            raise InputError(
                f"{{{name}}} is {value!r}",
                where="batch script",
                remedy="letters, digits and _@%+=:,./- are possible here",
            )
    return filled(text, values)


class _Script:
    """The parts of the text; every method is a function of the five values."""

    def __init__(
        self, deployment: Deployment, pool: Pool, slurm: Slurm, ready_s: int, health: str | None
    ) -> None:
        self.deployment, self.pool, self.slurm = deployment, pool, slurm
        self.ready_s, self.health = ready_s, health
        self.places = placed(deployment, pool.accelerators)
        self.nodes = nodes_for(deployment, pool.accelerators)
        self.is_cpu = pool.sku == "cpu"
        if slurm.has_runtime and any(item.mpi for item in deployment.workers):
            raise InputError(
                f"a worker that spans nodes is started by MPI, which {slurm.container} containers cannot",
                where=f"pool {pool.name}",
                remedy="use a pool with pyxis or apptainer",
            )
        self.is_alone = len(self.places) == 1
        for item in deployment.commands:
            words = [*item.argv, *(word for rank in item.followers for word in rank), *item.env.values()]
            if found := next((word for word in words if MARKS.search(word)), None):
                raise InputError(f"a control character in {found!r}", where=item.name, remedy="plain text")
        self.runtime: Container | None = None
        if slurm.has_runtime:
            assert pool.container is not None
            self.runtime = pool.container.model_copy(update={"runtime": slurm.container})

    @cached_property
    def compiled(self) -> str:
        """The folder for compiled kernels without the driver; "" where nothing is compiled."""
        image, container = self.deployment.used_image, self.pool.container
        if image is None or container is None or self.slurm.container == "none":
            return ""
        if not any(keeps_kernels(item, container) for item in self.deployment.workers):
            return ""
        key = compile_key(image, self.pool.sku)
        return quoted(f"{container.scratch.rstrip('/')}/compile/{key}")

    def rows(self) -> list[str]:
        """The whole script, line by line."""
        rows = ["#!/bin/bash", *(f"#SBATCH {quoted(option)}" for option in self._options()), ""]
        rows += image_text(self.deployment) if self.slurm.container != "none" else []
        rows += parts.head(self.nodes, is_shared=self.slurm.shared_home)
        if self.compiled:
            rows += parts.compiled_on_first(self.compiled)
        rows += parts.contained() if self.runtime else []
        rows += self._prepare()
        rows += parts.functions(self._sweep(), is_shared=self.slurm.shared_home)
        rows += ["", "# The programs, in order."]
        waiting: list[str] = []  # what the next program waits for
        for command in self.deployment.before:
            rows += self._program(command)
            rows += self._waits(command)
        for command in self.deployment.workers:
            rows += self._program(command)
            waiting += self._waits(command)
        for command in self.deployment.after:
            rows += [*waiting, *self._program(command)]
            waiting = self._waits(command)
        rows += ["", "# The first that ends ends the job, with its code.", "until ended; do sleep 1; done"]
        return [*rows, 'exit "$(sort -nr "$scratch"/*.exit | head -n 1)"']

    def _options(self) -> list[str]:
        slurm, extra = self.slurm, self.slurm.extra
        options = [
            "--job-name={launch_id}",
            f"--partition={slurm.partition}",
            f"--nodes={self.nodes}",
            f"--time={slurm.time_limit_min}",
            # Time to stop the programs in order before the limit or a preemption ends them.
            f"--signal=B:TERM@{parts.NOTICE_S}",
            "--no-requeue",
            f"--output={'{scratch}/job.log' if slurm.shared_home else '/dev/null'}",
        ]
        if not self.is_cpu and not parts.asks_for_devices(slurm):
            options.append(f"--gpus-per-node={self.pool.accelerators}")
        for name in ("account", "qos", "reservation", "constraint"):
            if (value := getattr(slurm, name)) is not None:
                options.append(f"--{name}={value}")
        if slurm.exclusive:
            options.append("--exclusive")
            if not any(item.startswith("--mem") for item in extra):
                options.append("--mem=0")  # all that the node has
        if self.pool.exclude:
            options.append(f"--exclude={','.join(item.node for item in self.pool.exclude)}")
        return [*options, *extra]

    def _prepare(self) -> list[str]:
        """Folders and files on every node, before any program starts."""
        rows = ["set -e", *parts.device_rows(self.pool, self.slurm)]
        rows += [*(parts.COMPILED_ROWS if self.compiled else []), "mkdir -p {scratch}/files"]
        rows += self._load_image()
        if not self.is_alone:
            rows += [f"mkdir -p {self._own(*each)}" for each in self.places]
        addresses: dict[str, str] = {**parts.COMPILED_MARKS} if self.compiled else {}
        for command in self.deployment.commands:
            for name, content in sorted(command.config_files.items()):
                folder = f"{{scratch}}/files/{command.name}"
                text = PLACEHOLDER.sub(
                    lambda match, c=command: self._in_file(c, match, addresses),  # type: ignore[misc]
                    config_text(content),
                )
                rows += [f"mkdir -p {folder}", f"cat >{folder}/{name} <<'FILE'", text, "FILE"]
        for name in self._own_files():
            rows += [f"base64 --decode >{{scratch}}/files/{name} <<'FILE'", f"{{content.{name}}}", "FILE"]
        limit_s = LOAD_S if self._load_image() else PREPARE_S
        return parts.prepare(rows, addresses, self.nodes, limit_s, has_compiled=bool(self.compiled))

    def _load_image(self) -> list[str]:
        """Bring the staged image into a node's own storage, where jobs run docker or podman."""
        if self.runtime is None or self.slurm.image_cache is None:
            return []
        program = " ".join([*(quoted(word) for word in self._runtime_env()), self.slurm.container])
        image = quoted(self.deployment.used_image or "{image}")
        return [
            f"{program} image inspect {image} >/dev/null 2>&1 || {program} load --input {{image_file}} >&2"
        ]

    def _in_file(self, command: Command, match: re.Match[str], addresses: dict[str, str]) -> str:
        """A placeholder inside a file: the name of a node is put in when the job runs."""
        said = self._values(command, 0, 0).get(match.group()[1:-1], match.group())
        if not NODE.search(said):
            return said
        mark = f"@{match.group()[1:-1]}@"
        addresses[mark] = addressed(said)
        return mark

    def _own_files(self) -> list[str]:
        """Files of the recipe's folder that a program names."""
        found = set()
        for command in self.deployment.commands:
            words = [word for rank in self._ranks(command, 0) for word in command.argv_of(rank)]
            for name in placeholders_in([*words, *command.env.values()]):
                kind, _, rest = name.partition(".")
                if kind == "file" and rest not in command.config_files:
                    found.add(rest)
        return sorted(found)

    def _sweep(self) -> list[str]:
        """Words that remove this launch's containers from a node; none where there are none."""
        if self.runtime is None:
            return []
        told = [quoted(word) for word in self._runtime_env()]
        return [*told, "bash", "-c", '"$sweep"', "isoline", self.slurm.container]

    def _runtime_env(self) -> list[str]:
        assert self.runtime is not None
        given = [f"{name}={value}" for name, value in sorted(self.runtime.env.items())]
        return ["env", *given] if given else []

    def _ranks(self, command: Command, worker: int) -> range:
        return range(1 if command.mpi else len(self.places[command.name, worker]))

    def _waits(self, command: Command) -> list[str]:
        """What a later program waits for: that each worker of this one answers, or listens."""
        rows = []
        for worker in range(command.workers):
            node = self.places[command.name, worker][0].node
            if command.role is not None:
                port = f"{{port.{command.name}_{worker}}}" if "{port}" in command.argv else None
                page = self.health
            else:
                port = f"{{port.{command.ports[0]}}}" if command.ports else None
                page = command.ready
            if port is not None:
                rows.append(
                    f'await {command.name}.{worker} "${{hosts[{node}]}}" {port} {quoted(page or "-")}'
                    f" {self.ready_s}"
                )
        return rows

    def _program(self, command: Command) -> list[str]:
        rows = [header(command)]
        for worker in range(command.workers):
            for rank in self._ranks(command, worker):
                rows.append(self._step(command, worker, rank))
        return rows

    def _step(self, command: Command, worker: int, rank: int) -> str:
        places = self.places[command.name, worker]
        mine = places if command.mpi else places[rank : rank + 1]
        name = f"{command.name}.{worker}" + (f".rank{rank}" if rank else "")
        tasks = command.gpus if command.mpi else 1
        options = [f"--nodes={len(mine)}", f"--ntasks={tasks}"]
        if command.mpi:
            options += [f"--ntasks-per-node={tasks // len(mine)}", "--mpi=pmix"]
        where = ",".join(f"${{nodes[{place.node}]}}" for place in mine)
        argv = [shell_word(word) for word in self._words(command, worker, rank)]
        return " ".join(["start", name, f'"{where}"', *options, *argv])

    def _words(self, command: Command, worker: int, rank: int) -> list[str]:
        """The words behind srun's own options: the container, then the program."""
        place = self.places[command.name, worker][rank]
        values = self._values(command, worker, rank)
        env = {name: filled(value, values) for name, value in command.env.items()}
        argv: list[str] = []
        for word in command.argv_of(rank):
            argv += self._urls(word) or [filled(word, values)]
        container = self.pool.container
        if self.runtime is not None:
            told = replace(command, argv=argv, env=env)
            run = container_argv(self.deployment, told, self.runtime, keeps_compiled=bool(self.compiled))
            known = {name: values[name] for name in ("container_name", "devices")}
            run = [filled(word, {**known, "compile_cache": COMPILED}) for word in run]
            if not self.is_alone:
                at = run.index(f"{{scratch}}:{INSIDE_SCRATCH}")
                run[at : at + 1] = [
                    f"{self._own(command.name, worker)}:{INSIDE_SCRATCH}",
                    "--volume",
                    FILES_MOUNT,
                ]
            return [*self._runtime_env(), "bash", "-c", SHELL + '"$contained"', "isoline", *run]
        env = {**self._visible(command, place), **self._kept(command), **env}
        given = [f"{name}={value}" for name, value in env.items()]
        mounts = f"{container.model_cache}:/models:ro," if container else ""
        mounts += f"{self._own(command.name, worker)}:{INSIDE_SCRATCH}"
        mounts += "" if self.is_alone else f",{FILES_MOUNT}"
        mounts += f",{COMPILED}:{INSIDE_COMPILED}" if self._kept(command) else ""
        match self.slurm.container:
            case "pyxis":
                return [
                    "--container-image={image_file}",
                    f"--container-mounts={mounts}",
                    "--no-container-mount-home",
                    *(["env", *given] if given else []),
                    *argv,
                ]
            case "apptainer":
                told_env = [word for item in given for word in ("--env", item)]
                nv = [] if self.is_cpu else ["--rocm" if self._is_amd() else "--nv"]
                return [
                    "apptainer",
                    "exec",
                    "--cleanenv",
                    *nv,
                    "--bind",
                    mounts,
                    *told_env,
                    "{image_file}",
                    *argv,
                ]
            case _:
                return [*(["env", *given] if given else []), *argv]

    def _kept(self, command: Command) -> dict[str, str]:
        """Variables of a worker in a container: its models lie in the mount, and so do its kernels."""
        container = self.pool.container
        if self.slurm.container == "none" or container is None or not keeps_kernels(command, container):
            return {}
        return {**OFFLINE_ENV, **COMPILED_ENV}

    def _own(self, name: str, worker: int) -> str:
        """A program's own folder on its nodes: what several write must not be one file."""
        return "{scratch}" if self.is_alone else f"{{scratch}}/{name}.{worker}"

    def _urls(self, word: str) -> list[str]:
        """One word for each worker, where the word is nothing but {url} or {url.ROLE}."""
        if word not in ("{url}", "{url.aggregated}", "{url.prefill}", "{url.decode}"):
            return []
        role = word[1:-1].partition(".")[2]
        return [
            self._url(command.name, worker)
            for command in self.deployment.workers
            for worker in range(command.workers)
            if role in ("", command.name)
        ]

    def _url(self, name: str, worker: int) -> str:
        return f"http://{node_at(self.places[name, worker][0].node)}:{{port.{name}_{worker}}}"

    def _values(self, command: Command, worker: int, rank: int) -> dict[str, str]:
        """What the placeholders of a program are in this script; other ones are the launcher's."""
        places = self.places[command.name, worker]
        one = f"{command.name}_{worker}"
        is_bare = self.slurm.container == "none"
        inside = self._own(command.name, worker) if is_bare else INSIDE_SCRATCH
        files = (
            "{scratch}/files" if is_bare else (f"{INSIDE_SCRATCH}/files" if self.is_alone else INSIDE_FILES)
        )
        first = self.deployment.workers[0]
        values = {
            "role": command.role or command.name,
            "worker": str(worker),
            "scratch": inside,
            "master_host": node_at(places[0].node),
            "url": self._url(first.name, 0),
            "devices": ",".join(map(str, places[rank].devices)),
            "container_name": f"isoline-{{launch_id}}-{command.name}-{worker}" + (f"-{rank}" if rank else ""),
        }
        if command.role is not None:
            values |= {"port": f"{{port.{one}}}"}
            values |= {name: f"{{{name}_{one}}}" for name in ("port.rendezvous", "port.data_parallel")}
        for other in self.deployment.commands:
            values[f"host.{other.name}"] = node_at(self.places[other.name, 0][0].node)
            if other.role is not None:
                values |= {
                    f"url.{other.role}.{number}": self._url(other.name, number)
                    for number in range(other.workers)
                }
        for name in command.config_files:
            values[f"file.{name}"] = f"{files}/{command.name}/{name}"
        words = [*command.argv_of(rank), *command.env.values()]
        for name in placeholders_in(words):
            if name.startswith("file.") and name not in values:
                values[name] = f"{files}/{name.removeprefix('file.')}"
        return values

    def _is_amd(self) -> bool:
        return load_catalog().skus[self.pool.sku].vendor == "AMD"

    def _visible(self, command: Command, place: Place) -> dict[str, str]:
        """The variable that limits a worker to its part of a node."""
        if self.is_cpu or not command.gpus or len(place.devices) == self.pool.accelerators:
            return {}
        name = "ROCR_VISIBLE_DEVICES" if self._is_amd() else "CUDA_VISIBLE_DEVICES"
        profile = PROFILES[self.pool.container.device_profile] if self.pool.container else None
        return {(profile and profile.visible_env) or name: ",".join(map(str, place.devices))}
