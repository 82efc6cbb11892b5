"""Settings with their own state folder, a fake server, a fake uv, and processes that always end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isoline.catalog.facts import WeightFile
from isoline.recipes.deployment import Command, Deployment
from isoline.runners.launchers.interface import Deadlines, LaunchSpec, Server, Staged
from isoline.runners.launchers.process import ProcessLauncher
from isoline.settings import Settings

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]


def make_settings(state: Path, uv_bin: str = "") -> Settings:
    return Settings(
        project=PROJECT,
        store=state / "store",
        warehouse=state / "warehouse.duckdb",
        state=state,
        aiperf_bin="",
        uv_bin=uv_bin,
        query_timeout_s=30.0,
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings whose state folder is new."""
    return make_settings(tmp_path / "state")


@pytest.fixture
def state(settings: Settings) -> Path:
    """A new state folder."""
    settings.state.mkdir(parents=True, exist_ok=True)
    return settings.state


@pytest.fixture
def project_settings() -> Settings:
    """Settings with the project's own state folder, for tests with the real engine."""
    return make_settings(PROJECT / ".isoline")


@pytest.fixture
def fake_uv(tmp_path: Path) -> Path:
    """A stand-in for uv that works without a network; its calls land in ``calls`` beside it."""
    path = tmp_path / "tools" / "uv"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_uv.py"} {path.parent} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def uv_settings(tmp_path: Path, fake_uv: Path) -> Settings:
    """Settings that use the fake uv."""
    return make_settings(tmp_path / "state", str(fake_uv))


@pytest.fixture
def spec_of(tmp_path: Path) -> Callable[..., LaunchSpec]:
    """A maker of launches of the fake server; words after the flags choose its faults."""
    weights = WeightFile(file="m.gguf", precision="q4", sha256="0" * 64, bytes=1)

    def make(*faults: str, ready_s: float = 20.0, stop_s: float = 5.0, name: str = "l-1") -> LaunchSpec:
        folder = tmp_path / name
        argv = [
            "{python}", str(HERE / "fake_server.py"), *faults,
            "--model", "{model_path}", "--host", "{host}", "--port", "{port}",
        ]  # fmt: skip
        env = {"FAKE_SCRATCH": "{scratch}"}
        worker = Command("aggregated", argv, env, role="aggregated", gpus=1)
        return LaunchSpec(
            run_id="20260101T000000Z-test-abcdef",
            launch_id=name,
            engine="llamacpp",
            alias="fake",
            deployment=Deployment(None, (), (worker,), ()),
            weights=(weights,),
            packages=("xllamacpp==1",),
            scratch=tmp_path / "state" / "scratch" / name,
            log=folder / "server.log",
            deadlines=Deadlines(ready_s=ready_s, reset_s=3.0, stop_s=stop_s),
        )

    return make


@pytest.fixture
def staged(tmp_path: Path) -> Staged:
    """What the fake server needs: this Python and a file."""
    model = tmp_path / "m.gguf"
    model.write_bytes(b"x")
    return Staged(
        python=Path(sys.executable), model_path=model, package_versions={"fake": "1"}, weights_sha256={}
    )


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """A starter of processes in sessions of their own; what still runs at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start(argv: list[str], **options: object) -> subprocess.Popen[bytes]:
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.DEVNULL)
        options.setdefault("stderr", subprocess.DEVNULL)
        options.setdefault("start_new_session", True)
        process = subprocess.Popen(argv, **options)  # type: ignore[call-overload]
        started.append(process)
        return process

    yield start
    for process in started:
        for number in (signal.SIGKILL,):
            try:
                os.killpg(process.pid, number)
            except (ProcessLookupError, PermissionError):
                process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Wait until a condition holds; fail with its name when it does not in time."""

    def wait(condition: Callable[[], object], seconds: float = 10.0, what: str = "condition") -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, f"{what} did not hold within {seconds} s"
            time.sleep(0.02)

    return wait


@pytest.fixture
def launcher(settings: Settings) -> ProcessLauncher:
    """A process launcher with a new state folder."""
    return ProcessLauncher(settings)


@pytest.fixture
def start(launcher: ProcessLauncher, staged: Staged) -> Iterator[Callable[[LaunchSpec], Server]]:
    """A starter of servers, which are all stopped at the end."""
    servers: list[Server] = []

    def run(spec: LaunchSpec) -> Server:
        servers.append(launcher.start(spec, staged))
        return servers[-1]

    yield run
    for server in servers:
        launcher.stop(server)
