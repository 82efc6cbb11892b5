"""Pools: sets of like machines and how to start servers on them (``runners/<name>.yaml``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from isoline.catalog.documents import NAME, Document, load_document, load_named, must_know
from isoline.catalog.facts import load_catalog

LauncherKind = Literal["process", "container", "slurm", "endpoint", "simulated"]
DeviceProfile = Literal["cpu", "nvidia", "nvidia-rdma", "nvidia-gb", "amd", "amd-rdma"]


NODE = r"^[A-Za-z0-9_\[][A-Za-z0-9_.:@\[\],-]*$"
"""The form of a node's name (also ``user@host``, ``n[1-4]``): none is a tool's option."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _texts(value: object) -> Iterator[str]:
    """Every text of a part of a pool."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for item in pair for text in _texts(item))
    elif isinstance(value, list):
        yield from (text for item in value for text in _texts(item))


class _OneLine(Document):
    """A part whose texts stand in scripts and command lines: a second line would be one of the script."""

    @model_validator(mode="after")
    def _texts_are_one_line(self) -> _OneLine:
        for name in type(self).model_fields:
            for text in _texts(getattr(self, name)):
                if _CONTROL.search(text):
                    raise ValueError(f"{name}: a line break or control character in {text!r}")
        return self


class Container(_OneLine):
    """How containers are started on the nodes of a pool.

    ``model_cache`` is mounted read-only, ``scratch`` holds logs and compile caches; both are paths of
    the nodes. ``rootless`` is a demand: a runtime that runs as root is refused. ``privileged`` is reported
    by `pool check` and by each run (:attr:`Pool.warnings`).
    """

    runtime: Literal["docker", "podman"] = "docker"
    device_profile: DeviceProfile
    model_cache: str
    scratch: str
    shm_gb: int = Field(default=64, ge=1)
    rootless: bool = False
    privileged: bool = False
    env: dict[str, str] = {}  # of the runtime's command itself, on the node (CONTAINERS_CONF, say)

    @field_validator("model_cache", "scratch")
    @classmethod
    def _can_be_mounted(cls, value: str) -> str:
        if ":" in value or "," in value:
            # Either ends the path in a mount option: something else would be mounted, somewhere else.
            raise ValueError(f"{value!r}: a path without ':' and ','")
        if not value.startswith(("/", "{state}/")):
            # docker and podman take a word for a volume of their own: an empty one.
            raise ValueError(f"{value!r} is not a whole path: begin with / or {{state}}/")
        return value

    def model_cache_in(self, state: Path) -> Path:
        """The model cache on the nodes; ``{state}`` in it is our own state folder."""
        return _in_state(self.model_cache, state)

    def scratch_in(self, state: Path) -> Path:
        """The scratch folder on the nodes, likewise."""
        return _in_state(self.scratch, state)


def _in_state(path: str, state: Path) -> Path:
    return Path(path.replace("{state}", str(state.absolute())))


class Excluded(Document):
    """A node that launches keep away from. ``until`` (UTC, ISO 8601): null is until somebody removes it."""

    node: str = Field(pattern=NODE)
    reason: str
    until: str | None = None

    @field_validator("until")
    @classmethod
    def _until_is_a_time(cls, value: str | None) -> str | None:
        if value is not None and datetime.fromisoformat(value).tzinfo is None:
            raise ValueError(f"{value!r} has no time zone: end it with Z")
        return value


class Slurm(_OneLine):
    """How jobs are submitted. ``container``: who starts the container inside the job."""

    partition: str
    container: Literal["pyxis", "docker", "podman", "apptainer", "none"]
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    exclusive: bool = True
    time_limit_min: int = Field(default=240, ge=1)
    shared_home: bool = True  # False: nothing of a job's files is seen here, they are streamed back
    image_cache: str | None = None  # shared folder for imported images, one file a digest
    extra: list[str] = []  # further #SBATCH lines, without the prefix

    @property
    def has_runtime(self) -> bool:
        """Whether a job starts containers by docker or podman: they keep images and outlive their caller."""
        return self.container in ("docker", "podman")

    @field_validator("extra")
    @classmethod
    def _extra_are_options(cls, value: list[str]) -> list[str]:
        for line in value:
            if not line.startswith("--"):
                raise ValueError(f"{line!r} is no sbatch option: begin with --")
        return value


class Endpoint(Document):
    """A server that somebody else runs; what is declared is marked declared, points are never official."""

    url: str
    topology: str


class Pool(Document):
    """One pool.

    ``accelerators`` is how many a node has (for SKU ``cpu`` 1, the share of the machine), ``nodes``
    how many nodes a launch may use. ``node_memory_gb`` is what KV offload budgets are computed from.
    ``hosts`` are the machines of a container pool (``ssh`` names; empty = this machine).
    ``max_parallel`` launches may be in flight, several on one node only with ``share_node``; nothing
    starts that would not end by ``until`` (a time of day, UTC). ``load_gb_s`` is the rate at which
    weights are read, once somebody measured it; ``compile_s`` the time allowed for compiling beside it.
    ``client_profile`` names how the load generator runs beside the engine (see
    :mod:`isoline.load.profile`).
    """

    schema_version: Literal[1]
    name: str = Field(pattern=NAME)
    description: str = ""
    launcher: LauncherKind
    sku: str
    accelerators: int = Field(default=1, ge=1)
    nodes: int = Field(default=1, ge=1)
    node_memory_gb: float | None = Field(default=None, gt=0)
    host: str = "127.0.0.1"
    hosts: list[Annotated[str, Field(pattern=NODE)]] = []
    ssh_config: str | None = None  # a file for `ssh -F`, where hosts are not those of the user's own
    max_parallel: int = Field(default=1, ge=1)
    share_node: bool = False
    until: str | None = Field(default=None, pattern=r"^([01]\d|2[0-3]):[0-5]\d$")
    load_gb_s: float | None = Field(default=None, gt=0)
    compile_s: float | None = Field(default=None, ge=0)
    memory_limit_gb: float | None = Field(default=None, gt=0)  # of a program, where the kernel lets us
    cache_cap_gb: float | None = Field(default=None, gt=0)  # of what we staged; the oldest unused goes first
    exclude: list[Excluded] = []
    client_profile: Literal["shared-cpu", "gpu-host"] = "gpu-host"
    container: Container | None = None
    slurm: Slurm | None = None
    endpoint: Endpoint | None = None

    @field_validator("sku")
    @classmethod
    def _sku_is_known(cls, value: str) -> str:
        return must_know(value, load_catalog().skus, "SKU")

    @model_validator(mode="after")
    def _parts_fit_the_launcher(self) -> Pool:
        needs = {"container": ("container",), "slurm": ("slurm",), "endpoint": ("endpoint",)}
        for name in needs.get(self.launcher, ()):
            if getattr(self, name) is None:
                raise ValueError(f"launcher {self.launcher} needs the part {name}")
        if len(set(self.hosts)) != len(self.hosts):
            raise ValueError("hosts: a machine is named twice")
        if self.memory_limit_gb is not None and self.launcher != "process":
            raise ValueError("memory_limit_gb: only programs of launcher process get one from us")
        if self.hosts and self.launcher != "container":
            raise ValueError("hosts: only pools of launcher container name their machines")
        if self.launcher == "slurm" and self.slurm and self.slurm.container != "none" and not self.container:
            raise ValueError("containers under slurm need the part container")
        return self

    @property
    def is_placed_by_us(self) -> bool:
        """Whether we choose machine and devices of a launch; elsewhere the pool's own scheduler does."""
        return self.launcher in ("process", "container")

    @property
    def warnings(self) -> list[str]:
        """What the pool allows that whoever answers for its machines should know, a line each."""
        if self.container is None or not self.container.privileged:
            return []
        return [
            f"containers of pool {self.name} run privileged: an image has every device and, in effect, "
            "root on the node; take container.privileged out unless the devices need it"
        ]

    @property
    def lanes(self) -> int:
        """How many launches can be in flight at once, if each is small: where the pool places them itself, no
        more than it has machines, or, where launches share one, devices."""
        if not self.is_placed_by_us:
            return self.max_parallel
        machines = max(len(self.hosts), 1)
        return min(self.max_parallel, machines * (self.accelerators if self.share_node else 1))

    @property
    def total_accelerators(self) -> int:
        """Accelerators that one launch may use."""
        return self.accelerators * self.nodes

    def offload_gb(self, gpus: int, utilization: float) -> int | None:
        """Node memory for KV offload of a launch on ``gpus`` devices of a node, whole GB; None = unknown."""
        if self.node_memory_gb is None:
            return None
        return int(self.node_memory_gb * utilization * min(gpus, self.accelerators) / self.accelerators)


def load_pool(project: Path, name: str) -> Pool:
    """The pool of that name; ``examples/NAME`` is one of ``runners/examples/``.

    :raises DocumentError: when there is none of that name, or it is wrong.
    """
    example = name.removeprefix("examples/")
    if example != name:
        return load_named(project, "runners/examples", example, "pool", Pool)
    return load_named(project, "runners", name, "pool", Pool)


def own_pools(project: Path) -> list[Pool]:
    """The pools of ``runners/``, by name, without the examples: nobody has said that those machines exist.

    :raises DocumentError: when one is wrong.
    """
    return [load_pool(project, path.stem) for path in sorted((project / "runners").glob("*.yaml"))]


def pools_of(project: Path) -> list[Pool]:
    """Every pool of a project, those of ``runners/`` before those of ``runners/examples/``; by name.

    :raises DocumentError: when one is wrong.
    """
    examples = sorted((project / "runners/examples").glob("*.yaml"))
    return own_pools(project) + [load_document(path, Pool, root=project) for path in examples]
