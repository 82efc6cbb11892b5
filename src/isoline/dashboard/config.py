"""Palette and presets, from the project's ``dashboard/`` folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from isoline.dashboard.state import KEYS
from isoline.errors import InputError
from isoline.results.metrics.registry import METRICS

Colour = Annotated[str, Field(pattern=r"^#[0-9a-f]{6}$")]
Shape = Annotated[str, Field(pattern=r"^[a-z]+(-[a-z]+)*$")]
Line = Literal["solid", "dash", "dot", "dashdot"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Others(_Strict):
    """What unknown names take, by a hash of the name: the same on each machine and day."""

    colours: list[Colour] = Field(min_length=1)
    shapes: list[Shape] = Field(min_length=1)
    lines: list[Line] = Field(min_length=1)


class Palette(_Strict):
    """Colour by SKU, marker by engine, line by weight precision."""

    schema_version: Literal[1]
    skus: dict[str, Colour]
    engines: dict[str, Shape]
    precisions: dict[str, Line]
    other: Others

    def colour(self, sku: str) -> str:
        return self.skus.get(sku) or _pick(sku, self.other.colours)

    def shape(self, engine: str) -> str:
        return self.engines.get(engine) or _pick(engine, self.other.shapes)

    def line(self, precision: str) -> str:
        return self.precisions.get(precision) or _pick(precision, self.other.lines)


def _pick(name: str, choices: Sequence[str]) -> str:
    return choices[hashlib.sha256(name.encode()).digest()[0] % len(choices)]


class Preset(_Strict):
    """One ready view: names of the page's address with their values."""

    id: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    title: str
    help: str
    query: dict[str, str]

    @field_validator("query")
    @classmethod
    def _known(cls, query: dict[str, str]) -> dict[str, str]:
        for key, value in query.items():
            if key not in KEYS:
                raise ValueError(f"unknown part of the address {key!r}")
            if key in ("x", "y") and value not in METRICS:
                raise ValueError(f"unknown metric {value!r}")
        return query


class Presets(_Strict):
    """presets.yaml."""

    schema_version: Literal[1]
    presets: list[Preset]

    @field_validator("presets")
    @classmethod
    def _distinct(cls, presets: list[Preset]) -> list[Preset]:
        ids = [preset.id for preset in presets]
        for preset in presets:
            if ids.count(preset.id) > 1:
                raise ValueError(f"two presets have the id {preset.id!r}")
        return presets


class Look(BaseModel):
    """Palette and presets together."""

    palette: Palette
    presets: list[Preset]


def _read(path: Path) -> Mapping[str, Any]:
    try:
        table = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}", where=str(path), remedy="restore it from git"
        ) from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"not valid YAML: {error}", where=str(path), remedy="restore it from git") from error
    if not isinstance(table, dict):
        raise InputError("not a table of keys", where=str(path))
    return table


def load_look(folder: Path) -> Look:
    """Read ``palette.yaml`` and ``presets.yaml``.

    :raises InputError: naming file and field.
    """
    models: dict[str, Any] = {}
    for name, model in (("palette", Palette), ("presets", Presets)):
        path = folder / f"{name}.yaml"
        try:
            models[name] = model.model_validate(_read(path))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise InputError(f"{place}: {first['msg']}", where=str(path)) from error
    return Look(palette=models["palette"], presets=models["presets"].presets)
