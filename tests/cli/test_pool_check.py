"""``isoline pool check``: one line for each thing that is wrong, and exit code 4."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isoline.cli.main import run

POOL = """\
schema_version: 1
name: h200
launcher: container
sku: {sku}
accelerators: 8
container: {{runtime: docker, device_profile: nvidia, model_cache: {where}/models, scratch: {where}/scratch}}
"""


@pytest.fixture
def machine(project: Any, fake_machine: Callable[..., Any], fakes: Any, tmp_path: Path) -> Any:
    """A project with a pool of eight H200, on a machine that has them."""
    made = fake_machine(["nvidia-smi", "docker"], fakes.h200s())
    made.say(tools={"docker": {"": f"28.2.2 {tmp_path}"}})
    (project.root / "runners/h200.yaml").write_text(POOL.format(sku="h200", where=tmp_path))
    return made


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_ready_pool(machine: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nothing wrong is exit code 0; the record is written where it was asked for."""
    out = tmp_path / "preflight.json"
    assert run(["pool", "check", "h200", "--need-gb", "0.001", "--format", "json", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert json.loads(said.out) == json.loads(out.read_text())
    assert len(json.loads(said.out)["nodes"][0]["devices"]) == 8


def test_a_busy_device_is_one_line(machine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The process is named."""
    machine.change(4, used=8000, processes=[[999999, "trainer", 7990, "C"]])
    assert run(["pool", "check", "h200", "--need-gb", "0.001"]) == 4
    (line,) = lines(capsys)
    assert line.startswith("isoline: gpu_busy: local: device 4: pid 999999 (trainer); ")


def test_a_full_disk_is_one_line_each(machine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of the three disks that are too small is named with what it has and needs."""
    assert run(["pool", "check", "h200", "--need-gb", "1000000000"]) == 4
    found = lines(capsys)
    assert len(found) == 3 and all(line.startswith("isoline: disk_full: local: ") for line in found)


def test_a_wrong_sku_is_one_line(
    machine: Any, project: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The pool says B200, the tool says H200."""
    (project.root / "runners/h200.yaml").write_text(POOL.format(sku="b200", where=tmp_path))
    assert run(["pool", "check", "h200", "--need-gb", "0.001"]) == 4
    (line,) = lines(capsys)
    assert "sku_mismatch: local: the pool says b200, the tool says 'NVIDIA H200' (h200)" in line


def test_a_missing_tool_is_one_line(
    machine: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the device tool the line says so, and nothing is said about devices."""
    (machine.bin / "nvidia-smi").unlink()
    assert run(["pool", "check", "h200", "--need-gb", "0.001"]) == 4
    (line,) = lines(capsys)
    assert line.startswith("isoline: tool_missing: local: nvidia-smi is not on PATH; ")


def test_a_hanging_tool_is_no_idle_device(
    machine: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device tool that does not answer in time is a missing tool."""
    from isoline.runners.machine.devices import reader

    monkeypatch.setattr(reader, "TOOL_S", 0.5)
    machine.say(hang="nvidia-smi")
    assert run(["pool", "check", "h200", "--need-gb", "0.001"]) == 4
    (line,) = lines(capsys)
    assert "tool_missing: local: nvidia-smi did not answer within 0.5 s" in line


def test_a_pool_without_machines_of_ours(project: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing to look at behind somebody else's endpoint: wrong input, not a finding."""
    (project.root / "runners/theirs.yaml").write_text(
        "schema_version: 1\nname: theirs\nlauncher: endpoint\nsku: h200\n"
        "endpoint: {url: 'http://127.0.0.1:1', topology: tp8}\n"
    )
    assert run(["pool", "check", "theirs"]) == 1
    assert "no machine of ours" in lines(capsys)[0]


def test_a_privileged_pool_is_warned_of(
    machine: Any, project: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A pool that gives containers the whole machine is said to, each time; it is no fault of the machine."""
    text = POOL.format(sku="h200", where=tmp_path).replace("{runtime:", "{privileged: true, runtime:")
    (project.root / "runners/h200.yaml").write_text(text)
    assert run(["pool", "check", "h200", "--need-gb", "0.001", "--format", "json"]) == 0
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith("isoline: warning: containers of pool h200 run privileged: ")
    assert json.loads(said.out)["warnings"] == [line.removeprefix("isoline: warning: ")]


@pytest.mark.parametrize(
    ("options", "code"), [("[name=seccomp,profile=builtin name=rootless]", 0), ("[name=seccomp]", 4)]
)
def test_a_pool_that_demands_rootless_containers(
    options: str, code: int, machine: Any, project: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A runtime that runs as root is one line; a rootless one is none."""
    text = POOL.format(sku="h200", where=tmp_path).replace("{runtime:", "{rootless: true, runtime:")
    (project.root / "runners/h200.yaml").write_text(text)
    machine.say(tools={"docker": {"info --format {{.SecurityOptions}}": options, "": f"28.2.2 {tmp_path}"}})
    assert run(["pool", "check", "h200", "--need-gb", "0.001"]) == code
    found = lines(capsys)
    assert [line.partition("; ")[0] for line in found] == (
        ["isoline: runtime_not_rootless: local: docker runs as root"] if code else []
    )
