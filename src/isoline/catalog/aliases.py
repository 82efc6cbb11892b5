"""Aliases: names that other people's data use -> keys of the catalog. Pure lookups, nothing guessed."""

from __future__ import annotations

from typing import Literal

from isoline.catalog.models import Model
from isoline.catalog.skus import Sku
from isoline.catalog.sourced import Sourced

Kind = Literal["model", "engine", "sku", "precision"]


class Aliases(Sourced):
    """Other names, lower case, by kind.

    ``sku_suffixes`` are the words that fleets append to a SKU's name in machine and queue labels
    (``b200-dsv4``, ``cluster:h100-cw``): they say where, not what. A label with any other word is
    not resolved, because it may be another product (``h100-nvl``).
    """

    schema_version: Literal[1]
    models: dict[str, str] = {}
    engines: dict[str, str] = {}
    skus: dict[str, str] = {}
    precisions: dict[str, str] = {}
    sku_suffixes: list[str] = []


def plain(name: str) -> str:
    """A name as it is looked up: lower case, without blanks around and a slash behind."""
    return " ".join(name.lower().split()).removesuffix("/")


def model_names(models: dict[str, Model], aliases: Aliases) -> dict[str, tuple[str, str | None]]:
    """name -> (model, checkpoint or None): keys, hub ids, names of repositories and aliases.

    A hub id names a checkpoint, if there is one of that id. An alias's value may be
    ``model:checkpoint``.
    """
    found: dict[str, tuple[str, str | None]] = {}
    for key, model in models.items():
        for name in (key, model.name, model.hub_id, model.hub_id.split("/")[1]):
            found.setdefault(plain(name), (key, None))
    for key, model in models.items():
        for name, item in model.checkpoints.items():
            for text in (item.hub_id, item.hub_id.split("/")[1]):
                found[plain(text)] = (key, name)
    for alias, target in aliases.models.items():
        key, _, checkpoint = target.partition(":")
        found[plain(alias)] = (key, checkpoint or None)
    return found


def sku_names(skus: dict[str, Sku], aliases: Aliases) -> dict[str, str]:
    """name -> SKU: keys, names, what the vendors' tools print, and aliases."""
    found: dict[str, str] = {}
    for key, sku in skus.items():
        printed = [*sku.names.nvidia_smi, *sku.names.amd_smi] if sku.names else []
        for name in (key, sku.name, *printed):
            found.setdefault(plain(name), key)
    return found | {plain(alias): target for alias, target in aliases.skus.items()}


def sku_of_label(label: str, names: dict[str, str], suffixes: list[str]) -> str | None:
    """The SKU of a machine or queue label such as ``cluster:b300-nv`` or ``h100-dgxc-slurm_07``."""
    text = plain(label).removeprefix("cluster:")
    if text in names:
        return names[text]
    words = [word for word in text.replace("_", "-").split("-") if not word.isdigit()]
    for count in range(len(words), 0, -1):
        key = names.get("-".join(words[:count]))
        if key is not None:
            return key if all(word in suffixes for word in words[count:]) else None
    return None
