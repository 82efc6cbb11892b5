"""Containers that a dead orchestrator left, found by our labels and names alone, and removed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from isoline.catalog.pools import Container, Pool
from isoline.errors import InfraError
from isoline.runners.launchers.container_runtime import Runtime
from isoline.runners.machine.hosts import Host
from isoline.runners.ownership import gc
from isoline.runners.ownership.gc import Left
from isoline.runners.ownership.orchestrators import Orchestrator, life_of, this_orchestrator
from isoline.runners.ownership.owners import Owner

TERM_S = 10.0


def owner_labels(owner: Owner) -> dict[str, str]:
    """The labels of a container, without ``isoline.`` in front.

    ``start`` names the boot and the process number space too: with the pid, the orchestrator for good.
    """
    return {
        "run": owner.run_id,
        "launch": owner.launch_id,
        "host": owner.host,
        "pid": str(owner.orchestrator_pid),
        "start": f"{owner.orchestrator_start_ticks}@{owner.boot_id}@{owner.pid_namespace}",
    }


def orchestrator_of(labels: dict[str, str]) -> Orchestrator | None:
    """Who started a container, by its labels; None where they are not ours, or broken."""
    ticks, _, rest = labels.get("isoline.start", "").partition("@")
    boot, _, namespace = rest.partition("@")
    try:
        return Orchestrator(labels["isoline.host"], boot, namespace, int(labels["isoline.pid"]), int(ticks))
    except (KeyError, ValueError):
        return None


class Containers:
    """Cleaner of containers, for the runtimes of the pools that it was told of."""

    kind = "container"

    def __init__(self, runtimes: Iterable[Container] = ()) -> None:
        self._runtimes: list[Container] = []
        for item in runtimes:
            self.add(item)

    def add(self, container: Container) -> None:
        """Look at this runtime too."""
        known = {(item.runtime, tuple(item.env.items())) for item in self._runtimes}
        if (container.runtime, tuple(container.env.items())) not in known:
            self._runtimes.append(container)

    def find(self, state: Path, host: Host) -> list[Left]:
        """Containers of ours whose labels name a dead orchestrator of this machine.

        :raises ToolUnavailableError: when a runtime does not answer.
        """
        mine = this_orchestrator().host
        found = []
        for container in self._runtimes:
            runtime = Runtime(
                container.runtime,
                Host(host.name, host.address, host.ssh_options, {**container.env, **host.env}),
            )
            for item in runtime.labelled({"isoline.host": mine}):
                who = orchestrator_of(item["labels"])
                # An image made of one of our containers has its labels, and so has what runs it: our name
                # it has not.
                own = item["name"].startswith(f"isoline-{item['labels'].get('isoline.launch', '')}-")
                if own and who is not None and life_of(who) == "dead":
                    found.append(self._left(item, host, runtime))
        return found

    def _left(self, item: dict[str, Any], host: Host, runtime: Runtime) -> Left:
        labels = item["labels"]
        return Left(
            self.kind,
            item["name"],
            host.name,
            labels.get("isoline.run", ""),
            labels.get("isoline.launch", ""),
            what=f"{runtime.program} container {item['id'][:12]}",
            handle=(runtime, item["id"]),
        )

    def remove(self, state: Path, left: Left) -> str:
        """End the container and remove it."""
        runtime, identity = left.handle
        try:
            runtime.remove(identity, TERM_S)
        except InfraError as error:
            return error.line()
        return ""


_CONTAINERS = Containers()


def clean_containers_of(pool: Pool) -> None:
    """From now on clean-up looks at the pool's container runtime too; nothing for pools without one."""
    if pool.launcher == "container" and pool.container is not None:
        _CONTAINERS.add(pool.container)
        gc.register(_CONTAINERS)
