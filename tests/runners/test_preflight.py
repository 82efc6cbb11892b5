"""The preflight: what speaks against a launch, one line each."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.pools import Pool
from isoline.results.judging.reasons import REASONS
from isoline.runners.machine import probes
from isoline.runners.machine.device_checks import device_findings, wait_until_idle
from isoline.runners.machine.devices.model import Device, DeviceReport
from isoline.runners.machine.hosts import Host, this_host
from isoline.runners.machine.needs import NeededFile, Needs, Room, for_launch, needs_of_pool
from isoline.runners.machine.preflight import (
    NodeReport,
    all_problems,
    as_json,
    inspect,
    inspect_all,
    preflight,
)

Make = Callable[..., Any]
H200 = Needs(sku="h200", accelerators=8)
NOBODY = 4194400
"""A process that no machine has: above the largest number that Linux gives."""


def codes(needs: Needs, host: Host | None = None) -> list[str]:
    return [item.code for item in preflight(host or this_host(), needs)]


def test_an_idle_machine_is_fine(fake_machine: Make, fakes: Any) -> None:
    """Eight idle H200 are what a pool of eight H200 wants."""
    fake_machine(["nvidia-smi"], fakes.h200s())
    report = inspect(this_host(), H200)
    assert report.problems == []
    assert {item.name: item.ok for item in report.findings}["driver"] is True


def test_a_foreign_process_is_named(
    fake_machine: Make, fakes: Any, spawn: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """A busy device says which pid and command, out of ps where it can see it."""
    process = spawn(["sleep", "61.5"])
    machine = fake_machine(["nvidia-smi"], fakes.h200s())
    machine.change(2, used=90000, processes=[[process.pid, "python3", 89990, "C"]])
    (problem,) = preflight(this_host(), H200)
    assert problem.code == "gpu_busy"
    assert f"device 2: pid {process.pid} (" in problem.detail and "sleep 61.5" in problem.detail
    assert codes(Needs(sku="h200", accelerators=8, devices=(0, 1))) == []


def test_memory_of_nobody_is_busy_too(fake_machine: Make, fakes: Any) -> None:
    """A process of another container is not listed; its memory gives it away."""
    machine = fake_machine(["nvidia-smi"], fakes.h200s())
    machine.change(5, used=64000)
    (problem,) = preflight(this_host(), H200)
    assert (
        problem.code == "gpu_busy" and "64000 MiB in use by a process that is not visible" in problem.detail
    )


def test_a_silent_tool_is_not_idle() -> None:
    """Where neither memory nor processes are told, nobody may say that the device is free."""
    report = DeviceReport("amd", "rocm-smi", None, None, (Device(0, name="x", sku="mi300x"),))
    found = {item.name: item for item in device_findings(report, Needs(sku="mi300x", accelerators=1))}
    assert (found["idle"].ok, found["idle"].code) == (False, "tool_missing")
    assert (found["ecc"].ok, found["throttle"].ok, found["driver"].ok) == (None, None, None)


def test_count_and_sku_are_compared(fake_machine: Make, fakes: Any) -> None:
    """Seven devices are not eight; another product is named as the tool prints it."""
    machine = fake_machine(["nvidia-smi"], fakes.h200s(7))
    assert codes(H200) == ["gpu_count_mismatch"]
    assert codes(Needs(sku="h200", accelerators=7, devices=(6, 7))) == ["gpu_count_mismatch"]
    machine.say(devices=[fakes.device(0, "NVIDIA H200 NVL", 143771)])
    (problem,) = preflight(this_host(), Needs(sku="h200", accelerators=1))
    assert problem.code == "sku_mismatch" and "'NVIDIA H200 NVL'" in problem.detail
    assert codes(Needs(sku="b200", accelerators=1)) == ["sku_mismatch"]


@pytest.mark.parametrize(
    ("changed", "code", "detail"),
    [
        ({"ecc_uncorrected": 2}, "gpu_unhealthy", "device 1: 2 uncorrected memory error(s)"),
        ({"remap_pending": True}, "gpu_unhealthy", "a row remap is pending"),
        (
            {"throttle": ["hw_thermal_slowdown", "hw_slowdown"]},
            "gpu_throttled",
            "hw_slowdown, hw_thermal_slowdown",
        ),
        ({"throttle": ["sw_power_cap"]}, None, ""),
    ],
)
def test_ill_devices_are_found(
    fake_machine: Make, fakes: Any, changed: dict[str, Any], code: str | None, detail: str
) -> None:
    """Uncorrected errors, a pending repair and heat are problems; a power cap is none."""
    fake_machine(["nvidia-smi"], fakes.h200s()).change(1, **changed)
    found = preflight(this_host(), H200)
    assert [item.code for item in found] == ([code] if code else [])
    assert all(detail in item.detail for item in found)


def test_amd_lists_a_process_under_every_device(fake_machine: Make, fakes: Any) -> None:
    """Only the device whose memory is in use is busy."""
    machine = fake_machine(["amd-smi"], fakes.mi355xs(2), **fakes.AMD)
    for number, used in ((0, 270000), (1, 300)):
        machine.change(number, used=used, processes=[[NOBODY, "python3", 270000, "C"]])
    (problem,) = preflight(this_host(), Needs(sku="mi355x", accelerators=2))
    assert problem.code == "gpu_busy" and f"device 0: pid {NOBODY} (python3)" in problem.detail
    assert "device 1" not in problem.detail


def test_a_missing_tool_is_one_problem(fakes: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the vendor's tool nothing else is concluded about devices; the rest is still looked at."""
    machine = fakes.Machine(tmp_path / "machine", [], fakes.h200s())
    monkeypatch.setenv("PATH", f"{machine.bin}:/usr/bin:/bin")
    report = inspect(this_host(), H200)
    assert [item.code for item in report.problems] == ["tool_missing"]
    assert "nvidia-smi is not on PATH" in report.problems[0].detail
    assert report.report is None and any(item.name == "ports" for item in report.findings)


