"""Models: their size and shape, and the checkpoints that hold them at each precision."""

from __future__ import annotations

from pathlib import PurePath
from typing import Literal

from pydantic import Field, field_validator, model_validator

from isoline.catalog.documents import Document
from isoline.catalog.sourced import HUB_ID, Sourced

FAMILIES: dict[str, tuple[str, ...]] = {
    "fp4": ("nvfp4", "mxfp4"),
    "fp8": ("fp8", "fp8-block", "mxfp8"),
    "int4": ("int4",),
    "bf16": ("bf16",),
}
"""The vague names of precisions in public data, and what each may stand for."""

_KEY = r"^[a-z0-9][a-z0-9._-]*$"


class WeightFile(Document):
    """One file of weights at one precision, and where it comes from.

    ``wheel`` is a requirement of the package index, ``member`` the file's path in that wheel.
    """

    file: str
    precision: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(gt=0)
    wheel: str | None = None
    member: str | None = None

    @property
    def place(self) -> str:
        """Where it lies below a folder of weights: ``<sha256>/<file>``."""
        return f"{self.sha256}/{PurePath(self.file).name}"


class Checkpoint(Sourced):
    """Weights of a model on the hub.

    ``precision`` is that of the routed experts (of all linear layers in a dense model), where nearly
    all bytes are; ``parts`` names what is kept otherwise. ``bytes`` is exact, ``size_gb`` is what the
    source says it takes, rounded as there (10^9 bytes); null where nobody says.
    """

    hub_id: str = Field(pattern=HUB_ID)
    precision: str = Field(pattern=_KEY)
    parts: dict[str, str] = {}
    revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")
    bytes: int | None = Field(default=None, gt=0)
    size_gb: float | None = Field(default=None, gt=0)
    kv_precision: str | None = None  # that the checkpoint itself asks for


class Mla(Document):
    """Latent attention: per token and layer one vector of ``kv_lora_rank + rope_dim`` values is kept."""

    kv_lora_rank: int = Field(gt=0)
    rope_dim: int = Field(gt=0)


class Architecture(Sourced):
    """The shape of a model.

    ``kv_layers`` is how many layers keep keys and values for every token (layers with linear or
    windowed attention do not); null where the cache is compressed in another way. ``experts`` are
    the routed ones of one layer. ``mtp_layers`` is how many layers predict further tokens.
    """

    layers: int = Field(gt=0)
    hidden: int = Field(gt=0)
    heads: int = Field(gt=0)
    kv_heads: int | None = Field(default=None, gt=0)
    head_dim: int | None = Field(default=None, gt=0)
    mla: Mla | None = None
    kv_layers: int | None = Field(default=None, gt=0)
    attention: str  # in words: what is special in it
    experts: int | None = Field(default=None, gt=0)
    experts_per_token: int | None = Field(default=None, gt=0)
    shared_experts: int | None = Field(default=None, ge=0)
    vocab: int = Field(gt=0)
    mtp_layers: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _experts_are_whole(self) -> Architecture:
        if (self.experts is None) != (self.experts_per_token is None):
            raise ValueError("experts and experts_per_token are given together")
        if self.mla is None and self.kv_heads is None:
            raise ValueError("either kv_heads or mla says how keys and values are kept")
        return self

    def kv_bytes_per_token(self, bytes_per_value: float) -> float | None:
        """Bytes that one token takes in the KV cache of the whole model.

        A lower bound: indexes of sparse attention, states of linear attention and windows come on
        top. None where the shape does not tell.
        """
        if self.kv_layers is None:
            return None
        if self.mla is not None:
            return self.kv_layers * (self.mla.kv_lora_rank + self.mla.rope_dim) * bytes_per_value
        if self.kv_heads is None or self.head_dim is None:
            return None
        return self.kv_layers * 2 * self.kv_heads * self.head_dim * bytes_per_value


class Thinking(Sourced):
    """How a model is told to think or not: values for the chat template.

    ``on`` and ``off`` are what ``chat_template_kwargs`` takes; null where there is no such state.
    """

    default: Literal["on", "off", "adaptive"] | None = None
    on: dict[str, bool | str] | None = None
    off: dict[str, bool | str] | None = None
    note: str = ""


class Draft(Sourced):
    """A model that drafts for this one."""

    hub_id: str = Field(pattern=HUB_ID)
    method: Literal["eagle3", "dspark", "draft_model"]
    revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")


