"""Device telemetry: one long-running tool, its lines as samples of each device."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from isoline.results.metrics.energy import power_of
from isoline.runners.machine.hosts import this_host
from isoline.runners.telemetry import sampler
from isoline.runners.telemetry import table as telemetry
from isoline.runners.telemetry.sampler import DeviceSampler
from isoline.runners.telemetry.streams import AmdReader, Clock, CpuReader, NvidiaReader
from isoline.runners.telemetry.table import TELEMETRY_SCHEMA, Sample, SampleStore, write_samples

Make = Callable[..., Any]
Eventually = Callable[..., None]
S = 1_000_000_000
HEAD = "timestamp, index, power.draw [W], utilization.gpu [%], memory.used [MiB]"


def value_of(samples: list[Sample], name: str, device: str) -> list[float]:
    return [item.value for item in samples if item.name == f"device.{name}" and item.device == device]


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_nvidia_devices_are_sampled(
    fake_machine: Make, fakes: Any, eventually: Eventually, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the leased devices are kept; what changes is seen; closing ends the tool."""
    monkeypatch.setattr(sampler, "INTERVAL_MS", 50)
    machine = fake_machine(["nvidia-smi"], fakes.h200s())
    machine.change(5, power=612.5, util=97)
    found = DeviceSampler(this_host(), "nvidia", {4, 5})
    found.start()
    eventually(lambda: len(value_of(found.samples(), "power_w", "5")) >= 4, what="four samples")
    machine.change(5, power=None)
    machine.change(4, power=80.0)
    eventually(lambda: value_of(found.samples(), "power_w", "4")[-1] == 80.0, what="the change")
    process = found._process
    assert process is not None and alive(process.pid)
    found.close()
    found.close()
    assert not alive(process.pid)
    samples = found.samples()
    assert {item.device for item in samples} == {"4", "5"} and found.problem() is None
    assert set(value_of(samples, "utilisation", "5")) == {0.97}
    assert set(value_of(samples, "power_w", "5")) == {612.5}  # [N/A] is no sample
    assert sum(call[0] == "nvidia-smi" for call in machine.calls()) == 1
    path = tmp_path / "telemetry.parquet"
    assert found.write(path) == len(samples)
    assert pq.read_table(path).schema.equals(TELEMETRY_SCHEMA)


def test_amd_devices_are_sampled(fake_machine: Make, fakes: Any, eventually: Eventually) -> None:
    """The CSV of amd-smi monitor gives the same names; a node's name may stand before the device's."""
    machine = fake_machine(["amd-smi"], fakes.mi355xs(2), **fakes.AMD)
    machine.change(1, power=1312, util=88, used=280000)
    found = DeviceSampler(this_host(), "amd", node="n1")
    found.start()
    eventually(lambda: value_of(found.samples(), "memory_used_mb", "n1:1"), what="a sample")
    found.close()
    samples = found.samples()
    assert (
        value_of(samples, "power_w", "n1:1")[0] == 1312 and value_of(samples, "clock_mhz", "n1:0")[0] == 345
    )
    assert value_of(samples, "utilisation", "n1:1")[0] == 0.88


def test_this_machine_is_sampled(eventually: Eventually) -> None:
    """A pool without accelerators has memory and use of the machine; power only where it is readable."""
    found = DeviceSampler(this_host(), "cpu")
    found.start()
    eventually(lambda: value_of(found.samples(), "utilisation", "0"), 20, what="two readings")
    found.close()
    assert value_of(found.samples(), "memory_used_mb", "0")[0] > 0
    assert 0 <= value_of(found.samples(), "utilisation", "0")[0] <= 1


