"""What an engine's adapter offers to launchers and to the watch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

from isoline.runners.launchers.interface import ResetProof, ShouldStop

PROGRESS = ("steps", "input_tokens", "output_tokens")
"""Counters of which at least one grows while a server does anything; ``steps`` may be absent."""


class EngineAdapter(Protocol):
    """What an engine's adapter offers. All calls go to ``url`` over HTTP and keep no state."""

    name: str

    isolation: Literal["reset", "restart"]
    """Whether one server can serve point after point, its cache emptied and proven empty between them; else
    each point has a server of its own."""

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
        """The server's own counters, among them ``running`` and ``waiting`` (requests), and those of
        :data:`PROGRESS`.

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
    """A call to the server failed; the message says how. Never shown on its own.

    ``definite``: the server did answer, wrongly; waiting longer is of little use.
    """

    def __init__(self, message: str, *, definite: bool = False) -> None:
        self.definite = definite
        super().__init__(message)
