"""Measuring on a held launch: what `isoline launch` keeps, `sweep run --attach` uses and leaves as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isoline.errors import InputError
from isoline.runners.engines import engine_adapter
from isoline.runners.envs import Progress
from isoline.runners.launchers.deploy import PartsLauncher
from isoline.runners.launchers.exits import exit_status
from isoline.runners.launchers.interface import ExitStatus, LaunchSpec, Server, Staged, StopOutcome
from isoline.runners.launchers.kinds import launcher_for
from isoline.runners.launchers.parts import Part
from isoline.runners.machine import proc
from isoline.runners.ownership import owners
from isoline.runners.ownership.held import Held, HeldPart
from isoline.runners.ownership.orchestrators import Orchestrator, life_of, this_orchestrator
from isoline.settings import Settings


def held_of(
    server: Server, *, launch_digest: str, recipe_id: str, topology: str, kind: str, since: str, until: str
) -> Held:
    """The record of a ready server of ours."""
    return Held(
        launch_id=server.spec.launch_id,
        launch_digest=launch_digest,
        recipe_id=recipe_id,
        topology=topology,
        pool=server.spec.pool.name if server.spec.pool else "",
        kind=kind,
        url=server.url,
        since=since,
        until=until,
        orchestrator=this_orchestrator(),
        parts=[
            HeldPart(
                name=part.name,
                host=part.host,
                ports=dict(part.ports),
                argv=list(part.argv),
                program=list(part.program),
                # The child's whole environment is ours too: what the recipe says of it is enough.
                env={key: value for key, value in part.env.items() if key in part.command.env},
                log=str(part.log.absolute()),
                scratch=str(part.scratch.absolute()),
                owner=part.owner.token,
            )
            for part in server.parts
        ],
    )


@dataclass
class AttachedPart(Part):
    """A program of a held launch: seen, never ended."""

    state: Path = Path()
    holder: Orchestrator | None = None
    child: owners.Child | None = None

    @property
    def pid(self) -> int:
        return min(self.pids(), default=0)

    def poll(self) -> ExitStatus | None:
        if self.holder is not None and life_of(self.holder) == "dead":
            return exit_status(None)
        # Asked ten times a second while others measure: one process is looked at, not all of them.
        if self.child is not None and proc.is_alive(self.child.pid, self.child.start_ticks):
            return None
        return None if self.pids() else exit_status(None)

    def pids(self) -> set[int]:
        return {item.pid for item in owners.find_processes(self.state, self.owner)}

    def terminate(self) -> None:
        return

    def end(self, term_s: float) -> list[str]:
        return []


class AttachLauncher(PartsLauncher):
    """Measures on a held launch. ``start`` starts nothing and ``stop`` stops nothing."""

    starts_servers = False

    def __init__(self, below: PartsLauncher, held: Held) -> None:
        super().__init__(below.settings, below.progress)
        self.kind = held.kind
        self._below = below
        self._held = held

    def stage(self, spec: LaunchSpec) -> Staged:
        """As the kind does: verified, nothing downloaded that is there."""
        return self._below.stage(spec)

    def new_part(self, spec: LaunchSpec, fields: dict[str, Any]) -> Part:
        """Not asked: the parts stand in the record."""
        raise NotImplementedError

    def start(self, spec: LaunchSpec, staged: Staged) -> Server:
        """The held server as it is.

        :raises InputError: when its programs are not those of the launch.
        """
        server = Server(spec=spec, staged=staged, adapter=engine_adapter(spec.engine), is_fresh=False)
        records = {owner.token: owner for owner in owners.all_owners(self.state)}
        commands = {command.name: command for command in spec.deployment.commands}
        for item in self._held.parts:
            name, _, worker = item.name.rpartition(".")
            if name not in commands or item.owner not in records:
                raise InputError(f"held launch {self._held.launch_id} has no {item.name} any more")
            log = Path(item.log)
            server.parts.append(
                AttachedPart(
                    name=item.name,
                    command=commands[name],
                    worker=int(worker),
                    owner=records[item.owner],
                    host=item.host,
                    ports=dict(item.ports),
                    log=log,
                    scratch=Path(item.scratch),
                    program=tuple(item.program),
                    argv=tuple(item.argv),
                    env=dict(item.env),
                    log_offset=log.stat().st_size if log.is_file() else 0,
                    started_at=self._held.since,
                    state=self.state,
                    holder=self._held.orchestrator,
                    child=owners.child_of(self.state, item.owner),
                )
            )
        return server

    def stop(self, server: Server) -> StopOutcome:
        """Leave it running."""
        server.stopping = True
        return StopOutcome(status=exit_status(None), took_s=0.0, was_running=True, killed=False)

    def describe(self, server: Server) -> dict[str, Any]:
        """That it was attached to, and to what."""
        return {"attached_to": self._held.launch_id, "held_since": self._held.since}


def attach_launcher(settings: Settings, held: Held, progress: Progress | None = None) -> AttachLauncher:
    """The launcher that measures on a held launch."""
    return AttachLauncher(launcher_for(held.kind, settings, progress), held)
