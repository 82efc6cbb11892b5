"""Energy in a window: integrated where power is known throughout, null with a reason where it is not."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isoline.results.metrics.derive import derive
from isoline.results.metrics.energy import POWER, Power, joules, power_of
from isoline.results.metrics.rederive import differences, rederive
from isoline.results.metrics.registry import METRICS
from isoline.results.warehouse.ingest import ingest
from isoline.settings import Settings

Row = tuple[float, str | None, float]
S = 1_000_000_000
T0 = 1_780_000_000 * S


def telemetry(rows: Sequence[Row], name: str = POWER) -> pa.Table:
    """(seconds since T0, device, W) as a table of the telemetry's form."""
    return pa.table(
        {
            "t_ns": pa.array([T0 + round(t * S) for t, _, _ in rows], pa.int64()),
            "name": pa.array([name] * len(rows), pa.string()),
            "device": pa.array([device for _, device, _ in rows], pa.string()),
            "value": pa.array([value for _, _, value in rows], pa.float64()),
        }
    )


def steady(
    gpus: int, seconds: float, watts: float, step: float = 0.5
) -> list[tuple[float, str | None, float]]:
    count = round(seconds / step) + 1
    return [(n * step, str(gpu), watts) for n in range(count) for gpu in range(gpus)]


def of(
    table: pa.Table | None, start: float, end: float, gpus: int, sku: str = "h200"
) -> tuple[float | None, str]:
    found = power_of(table, gpus=gpus, sku=sku).energy(T0 + round(start * S), T0 + round(end * S))
    return found.value_j, found.note


def test_constant_power_times_time() -> None:
    """Eight devices of 600 W for 10.3 s, whatever lies between samples."""
    value, note = of(telemetry(steady(8, 20, 600)), 3.2, 13.5, 8)
    assert value == pytest.approx(8 * 600 * 10.3, rel=1e-9) and note == ""


def test_a_brute_force_sum_agrees() -> None:
    """Random power at uneven times: a sum over ten thousand slices of the same line gives the same."""
    rng = np.random.default_rng(5)
    times = np.cumsum(rng.uniform(0.1, 2.5, 60))
    watts = rng.uniform(100, 700, 60)
    start, end = float(times[3]) + 0.05, float(times[-4]) - 0.05
    edges = np.linspace(start, end, 100_001)
    middle = np.interp((edges[1:] + edges[:-1]) / 2, times, watts)
    value, note = joules(times, watts, start, end)
    assert note == "" and value == pytest.approx(float((middle * np.diff(edges)).sum()), rel=1e-6)


def test_windows_that_touch_add_up() -> None:
    """The energy of two halves is that of the whole."""
    rows = [(t / 2, "0", 300 + 200 * math.sin(t)) for t in range(60)]
    first, second, whole = (of(telemetry(rows), *span, 1)[0] for span in ((2, 9.1), (9.1, 20), (2, 20)))
    assert first is not None and second is not None and whole == pytest.approx(first + second, rel=1e-12)


@pytest.mark.parametrize(
    ("rows", "gpus", "note"),
    [
        ([], 1, "no_power_samples"),
        (steady(1, 20, 500)[4:], 1, ""),
        (steady(1, 20, 500)[10:], 1, "power_not_covering_window device=0"),
        (steady(1, 8, 500), 1, "power_not_covering_window device=0"),
        ([row for row in steady(1, 20, 500) if not 4 < row[0] < 7.5], 1, "power_gap>3s device=0"),
        ([row for row in steady(1, 20, 500) if not 4 < row[0] < 7], 1, ""),
        (
            [row for row in steady(2, 20, 500) if row[1] == "0" or not 4 < row[0] < 8],
            2,
            "power_gap>3s device=1",
        ),
        (steady(7, 20, 500), 8, "power_devices=7/8"),
        (steady(2, 20, 500), 1, "power_devices=2/1"),
    ],
)
def test_holes_make_it_null(rows: list[Row], gpus: int, note: str) -> None:
    """No samples, not at both ends, a gap over 3 s, or another number of devices: null, with why."""
    value, said = of(telemetry(rows), 3.0, 10.0, gpus)
    assert said == note
    assert (value is None) == bool(note)


