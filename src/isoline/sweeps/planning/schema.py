"""The schemas of scenarios (``sweeps/scenarios/<name>.yaml``) and sweeps (``sweeps/<name>.yaml``)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, Strict, field_validator, model_validator

from isoline.catalog.documents import NAME, Document, UnknownNameError, ValueAtError, load_named

REPRODUCE = "reproduce"
"""The sweep name of runs that ``isoline reproduce`` makes."""

Concurrency = Annotated[int, Field(ge=1)]
Number = Annotated[int, Strict(False)]  # keys of a mapping reach the schema as text


class Requests(Document):
    """How many measured requests a point has: max(minimum, per_concurrency × concurrency)."""

    minimum: int = Field(ge=1)
    per_concurrency: int = Field(default=0, ge=0)

    def at(self, concurrency: int) -> int:
        """The number of requests at a concurrency."""
        return max(self.minimum, self.per_concurrency * concurrency)


class Deadlines(Document):
    """Deadlines of the phases of one point, seconds. ``stall_s``: no progress in the server's counters."""

    reset_s: float = Field(default=30, gt=0)
    warmup_s: float = Field(default=120, gt=0)
    request_s: float = Field(default=120, gt=0)
    stall_s: float = Field(default=30, gt=0)
    load_s: float = Field(default=600, gt=0)
    canary_s: float = Field(default=60, gt=0)
    accuracy_s: float = Field(default=600, gt=0)


class Scenario(Document):
    """A named, versioned rule set of the load. Any change of its numbers needs a new version."""

    schema_version: Literal[1]
    name: str = Field(pattern=NAME)
    version: int = Field(ge=1)
    kind: Literal["fixed_length", "trace"]
    description: str = ""
    dataset: str
    isl: int | None = Field(default=None, ge=1)  # server-side prompt tokens, chat template included
    osl: int | None = Field(default=None, ge=2)
    requests: Requests | None = None  # fixed length; a trace is replayed once
    warmup_per_concurrency: int = Field(default=1, ge=1)
    ignore_eos: bool = True
    cache: Literal["forbid", "allow", "expect"]
    max_failed_share: float = Field(default=0.01, ge=0, le=0.05)
    limits: dict[Literal["ttft_ms", "tpot_ms", "e2el_ms"], float] = {}
    deadlines: Deadlines = Deadlines()
    canary_min_questions: int = Field(default=4, ge=1)

    @model_validator(mode="after")
    def _lengths_belong_to_kind(self) -> Scenario:
        if self.kind == "fixed_length":
            if self.isl is None or self.osl is None or self.requests is None:
                raise ValueError("a fixed_length scenario has isl, osl and requests")
        elif self.isl is not None or self.osl is not None or self.requests is not None:
            raise ValueError(
                "a trace has its lengths and requests in the dataset: leave out isl, osl and requests"
            )
        if self.deadlines.stall_s >= self.deadlines.load_s:
            raise ValueError("stall_s must be below load_s")
        return self

    def identity(self) -> dict[str, Any]:
        """What a point's digest covers of the scenario: all that can change a number.

        Deadlines are left out: they can only end a measurement, never change one.
        """
        return self.model_dump(mode="json", exclude={"description", "deadlines", "schema_version"})


class Selection(Document):
    """Recipes × one scenario × concurrencies. ``repetitions``: a number, or a number by concurrency."""

    recipes: list[str] = Field(min_length=1)
    scenario: str
    concurrency: list[Concurrency] | Literal["all"] = "all"
    repetitions: int | dict[Number, int] = 1
    accuracy: dict[str, list[Concurrency]] = {}  # task -> concurrencies at which it is checked (repetition 1)

    @field_validator("concurrency")
    @classmethod
    def _each_once(cls, value: list[int] | str) -> list[int] | str:
        if isinstance(value, list) and (not value or len(set(value)) != len(value)):
            raise ValueError("concurrencies are one or more numbers, each once, or all")
        return value

    @field_validator("repetitions")
    @classmethod
    def _counted(cls, value: int | dict[int, int]) -> int | dict[int, int]:
        rows = value.items() if isinstance(value, dict) else [(None, value)]
        for key, item in rows:
            if not 1 <= item <= 100:
                loc = () if key is None else (str(key),)
                raise ValueAtError(f"repetitions are 1 to 100, got {item}", *loc)
        return value

    def repetitions_at(self, concurrency: int) -> int:
        """How many times the point at this concurrency is measured."""
        if isinstance(self.repetitions, dict):
            return self.repetitions.get(concurrency, 1)
        return self.repetitions


class Reuse(Document):
    """When an earlier measurement counts. ``max_age_h`` null: no limit."""

    max_age_h: float | None = Field(default=None, gt=0)
    from_other_runs: bool = False


class Budget(Document):
    """The most that a run may take; a plan above it is refused."""

    gpu_minutes: float | None = Field(default=None, gt=0)
    usd: float | None = Field(default=None, gt=0)  # a plan without a price is refused too


class Window(Document):
    """How long a run may take on each pool; a plan that is longer is refused."""

    hours: float = Field(gt=0)


class Sweep(Document):
    """One sweep."""

    schema_version: Literal[1]
    name: str = Field(pattern=NAME)
    description: str = ""
    # Several: each recipe is planned on the one of its SKU.
    pool: str | Annotated[list[str], Field(min_length=1)]
    select: list[Selection] = Field(min_length=1)
    publish: bool = True  # false: a try-out, never official
    reuse: Reuse = Reuse()
    budget: Budget = Budget()
    window: Window | None = None


def load_scenario(project: Path, name: str) -> Scenario:
    """The scenario of that name.

    :raises DocumentError: when it is absent or wrong.
    """
    return load_named(project, "sweeps/scenarios", name, "scenario", Scenario)


def load_sweep(project: Path, name: str) -> Sweep:
    """The sweep of that name, or of that path (``sweeps/<name>.yaml``).

    :raises DocumentError: when it is absent or wrong.
    """
    path = Path(name)
    if path.suffix == ".yaml" and path.resolve().parent == (project / "sweeps").resolve():
        name = path.stem
    if name == REPRODUCE:
        raise UnknownNameError([(name, "this name is taken by `isoline reproduce`")], "sweep", name)
    return load_named(project, "sweeps", name, "sweep", Sweep)
