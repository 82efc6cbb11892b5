"""docker and podman on a node: asking for containers, ending them, and removing what they left."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isoline.errors import InfraError
from isoline.runners.machine.hosts import Host, ToolUnavailableError

ASK_S = 20.0

RUNTIME_FAILED = 125
"""docker's and podman's own failure: the container never ran."""

EMPTY_SCRIPT = """
import os, shutil, sys
for name in os.listdir(sys.argv[1]):
    path = os.path.join(sys.argv[1], name)
    shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.remove(path)
"""


@dataclass(frozen=True)
class Runtime:
    """docker or podman on one node."""

    program: str
    host: Host

    def call(self, *words: str, timeout_s: float = ASK_S) -> str:
        """What a command of the runtime prints.

        :raises ToolUnavailableError: when it gives no answer.
        :raises InfraError: when it says that it failed.
        """
        done = self.host.run([self.program, *words], timeout_s=timeout_s)
        if not done.ok:
            raise InfraError(f"{self.program} {words[0]}: {done.last_line()}", where=self.host.name)
        return done.stdout

    def state(self, name: str) -> dict[str, Any] | None:
        """``State`` of a container; None when there is none of that name.

        :raises ToolUnavailableError: when nobody can say.
        """
        done = self.host.run([self.program, "container", "inspect", "--format", "{{json .State}}", name])
        if done.ok:
            found: dict[str, Any] = json.loads(done.stdout)
            return found
        if "no such container" in done.stderr.lower() or "no container with name" in done.stderr.lower():
            return None
        raise ToolUnavailableError(f"{self.program} inspect: {done.last_line()}", where=self.host.name)

    def labelled(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """``{id, name, labels}`` of every container, running or not, that has all these labels.

        :raises ToolUnavailableError: when nobody can say.
        """
        words = [self.program, "ps", "--all", "--no-trunc", "--format", "{{.ID}}"]
        for key, value in labels.items():
            words += ["--filter", f"label={key}={value}"]
        done = self.host.run(words)
        if not done.ok:
            raise ToolUnavailableError(f"{self.program} ps: {done.last_line()}", where=self.host.name)
        found = []
        for identity in done.stdout.split():
            asked = self.host.run([self.program, "container", "inspect", identity])
            if asked.ok and (rows := json.loads(asked.stdout)):
                config = rows[0].get("Config") or {}
                found.append(
                    {
                        "id": identity,
                        "name": rows[0].get("Name", "").lstrip("/"),
                        "labels": config.get("Labels") or {},
                    }
                )
        return found

    def remove(self, name: str, term_s: float) -> None:
        """End a container (SIGTERM, ``term_s`` seconds, SIGKILL) and remove it; one that is gone is fine.

        :raises ToolUnavailableError, InfraError: when the runtime does not do it.
        """
        if self.state(name) is None:
            return
        whole = str(max(0, round(term_s)))
        done = self.host.run([self.program, "stop", "--time", whole, name], timeout_s=term_s + ASK_S)
        if self.state(name) is None:
            return
        if not done.ok:
            self.host.run([self.program, "kill", "--signal", "KILL", name], timeout_s=ASK_S)
        done = self.host.run([self.program, "rm", "--force", name], timeout_s=ASK_S)
        if self.state(name) is not None:
            raise InfraError(f"{self.program} rm: {done.last_line()}", where=self.host.name)


def remove_from_inside(runtime: Runtime, image: str, folder: Path) -> None:
    """Empty a folder of the node as the image's user, in the same mapping of users. Best effort."""
    inside = "/scratch"
    tries = (
        ["--entrypoint", "find", image, inside, "-mindepth", "1", "-delete"],
        ["--entrypoint", "python3", image, "-c", EMPTY_SCRIPT, inside],
    )
    for words in tries:
        with contextlib.suppress(ToolUnavailableError):
            mount = f"{folder.absolute()}:{inside}"
            run = [runtime.program, "run", "--rm", "--pull", "never", "--volume", mount]
            done = runtime.host.run([*run, *words], timeout_s=60)
            if done.ok:
                return
