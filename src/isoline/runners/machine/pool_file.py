"""The pool file that fits a machine: ``runners/<name>.yaml`` with comments. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Pool
from isoline.errors import InputError
from isoline.runners.machine.detect import Disk, Facts

GB = 1e9
SMALL_GB = 200
"""A disk with less than this free holds no weights of today's models: worth a comment."""

RACKS = ("gb200-nvl72", "gb300-nvl72", "vr200-nvl72")


@dataclass(frozen=True)
class Wish:
    """What a person says beside the machine; None = by what was detected."""

    name: str | None = None
    sku: str | None = None
    hosts: tuple[str, ...] = ()


def sku_of_machine(facts: Facts, wanted: str | None) -> str:
    """The SKU of all devices.

    :raises InputError: for different devices in one machine, or a product that the catalog does not know.
    """
    if wanted is not None:
        return wanted
    found = Counter((item.name, item.sku) for item in facts.report.devices)
    if len(found) > 1:
        names = ", ".join(f"{count} × {name}" for (name, _), count in sorted(found.items(), key=str))
        raise InputError(
            f"the devices are not alike: {names}",
            where=facts.node,
            remedy="a pool has one SKU: name it, --sku",
        )
    ((name, sku),) = found
    if sku is None:
        raise InputError(
            f"no SKU of the catalog has the name {name!r}",
            where=facts.node,
            remedy="name the SKU with --sku, or add the name to the catalog",
        )
    return sku


def places(disks: Sequence[Disk]) -> tuple[str, str, Disk | None, Disk | None]:
    """(model cache, scratch, their disks): weights on the disk with most room, scratch on a local one.

    Where nothing was found both are usual paths, to be set by hand.
    """
    if not disks:
        return "/srv/isoline/models", "/srv/isoline/scratch", None, None
    first = disks[0]
    local = next((disk for disk in disks if not disk.is_shared and disk != first), None)
    second = local if local is not None and first.is_shared else first
    return f"{_home(first.mount)}/models", f"{_home(second.mount)}/scratch", first, second


def _home(mount: str) -> str:
    return "/srv/isoline" if mount == "/" else f"{mount.rstrip('/')}/isoline"


def profile_of(facts: Facts, sku: str) -> str:
    """The device profile for launches on one machine; over several where Slurm has rails to give."""
    if facts.vendor == "cpu":
        return "cpu"
    if sku in RACKS:
        return "nvidia-gb"
    is_wide = facts.partition is not None and any(rail.is_up for rail in facts.rails)
    return f"{facts.vendor}-rdma" if is_wide else facts.vendor


def pool_text(facts: Facts, wish: Wish = Wish()) -> tuple[str, str]:
    """(name, text of the pool file).

    :raises InputError: where the machine gives no pool: unlike devices, nothing that starts a container.
    """
    sku = sku_of_machine(facts, wish.sku)
    if facts.vendor == "cpu":
        kind, word = "process", "process"
    elif facts.partition is not None:
        kind, word = "slurm", "slurm"
    elif facts.runtime is not None:
        kind, word = "container", facts.runtime
    else:
        said = "; ".join(facts.notes)
        raise InputError(
            "nothing here starts a container" + (f": {said}" if said else ""),
            where=facts.node,
            remedy="install docker or podman with the vendor's container toolkit",
        )
    name = wish.name or f"{sku}-{word}"
    rows = [*_head(facts, sku, name, kind), *_hosts(wish, kind)]
    if kind != "process":
        rows += _container(facts, sku)
    if kind == "slurm":
        rows += _slurm(facts)
    return name, "\n".join(rows) + "\n"


def _head(facts: Facts, sku: str, name: str, kind: str) -> list[str]:
    report = facts.report
    product = load_catalog().skus[sku].name
    count = len(report.devices)
    what = "processors only" if facts.vendor == "cpu" else f"{count} × {report.devices[0].name}"
    if report.driver:
        what += f"; driver {report.driver}"
    if report.runtime:
        what += f", {'CUDA' if facts.vendor == 'nvidia' else 'ROCm'} {report.runtime}"
    rows = [
        "# Written by `isoline pool new` from what it found on one machine; every line may be changed.",
        f"# Found: {what}.",
        *(f"# Note: {note}" for note in facts.notes),
        "schema_version: 1",
        f"name: {name}",
        f"description: {count} × {product}"
        if facts.vendor != "cpu"
        else "description: this machine's processors",
        f"launcher: {kind}",
        f"sku: {sku}",
        f"accelerators: {count}          # of one node",
    ]
    if kind != "process":
        rows.append("nodes: 1                 # that one launch may use")
    if facts.memory_bytes is not None:
        gb = facts.memory_bytes / GB
        rows.append(f"node_memory_gb: {gb:.0f}" if gb >= 1 else f"node_memory_gb: {gb:.3f}")
    rows.append(f"client_profile: {'shared-cpu' if facts.vendor == 'cpu' else 'gpu-host'}")
    return rows


def _hosts(wish: Wish, kind: str) -> list[str]:
    if wish.hosts and kind != "slurm":
        return ["hosts:", *(f"  - {name}" for name in wish.hosts)]
    return []


def _room(disk: Disk | None) -> str:
    if disk is None:
        return "set it: no disk was found that can be written to"
    few = "; little for today's weights" if disk.free / GB < SMALL_GB else ""
    return f"{disk.free / GB:.0f} GB free on {disk.mount} ({disk.kind}){few}"


def _container(facts: Facts, sku: str) -> list[str]:
    cache, scratch, first, second = places(facts.disks)
    profile = profile_of(facts, sku)
    up = [rail for rail in facts.rails if rail.is_up]
    rows = []
    if up:
        names = ", ".join(rail.name for rail in up)
        rows.append(f"# {len(up)} rail(s) for RDMA: {names} ({up[0].rate}, {up[0].layer}).")
        if not profile.endswith(("-rdma", "-gb")):
            rows.append(f"# For launches over several nodes: device_profile {facts.vendor}-rdma.")
    return [
        *rows,
        "container:",
        f"  runtime: {facts.runtime or 'docker'}",
        f"  device_profile: {profile}",
        f"  model_cache: {cache}     # {_room(first)}",
        f"  scratch: {scratch}       # logs and compile caches; {_room(second)}",
    ]


def _slurm(facts: Facts) -> list[str]:
    starter = "pyxis" if facts.has_enroot or facts.runtime is None else facts.runtime
    return [
        "slurm:",
        f"  partition: {facts.partition}",
        f"  container: {starter}       # who starts the container inside the job",
        "  exclusive: true",
        "  time_limit_min: 240",
    ]


def checked(text: str, where: str) -> Pool:
    """The text as a pool: what we write must pass what we read.

    :raises DocumentError: when it does not.
    """
    from isoline.catalog.documents import validate_text

    return validate_text(text, Pool, where)
