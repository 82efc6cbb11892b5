"""The launcher kind ``process``: programs are plain children in their own sessions on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from isoline.errors import InputError
from isoline.results.bundles.bundle import utc_now
from isoline.runners.engines import engine_adapter
from isoline.runners.envs import ensure_engine
from isoline.runners.launchers.deploy import PartsLauncher
from isoline.runners.launchers.exits import exit_status
from isoline.runners.launchers.interface import ExitStatus, LaunchSpec, Server, Staged
from isoline.runners.launchers.parts import Part, fill_words, popen_in_session, urls_of, values_of
from isoline.runners.machine import proc
from isoline.runners.machine.needs import Problem
from isoline.runners.ownership import cgroups, owners
from isoline.runners.ownership.cgroups import Cgroup
from isoline.runners.staging.weights import ensure_weights

PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
"""What a server gets of our environment. All else must be in the recipe, or it would decide unseen."""


@dataclass
class ProcessPart(Part):
    """A part that is a child of ours: the leader of its own session."""

    state: Path = Path()
    process: subprocess.Popen[bytes] | None = None
    forced: bool = False
    cgroup: Cgroup | None = None
    status: ExitStatus | None = None

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    def poll(self) -> ExitStatus | None:
        if self.process is not None and self.status is None and (code := self.process.poll()) is not None:
            self.status = exit_status(code)
            if self.status.signal == signal.SIGKILL and self.cgroup is not None and self.cgroup.killed:
                self.status = replace(self.status, reason="oom")
        return self.status

    def pids(self) -> set[int]:
        if self.process is None:
            return set()
        return {item.pid for item in proc.all_procs() if item.sid == self.pid and item.state not in "ZX"}

    def terminate(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped group would not see SIGTERM
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def end(self, term_s: float) -> list[str]:
        if self.process is not None and self.process.poll() is None:
            try:
                self.process.wait(term_s)
            except subprocess.TimeoutExpired:
                self.forced = True
        # What is left of it: the server itself past its deadline, or children that outlived it.
        _, left = owners.end_owned(self.state, self.owner, 0.0 if self.forced else min(term_s, 2.0))
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5.0)
        return [f"process {pid}" for pid in left]

    @property
    def was_killed(self) -> bool:
        return self.forced


class ProcessLauncher(PartsLauncher):
    """Starts programs as processes. ``settings.state`` holds environments, weights, leases, records."""

    kind = "process"

    def stage(self, spec: LaunchSpec) -> Staged:
        """Engine environment and weights, verified.

        :raises PhaseFailedError: ``weights_digest_mismatch``.
        :raises InfraError: when something cannot be fetched.
        """
        if not spec.weights:
            raise InputError(f"launch {spec.launch_id} names no weights file")
        env = ensure_engine(self.settings, spec.engine, spec.packages, self.progress)
        paths = [ensure_weights(self.settings, entry, self.progress) for entry in spec.weights]
        return Staged(
            python=env.python,
            model_path=paths[0],
            package_versions=env.packages,
            weights_sha256={entry.file: entry.sha256 for entry in spec.weights},
        )

    def preflight(self, spec: LaunchSpec, staged: Staged) -> list[Problem]:
        """Disk for the log, model file and start script there."""
        found = super().preflight(spec, staged)
        for path in (staged.model_path, staged.python, engine_adapter(spec.engine).script()):
            if not path.exists():
                found.append(Problem("launch_failed", f"missing: {path.name}"))
        return found

    def new_part(self, spec: LaunchSpec, fields: dict[str, Any]) -> Part:
        """A process that is not started yet."""
        return ProcessPart(**fields, state=self.state)

    def spawn(self, server: Server, part: Part) -> None:
        """Start one program in its own session."""
        assert isinstance(part, ProcessPart)
        spec, staged = server.spec, server.staged
        scratch = str(part.scratch.absolute())
        common = {
            "python": str(staged.python),
            "script": str(server.adapter.script()),
            "model_path": str(staged.model_path),
            "model_alias": spec.alias,
            "host": spec.host,
            "scratch": scratch,
            **{f"file.{name}": f"{scratch}/{name}" for name in files_of(spec)},
        }
        values, urls = values_of(part, server.all_parts, common), urls_of(server.all_parts)
        part.argv = part.program = fill_words(part.command.argv, values, urls)
        env = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
        env["TMPDIR"] = scratch
        env |= {key: " ".join(fill_words([value], values, urls)) for key, value in part.command.env.items()}
        part.env = env | owners.label(part.owner)
        self._limit(server, part)
        words = owners.wrap(
            self.state, part.owner, list(part.argv), part.cgroup.path if part.cgroup else None
        )
        part.process, part.log_offset = popen_in_session(
            words, env=dict(part.env), cwd=part.scratch, log=part.log
        )
        part.started_at = utc_now()

    def _limit(self, server: Server, part: ProcessPart) -> None:
        """Give a program a cgroup with the pool's limit; where the kernel does not let us, that is noted."""
        pool = server.spec.pool
        if pool is None or pool.memory_limit_gb is None:
            return
        limit = int(pool.memory_limit_gb * 1e9)
        part.cgroup = cgroups.make(owners.owners_folder(self.state), part.owner.token, limit)
        told = f"no memory limit: {part.cgroup.why}" if part.cgroup.why else ""
        server.notes.append(told or f"memory limit {pool.memory_limit_gb:g} GB for {part.name}")


def files_of(spec: LaunchSpec) -> set[str]:
    """The names of every file that ``{file.NAME}`` may stand for."""
    return {name for item in spec.deployment.commands for name in item.config_files} | set(spec.files)
