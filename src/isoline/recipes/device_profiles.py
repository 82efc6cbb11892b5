"""Device profiles: everything that a container needs to use accelerators, as data.

Printed by ``recipe render``, part of the lock. A profile never makes a container privileged: that is
an explicit setting of a pool, which the security check reports.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """Options of ``docker run`` and ``podman run`` alike, unless ``gpus_flag`` differs."""

    name: str
    devices: tuple[str, ...] = ()
    device_globs: tuple[str, ...] = ()  # expanded on the node
    groups: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    ulimits: tuple[str, ...] = ("memlock=-1", "nofile=1048576:1048576", "stack=67108864")
    security: tuple[str, ...] = ()
    ipc_host: bool = False
    network_host: bool = True
    nvidia_runtime: bool = False
    visible_env: str | None = None  # the variable that limits the visible devices
    env: tuple[tuple[str, str], ...] = ()


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        # The runtime's own limits: a machine may not allow more than its hard limits, and none is needed.
        Profile("cpu", ulimits=()),
        Profile("nvidia", ipc_host=True, nvidia_runtime=True),
        Profile(
            "nvidia-rdma",
            devices=("/dev/infiniband",),
            capabilities=("IPC_LOCK",),
            ipc_host=True,
            nvidia_runtime=True,
        ),
        Profile(
            "nvidia-gb",
            devices=("/dev/infiniband",),
            # IMEX channels carry NVLink memory between the trays of a rack.
            device_globs=("/dev/nvidia-caps-imex-channels/*",),
            capabilities=("IPC_LOCK",),
            ipc_host=True,
            nvidia_runtime=True,
        ),
        Profile(
            "amd",
            devices=("/dev/kfd", "/dev/dri"),
            groups=("video", "render"),
            capabilities=("SYS_PTRACE",),
            security=("seccomp=unconfined",),
            ipc_host=True,
            visible_env="ROCR_VISIBLE_DEVICES",
        ),
        Profile(
            "amd-rdma",
            devices=("/dev/kfd", "/dev/dri", "/dev/infiniband"),
            groups=("video", "render"),
            capabilities=("SYS_PTRACE", "IPC_LOCK"),
            security=("seccomp=unconfined",),
            ipc_host=True,
            visible_env="ROCR_VISIBLE_DEVICES",
        ),
    )
}
