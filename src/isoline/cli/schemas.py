"""Writes ``docs/schema/*.json``: the form of everything that people edit, as JSON Schema, for editors."""

from __future__ import annotations

import json
from pathlib import Path

from isoline.errors import GateFailedError

FOLDER = "docs/schema"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, str]:
    """File name -> content; the same bytes on every machine."""
    from isoline.catalog import engines, skus
    from isoline.catalog import models as entries
    from isoline.catalog.aliases import Aliases
    from isoline.catalog.documents import Document
    from isoline.catalog.engines import Environment, Flags
    from isoline.catalog.pools import Pool
    from isoline.catalog.prices import PriceList
    from isoline.datasets.schema import Dataset
    from isoline.recipes.channels import Channels
    from isoline.recipes.schema import Recipe
    from isoline.sweeps.planning.schema import Scenario, Sweep

    models: dict[str, type[Document]] = {
        "recipe": Recipe,
        "pool": Pool,
        "sweep": Sweep,
        "scenario": Scenario,
        "dataset": Dataset,
        "channels": Channels,
        "prices": PriceList,
        "catalog-models": entries.Models,
        "catalog-engines": engines.Engines,
        "catalog-skus": skus.Skus,
        "catalog-precisions": entries.Precisions,
        "catalog-acceptance": entries.Acceptance,
        "catalog-aliases": Aliases,
        "catalog-environment": Environment,
        "catalog-args": Flags,
    }
    return {f"{name}.json": _text(model.model_json_schema(by_alias=True)) for name, model in models.items()}


def _text(schema: dict[str, object]) -> str:
    return json.dumps({"$schema": DIALECT, **schema}, indent=1, ensure_ascii=False) + "\n"


def write_schemas(project: Path, *, check: bool = False) -> list[str]:
    """Bring the folder up to date, in a project that has one. Returns what was written.

    :param check: write nothing.
    :raises GateFailedError: with ``check``, when a file is old or nobody's.
    """
    folder = project / FOLDER
    if not folder.is_dir():
        return []  # a project of somebody's own need not carry these
    wanted = schemas()
    there = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.json"))}
    old = [name for name, text in wanted.items() if there.get(name) != text]
    nobodys = sorted(there.keys() - wanted.keys())
    if check and (old or nobodys):
        name = f"{FOLDER}/{[*old, *nobodys][0]}"
        raise GateFailedError("differs from the program", where=name, remedy="run `make docs`")
    for name in old:
        (folder / name).write_text(wanted[name], encoding="utf-8")
    for name in nobodys:
        (folder / name).unlink()
    return [f"{FOLDER}/{name}" for name in old]
