"""The Slurm launcher on a real cluster of two nodes, with podman started by srun on them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Excluded, Pool
from isoline.recipes.deployment import Command, deployment_of
from isoline.recipes.device_profiles import PROFILES
from isoline.recipes.load import load_recipe
from isoline.recipes.render import render
from isoline.recipes.renderers.slurm_parts import WARM
from isoline.runners.launchers.compile_cache import mark_warm
from isoline.runners.launchers.interface import Deadlines, LaunchSpec, PhaseFailedError, Server
from isoline.runners.machine.hosts import this_host
from isoline.runners.ownership import gc, owners, quarantine
from isoline.runners.slurm.gc import Jobs
from isoline.runners.slurm.launcher import SlurmLauncher, job_of
from isoline.runners.staging.images import image_file
from isoline.settings import Settings
from isoline.sweeps.planning.sources import inputs_of, shape_of

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]

RECIPE = "smollm2-135m/llamacpp-cpu-q4_1-container"
RUN = "20260101T000000Z-test-abcdef"


@pytest.fixture
def cluster(slurm: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The cluster, and Slurm's commands of this process talk to it."""
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    return slurm


@pytest.fixture
def pool(project_root: Path, podman: Any, cluster: Any, tmp_path: Path) -> Pool:
    """Two nodes under Slurm, podman started by srun, launches share a node."""
    return Pool.model_validate(
        {
            "schema_version": 1,
            "name": "test-slurm",
            "launcher": "slurm",
            "sku": "cpu",
            "nodes": 2,
            "client_profile": "shared-cpu",
            "container": {
                "runtime": "podman",
                "device_profile": "cpu",
                "model_cache": str(project_root / ".isoline" / "weights"),
                "scratch": str(tmp_path / "node-scratch"),
                "shm_gb": 1,
                "env": podman.env,
            },
            "slurm": {
                "partition": "cpu",
                "container": "podman",
                "exclusive": False,
                "image_cache": str(tmp_path / "images"),
                "time_limit_min": 5,
                "extra": ["--cpus-per-task=1"],
            },
        }
    )


@pytest.fixture
def spec(
    project_root: Path, pool: Pool, settings: Settings, tmp_path: Path, container_image: Any
) -> LaunchSpec:
    """A launch of the demo's container recipe under Slurm; its image is staged as one file."""
    file = Path(image_file(pool, container_image.ref) or "")
    file.parent.mkdir()
    file.symlink_to(container_image.path)
    loaded = load_recipe(project_root, RECIPE)
    shape = shape_of(project_root, "demo-short")
    rendered = render(loaded, loaded.recipe.topologies[0], pool, shape, 1, inputs_of(project_root, loaded))
    model = load_catalog().models[loaded.recipe.model]
    weights = tuple(item for item in model.weights if item.precision == loaded.recipe.precision.weights)
    return LaunchSpec(
        run_id=RUN,
        launch_id="slurm-1",
        engine="llamacpp",
        alias=loaded.recipe.model,
        deployment=deployment_of(rendered.identity),
        weights=weights,
        packages=(),
        scratch=settings.state / "scratch" / "slurm-1",
        log=tmp_path / "bundle" / "server.log",
        deadlines=Deadlines(ready_s=90, reset_s=30, stop_s=10),
        pool=pool,
        devices=(0,),
    )


@pytest.fixture
def launcher(settings: Settings) -> SlurmLauncher:
    """A launcher with a state folder of its own."""
    return SlurmLauncher(settings)


@pytest.fixture
def start(launcher: SlurmLauncher, cluster: Any, podman: Any) -> Iterator[Callable[[LaunchSpec], Server]]:
    """A starter whose jobs are all ended, and proven gone, at the end."""
    servers: list[Server] = []

    def run(spec: LaunchSpec) -> Server:
        servers.append(launcher.start(spec, launcher.stage(spec)))
        return servers[-1]

    yield run
    for server in servers:
        launcher.stop(server)
    assert cluster.jobs() == {} and podman.containers() == {}
    assert owners.all_owners(launcher.state) == []


def other(spec: LaunchSpec, name: str, **changes: Any) -> LaunchSpec:
    """The same launch under another name, with folders of its own."""
    return replace(
        spec,
        launch_id=name,
        scratch=spec.scratch.with_name(name),
        log=spec.log.parent / name / "server.log",
        **changes,
    )


