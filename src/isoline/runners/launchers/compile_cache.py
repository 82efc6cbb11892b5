"""Compile caches: writable folders of a node by (image, SKU, driver). A cold one is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from isoline.catalog.pools import Pool
from isoline.errors import InfraError, InputError
from isoline.recipes.renderers.slurm_parts import WARM
from isoline.results.identity import digest
from isoline.runners.machine.hosts import Done, Host


@dataclass(frozen=True)
class CompileCache:
    """``path`` on the node; ``cold``: no server has got ready with it yet.

    ``run`` runs a command on its machines where that is not the launch's host (the nodes of a job).
    """

    key: str
    path: str
    cold: bool
    run: Callable[[list[str]], Done] | None = field(default=None, compare=False, repr=False)

    def record(self) -> dict[str, str | bool]:
        """For launch.json."""
        return {"key": self.key, "cold": self.cold}


def cache_key(image: str, sku: str, driver: str | None) -> str:
    """16 hex digits; the same for the same image digest (or reference), SKU and driver, nothing else."""
    return digest({"image": image.partition("@")[2] or image, "sku": sku, "driver": driver})[:16]


def compile_cache(
    host: Host, pool: Pool, image: str, sku: str, driver: str | None, *, state: Path
) -> CompileCache:
    """The cache of a launch on a node; its folder is made where it is not there.

    :param state: our own state folder, which the pool's scratch folder may begin with.

    :raises InputError: when the pool names no scratch folder.
    :raises InfraError: when the folder cannot be made; also ``ToolUnavailableError``.
    """
    if pool.container is None:
        raise InputError("a pool without the part container has no scratch folder", where=f"pool {pool.name}")
    key = cache_key(image, sku, driver)
    path = str(pool.container.scratch_in(state) / "compile" / key)
    made = host.run(["mkdir", "-p", path])
    if not made.ok:
        raise InfraError(f"compile cache: {made.last_line()}", where=f"{host.name} {path}")
    return CompileCache(key, path, cold=not host.run(["test", "-e", f"{path}/{WARM}"]).ok)


def mark_warm(host: Host, cache: CompileCache) -> None:
    """Say that a server got ready with it and its step time was stable: kernels of one that died before
    are not believed.

    :raises InfraError: when that cannot be written.
    """
    done = (cache.run or host.run)(["touch", f"{cache.path}/{WARM}"])
    if not done.ok:
        raise InfraError(f"compile cache: {done.last_line()}", where=f"{host.name} {cache.path}")
