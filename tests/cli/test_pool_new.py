"""``isoline pool new`` through the command line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.pools import load_pool
from isoline.cli.main import run

Make = Callable[..., Any]


def test_machines_over_ssh(
    project: Any,
    fake_machine: Make,
    fakes: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first named machine is looked at, all of them are the pool's; `pool check` asks each."""
    made = fake_machine(["nvidia-smi", "docker", "sinfo"], fakes.h200s())
    made.say(tools={"docker": {"": f"28.2.2 {tmp_path}"}}, fail={"sinfo": "no controller"})
    ssh = tmp_path / "ssh-bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec sh -c "$*"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    assert run(["pool", "new", "--host", "gpu1", "--host", "gpu2", "--name", "lab"]) == 0
    assert load_pool(project.root, "lab").hosts == ["gpu1", "gpu2"]
    capsys.readouterr()
    made.change(3, used=70000)
    assert run(["pool", "check", "lab", "--need-gb", "0.001"]) == 4
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1:3] for line in lines] == [["gpu_busy", "gpu1"], ["gpu_busy", "gpu2"]]


def test_a_product_that_nobody_knows(
    project: Any, fake_machine: Make, fakes: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown name is a question with its answer, --sku; a wrong answer is refused."""
    fake_machine(["nvidia-smi", "docker"], [fakes.device(0, "NVIDIA H200 NVL", 143771)])
    assert run(["pool", "new", "--dry-run"]) == 1
    assert "no SKU of the catalog has the name 'NVIDIA H200 NVL'; name the SKU" in capsys.readouterr().err
    assert run(["pool", "new", "--dry-run", "--sku", "h20"]) == 1
    assert "--sku: unknown SKU 'h20'" in capsys.readouterr().err
    assert run(["pool", "new", "--dry-run", "--sku", "h200"]) == 0
    assert "sku: h200" in capsys.readouterr().out


def test_a_silent_tool_makes_no_pool(
    project: Any, fake_machine: Make, fakes: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device tool that fails is an infrastructure error, not a machine without devices."""
    fake_machine(["nvidia-smi"], fakes.h200s(), fail={"nvidia-smi": "Driver/library version mismatch"})
    assert run(["pool", "new"]) == 4
    assert "nvidia-smi failed: Driver/library version mismatch" in capsys.readouterr().err
    assert not list((project.root / "runners").glob("h200*"))
