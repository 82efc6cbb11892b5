"""The launcher of each kind of pool."""

from __future__ import annotations

from isoline.errors import InputError
from isoline.runners.envs import Progress
from isoline.runners.launchers.deploy import PartsLauncher
from isoline.settings import Settings


def launcher_for(kind: str, settings: Settings, progress: Progress | None = None) -> PartsLauncher:
    """The launcher of a kind.

    :raises InputError: for one that does not exist.
    """
    # Each kind is loaded where it is used: a process pool needs nothing of Slurm.
    match kind:
        case "process":
            from isoline.runners.launchers.process import ProcessLauncher

            return ProcessLauncher(settings, progress)
        case "container":
            from isoline.runners.launchers.container import ContainerLauncher

            return ContainerLauncher(settings, progress)
        case "slurm":
            from isoline.runners.slurm.launcher import SlurmLauncher

            return SlurmLauncher(settings, progress)
        case "endpoint":
            from isoline.runners.launchers.endpoint import EndpointLauncher

            return EndpointLauncher(settings, progress)
    raise InputError(f"no launcher of kind {kind!r}", remedy="known: container, endpoint, process, slurm")