def of_sleep(spec: LaunchSpec, name: str, **slurm: Any) -> LaunchSpec:
    """A launch without a container whose program only sleeps."""
    assert spec.pool and spec.pool.slurm
    worker = Command("aggregated", ["sleep", "600"], {}, role="aggregated", gpus=1)
    changed = spec.pool.slurm.model_copy(update={"container": "none", **slurm})
    return other(
        spec,
        name,
        deployment=replace(spec.deployment, workers=(worker,), image=None),
        pool=spec.pool.model_copy(update={"slurm": changed}),
    )


def why(server: Server, eventually: Callable[..., None], timeout_s: float = 90) -> str | None:
    """The reason code of the first program that ended."""
    eventually(server.ended, timeout_s)
    ended = server.ended()
    assert ended
    return ended[1].reason


def test_whole_life(
    launcher: SlurmLauncher,
    start: Callable[..., Server],
    spec: LaunchSpec,
    cluster: Any,
    podman: Any,
    tmp_path: Path,
) -> None:
    """Submitted by sbatch, its image loaded on the node, placed, proven, reset and ended; the log and the
    node come back."""
    podman.run("rmi", "--force", spec.deployment.image)
    assert launcher.preflight(spec, launcher.stage(spec)) == []
    server = start(spec)
    assert launcher.ready(server).tokens == 5
    job = job_of(server)
    assert cluster.jobs() == {job.job.id: "RUNNING"}
    assert launcher.reset(server).slots >= 1
    assert server.ended() is None
    lock = launcher.collect(server, tmp_path / "kept")
    assert lock["job"]["nodes"][0] in cluster.nodes and lock["effective_args"]["args"]["parallel"]
    assert "model loaded" in (tmp_path / "kept" / "server.log").read_text()
    outcome = launcher.stop(server)
    assert outcome.was_running and not outcome.killed and outcome.took_s < 60
    assert not spec.scratch.exists()


def test_homes_that_are_not_shared(
    launcher: SlurmLauncher,
    start: Callable[..., Server],
    spec: LaunchSpec,
    podman: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the nodes' folders are not seen, log, effective arguments and what is known of compiled kernels
    come through the job; only the kernels stay."""
    assert spec.pool and spec.pool.slurm and spec.pool.container
    monkeypatch.setitem(PROFILES, "amd", PROFILES["cpu"])  # no such devices here
    apart = {
        "sku": "mi300x",
        "accelerators": 2,
        "slurm": spec.pool.slurm.model_copy(update={"shared_home": False}),
        "container": spec.pool.container.model_copy(update={"device_profile": "amd"}),
    }
    server = start(other(spec, "apart", pool=spec.pool.model_copy(update=apart)))
    assert launcher.ready(server).tokens == 5
    assert server.compiled is not None and server.compiled.cold
    kernels = Path(server.compiled.path)
    assert kernels.parent == tmp_path / "node-scratch" / "compile"
    (container,) = podman.containers()
    mounts = json.loads(podman.run("inspect", "--format", "{{json .Mounts}}", container))
    assert {"/compiled": str(kernels)}.items() <= {
        row["Destination"]: row["Source"] for row in mounts
    }.items()
    mark_warm(server.spec.node, server.compiled)
    assert [path.name for path in kernels.iterdir()] == [WARM]
    folder = launcher.job_scratch(server.spec)
    assert folder.parent == tmp_path / "node-scratch" and (folder / "aggregated.0.log").exists()
    lock = launcher.collect(server, tmp_path / "kept")
    assert lock["effective_args"]["args"]["parallel"]
    launcher.stop(server)
    launcher.collect(server, tmp_path / "kept")
    assert "model loaded" in (tmp_path / "kept" / "server.log").read_text()
    assert not folder.exists() and kernels.exists()


def test_two_roles_and_a_router(
    launcher: SlurmLauncher, start: Callable[..., Server], spec: LaunchSpec, podman: Any
) -> None:
    """Prefill and decode on nodes of their own, a router that is ready when both answered."""
    script = (Path(__file__).parents[1] / "support" / "pd_router.py").read_text()
    words = ["python3", "-c", script, "--port", "{port.router}"]
    words += ["--prefill", "{url.prefill}", "--decode", "{url.decode}"]
    router = Command("router", words, {}, ports=("router",), ready="/health", is_entry=True)
    roles = tuple(replace(spec.main, name=name, role=name) for name in ("prefill", "decode"))  # type: ignore[arg-type]
    server = start(replace(spec, deployment=replace(spec.deployment, workers=roles, after=(router,))))
    assert launcher.ready(server).tokens == 5
    assert job_of(server).nodes == ["n1", "n2"]
    assert len(podman.containers("label=isoline.launch=slurm-1")) == 3
    assert {part.name: part.command.name for part in server.parts} == {
        "prefill.0": "prefill",
        "decode.0": "decode",
        "router.0": "router",
    }
    launcher.stop(server)


def test_a_job_killed_hard_leaves_no_container(
    launcher: SlurmLauncher,
    start: Callable[..., Server],
    spec: LaunchSpec,
    cluster: Any,
    podman: Any,
    eventually: Callable[..., None],
) -> None:
    """When even the job's script was killed, its container is removed by a step of our own."""
    assert spec.pool
    away = Excluded(node="n1", reason="a test", until="2999-01-01T00:00:00Z")
    old = Excluded(node="n2", reason="a test", until="2020-01-01T00:00:00Z")
    server = start(replace(spec, pool=spec.pool.model_copy(update={"exclude": [away, old]})))
    launcher.ready(server)
    assert job_of(server).nodes == ["n2"]  # what is excluded until later is; what was until lately is not
    for pid, words in cluster.processes().items():
        if "bash" in words or "podman run" in words:  # the script and what it started, not the container
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: job_of(server).job.is_ended, 30.0)
    # Usually it still runs; on a slow machine what was killed last had time to remove it.
    assert set(podman.containers().values()) <= {"running"}
    launcher.stop(server)
    assert podman.containers() == {} and server.notes == [f"job {job_of(server).job.id}"]


