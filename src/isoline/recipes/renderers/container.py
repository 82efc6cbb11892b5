"""A command as ``docker run`` or ``podman run``: every option that a launcher would execute."""

from __future__ import annotations

from isoline.catalog.pools import Container
from isoline.recipes.deployment import Command, Deployment
from isoline.recipes.device_profiles import PROFILES
from isoline.results.identity import digest

INSIDE_SCRATCH = "/scratch"
"""Where the launch's own folder is inside a container; ``{scratch}`` is its path on the node."""

INSIDE_COMPILED = "/compiled"
"""Where compiled kernels are kept from launch to launch; ``{compile_cache}`` is its path on the node."""

COMPILED_ENV = {
    "XDG_CACHE_HOME": INSIDE_COMPILED,
    "VLLM_CACHE_ROOT": f"{INSIDE_COMPILED}/vllm",
    "TORCHINDUCTOR_CACHE_DIR": f"{INSIDE_COMPILED}/inductor",
    "TRITON_CACHE_DIR": f"{INSIDE_COMPILED}/triton",
    "CUDA_CACHE_PATH": f"{INSIDE_COMPILED}/cuda",
}
"""Where the field's compilers put what they compiled. They change no result; a recipe's own value wins."""

OFFLINE_ENV = {
    "HF_HOME": "/models",
    "HF_HUB_OFFLINE": "1",
    "HF_MODULES_CACHE": f"{INSIDE_SCRATCH}/hf_modules",
}
"""Models that a command names by their hub id (drafts) are found where they were staged; nothing is asked."""

OWNER_LABELS = ("run", "launch", "host", "pid", "start")
"""Labels that clean-up goes by: it removes what bears them, and nothing else."""


def keeps_kernels(command: Command, pool: Container) -> bool:
    """Whether a command compiles kernels for devices: what runs on a CPU alone does not."""
    return command.gpus > 0 and pool.device_profile != "cpu"


def compile_key(image: str, sku: str) -> str:
    """16 hex digits; the same for the same image digest (or reference) and SKU, nothing else."""
    return digest({"image": image.partition("@")[2] or image, "sku": sku})[:16]


def container_argv(
    deployment: Deployment, command: Command, pool: Container, *, keeps_compiled: bool = False
) -> list[str]:
    """The argument vector that starts one command in a container.

    :param keeps_compiled: whether the launcher has a folder for compiled kernels (``{compile_cache}``).

    Placeholders: ``{container_name}``, ``{devices}`` (indices of the leased devices), ``{owner.*}``,
    ``{scratch}``, and those of the command itself.
    """
    profile = PROFILES[pool.device_profile]
    # What is not staged is not fetched on allocated devices.
    argv = [pool.runtime, "run", "--rm", "--pull", "never", "--name", "{container_name}", "--init"]
    for label in OWNER_LABELS:
        argv += ["--label", f"isoline.{label}={{owner.{label}}}"]
    if profile.network_host:
        argv += ["--network", "host"]
    if profile.ipc_host:
        argv += ["--ipc", "host"]
    else:
        argv += ["--shm-size", f"{pool.shm_gb}g"]
    for limit in profile.ulimits:
        argv += ["--ulimit", limit]
    if command.gpus:
        argv += _devices(pool)
    for capability in profile.capabilities:
        argv += ["--cap-add", capability]
    for option in profile.security:
        argv += ["--security-opt", option]
    if pool.privileged:
        argv.append("--privileged")
    argv += ["--volume", f"{pool.model_cache}:/models:ro", "--volume", f"{{scratch}}:{INSIDE_SCRATCH}"]
    env = {**dict(profile.env), **(OFFLINE_ENV if keeps_kernels(command, pool) else {})}
    if keeps_compiled and keeps_kernels(command, pool):
        argv += ["--volume", f"{{compile_cache}}:{INSIDE_COMPILED}"]
        env |= COMPILED_ENV
    if command.gpus and profile.visible_env:
        argv += ["--env", f"{profile.visible_env}={{devices}}"]
    for name, value in (env | command.env).items():
        argv += ["--env", f"{name}={_inside(value)}"]
    words = [_inside(word) for word in command.argv]
    # The image's own entry point may be a shell script that adds arguments: ours is the program.
    argv += ["--entrypoint", words[0], deployment.used_image or "{image}"]
    return argv + words[1:]


def _inside(word: str) -> str:
    return word.replace("{scratch}", INSIDE_SCRATCH)


def _devices(pool: Container) -> list[str]:
    profile = PROFILES[pool.device_profile]
    argv: list[str] = []
    if profile.nvidia_runtime:
        if pool.runtime == "docker":
            argv += ["--gpus", '"device={devices}"']
        else:
            argv += ["--device", "nvidia.com/gpu={devices}"]
    for device in profile.devices:
        argv += ["--device", device]
    for glob in profile.device_globs:
        argv += ["--device", glob]
    for group in profile.groups:
        argv += ["--group-add", group]
    return argv
