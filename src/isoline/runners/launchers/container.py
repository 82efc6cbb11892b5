"""The launcher kind ``container``: programs run by docker or podman on a node of the pool.

What is executed is the rendered command line, in the foreground: its output is the log, its exit code
that of the program. The client may die while the container lives, so the runtime is asked before anything
is called ended. Containers carry our labels; clean-up goes by these alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isoline.catalog.pools import Container
from isoline.errors import InfraError, InputError
from isoline.recipes.renderers.container import INSIDE_SCRATCH, container_argv
from isoline.results.bundles.bundle import utc_now
from isoline.runners.launchers.container_gc import owner_labels
from isoline.runners.launchers.container_runtime import RUNTIME_FAILED, Runtime, remove_from_inside
from isoline.runners.launchers.deploy import PartsLauncher
from isoline.runners.launchers.exits import exit_status
from isoline.runners.launchers.interface import ExitStatus, LaunchSpec, Server, Staged
from isoline.runners.launchers.parts import Part, fill_words, popen_in_session, urls_of, values_of
from isoline.runners.launchers.process import PASSED_ON, files_of
from isoline.runners.machine import proc
from isoline.runners.machine.hosts import Host, ToolUnavailableError
from isoline.runners.machine.needs import Problem
from isoline.runners.ownership import owners
from isoline.runners.staging.weights import staged_in

INSIDE_MODELS = "/models"
EFFECTIVE = "effective_args.json"
_FINDS_RUNTIME = re.compile("(DOCKER|CONTAINERS?|XDG)_|SSH_AUTH_SOCK$")
"""What tells docker and podman where daemon, storage and settings are: a launch uses the same as the check,
staging and clean-up. Of the container's own environment it is nothing."""
ASK_EVERY_S = 1.0
"""A client that ended makes us ask the runtime; not more often than this."""


