"""First curve without reading: three commands on a machine with accelerators, and no file edited."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isoline.cli.main import run

RECIPE = "gpt-oss-120b/vllm-h200-mxfp4-8k1k"


@pytest.fixture
def machine(
    project: Any, project_root: Path, fake_machine: Callable[..., Any], fakes: Any, tmp_path: Path
) -> Any:
    """The whole project on a machine with eight idle H200 and docker."""
    for path in project_root.glob("recipes/*"):
        if path.is_dir():
            shutil.copytree(path, project.root / "recipes" / path.name, dirs_exist_ok=True)
        else:
            shutil.copy(path, project.root / "recipes" / path.name)
    made = fake_machine(["nvidia-smi", "docker", "sinfo"], fakes.h200s())
    made.say(
        tools={"docker": {"": f"28.2.2 {tmp_path}"}}, fail={"sinfo": "Unable to contact slurm controller"}
    )
    return made


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints; it must succeed."""
    code = run(list(words))
    out = capsys.readouterr()
    assert code == 0, out.err
    return out.out


def files(root: Path) -> dict[str, bytes]:
    kept = ("recipes", "sweeps", "runners", "datasets")
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for name in kept
        for path in sorted((root / name).rglob("*"))
        if path.is_file()
    }


def test_three_commands(machine: Any, project: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`pool new`, `recipe list --fits`, `sweep run --dry-run`: every command is printed, one file is new."""
    before = files(project.root)
    assert "written: runners/h200-docker.yaml" in said(capsys, "pool", "new")
    listed = json.loads(said(capsys, "recipe", "list", "--fits", "h200-docker", "--format", "json"))
    assert RECIPE in [row["recipe_id"] for row in listed]
    assert {row["sku"] for row in listed} == {"h200"}
    printed = said(capsys, "sweep", "run", "smoke", "--recipe", RECIPE, "--dry-run")
    after = files(project.root)
    assert {name for name in after if name not in before} == {"runners/h200-docker.yaml"}
    assert {name: after[name] for name in before} == before

    lines = printed.splitlines()
    commands = [shlex.split(line) for line in lines[lines.index("") :] if line and not line.startswith("#")]
    assert [words[:2] for words in commands if words[0] != "df"] == [
        ["nvidia-smi", "-q"],
        ["docker", "info"],
        ["docker", "run"],
        ["aiperf", "profile"],
        ["docker", "stop"],
        ["docker", "rm"],
    ]
    server, load = commands[-4], commands[-3]
    assert server[server.index("--tensor-parallel-size") + 1] == "4"
    assert server[server.index("--gpus") + 1] == '"device={devices}"'
    pool = (project.root / "runners/h200-docker.yaml").read_text()
    cache = next(line.split()[1] for line in pool.splitlines() if "model_cache" in line)
    assert f"{cache}:/models:ro" in server
    assert load[load.index("--concurrency") + 1] == "128"
    assert not any(call[:2] == ["docker", "run"] for call in machine.calls())


def test_the_pool_file_is_never_written_over(
    machine: Any, project: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second `pool new` leaves what people may have changed; --dry-run writes nothing."""
    printed = said(capsys, "pool", "new", "--dry-run")
    path = project.root / "runners/h200-docker.yaml"
    assert "sku: h200" in printed and not path.exists()
    said(capsys, "pool", "new")
    path.write_text("mine")
    assert run(["pool", "new"]) == 1
    assert "there is a pool of this name" in capsys.readouterr().err and path.read_text() == "mine"
    assert "written: runners/lab.yaml" in said(capsys, "pool", "new", "--name", "lab")
