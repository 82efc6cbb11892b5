"""What the vendors' tools print, as devices: absent is None, never 0; no answer is never "idle"."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.facts import load_catalog
from isoline.runners.machine.devices import amd, nvidia, rocm
from isoline.runners.machine.devices.model import DeviceProcess, UnreadableOutputError, sku_of
from isoline.runners.machine.devices.reader import (
    commands_of,
    detect,
    has_tool,
    read_devices,
    vendor_of,
    with_commands,
)
from isoline.runners.machine.hosts import ToolUnavailableError, this_host

Make = Callable[..., Any]


def test_nvidia_xml_in_full(fake_machine: Make, fakes: Any) -> None:
    """Name, SKU, memory, power, clocks, errors, reasons and processes of eight H200 are read."""
    machine = fake_machine(["nvidia-smi"], fakes.h200s())
    machine.change(
        3,
        used=61000,
        util=97,
        power=612.5,
        throttle=["sw_power_cap", "gpu_idle"],
        processes=[[4242, "/usr/bin/python3", 60990, "C"], [7, "/usr/lib/xorg/Xorg", 4, "G"]],
    )
    report = read_devices(this_host(), "nvidia")
    assert (report.driver, report.runtime, len(report.devices)) == ("580.82.07", "13.0", 8)
    item = report.devices[3]
    assert (item.index, item.name, item.sku, item.memory_total_mb) == (3, "NVIDIA H200", "h200", 143771)
    assert (item.utilisation, item.power_w, item.power_cap_w) == (0.97, 612.5, 700)
    assert (item.clock_mhz, item.clock_max_mhz, item.memory_clock_mhz) == (345, 1980, 3201)
    assert (item.clock_set_mhz, item.fabric) == (None, "Completed, Success")
    assert (item.ecc_corrected, item.ecc_uncorrected, item.throttle) == (3, 0, ("sw_power_cap",))
    assert item.processes == (DeviceProcess(4242, "/usr/bin/python3", 60990),)
    assert report.devices[0].processes == () and report.devices[0].needs_repair is None


def test_what_a_tool_does_not_say_is_none(fake_machine: Make, fakes: Any) -> None:
    """N/A and [N/A] are None in the XML and in the CSV, not 0."""
    fake_machine(
        ["nvidia-smi"], [fakes.device(0, "NVIDIA H200", 143771, power=None, util=None, ecc_uncorrected=None)]
    )
    (item,) = read_devices(this_host(), "nvidia").devices
    assert (item.power_w, item.utilisation) == (None, None)
    assert item.ecc_uncorrected == 0  # the other counters do count
    output = (
        this_host().run(["nvidia-smi", "--query-gpu=index,power.draw,utilization.gpu", "--format=csv"]).stdout
    )
    assert output.splitlines()[0] == "index, power.draw [W], utilization.gpu [%]"
    (row,) = nvidia.parse_facts(output, "gpu_uuid, pid", load_catalog().skus).devices
    assert (row.power_w, row.utilisation, row.memory_used_mb) == (None, None, None)


def test_compute_apps_go_to_their_device(fake_machine: Make, fakes: Any) -> None:
    """The list of compute processes is joined by UUID; unknown memory stays unknown."""
    machine = fake_machine(["nvidia-smi"], fakes.h200s(2))
    machine.change(1, processes=[[5, "vllm, worker", None, "C"]])
    said = this_host().run(list(nvidia.APPS_COMMAND)).stdout
    devices = read_devices(this_host(), "nvidia").devices
    first, second = nvidia.with_apps(devices, nvidia.parse_apps(said))
    assert (first.processes, second.processes) == ((), (DeviceProcess(5, "vllm, worker", None),))


def test_a_name_that_spoils_the_xml(fake_machine: Make, fakes: Any) -> None:
    """The tool does not escape names of processes: then the CSV lists are read, and the process is seen."""
    machine = fake_machine(["nvidia-smi"], fakes.h200s(2))
    machine.change(1, used=8000, processes=[[5, "train <a & b>, x", 7990, "C"]])
    report = read_devices(this_host(), "nvidia")
    first, second = report.devices
    assert (report.driver, first.processes, first.sku) == ("580.82.07", (), "h200")
    assert second.processes == (DeviceProcess(5, "train <a & b>, x", 7990),)
    assert (second.memory_used_mb, second.clock_max_mhz, second.ecc_uncorrected) == (8000, 1980, 0)
    assert (second.throttle, second.needs_repair) == (None, None)


def test_lists_that_are_cut_are_no_answer() -> None:
    """A list of processes without its header or a pid is refused."""
    for said in ("", "GPU is lost", "a\rb, c", "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\nGPU-1"):
        with pytest.raises(UnreadableOutputError):
            nvidia.parse_apps(said)


def test_older_drivers_name_things_differently() -> None:
    """The power block and the reasons of a driver before 535 are read too."""
    text = """<nvidia_smi_log><driver_version>470.1</driver_version><attached_gpus>1</attached_gpus>
    <gpu id="0">
    <clocks_throttle_reasons><clocks_throttle_reason_hw_slowdown>Active</clocks_throttle_reason_hw_slowdown>
    </clocks_throttle_reasons><power_readings><power_draw>35.32 W</power_draw>
    <power_limit>250.00 W</power_limit></power_readings><processes>N/A</processes></gpu></nvidia_smi_log>"""
    (item,) = nvidia.parse_xml(text, {}).devices
    assert (item.power_w, item.power_cap_w, item.throttle) == (35.32, 250, ("hw_slowdown",))
    assert (item.processes, item.ecc_uncorrected, item.uuid) == (None, None, None)


@pytest.mark.parametrize("is_new", [True, False])
def test_amd_smi(fake_machine: Make, fakes: Any, is_new: bool) -> None:
    """Both forms of the JSON (a list with a warning before it; under gpu_data) give the same device."""
    machine = fake_machine(["amd-smi"], fakes.mi355xs(2), **{**fakes.AMD, "new": is_new})
    machine.change(
        1, used=280000, util=88, power=1312, throttle=["ppt"], processes=[[77, "python3", 279000, "C"]]
    )
    report = read_devices(this_host(), "amd")
    assert (report.tool, report.driver, report.runtime) == ("amd-smi", "6.16.6", "7.0.2")
    item = report.devices[1]
    assert (item.name, item.sku, item.memory_total_mb, item.memory_used_mb) == (
        "AMD Instinct MI355X", "mi355x", 294896, 280000,
    )  # fmt: skip
    assert (item.utilisation, item.power_w, item.power_cap_w, item.clock_mhz) == (0.88, 1312, 1400, 345)
    assert item.throttle == (("ppt",) if is_new else ("throttled",))
    assert item.processes == (DeviceProcess(77, "python3", 279000),)
    assert report.devices[0].processes == () and report.devices[0].throttle == ()
    assert item.uuid is not None and item.uuid.startswith("GPU-")


def test_rocm_smi_where_there_is_no_amd_smi(fake_machine: Make, fakes: Any) -> None:
    """The older tool is used where the newer one is missing; what it cannot say is None."""
    if has_tool(this_host(), "amd-smi"):
        pytest.skip("a real amd-smi is here")
    machine = fake_machine(
        ["rocm-smi"], [fakes.device(0, "AMD Instinct MI300X OAM", 196592, cap=750)], **fakes.AMD
    )
    machine.change(0, used=100000, power=142.0, processes=[[9, "demo::sched", 99000, "C"]])
    assert detect(this_host()) == "amd"
    (item,) = read_devices(this_host(), "amd").devices
    assert (item.sku, item.memory_total_mb, item.memory_used_mb) == ("mi300x", 196592, 100000)
    assert (item.power_w, item.power_cap_w, item.clock_mhz, item.temperature_c) == (142, 750, 345, 31)
    assert (item.throttle, item.ecc_uncorrected) == (None, None)
    assert item.processes == (DeviceProcess(9, "demo::sched", 99000),)


def test_a_hanging_or_failing_tool_is_an_error(fake_machine: Make, fakes: Any) -> None:
    """Silence, an error and a foreign output raise; none is read as a machine without load."""
    machine = fake_machine(["nvidia-smi"], fakes.h200s(1), hang="nvidia-smi")
    with pytest.raises(ToolUnavailableError, match="did not answer"):
        read_devices(this_host(), "nvidia", timeout_s=0.5)
    lost = "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system"
    machine.say(hang=None, fail={"nvidia-smi": lost})
    with pytest.raises(ToolUnavailableError, match="GPU is lost"):
        read_devices(this_host(), "nvidia")


@pytest.mark.parametrize(
    "output",
    [
        "",
        "No devices were found",
        "<nvidia_smi_log/>",
        "<nvidia_smi_log><attached_gpus>2</attached_gpus></nvidia_smi_log>",
    ],
)
def test_broken_xml_is_no_answer(output: str) -> None:
    """Text that is not the tool's document, or a shorter list than it promises, is refused."""
    with pytest.raises(UnreadableOutputError):
        nvidia.parse_xml(output, {})


