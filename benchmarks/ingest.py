"""Ingest of 100,000 point records and of 5,000 sealed bundles: ours beside pandas with the same duties.

The records are one JSON-lines file of InferenceX rows, 1 % of them bad in one of four ways. Pandas reads
the same file, refuses the same rows for the same reasons, resolves the same names by the catalog, converts
units, tells repetitions apart and writes points, metrics and quarantine to a DuckDB file; it does not keep
the file, nor the original rows, nor can it be killed or told twice. Both must land the same numbers.

For bundles pandas hashes every file against its manifest, reads the records and request tables, derives
what it has one call for (percentiles of TTFT and end-to-end latency, tokens/s) and writes them; it checks
no identity and no plan.

`--records N`, `--bundles N` and `--repeats N` make it smaller. Beside the wall clock stands the processor
time of all processes: on a machine that does other things it is what can be compared.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from isoline.catalog.facts import load_catalog
from isoline.results.arrivals.bring import bring
from isoline.results.bundles import bundle
from isoline.results.foreign.store import Said
from isoline.results.warehouse import helpers
from isoline.results.warehouse.ingest import ingest
from isoline.settings import Settings, load_settings

PROJECT = Path(__file__).resolve().parents[1]
ENGINES, SKUS, LENGTHS = ("vllm", "sglang", "trt"), ("h200", "b200", "mi355x"), ((1024, 1024), (8192, 1024))
TIMES = ("ttft", "tpot", "itl", "e2el")
PERCENTILES = {"median": 50, "p90": 90, "p99": 99}


# --- what is measured -------------------------------------------------------------------------


def write_records(path: Path, count: int) -> None:
    """Rows as InferenceX publishes them; 1 % are cut off, of an unknown engine or model, or no point."""
    rng = random.Random(7)
    with path.open("w") as file:
        for number in range(count):
            isl, osl = LENGTHS[number // 9 % 2]
            output = rng.uniform(100, 4000)
            row: dict[str, Any] = {
                "hw": SKUS[number // 3 % 3],
                "infmax_model_prefix": "gptoss",
                "model": "openai/gpt-oss-120b",
                "framework": ENGINES[number % 3],
                "precision": "fp4",
                "spec_decoding": "none",
                "isl": isl,
                "osl": osl,
                "tp": (1, 2, 4, 8)[number // 18 % 4],
                "ep": 1,
                "dp_attention": False,
                "conc": number // 72 % 256 + 1,
                "image": f"image-{number // 18432}",
                "output_tput_per_gpu": output,
                "input_tput_per_gpu": output * isl / osl,
                "tput_per_gpu": output * (1 + isl / osl),
            }
            for name in TIMES:
                base = rng.uniform(0.005, 0.02)
                row |= {f"mean_{name}": base * 1.1, f"std_{name}": base / 10}
                row |= {f"median_{name}": base, f"p90_{name}": base * 1.3, f"p99_{name}": base * 1.6}
            row |= {f"{kind}_intvty": 1 / row[f"{kind}_tpot"] for kind in PERCENTILES}
            text = json.dumps(row)
            if number % 100 == 99:
                text = (
                    text[:-20],
                    json.dumps(row | {"framework": "engine-of-tomorrow"}),
                    json.dumps(row | {"infmax_model_prefix": "model-x", "model": "lab/model-x"}),
                    json.dumps({key: value for key, value in row.items() if key != "isl"}),
                )[number // 100 % 4]
            file.write(text + "\n")


def write_bundles(store: Path, count: int) -> int:
    """Runs of 31 bundles (a plan, 6 launches, 24 attempts), as the tests make them. Returns how many."""
    path = PROJECT / "tests" / "support" / "bundles.py"
    spec = importlib.util.spec_from_file_location("isoline_bench_bundles", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    bundle.sync, fsync = (lambda path: None), os.fsync  # scratch: it need not outlive a power cut
    os.fsync = lambda handle: None
    try:
        launches = [
            (made.LaunchDef(args=("--parallel", str(size))), [made.PointDef(c) for c in (1, 2, 4, 8)])
            for size in range(6)
        ]
        plan = made.make_plan(launches)
        runs = -(-count // 31)
        for number in range(runs):
            day = f"2026{number // 28 % 12 + 1:02d}{number % 28 + 1:02d}T{number // 336:02d}0000Z"
            made.make_run(store, plan, f"{day}-bench-{number:06x}")
    finally:
        os.fsync = fsync
    return runs * 31


def fresh(folder: Path, keep: str = "") -> Settings:
    """A project without a warehouse, and without a store but what ``keep`` names."""
    for name in ("recipes", "sweeps", "results"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for path in (folder / "results").iterdir():
        if path.name != keep:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return load_settings(folder)


# --- pandas -----------------------------------------------------------------------------------


def pandas_records(path: Path, target: Path) -> tuple[int, int, float]:
    """Records by pandas: (landed, refused, sum of all landed numbers)."""
    catalog = load_catalog(None)
    rows, refused = [], []
    with path.open("rb") as file:
        for number, line in enumerate(file):
            try:
                rows.append({**json.loads(line), "row": number})
            except ValueError as error:
                refused.append((number, f"unreadable: {error}"))
    frame = pd.DataFrame.from_records(rows)
    del rows
    frame["model"] = frame["infmax_model_prefix"].map(_names(catalog, "model", frame["infmax_model_prefix"]))
    frame["engine"] = frame["framework"].map(_names(catalog, "engine", frame["framework"]))
    frame["sku"] = frame["hw"].map(_names(catalog, "sku", frame["hw"]))
    for column in ("model", "engine", "sku", "isl"):
        bad = frame[frame[column].isna()]
        refused += [(row, f"{column} is unknown or missing") for row in bad["row"]]
        frame = frame[frame[column].notna()]
    numbers = pd.DataFrame(index=frame.index)
    for name, ours in zip(TIMES, ("ttft", "tpot", "icl", "e2el"), strict=True):
        numbers[f"{ours}_mean_ms"] = frame[f"mean_{name}"] * 1000
        for kind, percentile in PERCENTILES.items():
            numbers[f"{ours}_p{percentile}_ms"] = frame[f"{kind}_{name}"] * 1000
    for percentile in PERCENTILES.values():
        numbers[f"interactivity_p{percentile}_tps"] = 1000 / numbers[f"tpot_p{percentile}_ms"]
    for kind, column in (("total", "tput"), ("output", "output_tput"), ("input", "input_tput")):
        numbers[f"{kind}_tps_per_gpu"] = frame[f"{column}_per_gpu"]
    numbers = numbers.where(np.isfinite(numbers) & (numbers >= 0))
    sums = frame["output_tput_per_gpu"] + frame["input_tput_per_gpu"]
    off = (sums - frame["tput_per_gpu"]).abs() > 0.01 * frame["tput_per_gpu"]
    numbers.loc[off, ["output_tps_per_gpu", "input_tps_per_gpu"]] = np.nan
    points = frame[["row", "model", "engine", "sku", "precision", "isl", "osl", "tp", "conc", "image"]].copy()
    keys = ["model", "engine", "sku", "precision", "isl", "osl", "tp", "conc", "image"]
    points = points[~pd.concat([points[keys], numbers], axis=1).duplicated()]
    points["repetition"] = points.groupby(keys, sort=False).cumcount() + 1
    numbers = numbers.loc[points.index]
    text = points[keys].astype(str).agg("|".join, axis=1)
    points["point_id"] = [
        f"{hashlib.sha256(one.encode()).hexdigest()[:10]}.r{repetition}"
        for one, repetition in zip(text, points["repetition"], strict=True)
    ]
    speeds = numbers[[name for name in numbers if "_tps" in name]]
    points["verdict"] = np.where((speeds > 0).any(axis=1), "valid", "invalid")
    wide = pd.concat([points, numbers], axis=1)
    long = numbers.assign(point_id=points["point_id"]).melt("point_id", var_name="name").dropna()
    target.unlink(missing_ok=True)
    con = duckdb.connect(str(target))
    quarantine = pd.DataFrame(refused, columns=["row", "reason"])
    for table, content in (("points", wide), ("metrics", long), ("quarantine", quarantine)):
        con.register("incoming", content)
        con.execute(f"CREATE TABLE {table} AS SELECT * FROM incoming")
    con.close()
    return len(points), len(refused), float(long["value"].sum())


def _names(catalog: Any, kind: str, column: pd.Series[Any]) -> dict[str, str | None]:
    return {name: catalog.resolve(kind, name) for name in column.dropna().unique()}


def pandas_bundles(store: Path, target: Path) -> int:
    """Bundles by pandas. Returns how many are as their manifests say."""
    points, metrics, good = [], [], 0
    for manifest in store.rglob("MANIFEST.json"):
        folder = manifest.parent
        named = json.loads(manifest.read_bytes())
        for file in named["files"]:
            if hashlib.sha256((folder / file["path"]).read_bytes()).hexdigest() != file["sha256"]:
                break
        else:
            good += 1
        if named["kind"] != "point":
            continue
        record = json.loads((folder / "point.json").read_bytes())
        json.loads((folder / "lock.json").read_bytes())
        requests = pq.read_table(folder / "requests.parquet").to_pandas()
        done = requests[(requests["phase"] == "measured") & (requests["status"] == "ok")]
        ttft = (done["first_token_ns"] - done["intended_send_ns"]) / 1e6
        e2el = (done["last_token_ns"] - done["intended_send_ns"]) / 1e6
        span = (done["last_token_ns"].max() - done["intended_send_ns"].min()) / 1e9
        points.append({**{key: record[key] for key in ("run_id", "point_id", "attempt", "verdict")}})
        points[-1] |= {f"ttft_p{p}": v for p, v in zip((50, 90), np.percentile(ttft, (50, 90)), strict=True)}
        points[-1] |= {f"e2el_p{p}": v for p, v in zip((50, 90), np.percentile(e2el, (50, 90)), strict=True)}
        points[-1]["output_tps"] = done["output_tokens"].sum() / span
        metrics += [{**row, "point_id": record["point_id"]} for row in record["metrics"]]
    target.unlink(missing_ok=True)
    con = duckdb.connect(str(target))
    for table, content in (("points", pd.DataFrame(points)), ("metrics", pd.DataFrame(metrics))):
        con.register("incoming", content)
        con.execute(f"CREATE TABLE {table} AS SELECT * FROM incoming")
    con.close()
    return good


# --- measuring --------------------------------------------------------------------------------


def processor_s() -> float:
    """Processor time of this process and of all its children that have ended."""
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def timed(name: str, count: int, repeats: int, before: Callable[[], Any], call: Callable[[Any], Any]) -> Any:
    """Print median and range of wall clock and processor time; returns what the last call gave."""
    walls, processors, result = [], [], None
    for _ in range(repeats):
        given = before()
        begin, spent = time.perf_counter(), processor_s()
        result = call(given)
        walls.append(time.perf_counter() - begin)
        processors.append(processor_s() - spent)
    wall, busy = median(walls), median(processors)
    print(
        f"  {name:<16} {wall:6.1f} s ({min(walls):.1f} to {max(walls):.1f}), {count / wall:8,.0f}/s; "
        f"processor {busy:5.1f} s, {count / busy:8,.0f} per processor second",
        flush=True,
    )
    return result


def records(folder: Path, count: int, repeats: int) -> None:
    """The first half; exit 1 when the two land other numbers."""
    path = folder / "records.jsonl"
    write_records(path, count)
    print(f"{count:,} records in one file of {path.stat().st_size / 1e6:.0f} MB, 1 % bad")

    def ours(settings: Settings) -> tuple[int, int, float]:
        bring(settings.store, [str(path)], Said())
        report = ingest(settings)
        con = duckdb.connect(str(settings.warehouse), read_only=True)
        (total,) = con.execute("SELECT sum(value) FROM metrics").fetchone() or (0.0,)
        con.close()
        return sum(report.imported.rows.values()), len(report.quarantined), float(total)

    mine = timed("isoline", count, repeats, lambda: fresh(folder / "project"), ours)
    theirs = timed(
        "pandas", count, repeats, lambda: folder / "pandas.duckdb", lambda to: pandas_records(path, to)
    )
    print(f"  landed {mine[0]:,} and {theirs[0]:,}; refused {mine[1]:,} and {theirs[1]:,}")
    if mine[:2] != theirs[:2] or abs(mine[2] - theirs[2]) > 1e-9 * mine[2]:
        sys.exit(f"the two land other numbers: {mine}, {theirs}")


def bundles(folder: Path, count: int, repeats: int) -> None:
    """The second half."""
    settings = fresh(folder / "bundles")
    count = write_bundles(settings.store, count)
    print(f"{count:,} sealed bundles in {count // 31} runs")
    report = timed("isoline", count, repeats, lambda: fresh(folder / "bundles", "store"), ingest)
    again = timed("isoline, again", count, repeats, lambda: settings, ingest)
    target = folder / "pandas.duckdb"
    good = timed("pandas", count, repeats, lambda: target, lambda to: pandas_bundles(settings.store, to))
    if (report.ingested, again.unchanged, good, report.quarantined) != (count, count, count, []):
        sys.exit(f"not all landed: {report.ingested}, {again.unchanged}, {good}")


def main() -> None:
    """Print both halves."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--records", type=int, default=100_000)
    given.add_argument("--bundles", type=int, default=5_000)
    given.add_argument("--repeats", type=int, default=5)
    asked = given.parse_args()
    load = os.getloadavg()[0]
    print(f"{helpers.cores()} cores, load of the machine before: {load:.1f}; median of {asked.repeats}")
    with tempfile.TemporaryDirectory(prefix="isoline-bench-") as folder:
        if asked.records:
            records(Path(folder), asked.records, asked.repeats)
        if asked.bundles:
            bundles(Path(folder), asked.bundles, asked.repeats)


if __name__ == "__main__":
    main()
