"""The container launcher on a real podman with the real engine: its whole life, deaths, and what stays."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Pool, load_pool
from isoline.errors import InfraError
from isoline.recipes.deployment import Command, deployment_of
from isoline.recipes.load import load_recipe
from isoline.recipes.render import render
from isoline.runners.launchers.container import ContainerLauncher
from isoline.runners.launchers.container_gc import Containers, owner_labels
from isoline.runners.launchers.container_runtime import Runtime, remove_from_inside
from isoline.runners.launchers.interface import Deadlines, LaunchSpec, PhaseFailedError, Server
from isoline.runners.machine.hosts import Host, ToolUnavailableError, hosts_of
from isoline.runners.ownership import owners
from isoline.settings import Settings
from isoline.sweeps.planning.sources import inputs_of, shape_of

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

RECIPE = "smollm2-135m/llamacpp-cpu-q4_1-container"


@pytest.fixture
def pool(project_root: Path, podman: Any) -> Pool:
    """The pool of containers on this machine, with the tests' own podman."""
    pool = load_pool(project_root, "local-podman")
    assert pool.container
    cache = str(project_root / ".isoline" / "weights")
    return pool.model_copy(
        update={"container": pool.container.model_copy(update={"env": podman.env, "model_cache": cache})}
    )


@pytest.fixture
def spec(
    project_root: Path, pool: Pool, settings: Settings, tmp_path: Path, container_image: Any
) -> LaunchSpec:
    """A launch of the demo's recipe in a container."""
    loaded = load_recipe(project_root, RECIPE)
    shape = shape_of(project_root, "demo-short")
    rendered = render(loaded, loaded.recipe.topologies[0], pool, shape, 2, inputs_of(project_root, loaded))
    model = load_catalog().models[loaded.recipe.model]
    weights = tuple(item for item in model.weights if item.precision == loaded.recipe.precision.weights)
    return LaunchSpec(
        run_id="20260101T000000Z-test-abcdef",
        launch_id="test-1",
        engine="llamacpp",
        alias=loaded.recipe.model,
        deployment=deployment_of(rendered.identity),
        weights=weights,
        packages=(),
        scratch=settings.state / "scratch" / "test-1",
        log=tmp_path / "bundle" / "server.log",
        deadlines=Deadlines(ready_s=90, reset_s=30, stop_s=10),
        pool=pool,
        devices=(0,),
    )


@pytest.fixture
def launcher(settings: Settings) -> ContainerLauncher:
    """A launcher with a state folder of its own."""
    return ContainerLauncher(settings)


@pytest.fixture
def start(launcher: ContainerLauncher) -> Iterator[Callable[[LaunchSpec], Server]]:
    """A starter whose servers are all stopped at the end."""
    servers: list[Server] = []

    def run(spec: LaunchSpec) -> Server:
        servers.append(launcher.start(spec, launcher.stage(spec)))
        return servers[-1]

    yield run
    for server in servers:
        launcher.stop(server)


def test_whole_life(
    launcher: ContainerLauncher, start: Callable[..., Server], spec: LaunchSpec, podman: Any, tmp_path: Path
) -> None:
    """Staged, started, proven, reset and stopped: labels say whose it is, and nothing stays behind."""
    foreign = podman.run(
        "run", "--detach", "--name", "foreign", "--entrypoint", "sleep", spec.deployment.image, "300"
    )
    assert launcher.preflight(spec, launcher.stage(spec)) == []
    server = start(spec)
    assert launcher.ready(server).tokens == 5
    labelled = launcher.runtime(spec).labelled({"isoline.run": spec.run_id})
    assert [item["labels"]["isoline.launch"] for item in labelled] == ["test-1"]
    assert labelled[0]["labels"]["isoline.pid"] == str(os.getpid())
    assert launcher.reset(server).slots >= 1
    inside = server.pids() - {server.main.client.pid}  # type: ignore[attr-defined]
    assert inside and all("llamacpp_server" in Path(f"/proc/{pid}/cmdline").read_text() for pid in inside)
    lock = launcher.collect(server, tmp_path / "kept")
    assert lock["image_id"] and lock["argv"][0] == "podman" and lock["effective_args"]["args"]["parallel"]
    outcome = launcher.stop(server)
    assert outcome.was_running and not outcome.killed and outcome.took_s < 20
    assert [pid for pid in inside if Path(f"/proc/{pid}").exists()] == []
    assert not spec.scratch.exists() and owners.all_owners(launcher.state) == []
    assert foreign and podman.containers() == {"foreign": "running"}
    podman.run("rm", "--force", "--time", "0", "foreign")


