"""The phases that all kinds of launchers share, over the parts of a deployment.

A kind says how one part is started (:meth:`PartsLauncher.spawn`) and staged; order, readiness, resets,
stops and evidence are the same for all. Sidecars that come before are started one after the other, each
once the former one answers; then the workers together; then the sidecars that come after.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from isoline.errors import InfraError
from isoline.recipes.deployment import Command
from isoline.runners.engines import EngineCallError, engine_adapter
from isoline.runners.engines.openai import at_rest
from isoline.runners.envs import Progress
from isoline.runners.launchers.exits import log_tail, reason_of_exit
from isoline.runners.launchers.interface import (
    ExitStatus,
    LaunchSpec,
    PhaseFailedError,
    Readiness,
    ResetProof,
    Server,
    ShouldStop,
    Staged,
    StopOutcome,
    StoppedError,
)
from isoline.runners.launchers.parts import Part, part_name, port_names
from isoline.runners.launchers.readiness import ReadyWait
from isoline.runners.launchers.watch import Watch
from isoline.runners.machine import ports
from isoline.runners.machine.needs import Problem
from isoline.runners.ownership import owners
from isoline.settings import Settings

LOG_ROOM = 200_000_000
"""Free bytes below which no server is started: its log would fill the disk."""


class PartsLauncher:
    """Base of the kinds. ``settings.state`` holds leases and owners' records."""

    kind = ""
    starts_servers = True
    """Whether a launch takes devices that were free before it and are free after it."""

    def __init__(self, settings: Settings, progress: Progress | None = None) -> None:
        self.settings = settings
        self.state = settings.state
        self.progress = progress or (lambda line: None)

    # --- what a kind says ---------------------------------------------------------------------

    def stage(self, spec: LaunchSpec) -> Staged:
        """Make everything ready that a start needs, verified. :raises PhaseFailedError, InfraError:"""
        raise NotImplementedError

    def new_part(self, spec: LaunchSpec, fields: dict[str, Any]) -> Part:
        """A part of this kind that is not started yet."""
        raise NotImplementedError

    def spawn(self, server: Server, part: Part) -> None:
        """Start one part. :raises InfraError: when nothing can be started."""
        raise NotImplementedError

    def address(self, spec: LaunchSpec) -> str:
        """The name under which the node's servers are reached from here."""
        return spec.host

    def effective_args(self, server: Server, part: Part) -> dict[str, object]:
        """What a worker really runs with. :raises EngineCallError:"""
        return server.adapter.effective_args(part.url, part.scratch)

    def compare_args(self, server: Server) -> list[str]:
        """What workers run with against what was asked, one line for each difference; keeps the former."""
        effective: dict[str, dict[str, object]] = {}
        found: list[str] = []
        alone = len(server.workers) == 1
        for part in server.workers:
            try:
                effective[part.name] = self.effective_args(server, part)
                rows = server.adapter.differences(part.program, effective[part.name])
            except EngineCallError as error:
                rows = [str(error)]
            found += rows if alone else [f"{part.name}: {row}" for row in rows]
        server.effective = next(iter(effective.values()), None) if alone else dict(effective)
        return found

    def put(self, spec: LaunchSpec, folder: Path, files: Mapping[str, str]) -> None:
        """Write files into a folder of the launch's node, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")

    def clean(self, server: Server) -> list[str]:
        """Remove what a stopped server leaves besides its processes; what could not be, for people."""
        shutil.rmtree(server.spec.scratch, ignore_errors=True)
        return []

    def describe(self, server: Server) -> dict[str, Any]:
        """What this kind adds to the lock."""
        return {}

    # --- phases -------------------------------------------------------------------------------

    def preflight(self, spec: LaunchSpec, staged: Staged) -> list[Problem]:
        """Disk for the log."""
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(spec.log.parent).free
        if free < LOG_ROOM:
            return [Problem("disk_full", f"{free // 1_000_000} MB free where the server log goes")]
        return []

    def start(self, spec: LaunchSpec, staged: Staged) -> Server:
        """Start the first programs on leased ports. They need not answer yet.

        :raises InfraError: when nothing can be started or no port is free.
        """
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        server = Server(spec=spec, staged=staged, adapter=engine_adapter(spec.engine))
        try:
            for group in self.groups(spec):
                server.waiting.append([self._claim(spec, part, worker) for part, worker in group])
            self._lease_ports(server, set())
            self.start_next(server)
        except BaseException:
            self._abandon(server)
            raise
        return server

    def groups(self, spec: LaunchSpec) -> list[list[tuple[Command, int]]]:
        """(command, worker) in groups that start together, in order."""
        deployment = spec.deployment
        each = [[(item, number) for number in range(item.workers)] for item in deployment.before]
        workers = [(item, number) for item in deployment.workers for number in range(item.workers)]
        after = [[(item, number) for number in range(item.workers)] for item in deployment.after]
        return [*each, workers, *after]

    def _claim(self, spec: LaunchSpec, command: Command, worker: int) -> Part:
        owner = owners.claim(
            self.state,
            run_id=spec.run_id,
            launch_id=spec.launch_id,
            what="server",
            log=spec.log_of(part_name(command, worker)),
            scratch=spec.scratch,
        )
        return self._part(spec, command, worker, owner)

    def _part(self, spec: LaunchSpec, command: Command, worker: int, owner: owners.Owner) -> Part:
        name = part_name(command, worker)
        fields: dict[str, Any] = {
            "name": name,
            "command": command,
            "worker": worker,
            "owner": owner,
            "host": self.address(spec),
            "ports": {},
            "log": spec.log_of(name),
            "scratch": spec.scratch_of(name),
        }
        return self.new_part(spec, fields)

    def _lease_ports(self, server: Server, avoid: set[int]) -> None:
        declared = {name for item in server.spec.deployment.commands for name in item.ports}
        for part in server.all_parts:
            part.ports = {
                name: ports.lease(self.state, part.owner.token, server.spec.host, avoid=avoid)
                for name in port_names(part.command, declared)
            }

    def write_files(self, spec: LaunchSpec, part: Part) -> None:
        """Configuration files and the recipe's own, where ``{file.NAME}`` says they are."""
        texts = {Path(name).name: path.read_text(encoding="utf-8") for name, path in spec.files.items()}
        for name, content in part.command.config_files.items():
            # JSON is YAML too.
            texts[name] = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        self.put(spec, part.scratch, texts)

    def _abandon(self, server: Server) -> None:
        """After a start that failed half way: nothing of it stays."""
        for part in reversed(server.parts):
            with contextlib.suppress(InfraError, OSError):
                part.end(0.0)
        for part in server.all_parts:
            with contextlib.suppress(OSError):
                owners.end_owned(self.state, part.owner, 0.0)
                owners.release(self.state, part.owner)

    def ready(self, server: Server, should_stop: ShouldStop | None = None) -> Readiness:
        """Wait for one real generation with the right token count that every role took part in.

        On a taken port everything is started again on others.

        :raises PhaseFailedError: ``launch_failed``, ``server_killed``, ``launch_timeout``,
            ``not_generating``, ``port_in_use``, ``oom``, ``args_not_effective``.
        :raises StoppedError: when ``should_stop`` says so.
        """
        return ReadyWait(self, server).wait(should_stop)

    def start_next(self, server: Server) -> None:
        """Start the group of programs that comes next."""
        group = server.waiting[0]
        while group:
            # Among those that run from now on: a start that fails half way is ended with the others.
            part = group.pop(0)
            server.parts.append(part)
            self.write_files(server.spec, part)
            self.spawn(server, part)
        server.waiting.pop(0)

    def again(self, server: Server, tried: set[int]) -> list[Part]:
        """End everything and start it anew on other ports, under the same owners.

        :returns: the new parts.
        """
        for part in server.parts:
            part.terminate()
        for part in reversed(server.parts):
            part.end(server.spec.deadlines.stop_s)
        by_name = {part.name: part.owner for part in server.all_parts}
        for owner in by_name.values():
            ports.release_all(self.state, owner.token)
        server.parts = []
        server.waiting = [
            [
                self._part(server.spec, command, worker, by_name[part_name(command, worker)])
                for command, worker in group
            ]
            for group in self.groups(server.spec)
        ]
        self._lease_ports(server, tried)
        return server.all_parts

    def fail(self, server: Server, code: str, detail: str, part: Part | None = None) -> NoReturn:
        """:raises PhaseFailedError: always, with the end of the log of the part that it is about."""
        about = part or server.main
        raise PhaseFailedError(
            code,
            detail,
            where=f"launch {server.spec.launch_id}",
            log_tail=log_tail(about.log, about.log_offset),
            log=about.log,
        )

    def reset(self, server: Server, should_stop: ShouldStop | None = None) -> ResetProof:
        """Bring every worker to rest and empty its caches.

        :raises PhaseFailedError: ``reset_failed``; ``server_died`` or ``server_killed`` when one is gone.
        """

        def ended() -> str | None:
            # A dead server never comes to rest: do not wait for the deadline.
            return "the server ended" if server.ended() is not None else None

        def stop() -> str | None:
            return ended() or (should_stop() if should_stop else None)

        is_fresh, server.is_fresh = server.is_fresh, False
        limit = server.spec.deadlines.reset_s
        try:
            if server.adapter.isolation == "restart" and is_fresh:
                # Nothing empties its cache, and nothing but the proof of readiness is in it.
                proofs = [self._rest(server, part, stop) for part in server.workers]
            else:
                proofs = [server.adapter.reset(part.url, limit, stop) for part in server.workers]
        except (PhaseFailedError, StoppedError):
            gone = self._soon(server.ended)
            if gone is not None:
                part, status = gone
                who = "" if len(server.parts) == 1 else f"{part.name} "
                self.fail(
                    server, reason_of_exit(status), f"{who}ended by {status.text()} between two points", part
                )
            raise
        erased = [proof.tokens_erased for proof in proofs if proof.tokens_erased is not None]
        return ResetProof(
            took_s=sum(proof.took_s for proof in proofs),
            slots=sum(proof.slots for proof in proofs),
            tokens_erased=sum(erased) if erased else None,
        )

    @staticmethod
    def _rest(server: Server, part: Part, should_stop: ShouldStop) -> ResetProof:
        """Wait until a worker is at rest; that is all that can be asked of one without a reset."""
        began = time.monotonic()
        limit = server.spec.deadlines.reset_s
        at_rest(lambda left_s: server.adapter.counters(part.url, left_s), limit, should_stop)
        return ResetProof(took_s=time.monotonic() - began, slots=0, tokens_erased=None)

    @staticmethod
    def _soon(look: Callable[[], Any], seconds: float = 0.2) -> Any:
        """What ``look`` finds within a moment: a server may be ending right now."""
        until = time.monotonic() + seconds
        while (found := look()) is None and time.monotonic() < until:
            time.sleep(0.02)
        return found

    def watch(self, server: Server) -> Watch:
        """A started watch of this server."""
        watch = Watch(server)
        watch.start()
        return watch

    def stop(self, server: Server) -> StopOutcome:
        """Ask all to end, what comes after first; the deadline; force; and a look that nothing is left.

        Idempotent.

        :raises InfraError: when something cannot be ended; the owner's record stays for the next try.
        """
        if server.stopped is not None:
            return server.stopped
        server.stopping = True
        began = time.monotonic()
        term_s = server.spec.deadlines.stop_s
        # How the main program ended is what people ask for, whatever else was still running.
        ended = server.ended()
        was_running = ended is None
        left: list[str] = []
        for group in self._stop_order(server):
            for part in group:
                part.terminate()
            for part in group:
                remaining = max(0.0, term_s - (time.monotonic() - began))
                left += part.end(min(term_s, remaining) if part.poll() is None else min(term_s, 2.0))
        status = ended[1] if ended else server.main.poll() or ExitStatus(None, None)
        if not left:
            left += self.clean(server)
            for part in server.all_parts:
                owners.release(self.state, part.owner)
        outcome = StopOutcome(
            status=status,
            took_s=time.monotonic() - began,
            was_running=was_running,
            killed=any(part.was_killed for part in server.parts),
        )
        if left:
            raise InfraError(
                f"{', '.join(left)} of launch {server.spec.launch_id} cannot be ended",
                remedy="look at them; the next run tries again",
            )
        server.stopped = outcome
        return outcome

    def _stop_order(self, server: Server) -> list[list[Part]]:
        """The parts in groups, last started first; workers together."""
        groups: list[list[Part]] = []
        for part in reversed(server.parts):
            is_worker = part.command.role is not None
            if is_worker and groups and groups[-1][0].command.role is not None:
                groups[-1].append(part)
            else:
                groups.append([part])
        return groups

    def collect(self, server: Server, into: Path) -> dict[str, Any]:
        """Put logs and ``effective_args.json`` in ``into``; returns :meth:`resolved`."""
        into.mkdir(parents=True, exist_ok=True)
        for part in server.parts:
            target = into / part.log.name
            if part.log.is_file() and part.log.absolute() != target.absolute():
                shutil.copyfile(part.log, target)
        if server.effective is not None:
            text = json.dumps(server.effective, indent=1, ensure_ascii=False)
            (into / "effective_args.json").write_text(text + "\n", encoding="utf-8")
        return self.resolved(server)

    def resolved(self, server: Server) -> dict[str, Any]:
        """What the placeholders of a launch became, and what it ran with: part of the lock."""
        main = server.main
        found: dict[str, Any] = {
            "launcher": self.kind,
            "argv": list(main.argv),
            "env": {key: value for key, value in main.env.items() if key in main.command.env},
            "host": server.host,
            "port": server.port,
            "port_tries": server.port_tries,
            "packages": dict(server.staged.package_versions),
            "weights": dict(server.staged.weights_sha256),
            "effective_args": server.effective,
            "notes": list(server.notes),
            **self.describe(server),
        }
        if len(server.all_parts) > 1:
            found["parts"] = [
                {
                    "name": part.name,
                    "role": part.command.role,
                    "gpus": part.command.gpus,
                    "host": part.host,
                    "ports": dict(part.ports),
                    "argv": list(part.argv),
                    "env": {key: value for key, value in part.env.items() if key in part.command.env},
                }
                for part in server.all_parts
            ]
        return found
