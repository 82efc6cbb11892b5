"""The schema of a recipe: how one model is served by one engine on one SKU at one precision."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from isoline.catalog.documents import Document, ValueAtError, must_know
from isoline.catalog.facts import load_catalog

ArgValue = bool | int | float | str | list[str | int | float]

_PACKAGE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9._+!-]*$")
_ARG = re.compile(r"^[a-z0-9][a-z0-9-]*$")
_ENV = re.compile(r"^[A-Z][A-Z0-9_]*$")


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
    def gpus(self) -> int:
        """Devices of this role: workers × tp × pp. ep, DP attention and dcp divide these, none multiplies."""
        return self.workers * self.tp * self.pp

    def label(self) -> str:
        """Short name, such as ``tp8``, ``2xtp4-ep4``: what is 1 is left out, except tp."""
        parts = [f"tp{self.tp}"]
        for name, short in (("pp", "pp"), ("ep", "ep"), ("dp_attention", "dpa"), ("dcp", "dcp")):
            value = getattr(self, name)
            if value > 1:
                parts.append(f"{short}{value}")
        text = "-".join(parts)
        return f"{self.workers}x{text}" if self.workers > 1 else text


class Topology(Document):
    """Roles of one deployment. This form knows the aggregated role only."""

    aggregated: Role

    @property
    def gpus(self) -> int:
        """Σ over roles of workers × tp × pp."""
        return self.aggregated.gpus

    def label(self) -> str:
        """The topology's name in ids."""
        return self.aggregated.label()


class Precision(Document):
    """Of the weights and of the KV cache, said exactly."""

    weights: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    kv: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")


class Image(Document):
    """What the engine's software is. For launcher ``process``: packages, each pinned with ``==``."""

    packages: list[str] = Field(min_length=1)

    @field_validator("packages")
    @classmethod
    def _packages_are_pinned(cls, value: list[str]) -> list[str]:
        for item in value:
            if not _PACKAGE.match(item):
                raise ValueError(f"package {item!r} is not pinned; write name==version")
        return sorted(value)


