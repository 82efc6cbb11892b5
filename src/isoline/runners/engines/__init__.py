"""One adapter an engine: how it is asked whether it is ready, counted, reset and described."""

from __future__ import annotations

from isoline.runners.engines.base import PROGRESS, EngineAdapter, EngineCallError
from isoline.runners.engines.llamacpp import LlamaCpp
from isoline.runners.engines.served import Served

__all__ = ["PROGRESS", "EngineAdapter", "EngineCallError", "engine_adapter"]

ADAPTERS: dict[str, type[LlamaCpp]] = {"llamacpp": LlamaCpp}
"""Engines with an adapter of their own; all others are asked by what the catalog says."""


def engine_adapter(name: str) -> EngineAdapter:
    """The adapter of an engine.

    :raises InputError: for one that the catalog does not know.
    """
    return ADAPTERS[name]() if name in ADAPTERS else Served(name)
