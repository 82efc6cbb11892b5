"""The schema of a recipe: how one model is served by one engine on one SKU at one precision."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from isoline.catalog.documents import Document, ValueAtError, must_know
from isoline.catalog.facts import load_catalog
from isoline.recipes.locked import NOT_CONTENT, Locked, check_locked
from isoline.recipes.resolve import depends_on_concurrency
from isoline.recipes.server import RoleServer, Server
from isoline.recipes.sidecars import Sidecar
from isoline.recipes.topology import RoleName, Topology

_PACKAGE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9._+!-]*\Z")
_IMAGE = re.compile(
    r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+"
    r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?$"
)
_CHANNEL = r"^[a-z0-9][a-z0-9-]*$"
_COMMIT = re.compile(r"^[0-9a-f]{7,64}\Z")


class Precision(Document):
    """Of the weights and of the KV cache, said exactly."""

    weights: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    kv: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")


class Image(Document):
    """What the engine's software is: exactly one of the three.

    * ``ref``: a container image, ``repository:tag`` or ``repository[:tag]@sha256:…``.
    * ``channel``: a name of ``recipes/channels.yaml``, resolved to one digest per run.
    * ``packages``: for launcher ``process``, each pinned with ``==``.
    """

    ref: str | None = None
    channel: str | None = Field(default=None, pattern=_CHANNEL)
    packages: list[str] | None = Field(default=None, min_length=1)

    @field_validator("ref")
    @classmethod
    def _ref_is_one(cls, value: str | None) -> str | None:
        if value is None:
            return value
        if not _IMAGE.match(value):
            raise ValueError(f"{value!r} is no image; write repository/name:tag or …@sha256:<64 hex digits>")
        if ":" not in value.rsplit("/", 1)[-1] and "@" not in value:
            raise ValueError(f"{value!r} has neither tag nor digest")
        return value

    @field_validator("packages")
    @classmethod
    def _packages_are_pinned(cls, value: list[str] | None) -> list[str] | None:
        for item in value or []:
            if not _PACKAGE.match(item):
                raise ValueError(f"package {item!r} is not pinned; write name==version")
        return sorted(value) if value else value

    @model_validator(mode="after")
    def _exactly_one(self) -> Image:
        given = [name for name in ("ref", "channel", "packages") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("an image is one of ref, channel, packages")
        return self

    @property
    def digest(self) -> str | None:
        """``sha256:…`` where the recipe pins one."""
        return self.ref.partition("@")[2] or None if self.ref else None


class Speculative(Document):
    """Speculative decoding. ``acceptance: pinned`` takes the length from the catalog's golden table;
    ``pinned_as: rate`` says it as the accepted share of drafts, for an image that takes that only."""

    method: Literal["none", "mtp", "eagle", "draft"] = "none"
    draft_tokens: int | None = Field(default=None, ge=1, le=32)
    draft_model: str | None = None  # hub id
    draft_revision: str | None = None
    acceptance: Literal["real", "pinned"] = "real"
    pinned_as: Literal["length", "rate"] = "length"

    @model_validator(mode="after")
    def _fits_the_method(self) -> Speculative:
        has_draft = bool(self.draft_tokens or self.draft_model)
        if self.method == "none" and (has_draft or self.acceptance != "real"):
            raise ValueError("method none has no draft and no acceptance")
        if self.method == "draft" and self.draft_model is None:
            raise ValueError("method draft has a draft_model")
        if self.draft_revision and not self.draft_model:
            raise ValueError("draft_revision without draft_model")
        if self.pinned_as != "length" and self.acceptance != "pinned":
            raise ValueError("pinned_as without acceptance: pinned")
        return self

    def detail(self) -> dict[str, Any]:
        """What a launch digest covers of it; how a length is said is in its arguments."""
        return self.model_dump(mode="json", exclude={"pinned_as"})

    def label(self) -> str:
        """The word of the curve: ``none``, ``mtp-3``, ``mtp-3-pinned``."""
        if self.method == "none":
            return "none"
        pinned = "-pinned" if self.acceptance == "pinned" else ""
        return f"{self.method}-{self.draft_tokens or 'unknown'}{pinned}"


class KvOffload(Document):
    """KV cache outside the accelerator. The budget is computed from the pool's node memory.

    ``utilization``: share of the node's memory that a launch on all its devices may use.
    """

    tier: Literal["none", "dram", "nvme"] = "none"
    backend: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9-]*$")
    utilization: float | None = Field(default=None, gt=0, le=1)

    @model_validator(mode="after")
    def _fits_the_tier(self) -> KvOffload:
        if self.tier == "none" and (self.backend or self.utilization):
            raise ValueError("tier none has no backend and no utilization")
        if self.tier != "none" and self.backend is None:
            raise ValueError(f"tier {self.tier} has a backend")
        return self

    def label(self) -> str:
        """The word of the curve: ``none``, ``dram-hicache``."""
        return "none" if self.tier == "none" else f"{self.tier}-{self.backend}"


class KvTransfer(Document):
    """How KV goes from prefill to decode."""

    connector: Literal["nixl", "mooncake", "mori", "ucx"]


class Features(Document):
    """Optimisations that no other field tells: which of them compose is what the points answer."""

    expert_balancing: Literal["none", "eplb"] = "none"
    two_batch_overlap: bool = False


class Readiness(Document):
    """Deadlines of the start, seconds."""

    ready_s: float = Field(default=300, gt=0, le=14400)
    stop_s: float = Field(default=20, gt=0, le=600)


class ScenarioUse(Document):
    """The concurrencies that the recipe is meant for in one scenario; ``topologies``: only in these."""

    concurrency: list[int] | dict[str, list[int]]

    @field_validator("concurrency")
    @classmethod
    def _ascending(cls, value: list[int] | dict[str, list[int]]) -> list[int] | dict[str, list[int]]:
        for levels in value.values() if isinstance(value, dict) else [value]:
            if not levels or any(item < 1 for item in levels) or sorted(set(levels)) != levels:
                raise ValueError("concurrencies are positive, ascending and without repeats")
        if not value:
            raise ValueError("no topology is named")
        return value

    def at(self, topology: str) -> list[int]:
        """The concurrencies of one topology, by its label."""
        return self.concurrency.get(topology, []) if isinstance(self.concurrency, dict) else self.concurrency

    @property
    def all(self) -> list[int]:
        """Every concurrency of any topology, ascending."""
        parts = self.concurrency.values() if isinstance(self.concurrency, dict) else [self.concurrency]
        return sorted({item for part in parts for item in part})


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


class Difference(Document):
    """Where the recipe says something else than its source, and why.

    ``what`` is a path: ``args.NAME``, ``env.NAME``, ``config.FILE.KEY`` of a worker, with ``ROLE.`` before
    it where it is one role's; ``setup.…``, ``frontend.…``, ``infra.…`` is what no recipe says.
    """

    what: str = Field(min_length=3)
    why: str = Field(min_length=10)


Unknown = Literal["server.args", "precision.kv", "speculative.draft_tokens"]
"""What the source of an imported recipe may not say."""


class Recipe(Document):
    """One recipe. ``recipe_id`` is its path under ``recipes/`` without suffix.

    ``extends`` is gone when a recipe was read (:mod:`isoline.recipes.extends`): a base that nobody has
    laid under it would leave out values without a word.
    """

    schema_version: Literal[1]
    extends: str | None = None  # a recipe that this one differs from; null here once both are one
    model: str
    checkpoint: str | None = None  # hub id of the weights where it is not the model's own
    revision: str | None = None  # default: the catalog's
    engine: str
    sku: str
    precision: Precision
    image: Image
    topologies: list[Topology] = Field(min_length=1)
    server: Server = Server()
    roles: dict[RoleName, RoleServer] = {}
    sidecars: list[Sidecar] = []
    files: list[str] = []  # in the recipe's folder; their content is part of the launch
    readiness: Readiness = Readiness()
    speculative: Speculative = Speculative()
    kv_offload: KvOffload = KvOffload()
    kv_transfer: KvTransfer | None = None
    features: Features = Features()
    launch_bands: list[int | Literal["max"]] = []
    scenarios: dict[str, ScenarioUse] = Field(min_length=1)
    canary: str | None = None  # dataset of kind questions that this model always answers right
    accuracy: dict[str, AccuracyReference] = {}
    incomplete: list[Unknown] = []  # what its source does not say: it can be planned, never started
    status: Literal["verified", "unverified"]
    owner: str
    upstream: str  # where the arguments come from
    differences: list[Difference] = []  # from that source; a test finds those that are not listed
    locked: Locked | None = None  # of a lock, which `isoline recipe render --lock` writes

    @field_validator("extends")
    @classmethod
    def _base_is_in(cls, value: str | None) -> str | None:
        if value is not None:
            raise ValueError(f"the base {value!r} was not read: load the recipe by its id")
        return value

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

    @field_validator("launch_bands")
    @classmethod
    def _bands_ascend(cls, value: list[int | str]) -> list[int | str]:
        numbers = [item for item in value if isinstance(item, int)]
        if "max" in value[:-1] or sorted(set(numbers)) != numbers or any(item < 1 for item in numbers):
            raise ValueError("launch_bands are ascending upper ends; max may stand last")
        return value

    @field_validator("topologies")
    @classmethod
    def _topologies_differ(cls, value: list[Topology]) -> list[Topology]:
        labels = [topology.label() for topology in value]
        for index, label in enumerate(labels):
            if label in labels[:index]:
                raise ValueAtError(f"two topologies have the same label {label!r}", index)
        return value

    @field_validator("sidecars")
    @classmethod
    def _sidecars_differ(cls, value: list[Sidecar]) -> list[Sidecar]:
        names = [item.name for item in value]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ValueAtError(f"two sidecars are named {name!r}", index)
        return value

    @model_validator(mode="after")
    def _holds_together(self) -> Recipe:
        labels = {topology.label() for topology in self.topologies}
        split = any(topology.is_disaggregated for topology in self.topologies)
        if split and self.kv_transfer is None:
            raise ValueError("prefill and decode apart need kv_transfer")
        if not split and self.kv_transfer is not None:
            raise ValueAtError("kv_transfer without a disaggregated topology", "kv_transfer")
        for label in labels:
            if sum(item.is_entry and item.counts_for(label) for item in self.sidecars) > 1:
                raise ValueAtError(f"more than one sidecar is the entry of {label}", "sidecars")
        present = {name for topology in self.topologies for name in topology.roles}
        for name in self.roles:
            if name not in present:
                raise ValueAtError(f"no topology has the role {name!r}", "roles", name)
        for scenario, use in self.scenarios.items():
            if isinstance(use.concurrency, dict):
                for label in use.concurrency:
                    _must_know_at(label, labels, "topology", "scenarios", scenario, "concurrency", label)
        parts: list[tuple[Server | RoleServer, tuple[str, ...]]] = [(self.server, ("server",))]
        parts += [(role, ("roles", str(name))) for name, role in self.roles.items()]
        for part, place in parts:
            for index, item in enumerate(part.when):
                for label in item.if_.topology or []:
                    _must_know_at(label, labels, "topology", *place, "when", index, "if", "topology")
                for scenario in item.if_.scenario or []:
                    at: tuple[str | int, ...] = (*place, "when", index, "if", "scenario")
                    _must_know_at(scenario, set(self.scenarios), "scenario of this recipe", *at)
        if self.revision is not None and not _COMMIT.match(self.revision) and self.checkpoint is not None:
            raise ValueAtError("a checkpoint's revision is a commit (hex digits)", "revision")
        return self

    @model_validator(mode="after")
    def _is_as_it_was_locked(self) -> Recipe:
        if self.locked is not None:
            check_locked(self.content(), self.locked)
        return self

    def depends_on_concurrency(self) -> bool:
        """Whether any program of it is told something else at another concurrency."""
        return depends_on_concurrency(self.server, self.roles.values()) or any(
            item.depends_on_concurrency() for item in self.sidecars
        )

    def content(self) -> dict[str, Any]:
        """What it says, defaults filled in, as JSON values; it validates as the same recipe. Files have no
        order of their own."""
        said = self.model_dump(mode="json", by_alias=True, exclude=set(NOT_CONTENT))
        return {**said, "files": sorted(self.files)}

    @model_validator(mode="after")
    def _says_what_is_unknown(self) -> Recipe:
        if self.incomplete and self.status == "verified":
            raise ValueAtError("what is incomplete was not verified", "status")
        spec = self.speculative
        if spec.method != "none" and spec.draft_tokens is None:
            if "speculative.draft_tokens" not in self.incomplete:
                raise ValueAtError(f"method {spec.method} has draft_tokens", "speculative")
        elif "speculative.draft_tokens" in self.incomplete:
            raise ValueAtError("speculative.draft_tokens is not unknown", "incomplete")
        if (self.precision.kv == "unknown") != ("precision.kv" in self.incomplete):
            raise ValueAtError(
                "precision.kv is unknown exactly where `incomplete` lists precision.kv", "precision", "kv"
            )
        if "server.args" in self.incomplete and (self.server.args or self.roles):
            raise ValueAtError("server.args are not unknown", "incomplete")
        return self

    @model_validator(mode="after")
    def _fits_the_catalog(self) -> Recipe:
        engine, model = load_catalog().engines[self.engine], load_catalog().models[self.model]
        parts: list[tuple[Any, tuple[str, ...]]] = [(self.server, ("server", "args"))]
        parts += [(role, ("roles", name, "args")) for name, role in self.roles.items()]
        for part, place in parts:
            for name in part.args:
                if name in engine.owned_args:
                    raise ValueAtError(
                        f"argument {name!r} is set by Isoline itself; leave it out", *place, name
                    )
        _must_know_at(
            self.precision.weights,
            model.precisions,
            f"weight precision of {self.model}",
            "precision",
            "weights",
        )
        if self.checkpoint is None and self.revision is not None:
            known = model.revision_of(model.checkpoint_of(self.precision.weights))
            _must_know_at(self.revision, {known or ""}, f"revision of {self.model}", "revision")
        owned = {} if self.precision.kv == "unknown" else engine.kv_precision_args
        for name, default in owned.items():
            given = self.server.args.get(name, default)
            if given != self.precision.kv:
                raise ValueAtError(
                    f"precision.kv is {self.precision.kv!r}, but the server gets {name} {given}",
                    "precision",
                    "kv",
                )
        return self


def _must_know_at(name: str, known: set[str], kind: str, *loc: str | int) -> None:
    try:
        must_know(name, known, kind)
    except ValueError as error:
        raise ValueAtError(str(error), *loc) from None


ANNOTATIONS: dict[str, str] = {
    "extends": "where the other values come from; the values themselves are in the launch",
    "owner": "who answers for the recipe; nobody measures a person",
    "upstream": "where the arguments come from; the arguments themselves are in the launch",
    "status": "a mark on the curve, not a property of the server",
    "differences": "a comparison with the source; what is started is in the launch",
    "readiness": "deadlines: they can end a start, never change a number",
    "canary": "asked after the last measured request: it decides the verdict, never a number. Other "
    "questions would otherwise make a fleet measure everything again; the lock says which were asked",
    "accuracy": "the figure to compare with: it decides the accuracy state, never a number",
    "locked": "what was rendered when the lock was written; checked, never started",
    "scenarios": "which points there are; what a point is, its own scenario and concurrency say",
}
"""The fields of a recipe that neither ``launch_digest`` nor ``point_digest`` covers, and why."""
