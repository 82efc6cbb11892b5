"""What a machine is, for ``pool new``: devices, container runtime, memory, disks, network rails."""

from __future__ import annotations

import os
from dataclasses import dataclass

from isoline.runners.machine.devices.model import DeviceReport
from isoline.runners.machine.devices.reader import detect, has_tool, read_devices
from isoline.runners.machine.hosts import Host, ToolUnavailableError

LOCAL_TYPES = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "bcachefs"}
SHARED_TYPES = {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "fuse.ceph", "wekafs", "cifs"}

DISKS_SCRIPT = """
df -PkT 2>/dev/null | tail -n +2 | while read -r source type size used free share mount; do
  if [ -w "$mount" ]; then echo "$type $size $free $mount"; fi
done
"""
RAILS_SCRIPT = """
for dir in "$1"/*; do
  [ -d "$dir" ] || continue
  for port in "$dir"/ports/*; do
    [ -r "$port/state" ] || continue
    printf '%s\\t%s\\t%s\\t%s\\n' "${dir##*/}" "$(cat "$port/state")" "$(cat "$port/rate")" \\
      "$(cat "$port/link_layer")"
  done
done
true
"""
INFINIBAND = "/sys/class/infiniband"
KB = 1024


@dataclass(frozen=True)
class Disk:
    """A file system that we may write to; bytes."""

    mount: str
    kind: str
    size: int
    free: int

    @property
    def is_shared(self) -> bool:
        """Whether other machines see it too."""
        return self.kind in SHARED_TYPES


@dataclass(frozen=True)
class Rail:
    """One port of a card for RDMA: ``mlx5_0``, ``4: ACTIVE``, ``400 Gb/sec (4X NDR)``, ``InfiniBand``."""

    name: str
    state: str
    rate: str
    layer: str

    @property
    def is_up(self) -> bool:
        """Whether it can carry anything."""
        return "ACTIVE" in self.state


@dataclass(frozen=True)
class Facts:
    """One machine. ``runtime`` starts containers (None: nothing does).

    ``partition`` is Slurm's, where it hands the machine out; ``has_enroot``: it can start images itself.
    """

    node: str
    vendor: str
    report: DeviceReport
    runtime: str | None
    partition: str | None
    memory_bytes: int | None
    disks: tuple[Disk, ...]
    rails: tuple[Rail, ...]
    notes: tuple[str, ...] = ()
    has_enroot: bool = False


def parse_disks(output: str) -> tuple[Disk, ...]:
    """Local and shared file systems, the emptiest first; the pseudo ones are left out."""
    found = {}
    for line in output.splitlines():
        words = line.split(None, 3)
        if len(words) < 4 or not (words[1].isdecimal() and words[2].isdecimal()):
            continue  # df says "-" where it does not know
        kind, size, free, mount = words
        if kind in LOCAL_TYPES | SHARED_TYPES and mount != "/boot" and not mount.startswith("/boot/"):
            found[mount] = Disk(mount, kind, int(size) * KB, int(free) * KB)
    return tuple(sorted(found.values(), key=lambda disk: (-disk.free, disk.mount)))


def parse_rails(output: str) -> tuple[Rail, ...]:
    """Ports of RDMA cards."""
    cells = [line.split("\t") for line in output.splitlines() if line.count("\t") == 3]
    return tuple(Rail(name, state, rate, layer) for name, state, rate, layer in cells)


def parse_meminfo(output: str, name: str = "MemTotal") -> int | None:
    """A value of /proc/meminfo in bytes."""
    for line in output.splitlines():
        if line.startswith(f"{name}:") and (words := line.split()[1:]) and words[0].isdecimal():
            return int(words[0]) * KB
    return None


def partition_of(sinfo: str, node: str) -> str | None:
    """The partition of a node by ``sinfo -h -N -o '%N %P'``, the default one (``*``) first.

    None: it is no node of that Slurm.
    """
    mine = [words[1] for line in sinfo.splitlines() if (words := line.split()) and words[0] == node]
    default = [name for name in mine if name.endswith("*")]
    return (default or mine)[0].rstrip("*") if mine else None


def look(host: Host, *, infiniband: str = INFINIBAND) -> Facts:
    """Look at a machine. Changes nothing there.

    :raises ToolUnavailableError: when its device tool does not answer, or it is out of reach.
    """
    vendor = detect(host)
    report = read_devices(host, vendor)
    if vendor != "cpu" and not report.devices:
        raise ToolUnavailableError(f"{report.tool} sees no device", where=host.name)
    notes: list[str] = []
    runtime = _runtime(host, notes)
    return Facts(
        node=host.name,
        vendor=vendor,
        report=report,
        runtime=runtime,
        partition=_partition(host),
        memory_bytes=parse_meminfo(host.run(["cat", "/proc/meminfo"]).stdout),
        disks=parse_disks(host.run(["sh", "-c", DISKS_SCRIPT]).stdout),
        rails=parse_rails(host.run(["sh", "-c", RAILS_SCRIPT, "sh", infiniband]).stdout),
        notes=tuple(notes),
        has_enroot=has_tool(host, "enroot"),
    )


def _runtime(host: Host, notes: list[str]) -> str | None:
    """docker, else podman: the first that answers. One that is there and does not is worth a note."""
    for name in ("docker", "podman"):
        if not has_tool(host, name):
            continue
        try:
            done = host.run([name, "info"])
        except ToolUnavailableError as error:
            notes.append(f"{name} is here and does not answer: {error.what}")
            continue
        if done.ok:
            return name
        notes.append(f"{name} is here and does not work: {done.last_line()}")
    return None


def _partition(host: Host) -> str | None:
    """The partition where Slurm hands this machine out; None where it does not."""
    if not has_tool(host, "sinfo"):
        return None
    try:
        done = host.run(["sinfo", "-h", "-N", "-o", "%N %P"])
        node = os.uname().nodename if host.is_local else host.run(["uname", "-n"]).stdout.strip()
    except ToolUnavailableError:
        return None
    return partition_of(done.stdout, node.partition(".")[0]) if done.ok else None
