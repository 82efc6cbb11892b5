"""Which cleaners a pool needs beside those of this machine's processes, and on which machines they look."""

from __future__ import annotations

from collections.abc import Iterable

from isoline.catalog.pools import Pool
from isoline.runners.machine.hosts import Host, hosts_of, this_host


def register_cleaners(pools: Iterable[Pool]) -> None:
    """Let clean-up know the container runtimes and the batch system of these pools."""
    for pool in pools:
        if pool.launcher == "container":
            from isoline.runners.launchers.container_gc import clean_containers_of

            clean_containers_of(pool)
        elif pool.launcher == "slurm":
            from isoline.runners.slurm.gc import clean_jobs_of

            clean_jobs_of(pool)


def machines_of(pools: Iterable[Pool]) -> list[Host]:
    """This machine, and every other one that these pools name, each once."""
    found = {"": this_host()}
    for pool in pools:
        if pool.is_placed_by_us:
            found |= {host.name: host for host in hosts_of(pool) if not host.is_local}
    return list(found.values())
