"""The catalog: facts about models, engines and SKUs, each with its source and date."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from isoline.catalog.documents import Document, load_document

DATA = Path(__file__).parent / "data"


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


class Model(Document):
    """A model. ``revision`` names one immutable state of it."""

    name: str
    hub_id: str
    revision: str
    license: str
    parameters_total: int | None = None
    context: int | None = None
    weights: list[WeightFile] = []
    source: str
    dated: str


class EngineProcess(Document):
    """How an engine is started as a plain process.

    ``command`` holds placeholders that the launcher fills: ``{python}`` (of the engine's own
    environment), ``{script}``, ``{model_path}``, ``{model_alias}``, ``{host}``, ``{port}``,
    ``{scratch}``.
    """

    script: str
    command: list[str]


class Engine(Document):
    """An engine: how it is started, asked and reset.

    ``owned_args`` are those that Isoline sets itself; a recipe must not. ``kv_precision_args`` are
    those that say the KV cache's precision, each with what the engine takes where it is not given.
    """

    name: str
    process: EngineProcess | None = None
    owned_args: list[str] = []
    kv_precision_args: dict[str, str] = {}
    no_cache_body: dict[str, bool] = {}
    source: str
    dated: str


class Sku(Document):
    """An accelerator product. ``cpu`` is the share of the machine that a launch was given."""

    name: str
    vendor: str
    status: Literal["available", "announced"] = "available"


class Models(Document):
    schema_version: Literal[1]
    models: dict[str, Model]


class Engines(Document):
    schema_version: Literal[1]
    engines: dict[str, Engine]


class Skus(Document):
    schema_version: Literal[1]
    skus: dict[str, Sku]


class Catalog(Document):
    """All facts, by key."""

    models: dict[str, Model]
    engines: dict[str, Engine]
    skus: dict[str, Sku]


@lru_cache(maxsize=1)
def load_catalog() -> Catalog:
    """The catalog that ships with the package."""
    return Catalog(
        models=load_document(DATA / "models.yaml", Models, root=DATA.parent).models,
        engines=load_document(DATA / "engines.yaml", Engines, root=DATA.parent).engines,
        skus=load_document(DATA / "skus.yaml", Skus, root=DATA.parent).skus,
    )
