"""``pool new``: what is detected, and the pool file that comes out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isoline.errors import InputError
from isoline.runners.machine.detect import (
    Disk,
    Facts,
    Rail,
    look,
    parse_disks,
    parse_meminfo,
    parse_rails,
    partition_of,
)
from isoline.runners.machine.devices.model import Device, DeviceReport
from isoline.runners.machine.hosts import this_host
from isoline.runners.machine.pool_file import Wish, checked, places, pool_text

BIG = Disk("/mnt/nvme0", "xfs", 10**13, 8 * 10**12)
ROOT = Disk("/", "ext4", 10**12, 3 * 10**11)
NFS = Disk("/shared", "nfs4", 10**14, 5 * 10**13)
DF = """\
overlay 922498048 83100000 /
ext4 1000000 900000 /boot
tmpfs 65536 65536 /dev
xfs 7500000000 7100000000 /mnt/nvme 0
nfs4 90000000000 40000000000 /shared
"""


def machine(name: str = "NVIDIA H200", count: int = 8, sku: str | None = "h200", **changed: Any) -> Facts:
    devices = tuple(Device(number, name=name, sku=sku) for number in range(count))
    report = DeviceReport("nvidia", "nvidia-smi", "580.82.07", "13.0", devices)
    facts = Facts("n1", "nvidia", report, "docker", None, 2_164_000_000_000, (BIG, ROOT), ())
    return replace(facts, **changed)


def test_a_machine_with_docker() -> None:
    """Eight H200 become a container pool whose paths lie on the disk with most room."""
    name, text = pool_text(machine())
    pool = checked(text, "x")
    assert (name, pool.name, pool.launcher, pool.sku, pool.accelerators) == (
        "h200-docker", "h200-docker", "container", "h200", 8,
    )  # fmt: skip
    assert pool.container is not None and pool.container.device_profile == "nvidia"
    assert pool.container.model_cache == "/mnt/nvme0/isoline/models"
    assert pool.node_memory_gb == 2164
    assert "# Found: 8 × NVIDIA H200; driver 580.82.07, CUDA 13.0." in text
    assert "8000 GB free on /mnt/nvme0 (xfs)" in text


def test_a_node_of_slurm_is_used_through_slurm() -> None:
    """Where Slurm hands the machine out, nothing is started behind its back; rails choose the profile."""
    rails = (Rail("mlx5_0", "4: ACTIVE", "400 Gb/sec (4X NDR)", "InfiniBand"),)
    name, text = pool_text(machine(partition="gpu", has_enroot=True, rails=rails))
    pool = checked(text, "x")
    assert name == "h200-slurm" and pool.slurm is not None and pool.container is not None
    assert (pool.slurm.partition, pool.slurm.container) == ("gpu", "pyxis")
    assert pool.container.device_profile == "nvidia-rdma" and "1 rail(s) for RDMA: mlx5_0" in text


def test_other_machines_and_names() -> None:
    """Machines named by the person are the pool's; its name is theirs to choose."""
    name, text = pool_text(machine(runtime="podman"), Wish(name="lab", hosts=("gpu1", "gpu2")))
    pool = checked(text, "x")
    assert (name, pool.name, pool.hosts) == ("lab", "lab", ["gpu1", "gpu2"])


def test_a_rack_has_its_own_profile() -> None:
    """GB200 trays need IMEX channels."""
    pool = checked(pool_text(machine("NVIDIA GB200", 4, "gb200-nvl72"))[1], "x")
    assert pool.container is not None and pool.container.device_profile == "nvidia-gb"


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (machine("NVIDIA H200 NVL", 8, None), "no SKU of the catalog has the name 'NVIDIA H200 NVL'"),
        (
            machine(runtime=None, notes=("docker is here and does not work: x",)),
            "nothing here starts a container",
        ),
    ],
)
def test_what_gives_no_pool_is_said(facts: Facts, message: str) -> None:
    """An unknown product or a machine without a container runtime is one line with a remedy."""
    with pytest.raises(InputError, match=message) as caught:
        pool_text(facts)
    assert caught.value.remedy
    assert checked(pool_text(machine("odd", 8, None), Wish(sku="h200"))[1], "x").sku == "h200"