def test_a_runtime_that_the_environment_names(
    launcher: ContainerLauncher,
    start: Callable[..., Server],
    spec: LaunchSpec,
    pool: Pool,
    podman: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Storage that only our environment tells is used by the launch too, not by check and staging alone."""
    for name, value in podman.env.items():
        monkeypatch.setenv(name, value)
    assert pool.container
    bare = pool.model_copy(update={"container": pool.container.model_copy(update={"env": {}})})
    spec = replace(spec, pool=bare)
    assert launcher.preflight(spec, launcher.stage(spec)) == []
    assert launcher.ready(start(spec)).tokens == 5


def test_a_killed_client_is_not_a_dead_server(
    launcher: ContainerLauncher, start: Callable[..., Server], spec: LaunchSpec, podman: Any
) -> None:
    """When podman's own program is killed the container lives, and the runtime is believed."""
    server = start(spec)
    launcher.ready(server)
    part: Any = server.main
    os.kill(part.client.pid, signal.SIGKILL)
    part.client.wait(5)
    assert part.poll() is None and launcher.reset(server).slots >= 1
    launcher.stop(server)
    assert podman.containers() == {}


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, "server_killed"), (signal.SIGSEGV, "server_died")]
)
def test_a_dead_server_is_told_from_a_killed_one(
    launcher: ContainerLauncher,
    start: Callable[..., Server],
    spec: LaunchSpec,
    eventually: Callable[..., None],
    number: int,
    code: str,
) -> None:
    """How the program inside ended comes through the container."""
    server = start(spec)
    launcher.ready(server)
    watch = launcher.watch(server)
    try:
        # The container's first process is its init, which passes on how the server ended.
        os.kill(max(server.pids() - {server.main.client.pid}), number)  # type: ignore[attr-defined]
        eventually(watch.event, 20.0)
        event = watch.event()
    finally:
        watch.close()
    assert event and event.code == code


def test_a_stopped_container_is_stopped(
    launcher: ContainerLauncher, start: Callable[..., Server], spec: LaunchSpec, podman: Any
) -> None:
    """A server that SIGSTOP holds still ends within its deadline and a little more."""
    server = start(spec)
    launcher.ready(server)
    os.kill(server.pid, signal.SIGSTOP)
    assert launcher.stop(server).took_s < 25
    assert podman.containers() == {}


def test_what_is_not_staged_is_not_started(
    launcher: ContainerLauncher, spec: LaunchSpec, tmp_path: Path
) -> None:
    """Missing weights and images are named; nothing is downloaded."""
    assert spec.pool and spec.pool.container
    empty = spec.pool.container.model_copy(update={"model_cache": str(tmp_path / "empty")})
    without = replace(spec, pool=spec.pool.model_copy(update={"container": empty}))
    with pytest.raises(PhaseFailedError) as failed:
        launcher.stage(without)
    assert failed.value.code == "not_staged"
    other = replace(spec, deployment=replace(spec.deployment, image="localhost/no-such:1"))
    problems = launcher.preflight(other, launcher.stage(other))
    assert [problem.code for problem in problems] == ["not_staged"]


def test_a_program_that_fails_brings_its_log(
    launcher: ContainerLauncher, start: Callable[..., Server], spec: LaunchSpec, podman: Any
) -> None:
    """An unknown argument ends the start at once, with the line that says so."""
    worker = replace(spec.main, argv=[*spec.main.argv, "--no-such-flag", "1"])
    server = start(replace(spec, deployment=replace(spec.deployment, workers=(worker,))))
    with pytest.raises(PhaseFailedError) as failed:
        launcher.ready(server)
    assert failed.value.code == "launch_failed" and "no-such-flag" in failed.value.log_tail
    launcher.stop(server)
    assert podman.containers() == {}


