"""What a launch needs of a machine, and what was found there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from isoline.catalog.pools import Pool
from isoline.results.judging.reasons import REASONS

LOG_GB = 1.0
SCRATCH_GB = 10.0
IMAGE_GB = 10.0


@dataclass(frozen=True)
class Problem:
    """What speaks against a launch; ``code`` is a reason code."""

    code: str
    detail: str


@dataclass(frozen=True)
class Room:
    """Free space that a path must have, GB (10^9 bytes)."""

    what: str
    path: str
    need_gb: float


@dataclass(frozen=True)
class NeededFile:
    """A file that must be on the machine; ``bytes`` None = any size."""

    path: str
    bytes: int | None = None


@dataclass(frozen=True)
class Needs:
    """What a launch (or a pool) needs of one machine.

    :param devices: indices of the devices that the launch leased; None = all of them.
    :param ports: how many free ports of Isoline's range.
    :param tools: programs that must answer: docker, podman, sbatch.
    :param rootless: the container runtime that must run without root; None: it may.
    :param has_devices: False where the launch's devices are those of other machines (Slurm's nodes).
    :param partition: Slurm's partition, and how many nodes of it must take jobs.
    :param image_gb: free space where the container runtime keeps its images, GB.
    """

    sku: str
    accelerators: int
    devices: tuple[int, ...] | None = None
    rooms: tuple[Room, ...] = ()
    files: tuple[NeededFile, ...] = ()
    tools: tuple[str, ...] = ()
    rootless: str | None = None
    image_gb: float = IMAGE_GB
    ports: int = 1
    has_devices: bool = True
    partition: tuple[str, int] | None = None


@dataclass(frozen=True)
class Finding:
    """One check. ``ok`` None = nobody could tell. ``code`` is a reason code where it is not ok."""

    name: str
    ok: bool | None
    detail: str
    code: str | None = None

    @property
    def remedy(self) -> str | None:
        """What to do about it."""
        return REASONS[self.code].remedy if self.code else None


def needs_of_pool(pool: Pool, *, state: str, need_gb: float | None = None) -> Needs:
    """What every machine of a pool needs, before any launch is named.

    Of a Slurm pool it is the machine that submits: devices and disks of the nodes are looked at inside the
    job of a launch, as only there they are ours.

    :param state: folder of this machine where a ``process`` pool works.
    :param need_gb: free space that each path must have, instead of the usual.
    """

    def gb(usual: float) -> float:
        return usual if need_gb is None else need_gb

    rooms: tuple[Room, ...] = (Room("state", state, gb(LOG_GB)),)
    tools: tuple[str, ...] = ()
    if pool.launcher == "slurm" and pool.slurm is not None:
        return Needs(
            sku=pool.sku,
            accelerators=pool.accelerators,
            rooms=rooms,
            tools=("sbatch", "srun", "squeue", "scancel"),
            has_devices=False,
            partition=(pool.slurm.partition, pool.nodes),
        )
    if pool.container is not None:
        ours = Path(state)
        rooms = (
            Room("model cache", str(pool.container.model_cache_in(ours)), gb(LOG_GB)),
            Room("scratch and logs", str(pool.container.scratch_in(ours)), gb(SCRATCH_GB)),
        )
    if pool.launcher == "container" and pool.container is not None:
        tools = (pool.container.runtime,)
    return Needs(
        sku=pool.sku,
        accelerators=pool.accelerators,
        rooms=rooms,
        tools=tools,
        rootless=pool.container.runtime if pool.container and pool.container.rootless else None,
        image_gb=gb(IMAGE_GB),
    )


def for_launch(
    needs: Needs, *, devices: Sequence[int] | None = None, files: Sequence[NeededFile] = ()
) -> Needs:
    """What one launch needs beside what its pool does.

    :param devices: indices that are leased to it; None = all.
    :param files: the model's files on the machine.
    """
    return replace(needs, devices=None if devices is None else tuple(devices), files=tuple(files))