def test_unlike_devices_are_no_pool() -> None:
    """A pool has one SKU."""
    report = machine().report
    mixed = replace(report, devices=(*report.devices, Device(8, name="NVIDIA H100 80GB HBM3", sku="h100")))
    with pytest.raises(InputError, match="not alike"):
        pool_text(machine(report=mixed))


def test_disks_are_chosen_by_space() -> None:
    """Weights go where most room is; scratch stays on a local disk."""
    assert places((BIG, ROOT))[:2] == ("/mnt/nvme0/isoline/models", "/mnt/nvme0/isoline/scratch")
    assert places((NFS, BIG, ROOT))[:2] == ("/shared/isoline/models", "/mnt/nvme0/isoline/scratch")
    assert places((ROOT,))[0] == "/srv/isoline/models"
    assert places(())[2] is None
    found = parse_disks(DF)
    assert [disk.mount for disk in found] == ["/shared", "/mnt/nvme 0", "/"]
    assert found[0].is_shared and not found[1].is_shared


def test_rails_and_partitions_are_read() -> None:
    """Ports with their state; the default partition of a node, none for a machine that is no node."""
    up, down = parse_rails(
        "mlx5_0\t4: ACTIVE\t400 Gb/sec (4X NDR)\tInfiniBand\nmlx5_1\t1: DOWN\t10 Gb/sec (1X)\tEthernet\n"
    )
    assert (up.is_up, down.is_up) == (True, False)
    assert partition_of("n1 debug\nn1 gpu*\nn2 cpu\n", "n1") == "gpu"
    assert partition_of("n1 debug\n", "n9") is None


def test_this_machine_with_made_up_devices(
    fake_machine: Callable[..., Any], fakes: Any, tmp_path: Path
) -> None:
    """The real questions work here: memory, disks and rails come from this machine, devices from the tool."""
    made = fake_machine(["nvidia-smi", "docker", "sinfo"], fakes.h200s())
    made.say(fail={"sinfo": "slurm_load_partitions: Unable to contact slurm controller"})
    port = tmp_path / "ib" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    for name, value in (
        ("state", "4: ACTIVE"),
        ("rate", "400 Gb/sec (4X NDR)"),
        ("link_layer", "InfiniBand"),
    ):
        (port / name).write_text(f"{value}\n")
    facts = look(this_host(), infiniband=str(tmp_path / "ib"))
    assert (facts.vendor, facts.runtime, facts.partition) == ("nvidia", "docker", None)
    assert [rail.name for rail in facts.rails] == ["mlx5_0"] and facts.rails[0].is_up
    assert facts.memory_bytes is not None and facts.disks
    assert checked(pool_text(facts)[1], "x").accelerators == 8


def test_an_amd_machine(fake_machine: Callable[..., Any], fakes: Any) -> None:
    """Eight MI355X become a pool with AMD's device profile."""
    fake_machine(["amd-smi", "docker"], fakes.mi355xs(), **fakes.AMD)
    facts = look(this_host())
    pool = checked(pool_text(replace(facts, partition=None))[1], "x")
    assert (pool.name, pool.sku, pool.accelerators) == ("mi355x-docker", "mi355x", 8)
    assert pool.container is not None and pool.container.device_profile == "amd"


def test_lines_that_say_nothing_are_passed_by() -> None:
    """What df and the kernel do not know is no disk and no memory, and no mistake of ours."""
    assert [disk.mount for disk in parse_disks("ext4 9 5 /a b\next4\next4 - - /x\nxfs 1 y /z")] == ["/a b"]
    assert parse_meminfo("MemTotal:\nMemTotal: x kB") is None
