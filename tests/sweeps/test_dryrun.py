"""``sweep run --dry-run``: every command of every launch, for each kind of pool."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isoline.settings import load_settings
from isoline.sweeps.planning.dryrun import dry_run
from isoline.sweeps.planning.prepare import Wishes, prepare

OWN = "smollm2-135m/llamacpp-cpu-q4_1"
AMD = "gpt-oss-120b/vllm-mi355x-mxfp4-8k1k"


@pytest.fixture
def printed(project: Any, project_root: Path) -> Callable[..., list[str]]:
    """``printed(recipe, pool)``: the lines of a dry run of smoke with that recipe there."""
    shutil.copytree(project_root / "recipes/gpt-oss-120b", project.root / "recipes/gpt-oss-120b")
    shutil.copy(project_root / "recipes/channels.yaml", project.root / "recipes/channels.yaml")

    def run(recipe: str, pool: str, **more: Any) -> list[str]:
        wishes = Wishes(pool=pool, recipe=recipe)
        prepared = prepare(load_settings(project.root), "smoke", wishes)
        return [line for text in dry_run(prepared, **more) for line in text.splitlines()]

    return run


def commands(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if line and not line.startswith("#")]


def test_a_process_pool(printed: Callable[..., list[str]]) -> None:
    """The server's own line and the load's; what ends it is said."""
    lines = printed(OWN, "local")
    assert commands(lines) == ["{python}", "aiperf"]
    assert lines[0].startswith("# launch ") and "1 accelerator of pool local" in lines[0]
    assert lines[-1] == "# stop: SIGTERM to its process group, SIGKILL after 15 s"


def test_a_held_launch_is_neither_started_nor_stopped(printed: Callable[..., list[str]]) -> None:
    """On a server that is kept only the load is a command."""
    lines = printed(OWN, "local", attached="0123456789-h1")
    assert commands(lines) == ["aiperf"]
    assert "# on 0123456789-h1, which is held: nothing is started, and nothing is stopped" in lines
    assert not any(line.startswith(("# start", "# stop", "# preflight")) for line in lines)


def test_a_container_pool_of_amd(printed: Callable[..., list[str]]) -> None:
    """AMD's tools are asked, telemetry is amd-smi's, the container is stopped and removed."""
    lines = printed(AMD, "examples/mi355x-docker")
    assert commands(lines) == ["amd-smi"] * 3 + ["docker", "df", "df", "docker", "aiperf", "docker", "docker"]
    assert any("telemetry" in line and "amd-smi monitor" in line for line in lines)


def test_a_slurm_pool(printed: Callable[..., list[str]]) -> None:
    """The partition is asked for, the whole batch script is printed, the job is cancelled by its id."""
    lines = printed(AMD, "examples/mi355x-slurm-docker")
    assert lines[2].startswith("sinfo -h -p ")
    begin, end = lines.index("sbatch --parsable <<'SCRIPT'"), lines.index("SCRIPT")
    assert lines[begin + 1].startswith("#!") and any("#SBATCH" in line for line in lines[begin:end])
    assert lines[-1] == "scancel {job_id}"