class Model(Sourced):
    """A model. ``revision`` names one immutable state of it, null where none is pinned.

    Parameters are counts; ``parameters_active`` those that one token goes through.
    """

    name: str
    hub_id: str = Field(pattern=HUB_ID)
    revision: str | None = None
    license: str | None = None
    parameters_total: int | None = Field(default=None, gt=0)
    parameters_active: int | None = Field(default=None, gt=0)
    context: int | None = Field(default=None, gt=0)
    architecture: Architecture | None = None
    thinking: Thinking | None = None
    weights: list[WeightFile] = []
    checkpoints: dict[str, Checkpoint] = {}
    drafts: dict[str, Draft] = {}

    @field_validator("checkpoints")
    @classmethod
    def _one_checkpoint_a_hub_id(cls, value: dict[str, Checkpoint]) -> dict[str, Checkpoint]:
        ids = [item.hub_id.lower() for item in value.values()]
        if len(set(ids)) != len(ids):
            raise ValueError("two checkpoints have the same hub_id")
        return value

    @property
    def precisions(self) -> set[str]:
        """All precisions that its weights can be had at: files here and checkpoints on the hub."""
        found = {item.precision for item in self.weights}
        return found | {item.precision for item in self.checkpoints.values()}

    @property
    def revisions(self) -> set[str]:
        """All states that are pinned, of the model and of its checkpoints."""
        found = {item.revision for item in self.checkpoints.values()} | {self.revision}
        return {item for item in found if item is not None}

    def checkpoints_at(self, precision: str) -> dict[str, Checkpoint]:
        """The checkpoints of one precision, by name; several where the model was quantised twice."""
        return {name: item for name, item in self.checkpoints.items() if item.precision == precision}

    def checkpoint_of(self, precision: str) -> str | None:
        """The hub id of the checkpoint of a precision, where there is one only or it is the model's own.

        None where there is none, or several: a recipe then has to name its checkpoint.
        """
        ids = [item.hub_id for item in self.checkpoints_at(precision).values()]
        if self.hub_id in ids:
            return self.hub_id
        return ids[0] if len(ids) == 1 else None

    def revision_of(self, hub_id: str | None) -> str | None:
        """The pinned state of a checkpoint; the model's own where none is named. None: not pinned."""
        listed = next((item.revision for item in self.checkpoints.values() if item.hub_id == hub_id), None)
        return listed or (self.revision if hub_id in (None, self.hub_id) else None)

    def precision_of(self, vague: str) -> str | None:
        """The exact precision that a vague name (``fp4``) means for this model; None if not just one."""
        if vague in self.precisions:
            return vague
        fits = [item for item in sorted(self.precisions) if item in FAMILIES.get(vague, ())]
        return fits[0] if len(fits) == 1 else None


class Precision(Sourced):
    """A number format of weights or KV cache, said exactly.

    :ivar bits: of one value, without its scale.
    :ivar block: how many values share one scale; null: one scale for a row or the whole tensor.
    """

    name: str
    use: Literal["weights", "kv", "both"]
    bits: float = Field(gt=0)
    block: int | None = Field(default=None, gt=0)
    scale_bits: int = Field(default=0, ge=0)

    @property
    def bits_per_value(self) -> float:
        """Bits that one value takes in memory, its share of the scale included."""
        return self.bits + (self.scale_bits / self.block if self.block else 0)


class Curve(Sourced):
    """Golden acceptance lengths of one model and drafting method, by draft length.

    A length counts the target's own token: 1 means that no drafted token was accepted.
    ``thinking`` is null where the source does not say in which mode it was taken. ``usual`` marks the
    curve that public recipes take where there are several.
    """

    model: str
    method: Literal["mtp", "eagle3", "dspark"]
    variant: str | None = None
    draft_model: str | None = None
    thinking: Literal["on", "off"] | None = None
    usual: bool = False
    lengths: dict[str, float] = Field(min_length=1)

    @field_validator("lengths")
    @classmethod
    def _lengths_are_possible(cls, value: dict[str, float]) -> dict[str, float]:
        for drafted, length in value.items():
            if not drafted.isdigit() or not 1 <= length <= int(drafted) + 1:
                raise ValueError(f"draft length {drafted}: {length:g} is not between 1 and {drafted} + 1")
        return value


class Models(Document):
    schema_version: Literal[1]
    models: dict[str, Model]


class Precisions(Document):
    schema_version: Literal[1]
    precisions: dict[str, Precision]


class Acceptance(Document):
    schema_version: Literal[1]
    curves: dict[str, Curve]
