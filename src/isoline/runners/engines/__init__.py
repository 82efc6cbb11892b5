"""One adapter an engine: how it is asked whether it is ready, counted, reset and described."""

from __future__ import annotations

from isoline.errors import InputError
from isoline.runners.engines.base import PROGRESS, EngineAdapter, EngineCallError
from isoline.runners.engines.llamacpp import LlamaCpp

__all__ = ["PROGRESS", "EngineAdapter", "EngineCallError", "engine_adapter"]

ADAPTERS: dict[str, type[EngineAdapter]] = {"llamacpp": LlamaCpp}


def engine_adapter(name: str) -> EngineAdapter:
    """The adapter of an engine.

    :raises InputError: when there is none.
    """
    if name not in ADAPTERS:
        raise InputError(f"no adapter for engine {name!r}", remedy=f"known: {', '.join(sorted(ADAPTERS))}")
    return ADAPTERS[name]()