def test_a_share_of_a_machine_has_no_power() -> None:
    """For SKU cpu it is null by definition; a table without devices (the first form) has none either."""
    assert of(telemetry(steady(1, 20, 90)), 3, 10, 1, sku="cpu") == (None, "power_of_a_share_unknown")
    old = telemetry(steady(1, 20, 90)).drop_columns(["device"])
    assert of(old, 3, 10, 1) == (None, "no_power_samples")
    assert of(None, 3, 10, 1) == (None, "no_power_samples")
    assert of(telemetry(steady(1, 20, 90), name="device.clock_mhz"), 3, 10, 1)[1] == "no_power_samples"


def test_joules_a_token_fit_the_rates(tables: ModuleType) -> None:
    """Energy / tokens equals mean power / token rate; every window has its own."""
    table = tables.table(tables.closed_loop(4, 200))
    first = min(table.column("intended_send_ns").to_pylist())
    last = max(table.column("last_token_ns").to_pylist())
    seconds = (last - first) / S
    times = np.arange(-1.0, seconds + 1.5, 0.5)
    power = Power(
        2, {"0": (times, np.full(times.size, 400.0)), "1": (times, np.full(times.size, 200.0))}, "", first
    )
    derived = derive(table, gpus=2, concurrency=4, power=power)
    for window in ("full", "steady"):
        value = {row.name: row.value for row in derived.rows if row.window == window}
        assert value["energy_j"] == pytest.approx(600 * value["window_s"])
        assert value["power_w_per_gpu"] == pytest.approx(300)
        for kind in ("total", "output", "input"):
            assert value[f"j_per_{kind}_token"] == pytest.approx(300 / value[f"{kind}_tps_per_gpu"])


def test_no_power_is_null_with_a_reason(tables: ModuleType) -> None:
    """Without samples each metric of energy is null and says why; none is 0."""
    derived = derive(tables.table(tables.closed_loop(2, 40)), gpus=1, concurrency=2)
    rows = [row for row in derived.rows if METRICS[row.name].unit.startswith(("J", "W"))]
    assert len(rows) >= 5
    assert {(row.value, row.note) for row in rows} == {(None, "no_power_samples")}


def test_a_sealed_attempt_gives_the_same_energy_again(tmp_path: Path, bundles: Any) -> None:
    """Power out of the bundle's own slice gives the numbers of point.json; another slice is seen."""
    definition = bundles.LaunchDef(gpus=2, topology="tp2", sku="h200")
    plan = bundles.make_plan([(definition, [bundles.PointDef(4)])])
    attempt = next(bundles.make_run(tmp_path, plan).glob("*.c4.*/1"))
    span = json.loads((attempt / "point.json").read_text())["windows"]["full"]
    seconds = np.arange((span["start_ns"] - T0) / S - 1, (span["end_ns"] - T0) / S + 1.5, 0.5)

    def slice_of(watts: float) -> pa.Table:
        return telemetry([(float(t), device, watts) for t in seconds for device in ("0", "1")])

    pq.write_table(slice_of(500.0), attempt / "telemetry.parquet")
    bundles.reseal(attempt)
    derived = rederive(attempt)
    assert derived.value("power_w_per_gpu") == pytest.approx(500)
    rows = [row.model_dump(mode="json") for row in derived.rows]
    bundles.edit(attempt, "point.json", lambda content: content.update(metrics=rows))
    assert differences(attempt) == []
    pq.write_table(slice_of(400.0), attempt / "telemetry.parquet")
    bundles.reseal(attempt)
    assert any(line.startswith("energy_j (full): ") for line in differences(attempt))


def test_the_warehouse_says_which_device(settings: Settings, bundles: Any, ask: Any) -> None:
    """Telemetry of two devices lands under its device; a file of the first form has none."""
    plan = bundles.make_plan([(bundles.LaunchDef(gpus=2, topology="tp2", sku="h200"), [bundles.PointDef(4)])])
    run = bundles.make_run(settings.store, plan)
    launch = next(run.glob("_launch/*"))
    pq.write_table(telemetry([(1.0, "0", 500.0), (1.0, "1", 600.0)]), launch / "telemetry.parquet")
    bundles.reseal(launch)
    bundles.make_run(settings.store, plan, "20261202T020000Z-demo-bbbbbb")
    ingest(settings)
    rows = ask("SELECT name, device, value FROM telemetry ORDER BY ALL")
    assert [row for row in rows if row[1] is not None] == [(POWER, "0", 500.0), (POWER, "1", 600.0)]
    assert {row[0] for row in rows if row[1] is None} == {"server_rss_bytes"}