def test_broken_json_is_no_answer() -> None:
    """Text without the JSON of devices is refused, and so are two calls that disagree."""
    for text in ("", "ERROR: could not open device", '{"gpu_data": 3}', "[1, 2]", "[WARNING] x"):
        with pytest.raises(UnreadableOutputError):
            amd.entries(text)
    assert amd.entries('[WARNING] old driver\n[{"gpu": 1}]') == {1: {"gpu": 1}}
    with pytest.raises(UnreadableOutputError, match="different devices"):
        amd.parse('[{"gpu": 0}]', '[{"gpu": 1}]', "[]", {})
    with pytest.raises(UnreadableOutputError):
        rocm.parse("{}", {})


@pytest.mark.parametrize(
    ("name", "vendor", "sku"),
    [
        ("NVIDIA H200", "nvidia", "h200"),
        ("NVIDIA H200 NVL", "nvidia", None),
        ("NVIDIA GB200", "nvidia", "gb200-nvl72"),
        ("NVIDIA B200", "nvidia", "b200"),
        ("Instinct MI300X", "amd", "mi300x"),
        ("AMD Instinct MI300X OAM", "amd", "mi300x"),
        ("AMD Instinct MI300A", "amd", None),
        (None, "amd", None),
    ],
)
def test_skus_by_the_name_that_tools_print(name: str | None, vendor: str, sku: str | None) -> None:
    """A name is a SKU's only when it is all of it: a variant with a longer name is another product."""
    assert sku_of(name, vendor, load_catalog().skus) == sku