def test_a_machine_out_of_reach_is_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that ssh cannot reach has two lines: its devices, and the machine itself."""
    fake = tmp_path / "ssh"
    fake.write_text("#!/bin/sh\necho 'ssh: connect to host n1 port 22: No route to host' >&2\nexit 255\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    report = inspect(Host("n1", "n1"), H200)
    assert {item.code for item in report.problems} == {"tool_missing"}
    assert all("No route to host" in item.detail for item in report.problems)


def test_disk_files_and_tools(fake_machine: Make, fakes: Any, tmp_path: Path) -> None:
    """Room that is not there, a model file of another size, and a runtime that fails are told apart."""
    machine = fake_machine(["nvidia-smi", "docker"], fakes.h200s())
    machine.say(tools={"docker": {"": f"28.2.2 {tmp_path}"}})
    whole, cut = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    whole.write_bytes(b"x" * 10)
    cut.write_bytes(b"x" * 4)
    fine = Needs(
        sku="h200", accelerators=8, tools=("docker",), image_gb=0.0,
        rooms=(Room("scratch", str(tmp_path / "not" / "yet"), 0.0),), files=(NeededFile(str(whole), 10),),
    )  # fmt: skip
    assert codes(fine) == []
    full = Needs(sku="h200", accelerators=8, rooms=(Room("scratch", str(tmp_path), 1e9),))
    (problem,) = preflight(this_host(), full)
    assert problem.code == "disk_full" and "1e+09 GB needed" in problem.detail
    lacking = Needs(sku="h200", accelerators=8, files=(NeededFile(str(whole), 10), NeededFile(str(cut), 10)))
    (problem,) = preflight(this_host(), lacking)
    assert problem.code == "model_missing" and "has 4 bytes, 10 are right" in problem.detail
    machine.say(fail={"docker": "Cannot connect to the Docker daemon"})
    (problem,) = preflight(this_host(), fine)
    assert problem.code == "tool_missing" and "Cannot connect" in problem.detail
    machine.say(fail=None)
    assert codes(Needs(sku="h200", accelerators=8, tools=("docker",), image_gb=1e9)) == ["disk_full"]


def test_ports_in_use_are_counted() -> None:
    """Listening sockets of both families are seen; other states are not."""
    text = (
        "  sl  local_address rem_address   st tx_queue\n"
        "   0: 0100007F:4E20 00000000:0000 0A 00000000\n"
        "   1: 0100007F:4E21 0100007F:9999 01 00000000\n"
        "   2: 00000000000000000000000001000000:4E22 00000000000000000000000000000000:0000 0A 0\n"
    )
    assert probes.listening(text) == {20000, 20002}
    assert probes.port_range(this_host(), 10**6)[3] == "port_in_use"


@pytest.mark.parametrize(
    ("timedatectl", "chronyc", "expected"),
    [
        ("NTPSynchronized=yes\n", "", True),
        ("NTPSynchronized=no\n", "", False),
        ("NTPSynchronized=no\n", "Leap status     : Normal\n", True),
        ("", "Leap status     : Not synchronised\n", False),
        ("", "506 Cannot talk to daemon\n", None),
    ],
)
def test_who_sets_the_clock(timedatectl: str, chronyc: str, expected: bool | None) -> None:
    """chronyc's word counts before timedatectl's; where neither speaks nothing is concluded."""
    assert probes.synchronised(timedatectl, chronyc) is expected


def test_a_clock_that_nobody_sets_is_a_problem(fake_machine: Make, fakes: Any) -> None:
    """timedatectl that says no is a problem of the machine."""
    machine = fake_machine(["nvidia-smi", "timedatectl"], fakes.h200s())
    machine.say(tools={"timedatectl": {"": "NTPSynchronized=no"}})
    assert codes(H200) == ["clock_unsynchronised"]


def test_drivers_must_not_differ(fake_machine: Make, fakes: Any) -> None:
    """Two machines of one pool with two drivers are a problem between them."""
    machine = fake_machine(["nvidia-smi"], fakes.h200s())
    one = inspect(Host("n1"), H200)
    machine.say(driver="570.1")
    two = inspect(Host("n2"), H200)
    (problem,) = all_problems([one, two])
    assert problem.code == "drivers_differ" and problem.detail == "570.1 on n2; 580.82.07 on n1"
    assert all_problems([one, one]) == []


def test_the_record_holds_everything(fake_machine: Make, fakes: Any) -> None:
    """preflight.json has each check with its remedy, each device, and the problems."""
    fake_machine(["nvidia-smi"], fakes.h200s(7))
    record = as_json("h200", [inspect(Host("n1"), H200)])
    (node,) = record["nodes"]
    assert (record["schema_version"], node["driver"], len(node["devices"])) == (1, "580.82.07", 7)
    assert record["problems"] == [
        {
            "code": "gpu_count_mismatch",
            "detail": "n1: 7 device(s), the pool says 8",
            "remedy": REASONS["gpu_count_mismatch"].remedy,
        }
    ]
    assert as_json("p", [NodeReport("n", "t", (), None)])["nodes"][0]["devices"] is None


def test_waiting_for_memory_to_come_free(fake_machine: Make, fakes: Any) -> None:
    """After a stop the device is free when its memory is; past the deadline it is still busy."""
    machine = fake_machine(["nvidia-smi"], fakes.h200s())
    machine.change(0, used=50000)
    assert wait_until_idle(this_host(), H200, deadline_s=0.0).code == "gpu_busy"
    machine.change(0, used=3)
    assert wait_until_idle(this_host(), H200, deadline_s=0.0).ok


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("4 idle\n2 mixed\n1 allocated\n", (7, 7)),
        ("4 idle\n3 drained\n1 down*\n2 idle*\n1 draining\n", (4, 11)),
        ("", (0, 0)),
    ],
)
def test_nodes_that_take_jobs(output: str, expected: tuple[int, int]) -> None:
    """Drained, down and silent nodes do not count; busy ones do, their queue is Slurm's matter."""
    assert probes.parse_sinfo(output) == expected


