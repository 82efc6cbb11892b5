"""The fingerprint of a machine and how two are compared."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isoline.runners.machine.fingerprint import (
    changes,
    compare,
    fingerprint,
    node_fingerprint,
    parse_base,
    parse_cpuinfo,
    parse_nics,
    parse_os_release,
)
from isoline.runners.machine.hosts import Host, this_host

Make = Callable[..., Any]


def test_fingerprint_is_stable_and_plain() -> None:
    """Two looks at one machine are equal, plain JSON, and know cores and memory."""
    one = fingerprint()
    assert compare(one, fingerprint()) == []
    assert json.loads(json.dumps(one)) == one
    assert one["cores_usable"] >= 1 and one["memory_bytes"] > 0
    assert one["cpu_model"]


def test_differences_are_named_in_order() -> None:
    """A changed, a lost and a new field are told with both values; a restart is no difference."""
    old = {"kernel": "1", "os": "a", "boot_id": "x"}
    new = {"kernel": "2", "boot_id": "y", "cpu_model": "c"}
    assert compare(old, new) == [("cpu_model", None, "c"), ("kernel", "1", "2"), ("os", "a", None)]


def test_cpuinfo_of_two_vendors() -> None:
    """Model and the flags that decide arithmetic are read from x86 and Arm forms; absent is null."""
    x86 = parse_cpuinfo(
        "processor\t: 0\nmodel name\t: Fast CPU\nflags\t\t: fpu avx2 sse4_2 fma\nmodel name: other\n"
    )
    assert x86 == {"model": "Fast CPU", "flags": "avx2 fma sse4_2"}
    assert parse_cpuinfo("CPU part : 0xd40\nFeatures : fp asimd sve\n") == {
        "model": "0xd40",
        "flags": "asimd sve",
    }
    assert parse_cpuinfo("") == {"model": None, "flags": None}


def test_os_release() -> None:
    """The pretty name is taken without its quotes; absent is null."""
    assert parse_os_release('NAME="x"\nPRETTY_NAME="Debian GNU/Linux 12"\n') == "Debian GNU/Linux 12"
    assert parse_os_release("") is None


def test_a_machine_with_devices(fake_machine: Make, fakes: Any, tmp_path: Path) -> None:
    """Driver, CUDA, the leased devices with uuid, cap and clocks, runtimes and rails of a node."""
    fake_machine(["nvidia-smi", "docker", "sbatch"], fakes.h200s()).say(
        tools={"docker": {"": "28.2.2"}, "sbatch": {"": "slurm 23.11.4"}}
    )
    port = tmp_path / "ib" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    for name, value in (("state", "4: ACTIVE"), ("rate", "400 Gb/sec"), ("link_layer", "InfiniBand")):
        (port / name).write_text(f"{value}\n")
    found = node_fingerprint(this_host(), "nvidia", {2, 3}, infiniband=str(tmp_path / "ib"))
    assert set(fingerprint()) <= set(found)
    assert (found["driver"], found["device_runtime"], sorted(found["devices"])) == (
        "580.82.07",
        "13.0",
        ["2", "3"],
    )
    assert found["devices"]["3"]["power_cap_w"] == 700 and found["devices"]["3"]["clock_max_mhz"] == 1980
    assert found["runtimes"]["docker"] == "28.2.2" and found["runtimes"]["slurm"] == "slurm 23.11.4"
    assert found["rails"]["mlx5_0"]["rate"] == "400 Gb/sec"
    assert json.loads(json.dumps(found)) == found and found["unread"] is None


def test_what_changed_during_a_launch(fake_machine: Make, fakes: Any) -> None:
    """Another driver, power cap or device is one line each; load, heat and clocks of the moment are none."""
    machine = fake_machine(["nvidia-smi"], fakes.h200s(2))
    before = node_fingerprint(this_host(), "nvidia")
    machine.change(0, util=99, power=690.0, clock=1755, temp=70, used=120000)
    assert changes(before, node_fingerprint(this_host(), "nvidia")) == []
    machine.say(driver="570.1")
    machine.change(0, set_clock=1500)
    machine.change(1, cap=600.0, uuid="GPU-other")
    lines = changes(before, node_fingerprint(this_host(), "nvidia"))
    assert lines == [
        "devices.1.power_cap_w: 700.0 -> 600.0",
        f"devices.1.uuid: {before['devices']['1']['uuid']} -> GPU-other",
        "driver: 580.82.07 -> 570.1",
    ]


def test_a_tool_that_fails_is_no_change(fake_machine: Make, fakes: Any) -> None:
    """A tool that does not answer afterwards leaves nulls with the reason; nothing has changed by that."""
    machine = fake_machine(["nvidia-smi"], fakes.h200s(1))
    before = node_fingerprint(this_host(), "nvidia")
    machine.say(fail={"nvidia-smi": "GPU is lost"})
    after = node_fingerprint(this_host(), "nvidia")
    assert (after["devices"], after["driver"]) == (None, None) and "GPU is lost" in after["unread"]
    assert changes(before, after) == []


def test_another_machine_has_the_same_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over ssh the same facts come by a script; what only a process there could say is null."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec sh -c "$*"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    here, there = fingerprint(), node_fingerprint(Host("n1", "n1"), "cpu")
    for name in (
        "hostname",
        "boot_id",
        "cpu_model",
        "cpu_flags",
        "memory_bytes",
        "kernel",
        "os",
        "swap_bytes",
    ):
        assert there[name] == here[name], name
    assert there["python"] is None and there["devices"] == {} and there["unread"] is None


def test_network_cards_are_read() -> None:
    """Speed and driver of a card; one that is down has no speed, one without a driver none."""
    assert parse_nics("eth0 100000 mlx5_core\neth1 -1 ice\neth2 igb\n") == {
        "eth0": {"mbit_s": 100000, "driver": "mlx5_core"},
        "eth1": {"mbit_s": None, "driver": "ice"},
        "eth2": {"mbit_s": None, "driver": "igb"},
    }


def test_garbled_answers_of_another_machine_are_null() -> None:
    """Lines that say nothing are passed by: a fingerprint is never what stops a launch."""
    found = parse_base("=isoline= memory\nMemTotal:\nSwapTotal: none kB\nMemFree: 1 kB\n")
    assert (found["memory_bytes"], found["swap_bytes"]) == (None, None)
    assert parse_nics("\neth0 100 ice\n") == {"eth0": {"mbit_s": 100, "driver": "ice"}}