def test_files_of_root_are_removed_from_inside(
    launcher: ContainerLauncher, spec: LaunchSpec, tmp_path: Path
) -> None:
    """What a container's user wrote is removed by a container of the same mapping."""
    folder = tmp_path / "left"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file").write_text("x")
    (folder / "link").symlink_to("/")
    remove_from_inside(launcher.runtime(spec), spec.deployment.image or "", folder)
    assert list(folder.iterdir()) == [] and Path("/etc").is_dir()


def test_a_runtime_that_does_not_answer_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that hangs or errs is never read as "no such container"."""
    fake = tmp_path / "docker"
    fake.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    runtime = Runtime("docker", Host("here"))
    with pytest.raises(ToolUnavailableError, match="Cannot connect"):
        runtime.state("x")
    with pytest.raises(ToolUnavailableError):
        runtime.labelled({"isoline.run": "x"})
    with pytest.raises(InfraError):
        runtime.remove("x", 0)


def test_two_containers_and_a_router(
    launcher: ContainerLauncher, start: Callable[..., Server], spec: LaunchSpec, podman: Any
) -> None:
    """Prefill and decode in containers of their own, a router that is ready when both answered."""
    script = (Path(__file__).parents[1] / "support" / "pd_router.py").read_text()
    words = ["python3", "-c", script, "--port", "{port.router}"]
    words += ["--prefill", "{url.prefill}", "--decode", "{url.decode}"]
    router = Command("router", words, {}, ports=("router",), ready="/health", is_entry=True)
    roles = tuple(replace(spec.main, name=name, role=name) for name in ("prefill", "decode"))  # type: ignore[arg-type]
    server = start(replace(spec, deployment=replace(spec.deployment, workers=roles, after=(router,))))
    assert launcher.ready(server).tokens == 5
    assert len(podman.containers("label=isoline.launch=test-1")) == 3
    launcher.stop(server)
    assert podman.containers() == {}


def test_containers_of_dead_orchestrators_are_removed_and_no_others(
    spec: LaunchSpec, podman: Any, settings: Settings
) -> None:
    """By label and name: a dead orchestrator's goes, one of a living one and strangers' stay, also one of
    an image that was made of ours and so has its labels."""
    assert spec.pool and spec.pool.container
    dead = owners.claim(settings.state, run_id="r", launch_id="l", what="server")
    dead = replace(dead, orchestrator_start_ticks=dead.orchestrator_start_ticks - 1)
    alive = owners.claim(settings.state, run_id="r", launch_id="l", what="server")
    named = {
        "isoline-l-dead": owner_labels(dead),
        "committed": owner_labels(dead),
        "isoline-l-alive": owner_labels(alive),
        "isoline-l-elsewhere": owner_labels(replace(dead, host="another-machine")),
        "stranger": {},
        "isoline-l-forged": {"launch": "l", "host": dead.host, "pid": "x", "start": "1"},
    }
    for name, labels in named.items():
        words = [word for key, value in labels.items() for word in ("--label", f"isoline.{key}={value}")]
        image = spec.deployment.image
        podman.run("run", "--detach", "--name", name, *words, "--entrypoint", "sleep", image, "300")
    cleaner = Containers([spec.pool.container])
    found = cleaner.find(settings.state, Host("here"))
    assert [left.name for left in found] == ["isoline-l-dead"]
    assert cleaner.remove(settings.state, found[0]) == ""
    others = set(named) - {"isoline-l-dead"}
    assert set(podman.containers()) == others
    podman.run("rm", "--force", "--time", "0", *others)


def test_a_node_over_ssh(
    launcher: ContainerLauncher,
    start: Callable[..., Server],
    spec: LaunchSpec,
    sshd: Any,
    podman: Any,
    tmp_path: Path,
) -> None:
    """On another machine the same: files, container, log and clean-up go through ssh; a broken connection
    does not end the server."""
    assert spec.pool
    (host,) = hosts_of(spec.pool.model_copy(update={"hosts": ["127.0.0.1"], "ssh_config": str(sshd.config)}))
    server = start(replace(spec, node=host, scratch=tmp_path / "there" / "test-1"))
    assert launcher.ready(server).tokens == 5 and server.effective
    part: Any = server.main
    os.kill(part.client.pid, signal.SIGKILL)
    part.client.wait(5)
    assert part.poll() is None and launcher.reset(server).slots >= 1
    assert part.log.stat().st_size > 0
    launcher.stop(server)
    assert podman.containers() == {} and not (tmp_path / "there" / "test-1").exists()
