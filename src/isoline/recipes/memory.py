"""What a deployment needs at least of an accelerator's memory: weights and KV cache. Pure.

Every figure is a lower bound of what the engine takes: activations, graphs and workspaces come on top.
So "does not fit" is certain, "fits" is not. What is not known is None and is said, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

from isoline.catalog.facts import Catalog
from isoline.catalog.models import Architecture, Model
from isoline.recipes.topology import Role

GB = 1e9


@dataclass(frozen=True)
class Known:
    """A figure with how it is known; ``value`` None: ``how`` says what is missing."""

    value: float | None
    how: str


def weight_bytes(
    precision: str, *, bits: float | None, parameters: int | None, exact: int | None, size_gb: float | None
) -> Known:
    """Bytes of all weights of a model.

    :param bits: of one value at this precision, its share of the scale included.
    :param exact: bytes of the checkpoint's files; wins.
    :param size_gb: what its source says that it takes; comes next.
    """
    if exact is not None:
        return Known(float(exact), "size of the checkpoint's files")
    if size_gb is not None:
        return Known(size_gb * GB, "size that the checkpoint's source names")
    if parameters is None:
        return Known(None, "number of parameters unknown")
    if bits is None:
        return Known(None, f"bits of weight precision {precision!r} unknown")
    return Known(parameters * bits / 8, f"{parameters / 1e9:.4g} B parameters × {bits / 8:.4g} bytes")


def weights_to_read(precision: str, checkpoint: str | None, model: Model, catalog: Catalog) -> Known:
    """Bytes of a model's weights at a precision, by its checkpoint there where one is known.

    :param checkpoint: the hub id that a recipe names; None: any of that precision.
    """
    fact = catalog.precisions.get(precision)
    fits = model.checkpoints_at(precision).values()
    held = next((item for item in fits if checkpoint in (None, item.hub_id)), None)
    return weight_bytes(
        precision,
        bits=fact.bits_per_value if fact else None,
        parameters=model.parameters_total,
        exact=held.bytes if held else None,
        size_gb=held.size_gb if held else None,
    )


def kv_bytes(architecture: Architecture | None, precision: str, *, bits: float | None) -> Known:
    """Bytes that one token takes in the KV cache of the whole model, not split over devices."""
    if architecture is None:
        return Known(None, "architecture of the model unknown")
    if bits is None:
        return Known(None, f"bits of KV precision {precision!r} unknown")
    value = architecture.kv_bytes_per_token(bits / 8)
    if value is None:
        return Known(None, "the catalog does not tell how much this model's attention keeps for a token")
    return Known(value, f"{architecture.kv_layers} layers, {precision}")


def kv_ways(architecture: Architecture, role: Role) -> int:
    """Over how many devices of one worker the KV cache of all its requests is split.

    DP attention and dcp split any cache (by request, by token), tensor parallelism splits KV heads,
    as far as there are any; a latent cache is on each tensor-parallel device in full.
    """
    tensor = max(1, role.tp // (role.dp_attention * role.dcp))
    heads = 1 if architecture.mla is not None or architecture.kv_heads is None else architecture.kv_heads
    return role.pp * role.dp_attention * role.dcp * min(tensor, heads)


@dataclass(frozen=True)
class Need:
    """What one device of a role needs at least, bytes; ``unknown`` says what could not be counted."""

    weights: float | None
    kv: float | None
    usable: float | None
    unknown: tuple[str, ...] = ()

    @property
    def total(self) -> float | None:
        """Weights and KV cache as far as they are known; None where neither is."""
        parts = [part for part in (self.weights, self.kv) if part is not None]
        return sum(parts) if parts else None

    @property
    def fits(self) -> bool | None:
        """False: certainly not. None: not known."""
        if self.total is None or self.usable is None:
            return None
        if self.total > self.usable:
            return False
        return None if self.unknown else True

    def text(self) -> str:
        """``weights 31.2 + KV 2.05 of 141 GB a device``, ``?`` for what is not known."""
        return f"weights {_gb(self.weights)} + KV {_gb(self.kv)} of {_gb(self.usable)} GB a device"


def _gb(value: float | None) -> str:
    return "?" if value is None else f"{value / GB:.3g}"


def need(
    role: Role,
    *,
    weights: Known,
    kv_per_token: Known,
    architecture: Architecture | None,
    tokens: int | None,
    usable: float | None,
) -> Need:
    """What one device of a role needs.

    :param weights: of the whole model, bytes.
    :param tokens: that one worker of the role holds at once; None where a scenario does not say, then
        the KV cache is left out.
    :param usable: of one device, bytes.
    """
    unknown = [weights.how] if weights.value is None else []
    if usable is None:
        unknown.append("usable memory of the SKU unknown")
    kv: float | None = None
    if tokens is not None:
        if kv_per_token.value is None or architecture is None:
            unknown.append(kv_per_token.how)
        else:
            kv = tokens * kv_per_token.value / kv_ways(architecture, role)
    each = None if weights.value is None else weights.value / role.gpus_per_worker
    return Need(each, kv, usable, tuple(unknown))
