"""The frontier of one model and scenario out of 100,000 and 1,000,000 points, beside pandas.

Points are those of a fleet: 5 models x 4 scenarios x 6 SKUs x 3 engines = 360 curves of 20 points, measured
night after night; the newest night is incomplete for every third curve. Asked is what `isoline frontier
--model M --scenario S` asks: of each curve its newest complete run, medians, the frontier of each.

Beside it the same answer by pandas, twice: from a Parquet file of the same rows with the filter pushed into
the reading, and with everything in memory before the clock starts. All three must find the same points. Each
is a process of its own; prints the median of 5 after one to warm up, the least, the first, the time of all
cores (which other programs change less) and the peak of memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from isoline.results.metrics.registry import HEADLINE
from isoline.results.warehouse.schema import BY_NAME

REPEATS = 5
SIZES = (100_000, 1_000_000)
MODELS = ("gpt-oss-120b", "deepseek-r1", "llama-3.3-70b", "qwen3-235b", "kimi-k2")
SCENARIOS = ("1k1k", "8k1k", "1k8k", "agentic")
SKUS = ("h100", "h200", "b200", "b300", "mi325x", "mi355x")
ENGINES = ("vllm", "sglang", "trtllm")
POINTS = 20
X, Y = "interactivity_p50_tps", "total_tps_per_gpu"
NIGHT = len(MODELS) * len(SCENARIOS) * len(SKUS) * len(ENGINES) * POINTS

Answer = set[tuple[str, str]]
"""(curve key, point id) of every point on a frontier."""


def night(number: int, last: int) -> pa.Table:
    """The points of one night, in the warehouse's columns."""
    random = np.random.default_rng([3, number])
    place = np.arange(NIGHT)
    curve, inside = place // POINTS, place % POINTS
    names = [np.array(values) for values in (MODELS, SCENARIOS, SKUS, ENGINES)]
    rest, chosen = curve, []
    for values in names:
        chosen.append(values[rest % len(values)])
        rest = rest // len(values)
    run = run_id(number)
    topology, level = inside // 10, 2 ** (inside % 10)
    point = [f"c{c}.tp{2 + 2 * t}.c{k}.r1" for c, t, k in zip(curve, topology, level, strict=True)]
    key = [f"{value:016x}" for value in curve]
    slow = 1.0 + level / 64
    columns: dict[str, Any] = {name: 100 * random.random(NIGHT) for name in HEADLINE}
    columns[X] = 200 / slow * random.uniform(0.97, 1.03, NIGHT)
    columns[Y] = (800 + 200 * topology) * level / slow * random.uniform(0.97, 1.03, NIGHT)
    columns |= dict(zip(("model", "scenario", "sku", "engine"), chosen, strict=True))
    broken = (number == last) & (curve % 3 == 0) & (inside == 7)
    columns |= {"point_id": point, "curve_key": key, "series_key": point, "point_digest": point}
    columns |= {
        "concurrency": level,
        "gpus": 2 + 2 * topology,
        "topology": [f"tp{2 + 2 * t}" for t in topology],
    }
    columns["verdict"] = np.where(broken, "infra_error", "valid")
    same: dict[str, Any] = {
        "run_id": run,
        "measured_in": run,
        "sweep": "weekly",
        "recipe_id": "m/recipe",
        "weight_precision": "fp8",
        "kv_precision": "fp8",
        "scenario_kind": "fixed_length",
        "scenario_version": 1,
        "kind": "measured",
        "source": "own",
        "accuracy_state": "passed",
        "window": "full",
        "got": True,
        "official": True,
        "repetition": 1,
        "attempts": 1,
        "counting_attempt": 1,
        "marks": [],
        "reasons": [],
        "started_at": started(number),
        "ended_at": started(number),
    }
    table = BY_NAME["points"]
    arrays = []
    for field in table.arrow:
        value = columns.get(field.name, [same.get(field.name)] * NIGHT)
        arrays.append(pa.array(value, field.type, from_pandas=True))
    return pa.Table.from_arrays(arrays, schema=table.arrow)


def started(number: int) -> datetime:
    """When a night began."""
    return datetime(2025, 1, 1, 2) + timedelta(days=number)


def run_id(number: int) -> str:
    """The run of a night."""
    return f"{started(number):%Y%m%dT%H%M%SZ}-weekly-{number:06x}"


