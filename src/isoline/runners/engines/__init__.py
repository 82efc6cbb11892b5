"""One adapter an engine: how it is asked whether it is ready, counted, reset and described."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from isoline.errors import InputError
from isoline.runners.launcher import ResetProof, ShouldStop


class EngineAdapter(Protocol):
    """What an engine's adapter offers. All calls go to ``url`` over HTTP and keep no state."""

    name: str

    def script(self) -> Path:
        """The start script that ``{script}`` in the engine's command stands for."""
        ...

    def healthy(self, url: str) -> bool:
        """Whether the server says that it is up; only a first filter, never a proof."""
        ...

    def generate(self, url: str, alias: str, tokens: int, timeout_s: float) -> tuple[int, str]:
        """One real streaming generation of exactly ``tokens`` tokens: (tokens by usage, text).

        :raises EngineCallError: when there is no answer or no right one.
        """
        ...

    def counters(self, url: str, timeout_s: float) -> dict[str, float]:
        """The server's own counters by name, among them those of :data:`PROGRESS` and ``running``,
        ``waiting``, ``output_tokens``, ``input_tokens``.

        :raises EngineCallError: when there is no answer.
        """
        ...

    def reset(self, url: str, deadline_s: float, should_stop: ShouldStop | None = None) -> ResetProof:
        """Wait for rest and empty the caches.

        :raises PhaseFailedError: ``reset_failed``.
        """
        ...

    def effective_args(self, url: str, scratch: Path) -> dict[str, object]:
        """The arguments that the server really runs with, by flag name without dashes."""
        ...

    def differences(self, argv: tuple[str, ...], effective: Mapping[str, object]) -> list[str]:
        """Asked arguments that are not effective, one line each; empty when all are."""
        ...

    def explain_exit(self, log_tail: str) -> str | None:
        """A reason code that the log gives for an early end (``port_in_use``, ``oom``), else None."""
        ...


class EngineCallError(Exception):
    """A call to the server failed; the message says how. Never shown on its own."""


def engine_adapter(name: str) -> EngineAdapter:
    """The adapter of an engine.

    :raises InputError: when there is none.
    """
    # Imported here: an adapter needs the types above.
    from isoline.runners.engines.llamacpp import LlamaCpp

    adapters: dict[str, type[EngineAdapter]] = {"llamacpp": LlamaCpp}
    if name not in adapters:
        raise InputError(f"no adapter for engine {name!r}", remedy=f"known: {', '.join(sorted(adapters))}")
    return adapters[name]()