def test_vendor_of_a_sku() -> None:
    """A SKU names the tools that read it; one without such tools is an error."""
    assert [vendor_of(name) for name in ("h200", "mi355x", "cpu")] == ["nvidia", "amd", "cpu"]
    with pytest.raises(ToolUnavailableError):
        vendor_of("tpu-v7x")


def test_a_public_file_of_amd_smi(project_root: Path) -> None:
    """What amd-smi static really prints of an MI355X is read: name, cap, driver, memory, bus."""
    path = project_root.parent / "shared/data/power/gpu_metrics_identity.json"
    if not path.exists():
        pytest.skip("no ../shared/data here")
    static = path.read_text()
    now = json.dumps([{"gpu": index} for index in amd.entries(static)])
    report = amd.parse(static, now, "[]", load_catalog().skus)
    item = report.devices[0]
    assert (report.driver, item.name, item.sku, item.power_cap_w, item.memory_total_mb, item.bus) == (
        "6.16.6", "AMD Instinct MI355X", "mi355x", 1400, 294896, "0000:05:00.0",
    )  # fmt: skip
    assert (item.power_w, item.processes, item.throttle) == (None, None, None)


def test_without_ps_the_tools_own_names_stay(
    fake_machine: Make, fakes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who holds a device is still said where ps is missing: it is a nicety, no condition."""
    machine = fake_machine(["nvidia-smi"], fakes.h200s(1))
    machine.change(0, processes=[[5, "python3", 100, "C"]])
    report = read_devices(this_host(), "nvidia")
    monkeypatch.setenv("PATH", str(machine.bin))
    assert commands_of(this_host(), [5]) == {}
    assert with_commands(report, {}).devices[0].processes == (DeviceProcess(5, "python3", 100),)
    assert with_commands(report, {5: "me: train"}).devices[0].processes == (
        DeviceProcess(5, "me: train", 100),
    )