def test_a_program_that_fails_brings_its_log(
    launcher: SlurmLauncher, start: Callable[..., Server], spec: LaunchSpec
) -> None:
    """An unknown argument ends the start at once, with the line that says so."""
    worker = replace(spec.main, argv=[*spec.main.argv, "--no-such-flag", "1"])
    server = start(replace(spec, deployment=replace(spec.deployment, workers=(worker,))))
    with pytest.raises(PhaseFailedError) as failed:
        launcher.ready(server)
    assert failed.value.code == "launch_failed" and "no-such-flag" in failed.value.log_tail


def test_what_slurm_does_not_take(launcher: SlurmLauncher, spec: LaunchSpec, start: Any) -> None:
    """A job of a partition that does not exist is rejected in Slurm's words; nothing stays."""
    wrong = of_sleep(spec, "rejected", partition="no-such")
    with pytest.raises(PhaseFailedError, match="partition") as failed:
        launcher.start(wrong, launcher.stage(wrong))
    assert failed.value.code == "job_rejected"
    assert [item.code for item in launcher.preflight(wrong, launcher.stage(wrong))] == ["no_nodes"]


def test_a_node_without_a_device_ends_the_job_first(
    launcher: SlurmLauncher,
    start: Callable[..., Server],
    spec: LaunchSpec,
    eventually: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own tool shows fewer than it should have: nothing starts, and that node is to blame."""
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: H100 (UUID: x)'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    plain = of_sleep(spec, "lacking", extra=[])
    assert plain.pool
    server = start(replace(plain, pool=plain.pool.model_copy(update={"sku": "h100", "accelerators": 2})))
    assert why(server, eventually) == "device_lost"
    launcher.stop(server)
    (node,) = server.nodes
    assert f"isoline: node {node}: 1 of 2 devices" in server.spec.log.with_name("job.log").read_text()


def test_a_job_that_could_never_start_is_not_submitted(launcher: SlurmLauncher, spec: LaunchSpec) -> None:
    """With every node of the partition quarantined or drained the launch says so before it waits for days;
    one that is left is enough for a launch of one node."""
    two = of_sleep(spec, "two")
    now = datetime.now(UTC)
    quarantine.hold(launcher.state, "n1", "quarantined", "3 error(s): node_failed", None, now)
    quarantine.hold(launcher.state, "of-another-pool", "drained", "fan", None, now)
    assert launcher.preflight(two, launcher.stage(two)) == []
    quarantine.hold(launcher.state, "n2", "drained", "new fan", None, now)
    (problem,) = launcher.preflight(two, launcher.stage(two))
    assert problem.code == "no_nodes"
    assert "the job needs 1; n1 is quarantined: 3 error(s): node_failed; n2 is drained" in problem.detail


def test_cancelled_and_preempted(
    launcher: SlurmLauncher,
    start: Callable[..., Server],
    spec: LaunchSpec,
    cluster: Any,
    eventually: Callable[..., None],
) -> None:
    """A job that somebody cancels, and one that another takes the nodes from, are told apart."""
    one, two = start(of_sleep(spec, "cancelled")), start(of_sleep(spec, "preempted", exclusive=True))
    eventually(lambda: job_of(one).nodes, 20.0)
    cluster.run("scancel", str(job_of(one).job.id))
    assert why(one, eventually) == "job_cancelled"
    eventually(lambda: job_of(two).nodes, 20.0)
    three = start(of_sleep(spec, "first", partition="first", exclusive=True))
    four = start(of_sleep(spec, "second", partition="first", exclusive=True))
    assert why(two, eventually) == "preempted"
    for server in (three, four):
        launcher.stop(server)


def test_four_at_a_time(
    launcher: SlurmLauncher, spec: LaunchSpec, start: Callable[..., Server], cluster: Any
) -> None:
    """Four launches by four threads are four jobs, each ended by its own stop."""
    servers: list[Server] = []
    threads = [
        threading.Thread(target=lambda n=number: servers.append(start(of_sleep(spec, f"p{n}"))))
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({job_of(server).job.id for server in servers}) == 4 == len(cluster.jobs())
    launcher.stop(servers[0])
    assert job_of(servers[0]).job.id not in cluster.jobs() and len(cluster.jobs()) == 3


ORPHAN = """
import sys, time
from isoline.runners.launchers.container_gc import owner_labels
from isoline.runners.machine.hosts import this_host
from isoline.runners.ownership import owners
from isoline.runners.slurm import commands as slurm_jobs
from pathlib import Path
owner = owners.claim(Path(sys.argv[1]), run_id="r", launch_id="orphan", what="server")
comment = slurm_jobs.comment_of(owner_labels(owner), owner.token)
print(slurm_jobs.submit(this_host(), Path(sys.argv[2]), comment, ["--output=/dev/null"]), flush=True)
time.sleep(600)
"""


def test_a_dead_orchestrator_s_job_is_found_and_ended(
    cluster: Any, settings: Settings, tmp_path: Path, start: Callable[..., Server], spec: LaunchSpec
) -> None:
    """What a killed orchestrator submitted is ended by the next one; living and foreign ones are not."""
    script = tmp_path / "sleep.sh"
    script.write_text("#!/bin/bash\nexec sleep 600\n")
    foreign = int(cluster.run("sbatch", "--parsable", "--output=/dev/null", str(script)))
    mine = start(of_sleep(spec, "alive"))
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(settings.state), str(script)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    orphan = int(process.stdout.readline())
    jobs = Jobs()
    assert jobs.find(settings.state, this_host()) == []
    process.kill()
    process.wait()
    process.stdout.close()
    (left,) = jobs.find(settings.state, this_host())
    assert (left.name, left.launch_id) == (str(orphan), "orphan")
    assert jobs.remove(settings.state, left) == ""
    assert set(cluster.jobs()) == {foreign, job_of(mine).job.id}
    for item in gc.Processes().find(settings.state, this_host()):
        gc.Processes().remove(settings.state, item)
    cluster.run("scancel", str(foreign))
    cluster.wait(lambda: foreign not in cluster.jobs(), "the end of the foreign job")


def test_a_silent_controller_ends_nothing(
    launcher: SlurmLauncher, start: Callable[..., Server], spec: LaunchSpec, cluster: Any
) -> None:
    """While the controller stands still no job counts as gone; afterwards it goes on."""
    server = start(of_sleep(spec, "silent"))
    cluster.wait(lambda: bool(job_of(server).nodes), "a running job", 30)
    daemon = cluster._daemons["slurmctld"]
    daemon.send_signal(signal.SIGSTOP)
    try:
        time.sleep(3)
        assert server.ended() is None and not job_of(server).job.is_ended
    finally:
        daemon.send_signal(signal.SIGCONT)
    assert server.ended() is None


def test_time_limit_and_a_lost_node(
    launcher: SlurmLauncher,
    start: Callable[..., Server],
    spec: LaunchSpec,
    cluster: Any,
    eventually: Callable[..., None],
) -> None:
    """A job past its limit and a job whose node is lost are infrastructure, each with its own code."""
    lost = start(of_sleep(spec, "lost", extra=["--nodelist=n2"]))
    limited = start(of_sleep(spec, "limited", time_limit_min=1, extra=["--nodelist=n1"]))
    for server in (lost, limited):
        eventually(lambda server=server: job_of(server).nodes, 20.0)
    cluster.kill_node("n2")
    try:
        assert why(lost, eventually, 90.0) == "node_failed"
        assert why(limited, eventually, 120.0) == "job_time_limit"
        launcher.stop(lost)
        assert lost.nodes == ("n2",), "its errors count against that node"
    finally:
        for pid, words in cluster.processes().items():
            if "sleep 600" in words:
                os.kill(pid, signal.SIGKILL)
        cluster.start_node("n2")
        cluster.wait(lambda: cluster.states().get("n2") == "idle", "n2", 60)
