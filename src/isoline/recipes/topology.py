"""Topologies: how many workers of each role, on how many devices, and how those are split."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from isoline.catalog.documents import Document

RoleName = Literal["aggregated", "prefill", "decode"]


class Role(Document):
    """One role of a topology. ``tp`` is the number of devices of one pipeline stage of one worker."""

    workers: int = Field(default=1, ge=1)
    tp: int = Field(default=1, ge=1)
    pp: int = Field(default=1, ge=1)
    ep: int = Field(default=1, ge=1)
    dp_attention: int = Field(default=1, ge=1)
    dcp: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _attention_divides_tp(self) -> Role:
        for name in ("dp_attention", "dcp"):
            ways = getattr(self, name)
            if self.tp % ways:
                raise ValueError(f"{name} {ways} does not divide tp {self.tp}")
        return self

    @property
    def gpus_per_worker(self) -> int:
        """Devices of one worker: tp × pp."""
        return self.tp * self.pp

    @property
    def gpus(self) -> int:
        """Devices of this role: workers × tp × pp. ep, DP attention and dcp divide these, none multiplies."""
        return self.workers * self.gpus_per_worker

    def label(self) -> str:
        """Short name, such as ``tp8``, ``2xtp4-ep4``: what is 1 is left out, except tp."""
        text = f"tp{self.tp}"
        for short, value in (("pp", self.pp), ("ep", self.ep), ("dpa", self.dp_attention), ("dcp", self.dcp)):
            if value > 1:
                text += f"-{short}{value}"
        return f"{self.workers}x{text}" if self.workers > 1 else text


class Topology(Document):
    """Roles of one deployment: ``aggregated`` alone, or ``prefill`` and ``decode`` together."""

    aggregated: Role | None = None
    prefill: Role | None = None
    decode: Role | None = None

    @model_validator(mode="after")
    def _roles_belong_together(self) -> Topology:
        split = (self.prefill is not None, self.decode is not None)
        if self.aggregated is not None and any(split):
            raise ValueError("a topology is aggregated, or prefill and decode, not both")
        if self.aggregated is None and split != (True, True):
            raise ValueError("a topology has the role aggregated, or both prefill and decode")
        return self

    @property
    def roles(self) -> dict[RoleName, Role]:
        """The roles that are there, by name."""
        named: dict[RoleName, Role | None] = {
            "aggregated": self.aggregated,
            "prefill": self.prefill,
            "decode": self.decode,
        }
        return {name: role for name, role in named.items() if role is not None}

    @property
    def is_disaggregated(self) -> bool:
        """Whether prefill and decode are apart."""
        return self.aggregated is None

    @property
    def gpus(self) -> int:
        """Σ over roles of workers × tp × pp."""
        return sum(role.gpus for role in self.roles.values())

    def label(self) -> str:
        """The topology's name in ids: ``tp8``, or ``p2xtp4_dtp8-ep8`` where prefill and decode are apart."""
        if self.aggregated is not None:
            return self.aggregated.label()
        assert self.prefill is not None
        assert self.decode is not None
        return f"p{self.prefill.label()}_d{self.decode.label()}"