class Server(Document):
    """Arguments (``name: value``, without dashes in front) and environment of the server.

    ``true`` is a flag without a value; a list repeats the flag.
    """

    args: dict[str, ArgValue] = {}
    env: dict[str, str] = {}

    @field_validator("args")
    @classmethod
    def _args_are_plain(cls, value: dict[str, ArgValue]) -> dict[str, ArgValue]:
        for name, item in value.items():
            if not _ARG.match(name):
                raise ValueAtError(
                    f"argument {name!r}: lower-case words with dashes, without dashes in front", name
                )
            if item == []:
                raise ValueAtError(f"argument {name!r} is an empty list: leave it out", name)
            if item is False:
                raise ValueAtError(
                    f"argument {name!r} is false: leave it out, or name the flag that turns it off", name
                )
        return dict(sorted(value.items()))  # a mapping has no order of its own

    @field_validator("env")
    @classmethod
    def _env_is_plain(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not _ENV.match(name):
                raise ValueAtError(f"environment variable {name!r}: upper-case letters, digits and _", name)
            if name.startswith(("ISOLINE_", "LD_")) or name in ("PATH", "PYTHONPATH"):
                raise ValueAtError(f"environment variable {name!r} is not a recipe's to set", name)
        return dict(sorted(value.items()))


class Readiness(Document):
    """Deadlines of the start, seconds."""

    ready_s: float = Field(default=300, gt=0, le=7200)
    stop_s: float = Field(default=20, gt=0, le=600)


class ScenarioUse(Document):
    """The concurrencies that the recipe is meant for in one scenario."""

    concurrency: list[int] = Field(min_length=1)

    @field_validator("concurrency")
    @classmethod
    def _ascending(cls, value: list[int]) -> list[int]:
        if any(item < 1 for item in value) or sorted(set(value)) != value:
            raise ValueError("concurrencies are positive, ascending and without repeats")
        return value


class AccuracyReference(Document):
    """What this configuration is known to reach on a task, and where that figure is from."""

    correct_share: float = Field(ge=0, le=1)
    tolerance: float = Field(default=0.05, ge=0, le=0.5)
    n: int = Field(gt=0)
    source: str

    @model_validator(mode="after")
    def _can_be_missed(self) -> AccuracyReference:
        if self.tolerance >= self.correct_share:
            # A limit of 0 is no check: garbage would pass.
            raise ValueError(f"tolerance {self.tolerance:g} leaves nothing of {self.correct_share:g}")
        return self


class Recipe(Document):
    """One recipe. ``recipe_id`` is its path under ``recipes/`` without suffix."""

    schema_version: Literal[1]
    model: str
    revision: str | None = None  # default: the catalog's
    engine: str
    sku: str
    precision: Precision
    image: Image
    topologies: list[Topology] = Field(min_length=1)
    server: Server = Server()
    readiness: Readiness = Readiness()
    speculative: Literal["none"] = "none"
    kv_offload: Literal["none"] = "none"
    scenarios: dict[str, ScenarioUse] = Field(min_length=1)
    canary: str  # dataset of kind questions that this model always answers right
    accuracy: dict[str, AccuracyReference] = {}
    status: Literal["verified", "unverified"]
    owner: str
    upstream: str  # where the arguments come from

    @field_validator("model")
    @classmethod
    def _model_is_known(cls, value: str) -> str:
        return must_know(value, load_catalog().models, "model")

    @field_validator("engine")
    @classmethod
    def _engine_is_known(cls, value: str) -> str:
        return must_know(value, load_catalog().engines, "engine")

    @field_validator("sku")
    @classmethod
    def _sku_is_known(cls, value: str) -> str:
        return must_know(value, load_catalog().skus, "SKU")

    @model_validator(mode="after")
    def _fits_the_catalog(self) -> Recipe:
        engine, model = load_catalog().engines[self.engine], load_catalog().models[self.model]
        for name in self.server.args:
            if name in engine.owned_args:
                raise ValueAtError(
                    f"argument {name!r} is set by Isoline itself; leave it out", "server", "args", name
                )
        _must_know_at(
            self.precision.weights,
            {item.precision for item in model.weights},
            f"weight precision of {self.model}",
            "precision",
            "weights",
        )
        if self.revision is not None:
            _must_know_at(self.revision, {model.revision}, f"revision of {self.model}", "revision")
        for name, default in engine.kv_precision_args.items():
            given = self.server.args.get(name, default)
            if given != self.precision.kv:
                raise ValueAtError(
                    f"precision.kv is {self.precision.kv!r}, but the server gets {name} {given}",
                    "precision",
                    "kv",
                )
        return self

    @field_validator("topologies")
    @classmethod
    def _topologies_differ(cls, value: list[Topology]) -> list[Topology]:
        labels = [topology.label() for topology in value]
        for index, label in enumerate(labels):
            if label in labels[:index]:
                raise ValueAtError(f"two topologies have the same label {label!r}", index)
        return value


def _must_know_at(name: str, known: set[str], kind: str, *loc: str) -> None:
    try:
        must_know(name, known, kind)
    except ValueError as error:
        raise ValueAtError(str(error), *loc) from None


ANNOTATIONS: dict[str, str] = {
    "owner": "who answers for the recipe; nobody measures a person",
    "upstream": "where the arguments come from; the arguments themselves are in the launch",
    "status": "a mark on the curve, not a property of the server",
    "readiness": "deadlines: they can end a start, never change a number",
    "canary": "asked after the last measured request: it decides the verdict, never a number. Other "
    "questions would otherwise make a fleet measure everything again; the lock says which were asked",
    "accuracy": "the figure to compare with: it decides the accuracy state, never a number",
    "scenarios": "which points there are; what a point is, its own scenario and concurrency say",
}
"""The fields of a recipe that neither ``launch_digest`` nor ``point_digest`` covers, and why."""
