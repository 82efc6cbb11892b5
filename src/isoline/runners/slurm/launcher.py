"""The launcher kind ``slurm``: one batch job a launch, its script exactly as rendered.

The script places the programs, starts them in order and cleans its nodes
(:mod:`isoline.recipes.renderers.slurm`); here it is filled in, submitted, followed and ended. Time in the
queue is no part of the deadline for readiness.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Excluded, Pool, Slurm
from isoline.errors import InfraError, InputError
from isoline.recipes.deployment import Command, filled, placeholders_in
from isoline.recipes.placement import nodes_for, placed
from isoline.recipes.renderers.container import INSIDE_SCRATCH
from isoline.recipes.renderers.slurm import INSIDE_FILES, filled_script, slurm_script
from isoline.results.bundles.bundle import utc_now, write_file
from isoline.runners.launchers.compile_cache import CompileCache
from isoline.runners.launchers.container import INSIDE_MODELS
from isoline.runners.launchers.container_gc import owner_labels
from isoline.runners.launchers.deploy import PartsLauncher
from isoline.runners.launchers.interface import (
    ExitStatus,
    LaunchSpec,
    Readiness,
    Server,
    ShouldStop,
    Staged,
    StoppedError,
)
from isoline.runners.launchers.parts import Part, fill_words, urls_of, values_of
from isoline.runners.launchers.process import files_of
from isoline.runners.machine import ports
from isoline.runners.machine.hosts import ToolUnavailableError
from isoline.runners.machine.needs import Problem
from isoline.runners.ownership.quarantine import kept_away
from isoline.runners.slurm.commands import comment_of, submit
from isoline.runners.slurm.job import FollowedJob
from isoline.runners.slurm.nodes import (
    away_from,
    needs_sweep,
    nodes_to_judge,
    partition_nodes,
    sweep_or_note,
)
from isoline.runners.staging.images import image_file
from isoline.runners.staging.weights import staged_in

QUEUE_S = 48 * 3600.0
"""How long a job may wait for its nodes; what should not start any more is the window's business."""

NOWHERE = "http://127.0.0.1:1"
"""The address of a part whose node is not known yet: nobody answers there."""

EVERYWHERE = "0.0.0.0"


@dataclass
class SlurmPart(Part):
    """A program of a job. ``node`` counts the job's nodes from 0."""

    job: FollowedJob | None = None
    node: int = 0

    @property
    def is_local(self) -> bool:
        return False

    @property
    def url(self) -> str:
        """Its address, once its node has one."""
        if not self.host and self.job is not None and len(self.job.hosts) > self.node:
            self.host = self.job.hosts[self.node]
        return f"http://{self.host}:{self.port}" if self.host else NOWHERE

    def poll(self) -> ExitStatus | None:
        return self.job.status_of(self.name) if self.job else None

    def terminate(self) -> None:
        if self.job is not None:
            self.job.ask_to_end()

    def end(self, term_s: float) -> list[str]:
        # The job's script gives its programs their time; what is left of the job is the job.
        if self.job is None or self.job.job.is_ended or self.job.end():
            return []
        return [
            f"job {self.job.job.id} ({self.job.job.state}{', ' if self.job.silent else ''}{self.job.silent})"
        ]

    @property
    def was_killed(self) -> bool:
        return self.job is not None and self.job.forced