def test_a_slurm_pool_is_looked_at_where_jobs_are_submitted(fake_machine: Make, fakes: Any) -> None:
    """The tools, the partition and its nodes are checked; no device of this machine is asked for."""
    machine = fake_machine(["sbatch", "srun", "squeue", "scancel", "sinfo"], [])
    pool = Pool.model_validate(
        {
            "schema_version": 1, "name": "s", "launcher": "slurm", "sku": "h200", "accelerators": 8,
            "nodes": 4,
            "slurm": {"partition": "gpu", "container": "none"},
        }
    )  # fmt: skip
    needs = needs_of_pool(pool, state="/", need_gb=0.001)
    machine.say(tools={"sinfo": {"": "6 idle\n1 drained"}})
    assert codes(needs) == []
    machine.say(tools={"sinfo": {"": "3 idle"}})
    (problem,) = preflight(this_host(), needs)
    assert (problem.code, "3 of 3 node(s) take jobs" in problem.detail) == ("no_nodes", True)
    machine.say(fail={"sinfo": "slurm_load_partitions: Unable to contact slurm controller"})
    (problem,) = preflight(this_host(), needs)
    assert problem.code == "tool_missing" and "Unable to contact" in problem.detail


@pytest.fixture
def over_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ssh that runs the command here, but for the machine ``gone``; returns its folder."""
    folder = tmp_path / "ssh-bin"
    folder.mkdir()
    ssh = folder / "ssh"
    ssh.write_text(
        '#!/bin/sh\nwhile [ "$2" != -- ]; do shift; done\n'
        'if [ "$1" = gone ]; then echo "No route to host" >&2; exit 255; fi\n'
        'shift 2; exec sh -c "$*"\n'
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_every_machine_of_a_pool_is_looked_at(fake_machine: Make, fakes: Any, over_ssh: Path) -> None:
    """Machines of the pool's list in its order; one out of reach does not hide the others."""
    fake_machine(["nvidia-smi"], fakes.h200s())
    hosts = [Host(name, name) for name in ("n1", "gone", "n2")]
    found = inspect_all(hosts, H200)
    assert [item.node for item in found] == ["n1", "gone", "n2"]
    assert [len(item.problems) for item in found] == [0, 2, 0]
    assert found[2].report is not None and len(found[2].report.devices) == 8


def test_a_launch_needs_its_own_devices_and_room(fake_machine: Make, fakes: Any, tmp_path: Path) -> None:
    """Its leased devices must be idle, others may be busy; its files of weights must be whole."""
    machine = fake_machine(["nvidia-smi"], fakes.h200s())
    machine.change(7, used=90000)
    pool = Needs(sku="h200", accelerators=8, rooms=(Room("model cache", str(tmp_path), 0.0),))
    assert codes(pool) == ["gpu_busy"]
    assert codes(for_launch(pool, devices=[0, 1, 2, 3])) == []
    assert codes(for_launch(pool, devices=[6, 7])) == ["gpu_busy"]
    weights = tmp_path / "weights.gguf"
    weights.write_bytes(b"half")
    assert codes(for_launch(pool, devices=[0], files=[NeededFile(str(weights), 8)])) == ["model_missing"]
    assert codes(for_launch(pool, devices=[0], files=[NeededFile(str(weights), 4)])) == []
