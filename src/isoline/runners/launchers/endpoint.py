"""The launcher kind ``endpoint``: a server that somebody else runs. Nothing is started and nothing ended.

What is known of it is what was declared (SKU, topology, recipe). Its points are measured and judged like
all others, and they are never official: nobody here saw what answered.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from isoline.errors import InputError
from isoline.recipes.deployment import Command
from isoline.results.bundles.bundle import utc_now
from isoline.runners.engines import EngineCallError
from isoline.runners.engines.openai import at_rest
from isoline.runners.launchers.deploy import PartsLauncher
from isoline.runners.launchers.interface import (
    ExitStatus,
    LaunchSpec,
    PhaseFailedError,
    ResetProof,
    Server,
    ShouldStop,
    Staged,
)
from isoline.runners.launchers.parts import Part
from isoline.runners.staging.weights import ensure_weights, model_place

ASK_S = 2.0


@dataclass
class EndpointPart(Part):
    """A server of somebody else, by its address."""

    base: str = ""

    @property
    def url(self) -> str:
        return self.base

    @property
    def port(self) -> int:
        parts = urlsplit(self.base)
        return parts.port or (443 if parts.scheme == "https" else 80)

    @property
    def is_local(self) -> bool:
        return False

    def poll(self) -> ExitStatus | None:
        return None  # whether it lives shows in its answers

    def terminate(self) -> None:
        return

    def end(self, term_s: float) -> list[str]:
        return []


class EndpointLauncher(PartsLauncher):
    """Measures at an address. Ready, reset and watched as far as the server lets us."""

    kind = "endpoint"

    def stage(self, spec: LaunchSpec) -> Staged:
        """Only what the load generator needs here: the tokenizer, out of the weights' file.

        :raises InputError: for a model whose tokenizer is not on this machine.
        """
        paths = [ensure_weights(self.settings, entry, self.progress) for entry in spec.weights]
        model = paths[0] if paths else self._hub_folder(spec)
        return Staged(Path("python3"), model, {}, {}, local_model=model)

    def _hub_folder(self, spec: LaunchSpec) -> Path:
        folder = self.state / "weights" / model_place(spec)
        if not (folder / "tokenizer.json").is_file():
            raise InputError(
                f"the tokenizer of {spec.alias} is not here",
                where=str(folder),
                remedy="put the model's tokenizer.json and tokenizer_config.json there",
            )
        return folder

    def groups(self, spec: LaunchSpec) -> list[list[tuple[Command, int]]]:
        """One part, whatever the deployment behind the address consists of."""
        return [[(spec.deployment.workers[0], 0)]]

    def address(self, spec: LaunchSpec) -> str:
        """The endpoint's host."""
        return urlsplit(url_of(spec)).hostname or ""

    def new_part(self, spec: LaunchSpec, fields: dict[str, Any]) -> Part:
        """The endpoint."""
        return EndpointPart(**fields, base=url_of(spec))

    def spawn(self, server: Server, part: Part) -> None:
        """Nothing is started."""
        part.started_at = utc_now()
        server.can_count = self._counts(server, part)
        if not server.can_count:
            server.notes.append("the endpoint shows no counters: a stall cannot be seen")

    @staticmethod
    def _counts(server: Server, part: Part) -> bool:
        try:
            server.adapter.counters(part.url, ASK_S)
        except EngineCallError:
            return False
        return True

    def compare_args(self, server: Server) -> list[str]:
        """Nothing was asked for, so nothing can differ; what the server shows is kept."""
        with contextlib.suppress(EngineCallError):
            server.effective = server.adapter.effective_args(server.url, server.spec.scratch)
        return []

    def reset(self, server: Server, should_stop: ShouldStop | None = None) -> ResetProof:
        """By the engine's own call where it answers; else wait until it is at rest, and say that it is
        not proven.

        :raises PhaseFailedError: ``reset_failed`` where it counts requests and never comes to rest.
        """
        try:
            return super().reset(server, should_stop)
        except PhaseFailedError as error:
            if not server.can_count:
                at_s = 0.0
            else:
                limit = server.spec.deadlines.reset_s
                at_rest(lambda left_s: server.adapter.counters(server.url, left_s), limit, should_stop)
                at_s = limit
            note = f"reset not proven: {error.detail}"
            if note not in server.notes:
                server.notes.append(note)
            return ResetProof(took_s=at_s, slots=0, tokens_erased=None)

    def describe(self, server: Server) -> dict[str, Any]:
        """What is known of it by word alone."""
        endpoint = server.spec.pool.endpoint if server.spec.pool else None
        declared = {"topology": endpoint.topology if endpoint else None, "sku": sku_of(server.spec)}
        return {"declared": declared, "url": server.url}


def url_of(spec: LaunchSpec) -> str:
    """The endpoint's address without a slash at its end. :raises InputError: when the pool has none."""
    if spec.pool is None or spec.pool.endpoint is None:
        raise InputError("the pool has no part endpoint")
    return spec.pool.endpoint.url.rstrip("/")


def sku_of(spec: LaunchSpec) -> str | None:
    """The SKU that was declared."""
    return spec.pool.sku if spec.pool else None
