"""Pools: sets of like machines and how to start servers on them (``runners/<name>.yaml``)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from isoline.catalog.documents import NAME, Document, load_named, must_know
from isoline.catalog.facts import load_catalog


class Pool(Document):
    """One pool.

    ``accelerators`` is how many a launch may use; for SKU ``cpu`` it is 1, the share of the machine.
    ``client_profile`` names how the load generator runs beside the engine (see
    :mod:`isoline.load.profile`).
    """

    schema_version: Literal[1]
    name: str = Field(pattern=NAME)
    description: str = ""
    launcher: Literal["process"]
    sku: str
    accelerators: int = Field(default=1, ge=1)
    host: str = "127.0.0.1"
    client_profile: Literal["shared-cpu", "gpu-host"] = "gpu-host"

    @field_validator("sku")
    @classmethod
    def _sku_is_known(cls, value: str) -> str:
        return must_know(value, load_catalog().skus, "SKU")


def load_pool(project: Path, name: str) -> Pool:
    """The pool of that name.

    :raises DocumentError: when there is none of that name, or it is wrong.
    """
    return load_named(project, "runners", name, "pool", Pool)
