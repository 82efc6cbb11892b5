"""What a deployment needs at least of an accelerator's memory: weights and KV cache. Pure.

Every figure is a lower bound of what the engine will take: activations, graphs and workspaces come on
top. So "does not fit" is certain, "fits" is not. What is not known is None, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from isoline.recipes.topology import Role

BYTES_PER_PARAMETER: dict[str, float] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "f16": 2.0,
    "fp8": 1.0,
    "fp8-block": 1.0 + 4 / (128 * 128),  # one float scale for a block of 128 × 128
    "mxfp8": 1.0 + 1 / 32,  # one byte of scale for 32 values
    "int8": 1.0,
    "mxfp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,  # one byte of scale for 16 values
    "int4": 0.5,
    "q4_1": 20 / 32,  # 16 bytes of values, 4 of scale and minimum for 32 values
    "q8_0": 34 / 32,
}
"""Bytes of one parameter by the exact name of a precision, block scales included: the definitions of
the formats (OCP Microscaling 1.0 for mx*, NVIDIA's NVFP4, GGML's block types). A checkpoint keeps some
layers wider, so parameters × this is a lower bound."""

BYTES_PER_KV_VALUE: dict[str, float] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "f16": 2.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8-e4m3": 1.0,
    "fp8-e5m2": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
    "q8_0": 34 / 32,
}
"""Bytes of one value in the KV cache by the exact name of its precision."""

GB = 1e9


@dataclass(frozen=True)
class Attention:
    """What decides the size of a model's KV cache.

    * ``layers``: those that keep keys and values of the whole context (no linear or sliding-window ones).
    * GQA: ``kv_heads`` × ``head_dim``, keys and values apart. MLA: ``kv_lora_rank`` + ``rope_dim``, once.
    """

    layers: int | None
    kv_heads: int | None = None
    head_dim: int | None = None
    kv_lora_rank: int | None = None
    rope_dim: int | None = None

    @property
    def is_mla(self) -> bool:
        """Whether keys and values are one latent vector, which tensor parallelism cannot split."""
        return self.kv_lora_rank is not None


def weight_bytes(
    *, known_bytes: int | None, parameters: int | None, precision: str
) -> tuple[float | None, str]:
    """(bytes of all weights or None, how that is known).

    :param known_bytes: of the checkpoint's files, which wins.
    """
    if known_bytes is not None:
        return float(known_bytes), "size of the checkpoint"
    each = BYTES_PER_PARAMETER.get(precision)
    if parameters is None or each is None:
        missing = "parameters" if parameters is None else f"the width of {precision}"
        return None, f"{missing} unknown"
    return parameters * each, f"{parameters / 1e9:.4g} B parameters × {each:.4g} bytes"


def kv_bytes_per_token(attention: Attention, precision: str) -> float | None:
    """KV cache of one token over all layers, bytes, unsplit; None where a fact is not known."""
    each = BYTES_PER_KV_VALUE.get(precision)
    if each is None or attention.layers is None:
        return None
    if attention.kv_lora_rank is not None:
        if attention.rope_dim is None:
            return None
        return attention.layers * (attention.kv_lora_rank + attention.rope_dim) * each
    if attention.kv_heads is None or attention.head_dim is None:
        return None
    return 2 * attention.layers * attention.kv_heads * attention.head_dim * each


def kv_ways(attention: Attention, role: Role) -> int:
    """Over how many devices of one worker the KV cache of all its requests is split.

    DP attention and dcp split any cache (by request, by token), tensor parallelism splits KV heads,
    as far as there are any; a latent cache is on each tensor-parallel device in full.
    """
    tensor = role.tp // (role.dp_attention * role.dcp)
    heads = 1 if attention.is_mla or attention.kv_heads is None else attention.kv_heads
    return role.pp * role.dp_attention * role.dcp * max(1, min(tensor, heads))


@dataclass(frozen=True)
class Need:
    """What one device of a role needs at least, bytes."""

    weights: float | None
    kv: float | None
    usable: float | None
    how: str
    unknown: tuple[str, ...] = field(default=())

    @property
    def total(self) -> float | None:
        """Weights and KV cache; what is unknown counts for nothing. None where nothing is known."""
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
    weights: float | None,
    how: str,
    attention: Attention,
    kv_precision: str,
    tokens: int | None,
    usable: float | None,
) -> Need:
    """What one device of a role needs.

    :param weights: of the whole model, bytes.
    :param tokens: that one worker of the role holds at once; None: not known, and not asked for.
    :param usable: of one device, bytes.
    """
    unknown: list[str] = []
    if weights is None:
        unknown.append(how)
    if usable is None:
        unknown.append("usable memory of the SKU unknown")
    kv: float | None = None
    if tokens is not None:
        per_token = kv_bytes_per_token(attention, kv_precision)
        if per_token is None:
            unknown.append(_why_unknown(attention, kv_precision))
        else:
            kv = tokens * per_token / kv_ways(attention, role)
    return Need(
        weights=None if weights is None else weights / role.gpus_per_worker,
        kv=kv,
        usable=usable,
        how=how,
        unknown=tuple(unknown),
    )


def _why_unknown(attention: Attention, kv_precision: str) -> str:
    if kv_precision not in BYTES_PER_KV_VALUE:
        return f"the width of KV precision {kv_precision!r} unknown"
    names: Iterable[str] = ("layers", "rope_dim") if attention.is_mla else ("layers", "kv_heads", "head_dim")
    missing = [name for name in names if getattr(attention, name) is None]
    return f"{' and '.join(missing)} of the model unknown"
