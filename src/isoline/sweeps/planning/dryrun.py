"""Every command that a run would execute, as text: what ``sweep run --dry-run`` prints. Starts nothing.

Placeholders stay as they are: they are filled in when a launch starts. What is printed is made by the
functions that the run itself uses.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from isoline.catalog.pools import Pool
from isoline.load.command import LoadSpec, build_command
from isoline.recipes.deployment import deployment_of
from isoline.recipes.renderers import text
from isoline.results.bundles.records import PlanLaunch, PlanPoint
from isoline.runners.launchers.interface import Deadlines
from isoline.runners.machine.devices import amd, nvidia
from isoline.runners.machine.devices.reader import known_vendor
from isoline.runners.machine.hosts import hosts_of
from isoline.runners.machine.probes import INFO, partition_command
from isoline.runners.telemetry.sampler import sample_command
from isoline.sweeps.planning.loadspec import load_spec
from isoline.sweeps.planning.prepare import Prepared

DEVICE_COMMANDS: dict[str, list[tuple[str, ...]]] = {
    "nvidia": [nvidia.XML_COMMAND],
    "amd": [amd.STATIC_COMMAND, amd.METRIC_COMMAND, amd.PROCESS_COMMAND],
    "cpu": [],
}


def dry_run(prepared: Prepared, aiperf_bin: str = "aiperf", attached: str | None = None) -> Iterator[str]:
    """Lines for people, launch by launch: comments say what a command is for.

    :param aiperf_bin: the load generator's program.
    :param attached: id of the held launch that is measured on: nothing is started or stopped then.
    """
    for number, launch in enumerate(prepared.plan.launches):
        if number:
            yield ""
        yield from _launch(prepared, launch, aiperf_bin, attached)


def _launch(prepared: Prepared, launch: PlanLaunch, aiperf_bin: str, attached: str | None) -> Iterator[str]:
    pool = prepared.sources.pool_of(str(launch.identity["sku"]))
    devices = f"{launch.gpus} accelerator{'s' if launch.gpus != 1 else ''}"
    twin = ", accuracy twin" if launch.twin_of else ""
    what = f"{launch.recipe_id} {launch.topology}{twin}"
    yield f"# launch {launch.launch_digest[:10]}: {what}, {devices} of pool {pool.name}"
    if attached is None:
        yield f"# preflight on {_where(pool)}"
        yield from _preflight(pool)
        yield f"# start: {_image(launch)}"
        yield from _start(launch, pool)
    else:
        yield f"# on {attached}, which is held: nothing is started, and nothing is stopped"
    yield "# ready: one generation through {url} with the right number of tokens; then once for each point"
    sampled = _sampling(pool)
    if sampled:
        yield f"# telemetry, while there is load: {sampled}"
    for point in launch.points:
        asked = ["canary"] if launch.recipe.get("canary") else []
        phases = ", ".join(["reset", "warm-up", "load", *asked, *point.accuracy])
        yield f"# point {point.point_id}: {phases}"
        yield text.line(build_command(_spec(prepared, launch, pool, point), aiperf_bin))
    if attached is None:
        yield from _stop(launch, pool)


def _where(pool: Pool) -> str:
    if pool.launcher == "slurm":
        return "the machine that submits"
    return ", ".join(host.address or "this machine" for host in hosts_of(pool))


def _preflight(pool: Pool) -> Iterator[str]:
    if pool.launcher == "slurm" and pool.slurm is not None:
        yield shlex.join(partition_command(pool.slurm.partition))
        return
    commands = list(DEVICE_COMMANDS.get(_vendor(pool), ()))
    if pool.launcher == "container" and pool.container is not None:
        commands.append(INFO[pool.container.runtime])
        commands += [("df", "-Pk", path) for path in (pool.container.model_cache, pool.container.scratch)]
    for command in commands:
        yield shlex.join(command)


def _image(launch: PlanLaunch) -> str:
    image = launch.identity["image"]
    deployment = deployment_of(launch.identity)
    if deployment.image and deployment.packages:
        return f"{deployment.image} with {', '.join(deployment.packages)}"
    return str(image["ref"]) if image.get("ref") else "packages " + ", ".join(image.get("packages", []))


def _start(launch: PlanLaunch, pool: Pool) -> Iterator[str]:
    deployment = deployment_of(launch.identity)
    if pool.launcher == "container":
        yield text.containers(deployment, pool).rstrip("\n")
    elif pool.launcher == "slurm":
        from isoline.recipes.renderers.slurm import slurm_script

        yield "sbatch --parsable <<'SCRIPT'"
        yield slurm_script(deployment, pool).rstrip("\n")
        yield "SCRIPT"
    elif pool.launcher == "endpoint" and pool.endpoint is not None:
        yield f"# nothing: {pool.endpoint.url} is somebody else's"
    else:
        yield text.plain(deployment).rstrip("\n")


def _vendor(pool: Pool) -> str:
    """Whose devices it has; "" where no tool reads them."""
    return known_vendor(pool.sku) or ""


def _sampling(pool: Pool) -> str:
    vendor = _vendor(pool)
    return "" if vendor in ("", "cpu") else shlex.join(sample_command(vendor))


def _spec(prepared: Prepared, launch: PlanLaunch, pool: Pool, point: PlanPoint) -> LoadSpec:
    scenario = prepared.sources.scenarios[point.scenario]
    dataset = prepared.sources.datasets[scenario.dataset]
    return load_spec(
        point,
        scenario,
        dataset,
        engine=str(launch.identity["engine"]),
        client_profile=pool.client_profile,
        url="{url}",
        model=str(launch.identity["model"]),
        tokenizer="{tokenizer}",
        artifacts=Path("{scratch}") / "aiperf",
        input_file=Path("datasets") / dataset.file if dataset.file else None,
    )


def _stop(launch: PlanLaunch, pool: Pool) -> Iterator[str]:
    stop_s = round(launch.recipe.get("readiness", {}).get("stop_s") or Deadlines().stop_s)
    if pool.launcher == "container" and pool.container is not None:
        yield f"# stop: what bears this launch's labels, and nothing else; SIGKILL after {stop_s} s"
        yield f"{pool.container.runtime} stop --time {stop_s} {{container_name}}"
        yield f"{pool.container.runtime} rm --force {{container_name}}"
    elif pool.launcher == "slurm":
        yield "# stop: the job by its id"
        yield "scancel {job_id}"
    elif pool.launcher == "process":
        yield f"# stop: SIGTERM to its process group, SIGKILL after {stop_s} s"