@dataclass
class ContainerPart(Part):
    """A part in a container. ``client`` is the runtime's command line program that we started."""

    state: Path = Path()
    runtime: Runtime | None = None
    container: str = ""
    client: subprocess.Popen[bytes] | None = None
    forced: bool = False
    status: ExitStatus | None = None
    asked_at: float = field(default=0.0, repr=False)
    first_pid: int = 0

    @property
    def is_local(self) -> bool:
        return self.runtime is not None and self.runtime.host.is_local

    @property
    def pid(self) -> int:
        """The container's first process as this machine numbers it; the client's until it is known."""
        if not self.first_pid and self.is_local and self.client is not None and self.status is None:
            self._ask()
        return self.first_pid or (self.client.pid if self.client else 0)

    def _ask(self) -> dict[str, Any] | None:
        """The runtime's word on the container; None when it has none, or cannot say."""
        assert self.runtime is not None
        self.asked_at = time.monotonic()
        with contextlib.suppress(ToolUnavailableError):
            state = self.runtime.state(self.container)
            if state is not None:
                self.first_pid = int(state.get("Pid") or 0)
            return state
        return None

    def poll(self) -> ExitStatus | None:
        if self.status is not None or self.client is None:
            return self.status
        code = self.client.poll()
        if code is None:
            return None
        if code >= 0 and code != RUNTIME_FAILED and self.runtime is not None and self.runtime.host.is_local:
            self.status = exit_status(code)  # the client passed on how the program ended
            return self.status
        # The client was killed, or its connection broke: that says nothing about the container.
        if time.monotonic() - self.asked_at < ASK_EVERY_S:
            return None
        assert self.runtime is not None
        self.asked_at = time.monotonic()
        try:
            state = self.runtime.state(self.container)
        except ToolUnavailableError:
            return None
        if state is not None and state.get("Running"):
            return None
        known = code if code >= 0 and code != RUNTIME_FAILED else (state or {}).get("ExitCode")
        self.status = exit_status(code if code == RUNTIME_FAILED and state is None else known)
        return self.status

    def pids(self) -> set[int]:
        """The processes inside, by descent from the container's first one; and the client."""
        if not self.is_local or self.client is None:
            return set()
        first = self.pid
        children: dict[int, list[int]] = {}
        living = {item.pid: item for item in proc.all_procs() if item.state not in "ZX"}
        for item in living.values():
            children.setdefault(item.ppid, []).append(item.pid)
        found: set[int] = set()
        todo = [pid for pid in (first, self.client.pid) if pid in living]
        while todo:
            pid = todo.pop()
            if pid not in found:
                found.add(pid)
                todo += children.get(pid, [])
        return found

    def terminate(self) -> None:
        if self.client is None or self.poll() is not None:
            return
        assert self.runtime is not None
        with contextlib.suppress(ToolUnavailableError):
            if (self._ask() or {}).get("Paused"):
                self.runtime.host.run([self.runtime.program, "unpause", self.container])
            self.runtime.host.run([self.runtime.program, "kill", "--signal", "TERM", self.container])
            if self.is_local and self.first_pid:
                # What was stopped from outside would not see the SIGTERM.
                for pid in self.pids() - {self.client.pid}:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGCONT)

    def end(self, term_s: float) -> list[str]:
        if self.client is None:
            return []
        assert self.runtime is not None
        until = time.monotonic() + term_s
        while self.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        self.forced = self.poll() is None
        try:
            self.runtime.remove(self.container, 0)
        except InfraError as error:
            return [f"container {self.container} ({error.line()})"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.client.wait(5.0)
        _, left = owners.end_owned(self.state, self.owner, 1.0)
        if self.status is None:
            self.status = exit_status(self.client.poll())
        return [f"process {pid}" for pid in left]

    @property
    def was_killed(self) -> bool:
        return self.forced


class ContainerLauncher(PartsLauncher):
    """Starts programs in containers on the launch's node."""

    kind = "container"

    def stage(self, spec: LaunchSpec) -> Staged:
        """What must be on the node already: nothing is downloaded here.

        :raises PhaseFailedError: ``not_staged``, ``weights_digest_mismatch``.
        """
        node = spec.node
        return staged_in(
            self.model_cache(spec), spec, Path(INSIDE_MODELS), is_seen=node.is_local, where=node.name
        )

    def preflight(self, spec: LaunchSpec, staged: Staged) -> list[Problem]:
        """Disk for the log, a runtime that answers, and the image there by its digest."""
        found = super().preflight(spec, staged)
        runtime = self.runtime(spec)
        image = spec.deployment.used_image or ""
        try:
            done = runtime.host.run(
                [runtime.program, "image", "inspect", "--format", "{{.Id}} {{json .RepoDigests}}", image]
            )
        except ToolUnavailableError as error:
            return [*found, Problem("tool_missing", error.line())]
        if not done.ok:
            found.append(Problem("not_staged", f"image {image} is not on {spec.node.name}"))
        return found

    def model_cache(self, spec: LaunchSpec) -> Path:
        """The pool's model cache on the node; ``{state}`` in it is our own state folder."""
        return container_of(spec).model_cache_in(self.state)

    def runtime(self, spec: LaunchSpec) -> Runtime:
        """docker or podman on the launch's node, with the pool's environment for it."""
        container = container_of(spec)
        host = spec.node
        if container.env:
            host = Host(host.name, host.address, host.ssh_options, {**container.env, **host.env})
        return Runtime(container.runtime, host)

    def address(self, spec: LaunchSpec) -> str:
        """The node's own name where it is another machine."""
        if spec.node.address is None:
            return spec.host
        return spec.node.address.rpartition("@")[2]

    def new_part(self, spec: LaunchSpec, fields: dict[str, Any]) -> Part:
        """A container that is not started yet."""
        owner: owners.Owner = fields["owner"]
        return ContainerPart(
            **fields,
            state=self.state,
            runtime=self.runtime(spec),
            container=f"isoline-{spec.launch_id}-{fields['name'].replace('.', '-')}-{owner.token[:8]}",
        )

    def spawn(self, server: Server, part: Part) -> None:
        """Start one container: exactly the rendered line."""
        assert isinstance(part, ContainerPart)
        assert part.runtime is not None
        spec, container = server.spec, container_of(server.spec)
        common = {
            "python": "python3",
            "model_path": str(server.staged.model_path),
            "model_alias": spec.alias,
            "host": spec.host,
            "scratch": str(part.scratch.absolute()),
            "image": spec.deployment.used_image or "",
            "state": str(self.state.absolute()),
            "compile_cache": spec.compile_cache or "",
            **{f"file.{name}": f"{INSIDE_SCRATCH}/{name}" for name in files_of(spec)},
        }
        values, urls = values_of(part, server.all_parts, common), urls_of(server.all_parts)
        has_cache = spec.compile_cache is not None
        rendered = container_argv(spec.deployment, part.command, container, keeps_compiled=has_cache)
        words = [fill_owner(word, part, spec) for word in fill_words(rendered, values, urls)]
        part.argv = tuple(words)
        part.program = fill_words(part.command.argv, {**values, "scratch": INSIDE_SCRATCH}, urls)
        part.env = {key: " ".join(fill_words([text], values, urls)) for key, text in part.command.env.items()}
        env = {
            key: value for key, value in os.environ.items() if key in PASSED_ON or _FINDS_RUNTIME.match(key)
        }
        if part.runtime.host.is_local:
            env |= part.runtime.host.env
        env |= owners.label(part.owner)
        command = owners.wrap(self.state, part.owner, part.runtime.host.words(words))
        part.client, part.log_offset = popen_in_session(command, env=env, cwd=None, log=part.log)
        part.started_at = utc_now()

    def put(self, spec: LaunchSpec, folder: Path, files: Mapping[str, str]) -> None:
        """Write files into a folder of the node."""
        if spec.node.is_local:
            super().put(spec, folder, files)
            return
        run_or_fail(spec.node, ["mkdir", "-p", str(folder)])
        for name, text in files.items():
            run_or_fail(spec.node, ["sh", "-c", 'cat > "$1"', "sh", f"{folder}/{name}"], input=text)

    def effective_args(self, server: Server, part: Part) -> dict[str, object]:
        """What a worker really runs with; of another machine its file is fetched first."""
        if server.spec.node.is_local:
            return super().effective_args(server, part)
        with tempfile.TemporaryDirectory(prefix="isoline-args-") as folder:
            done = server.spec.node.run(["cat", f"{part.scratch}/{EFFECTIVE}"])
            if done.ok:
                (Path(folder) / EFFECTIVE).write_text(done.stdout, encoding="utf-8")
            return server.adapter.effective_args(part.url, Path(folder))

    def clean(self, server: Server) -> list[str]:
        """Remove the scratch folder; what belongs to root is removed from inside a container."""
        spec = server.spec
        for from_inside in (False, True):
            if from_inside:
                remove_from_inside(self.runtime(spec), spec.deployment.used_image or "", spec.scratch)
            if spec.node.is_local:
                super().clean(server)
            else:
                spec.node.run(["rm", "-rf", str(spec.scratch)])
            if not self._exists(spec):
                return []
        return [f"folder {spec.scratch}"]

    @staticmethod
    def _exists(spec: LaunchSpec) -> bool:
        if spec.node.is_local:
            return spec.scratch.exists()
        return spec.node.run(["test", "-e", str(spec.scratch)]).ok

    def describe(self, server: Server) -> dict[str, Any]:
        """The image as the runtime knows it."""
        runtime = self.runtime(server.spec)
        image = server.spec.deployment.used_image or ""
        found: dict[str, Any] = {"image": image, "image_id": None, "runtime": runtime.program}
        with contextlib.suppress(InfraError):
            found["image_id"] = runtime.call("image", "inspect", "--format", "{{.Id}}", image).strip()
        return found


def run_or_fail(host: Host, argv: list[str], input: str | None = None) -> None:
    """Run a command on a node. :raises InfraError: when it says that it failed, or nothing."""
    done = host.run(argv, input=input)
    if not done.ok:
        raise InfraError(f"{argv[0]}: {done.last_line()}", where=host.name)


def container_of(spec: LaunchSpec) -> Container:
    """The pool's part ``container``. :raises InputError: when it has none."""
    if spec.pool is None or spec.pool.container is None:
        raise InputError("the pool has no part container", where=spec.pool.name if spec.pool else "")
    return spec.pool.container


def fill_owner(word: str, part: ContainerPart, spec: LaunchSpec) -> str:
    """The placeholders that name who owns a container, and which devices it gets."""
    values = {
        "container_name": part.container,
        "devices": ",".join(str(index) for index in spec.devices),
        **{f"owner.{key}": value for key, value in owner_labels(part.owner).items()},
    }
    for name, value in values.items():
        word = word.replace("{" + name + "}", value)
    return word