def test_a_tool_that_ends_is_started_again(
    fake_machine: Make, fakes: Any, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing tool leaves a gap and one line that says why; once it works there are samples."""
    monkeypatch.setattr(sampler, "AGAIN_S", 0.05)
    machine = fake_machine(
        ["nvidia-smi"], fakes.h200s(1), fail={"nvidia-smi": "NVML: Driver/library mismatch"}
    )
    found = DeviceSampler(this_host(), "nvidia")
    found.start()
    eventually(lambda: "mismatch" in (found.problem() or ""), what="the reason")
    machine.say(fail=None)
    eventually(lambda: found.problem() is None, what="samples")
    found.close()


def test_a_missing_tool_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """Telemetry never fails a launch: it is said why there is none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    found = DeviceSampler(this_host(), "nvidia")
    found.start()
    eventually(lambda: "cannot be started" in (found.problem() or ""), what="the reason")
    found.close()
    assert found.samples() == []


ORPHANS = """
import sys, time
from isoline.runners.machine.hosts import this_host
from isoline.runners.telemetry.sampler import DeviceSampler
found = [DeviceSampler(this_host(), vendor) for vendor in ("nvidia", "cpu")]
for item in found:
    item.start()
while not all(item.samples() for item in found):
    time.sleep(0.05)
print(*(item._process.pid for item in found), flush=True)
time.sleep(600)
"""


def test_the_tool_ends_with_its_reader(fake_machine: Make, fakes: Any, eventually: Eventually) -> None:
    """An orchestrator that was killed leaves no tool behind: what cannot print any more ends."""
    fake_machine(["nvidia-smi"], fakes.h200s(1))
    with subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            pids = [int(word) for word in process.stdout.readline().split()]
            assert len(pids) == 2 and all(map(alive, pids))
        finally:
            process.kill()
    eventually(lambda: not any(map(alive, pids)), what="the end of both tools")


def test_rows_that_were_held_back_keep_their_time() -> None:
    """A lump of rows that a pipe held back is spread over the time that the tool itself printed."""
    reader = NvidiaReader()
    base = 1_780_000_000 * S
    assert reader.feed(HEAD, base) == []

    def row(second: int, arrived: float) -> int:
        line = f"2026/05/03 12:00:{second:02d}.000, 0, {500 + second}.00 W, 97 %, 120000 MiB"
        return reader.feed(line, base + round(arrived * S))[0].t_ns

    assert row(0, 0.1) == base + round(0.1 * S)
    assert row(1, 1.3) == base + round(1.3 * S)  # a little late: the arrival counts
    assert [row(second, 9.0) for second in (2, 5, 8)] == [
        base + round((0.1 + second) * S) if second < 8 else base + 9 * S for second in (2, 5, 8)
    ]


def test_a_clock_that_was_set_is_compared_anew() -> None:
    """An hour back in the tool's time is summer time, not a row that was held back for an hour."""
    clock = Clock()
    assert clock.time_ns(100 * S, 7200 * S) == 100 * S
    assert clock.time_ns(101 * S, (7201 - 3600) * S) == 101 * S
    assert clock.time_ns(102 * S, None) == 102 * S


def test_lines_that_are_no_rows_are_left_out() -> None:
    """Rows before the header, cut rows, errors of a device and foreign text give no sample and no error."""
    reader = NvidiaReader()
    for line in (
        "",
        "x",
        "2026/05/03 12:00:00.000, 0, 1 W, 1 %, 1 MiB",
        "Unable to determine the device handle",
    ):
        assert reader.feed(line, S) == []
    reader.feed(HEAD, S)
    assert reader.feed("2026/05/03 12:00:00.000, 0, 61", S) == []
    assert reader.feed("2026/05/03 12:00:00.000, 0, [Unknown Error], [N/A], [N/A]", S) == []
    amd = AmdReader()
    assert amd.feed("WARNING: no group render", S) == [] and amd.feed("{broken", S) == []
    (power,) = amd.feed('{"card3": {"Average Graphics Package Power (W)": "142.0", "Unique ID": "N/A"}}', S)
    assert power == Sample(S, "device.power_w", 142.0, "3")
    cpu = CpuReader()
    assert cpu.feed("nonsense", S) == [] and cpu.feed("end", S) == []


def test_public_power_logs_are_read(project_root: Path) -> None:
    """A power log with the columns that others write gives the power of each device."""
    path = project_root.parent / "shared/data/made_up/nvidia_smi_power.csv"
    if not path.exists():
        pytest.skip("no ../shared/data here")
    reader = NvidiaReader()
    samples = [item for line in path.read_text().splitlines() for item in reader.feed(line, 0)]
    assert value_of(samples, "power_w", "3")[0] == 613.0


def test_slices_are_sorted_and_marked(tmp_path: Path) -> None:
    """Samples of several threads are put in order of time; the windows stand in the file."""
    path = tmp_path / "t.parquet"
    rows = [Sample(n * S, "device.power_w", 100.0, "0") for n in (5, 1, 3, 2, 4)]
    assert write_samples(path, [*rows, Sample(9 * S, "engine.running", 3.0)], to_ns=8 * S) == 5
    telemetry.mark(path, {"full": (S, 4 * S), "steady": None})
    table = pq.read_table(path)
    assert table.column("t_ns").to_pylist() == [n * S for n in (1, 2, 3, 4, 5)]
    said = table.schema.metadata or {}
    assert json.loads(said[b"isoline.windows"]) == {"full": [S, 4 * S], "steady": None}
    assert said[b"isoline.schema_version"] == b"2"
    assert power_of(table, gpus=1, sku="h200").energy(S, 4 * S).value_j == pytest.approx(300)
    assert b"isoline.windows" not in (TELEMETRY_SCHEMA.metadata or {})


def test_hours_of_samples_are_small() -> None:
    """The store gives back what it was given, by time, in less than 20 bytes a sample."""
    store = SampleStore()
    rows = [Sample(n * S, f"device.{name}", n / 7, str(n % 8)) for n in range(5000) for name in ("a", "b")]
    store.add(rows)
    assert store.between() == rows and len(store) == len(rows)
    assert store.between(10 * S, 11 * S) == [row for row in rows if 10 <= row.t_ns / S <= 11]
    held = sum(column.itemsize for column in (store._times, store._values, store._kinds))
    assert held < 20