class SlurmLauncher(PartsLauncher):
    """Starts a deployment as a batch job of the pool's partition."""

    kind = "slurm"

    # --- before -------------------------------------------------------------------------------

    def stage(self, spec: LaunchSpec) -> Staged:
        """What must be there already; what this machine cannot see is looked at by the job's programs.

        :raises PhaseFailedError: ``not_staged``, ``weights_digest_mismatch``.
        """
        cache = self.model_cache(spec)
        _, slurm = _pool_of(spec)
        inside = cache if slurm.container == "none" else Path(INSIDE_MODELS)
        return staged_in(cache, spec, inside, is_seen=cache.is_dir())

    def preflight(self, spec: LaunchSpec, staged: Staged) -> list[Problem]:
        """Disk for the log, a controller that answers, the image's file where jobs use one."""
        found = super().preflight(spec, staged)
        pool, slurm = _pool_of(spec)
        try:
            names = partition_nodes(spec.node, pool)
        except ToolUnavailableError as error:
            return [*found, Problem("tool_missing", error.line())]
        away = {
            name: why for name, why in kept_away(self.state, pool, datetime.now(UTC)).items() if name in names
        }
        needed = nodes_for(spec.deployment, pool.accelerators)
        if len(names) - len(away) < needed:  # a job that can never start would wait for days
            why = "".join(f"; {name} is {text}" for name, text in sorted(away.items()))
            detail = f"partition {slurm.partition} has {len(names)} node(s), the job needs {needed}{why}"
            found.append(Problem("no_nodes", detail))
        if slurm.shared_home:
            path = image_file(pool, spec.deployment.used_image or "")
            if path is not None and not Path(path).exists():
                found.append(Problem("not_staged", f"{Path(path).name} is not in the pool's image cache"))
        return found

    def model_cache(self, spec: LaunchSpec) -> Path:
        """The pool's model cache on the nodes; ``{state}`` in it is our own state folder."""
        pool, _ = _pool_of(spec)
        return pool.container.model_cache_in(self.state) if pool.container else self.state / "weights"

    def job_scratch(self, spec: LaunchSpec) -> Path:
        """The job's folder on its nodes: ours where homes are shared, else below the pool's scratch."""
        pool, slurm = _pool_of(spec)
        if slurm.shared_home:
            return spec.scratch.absolute()
        base = pool.container.scratch_in(self.state) if pool.container else Path("/tmp")
        return base / f"isoline-{spec.run_id}-{spec.launch_id}"

    # --- start --------------------------------------------------------------------------------

    def address(self, spec: LaunchSpec) -> str:
        """Not known before the job runs."""
        return ""

    def groups(self, spec: LaunchSpec) -> list[list[tuple[Command, int]]]:
        """All at once: the order is the script's."""
        ordered = super().groups(spec)
        return [[item for group in ordered for item in group]]

    def new_part(self, spec: LaunchSpec, fields: dict[str, Any]) -> Part:
        """A program of a job that is not submitted yet."""
        pool, _ = _pool_of(spec)
        places = placed(spec.deployment, pool.accelerators)
        command: Command = fields["command"]
        return SlurmPart(**fields, node=places[command.name, fields["worker"]][0].node)

    def start_next(self, server: Server) -> None:
        """Submit the job with all programs.

        :raises PhaseFailedError: ``job_rejected``.
        """
        spec = server.spec
        _, slurm = _pool_of(spec)
        (waiting,) = server.waiting
        text = self.script(server)
        path = spec.log.with_name("job.sh")
        write_file(path, text.encode())
        scratch = self.job_scratch(spec)
        if slurm.shared_home:
            shutil.rmtree(scratch, ignore_errors=True)  # of a start on other ports
            scratch.mkdir(parents=True, exist_ok=True)
        owner = waiting[0].owner
        job_id = submit(spec.node, path, comment_of(owner_labels(owner), owner.token), self._options(spec))
        logs = {f"{part.name}.log": part.log for part in waiting}
        job = FollowedJob(
            spec.node,
            job_id,
            scratch,
            {**logs, "job.log": spec.log.with_name("job.log")},
            is_shared=slurm.shared_home,
        )
        server.notes.append(f"job {job_id}")
        for part in waiting:
            assert isinstance(part, SlurmPart)
            part.job, part.started_at, part.host = job, utc_now(), ""
            part.log_offset = part.log.stat().st_size if part.log.exists() else 0
        self._describe_parts(server, waiting)
        server.parts += server.waiting.pop(0)

    def _options(self, spec: LaunchSpec) -> list[str]:
        """Options of sbatch that say where it is started, nothing of what runs."""
        return ["--chdir=/"]

    def script(self, server: Server) -> str:
        """The launch's batch script, filled in."""
        spec = server.spec
        pool, _ = _pool_of(spec)
        away = away_from(spec.node, self.state, pool, datetime.now(UTC))
        pool = pool.model_copy(
            update={"exclude": [Excluded(node=node, reason=why) for node, why in sorted(away.items())]}
        )
        engine = load_catalog().engines[spec.engine]
        text = slurm_script(
            spec.deployment, pool, ready_s=max(1, round(spec.deadlines.ready_s)), health=engine.health
        )
        names = placeholders_in([text])
        values = self._values(server, names)
        return filled_script(text, {name: values[name] for name in names if name in values})

    def _values(self, server: Server, names: set[str]) -> dict[str, str]:
        spec = server.spec
        pool, _ = _pool_of(spec)
        first = server.all_parts[0]
        values = {
            "launch_id": spec.launch_id,
            "state": str(self.state.absolute()),
            "python": "python3",
            "model_path": str(server.staged.model_path),
            "model_alias": spec.alias,
            "host": EVERYWHERE if spec.host == "127.0.0.1" else spec.host,
            "scratch": str(self.job_scratch(spec)),
            "image": spec.deployment.used_image or "",
            **{f"owner.{key}": _plain(value) for key, value in owner_labels(first.owner).items()},
        }
        values["image_file"] = image_file(pool, spec.deployment.used_image or "") or ""
        for part in server.all_parts:
            for name, number in part.ports.items():
                if part.command.role is None:
                    values[f"port.{name}"] = str(number)
                elif name == "main":
                    values[f"port.{part.command.name}_{part.worker}"] = str(number)
        for name in sorted(names):
            if name.startswith("port.") and name not in values:  # of a worker that spans nodes
                number = ports.lease(self.state, first.owner.token, spec.host)
                first.ports[name.removeprefix("port.")] = number
                values[name] = str(number)
        for name, path in spec.files.items():
            values[f"content.{Path(name).name}"] = _base64(path)
        return values

    def _describe_parts(self, server: Server, waiting: list[Part]) -> None:
        """The words of each program as the script has them, for the lock and for comparisons."""
        spec = server.spec
        _, slurm = _pool_of(spec)
        is_bare = slurm.container == "none"
        files = f"{self.job_scratch(spec)}/files" if is_bare else INSIDE_FILES
        if not is_bare and spec.is_alone:
            files = f"{INSIDE_SCRATCH}/files"
        common = {
            "python": "python3",
            "model_path": str(server.staged.model_path),
            "model_alias": spec.alias,
            "host": EVERYWHERE if spec.host == "127.0.0.1" else spec.host,
            **{f"file.{name}": f"{files}/{name}" for name in files_of(spec)},
        }
        urls = urls_of(waiting)
        for part in waiting:
            scratch = str(self.part_scratch(spec, part)) if is_bare else INSIDE_SCRATCH
            values = values_of(part, waiting, {**common, "scratch": scratch})
            part.argv = part.program = fill_words(part.command.argv, values, urls)
            part.env = {key: filled(text, values) for key, text in part.command.env.items()}

    # --- while it runs ------------------------------------------------------------------------

    def ready(self, server: Server, should_stop: ShouldStop | None = None) -> Readiness:
        """Wait for the job's nodes, then as every kind does.

        :raises PhaseFailedError: also ``queue_timeout``, ``preempted``, ``node_failed``, ``job_cancelled``.
        :raises StoppedError: when ``should_stop`` says so.
        """
        job = job_of(server)
        until = time.monotonic() + QUEUE_S
        while job.job.is_pending:
            if should_stop and (why := should_stop()):
                raise StoppedError(why)
            if time.monotonic() > until:
                self.fail(server, "queue_timeout", f"job {job.job.id} still waits: {job.job.why}")
            time.sleep(0.1)
        found = super().ready(server, should_stop)
        job.look()  # what the script wrote since the follower last came by
        if job.compiled is not None:
            state, path = job.compiled
            server.compiled = CompileCache(Path(path).name, path, state == "cold", run=job.everywhere)
        return found

    def effective_args(self, server: Server, part: Part) -> dict[str, object]:
        """As every kind; the file with them is fetched where it is not seen here."""
        job = job_of(server)
        assert isinstance(part, SlurmPart)
        folder = self.part_scratch(server.spec, part)
        if not job.is_shared:
            node = job.nodes[part.node] if len(job.nodes) > part.node else None
            with contextlib.suppress(ToolUnavailableError):
                said = job.step(f"cat {folder}/effective_args.json 2>/dev/null; true", node)
                part.scratch.mkdir(parents=True, exist_ok=True)
                (part.scratch / "effective_args.json").write_text(said, encoding="utf-8")
            folder = part.scratch
        return server.adapter.effective_args(part.url, folder)

    def part_scratch(self, spec: LaunchSpec, part: Part) -> Path:
        """A program's own folder on its node."""
        folder = self.job_scratch(spec)
        return folder if spec.is_alone else folder / part.name

    # --- after --------------------------------------------------------------------------------

    def clean(self, server: Server) -> list[str]:
        """Remove the launch's folder here; the nodes were cleaned by the script, if it came so far."""
        spec = server.spec
        pool, _ = _pool_of(spec)
        if server.parts:
            job = job_of(server)
            server.nodes = nodes_to_judge(spec.node, job.job, job.nodes, spec.log.with_name("job.log"))
            if needs_sweep(job.job, forced=job.forced):
                problem = sweep_or_note(
                    spec.node, self.state, pool, job.job.nodes, spec.run_id, spec.launch_id
                )
                if problem:
                    server.notes.append(problem)
        super().clean(server)
        if spec.scratch.exists() and os.geteuid() != 0:
            return [f"folder {spec.scratch}, in which programs of the nodes wrote as another user"]
        return []

    def _abandon(self, server: Server) -> None:
        """After a start that failed half way: the job is ended too."""
        super()._abandon(server)
        if server.parts:
            with contextlib.suppress(InfraError):
                job_of(server).end()

    def describe(self, server: Server) -> dict[str, Any]:
        """Job and nodes; the image by its name."""
        job = job_of(server)
        return {
            "image": server.spec.deployment.used_image,
            "job": {"id": job.job.id, "nodes": job.nodes, "hosts": job.hosts, "state": job.job.state},
        }


def job_of(server: Server) -> FollowedJob:
    """The job of a submitted deployment."""
    part = server.main
    assert isinstance(part, SlurmPart) and part.job is not None
    return part.job


def _pool_of(spec: LaunchSpec) -> tuple[Pool, Slurm]:
    if spec.pool is None or spec.pool.slurm is None:
        raise InputError("the pool has no part slurm", where=spec.pool.name if spec.pool else "")
    return spec.pool, spec.pool.slurm


def _plain(value: str) -> str:
    """A label without the brackets of a name space, which a shell would read."""
    return value.replace("[", "").replace("]", "")


def _base64(path: Path) -> str:
    import base64

    return base64.encodebytes(path.read_bytes()).decode().strip()