def make(folder: Path, count: int) -> int:
    """Write a warehouse and a Parquet file of so many points; returns how many there are."""
    from isoline.results.warehouse.file import insert, open_writer

    nights = -(-count // NIGHT)
    runs = BY_NAME["runs"]
    rows = [
        {
            **dict.fromkeys(runs.names),
            "run_id": run_id(number),
            "sweep": "weekly",
            "published": True,
            "started_at": started(number),
            "finished_at": started(number) + timedelta(hours=3),
        }
        for number in range(nights)
    ]
    with (
        open_writer(folder / "warehouse.duckdb") as con,
        pq.ParquetWriter(folder / "points.parquet", BY_NAME["points"].arrow) as file,
    ):
        insert(con, runs, runs.rows(rows))
        for number in range(nights):
            points = night(number, nights - 1)
            insert(con, BY_NAME["points"], points)
            file.write_table(points)
    return nights * NIGHT


def ours(folder: Path) -> Callable[[], Answer]:
    """The warehouse: opened anew each time, as a command does."""
    from isoline.analysis.curves import curve_table
    from isoline.results.warehouse.file import open_reader
    from isoline.results.warehouse.snapshots import snapshot_points

    def answer() -> Answer:
        con = open_reader(folder / "warehouse.duckdb")
        try:
            points = snapshot_points(
                con, metrics={X, Y, "ttft_p50_ms"}, model=MODELS[0], scenario=SCENARIOS[0]
            )
        finally:
            con.close()
        return {(row["curve_key"], row["point_id"]) for row in curve_table(points, X, Y) if row["frontier"]}

    return answer


_NEEDED = ["model", "scenario", "curve_key", "run_id", "point_id", "point_digest", "verdict", X, Y]


def with_pandas(frame: Any) -> Answer:
    """Of each curve the newest run whose points all have a verdict; medians; the running maximum."""
    ended = ~frame["verdict"].isin(["infra_error", "cancelled"]) & frame["verdict"].notna()
    whole = ended.groupby([frame["curve_key"], frame["run_id"]], observed=True).all()
    newest = whole[whole].reset_index().groupby("curve_key")["run_id"].max()  # run ids sort by time
    chosen = frame[frame["run_id"] == frame["curve_key"].map(newest)]
    valid = chosen[chosen["verdict"] == "valid"]
    by_point = valid.groupby(["curve_key", "point_digest"], as_index=False)
    medians = by_point.agg({X: "median", Y: "median", "point_id": "first"})
    found: Answer = set()
    for key, curve in medians.groupby("curve_key"):
        ordered = curve.sort_values([X, Y], ascending=False, kind="stable")
        before = ordered[Y].cummax().shift(fill_value=-np.inf)
        found |= {(str(key), str(name)) for name in ordered.loc[ordered[Y] > before, "point_id"]}
    return found


def parquet(folder: Path) -> Callable[[], Answer]:
    """pandas on the Parquet file: only the columns and rows that are needed are read."""
    import pandas as pd

    filters = [("model", "==", MODELS[0]), ("scenario", "==", SCENARIOS[0])]
    return lambda: with_pandas(pd.read_parquet(folder / "points.parquet", columns=_NEEDED, filters=filters))


def memory(folder: Path) -> Callable[[], Answer]:
    """pandas with every row in memory before the clock starts, of the needed columns only."""
    import pandas as pd

    everything = pd.read_parquet(folder / "points.parquet", columns=_NEEDED)

    def answer() -> Answer:
        chosen = (everything["model"] == MODELS[0]) & (everything["scenario"] == SCENARIOS[0])
        return with_pandas(everything[chosen])

    return answer


WAYS: dict[str, Callable[[Path], Callable[[], Answer]]] = {
    "isoline": ours,
    "pandas, Parquet": parquet,
    "pandas, in memory": memory,
}


def child(way: str, folder: Path) -> None:
    """Measure one way and print it as JSON."""
    answer = WAYS[way](folder)
    times, cores = [], []
    for _ in range(REPEATS + 1):
        begin, cpu = time.perf_counter(), time.process_time()
        found = answer()
        times.append(time.perf_counter() - begin)
        cores.append(time.process_time() - cpu)
    # Not ru_maxrss: that begins at what the parent had when it forked.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak_mb = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    row: dict[str, Any] = {"first_s": times[0], "median_s": median(times[1:]), "least_s": min(times[1:])}
    row |= {"cpu_s": median(cores[1:]), "peak_mb": peak_mb, "found": sorted(found)}
    print(json.dumps(row))


def measure(count: int) -> None:
    """Print one size."""
    with tempfile.TemporaryDirectory(prefix="isoline-bench-") as name:
        folder = Path(name)
        made = make(folder, count)
        sizes = {path.name: path.stat().st_size / 1e6 for path in folder.iterdir()}
        print(
            f"{made:,} points ({made // NIGHT} nights); warehouse {sizes['warehouse.duckdb']:.0f} MB, "
            f"Parquet {sizes['points.parquet']:.0f} MB"
        )
        answers = []
        for way in WAYS:
            done = subprocess.run(
                [sys.executable, __file__, way, name], check=True, capture_output=True, text=True
            )
            row = json.loads(done.stdout)
            answers.append(row["found"])
            print(
                f"  {way:<18} median {row['median_s'] * 1e3:6.1f} ms  least {row['least_s'] * 1e3:6.1f}  "
                f"first {row['first_s'] * 1e3:6.1f}  of the processor {row['cpu_s'] * 1e3:6.1f}  "
                f"peak {row['peak_mb']:4.0f} MB  {len(row['found'])} points on frontiers"
            )
        if any(found != answers[0] for found in answers):
            sys.exit("the three find different points")


def main() -> None:
    """Print each size; exit 1 where the ways disagree."""
    print(f"the frontier of one model and scenario, median of {REPEATS}")
    for count in [int(text) for text in sys.argv[1:]] or SIZES:
        measure(count)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in WAYS:
        child(sys.argv[1], Path(sys.argv[2]))
    else:
        main()
