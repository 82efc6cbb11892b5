"""SKUs: accelerator products, what they have and what they take."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from isoline.catalog.documents import Document
from isoline.catalog.sourced import Sourced

MIB = 1 << 20


class Memory(Sourced):
    """Memory of one device. ``usable_mib`` is what the driver's own tool prints as the total (MiB);
    ``marketed_gb`` what the sheet says, which mixes GB and GiB. ``bandwidth_tb_s`` is the peak."""

    usable_mib: int | None = Field(default=None, gt=0)
    marketed_gb: float | None = Field(default=None, gt=0)
    bandwidth_tb_s: float | None = Field(default=None, gt=0)
    kind: str | None = None


class Compute(Sourced):
    """Peak rates of the matrix units without sparsity, TFLOP/s; null where nobody says, or where the
    device has no units for the format (it is then in ``lacks``)."""

    bf16_tflops: float | None = Field(default=None, gt=0)
    fp8_tflops: float | None = Field(default=None, gt=0)
    fp4_tflops: float | None = Field(default=None, gt=0)
    lacks: list[Literal["fp8", "fp4"]] = []


class Power(Sourced):
    """``tdp_w`` of one device; ``all_in_kw`` is its share of everything in the data centre."""

    tdp_w: float | None = Field(default=None, gt=0)
    all_in_kw: float | None = Field(default=None, gt=0)


class ScaleUp(Sourced):
    """The fast network between devices: GB/s of one device in one direction, and how many it joins."""

    kind: str
    gb_s: float | None = Field(default=None, gt=0)
    world: int | None = Field(default=None, gt=0)


class Names(Sourced):
    """What the vendors' tools print as the product's name."""

    nvidia_smi: list[str] = []
    amd_smi: list[str] = []
    gfx: str | None = None
    compute_capability: str | None = None


class Readiness(Sourced):
    """Whether one engine can be had for a SKU: a public image, or what is missing.

    ``image`` is a public reference or repository, null where the source names none.
    """

    image: str | None = None
    missing: str | None = None


class Sku(Document):
    """An accelerator product. ``cpu`` is the share of the machine that a launch was given.

    ``devices_per_node`` is that of the usual node (a compute tray in a rack-scale system).
    """

    name: str
    vendor: str
    status: Literal["available", "announced"] = "available"
    arch: str | None = None
    devices_per_node: int | None = Field(default=None, gt=0)
    memory: Memory | None = None
    compute: Compute | None = None
    power: Power | None = None
    scale_up: ScaleUp | None = None
    names: Names | None = None
    readiness: dict[str, Readiness] = {}
    note: str = ""

    @property
    def usable_bytes(self) -> int | None:
        """Memory that a program can have at most, bytes; None where the tool's figure is not known."""
        if self.memory is None or self.memory.usable_mib is None:
            return None
        return self.memory.usable_mib * MIB

    @property
    def memory_bytes(self) -> int | None:
        """Memory for estimates, bytes: the tool's figure, else the sheet's taken as 10^9 bytes."""
        if self.usable_bytes is not None or self.memory is None or self.memory.marketed_gb is None:
            return self.usable_bytes
        return int(self.memory.marketed_gb * 1e9)


class Skus(Document):
    schema_version: Literal[1]
    skus: dict[str, Sku]
