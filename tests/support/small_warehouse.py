"""A warehouse filled row by row, for the questions that read curves of several runs."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from isoline.results.warehouse.file import insert, open_writer
from isoline.results.warehouse.schema import BY_NAME


def run_id(night: int, sweep: str = "nightly") -> str:
    """The run of a night: ids sort by time."""
    at = datetime(2026, 10, 1) + timedelta(days=night)
    return f"{at:%Y%m%d}T000000Z-{sweep}-{night:06x}"


def run_row(name: str) -> dict[str, Any]:
    started = datetime.strptime(name[:15], "%Y%m%dT%H%M%S")
    return {
        **dict.fromkeys(BY_NAME["runs"].names),
        "run_id": name,
        "sweep": name.split("-")[1],
        "started_at": started,
        "published": "tryout" not in name,
    }


def point(name: str, concurrency: int, x: float | None, y: float | None, **more: Any) -> dict[str, Any]:
    """One row of ``points``: valid, official, of the curve in ``curve_key``."""
    curve = more.get("curve_key", "aaaa000000000001")
    repetition = more.get("repetition", 1)
    values = {
        **dict.fromkeys(BY_NAME["points"].names),
        "run_id": name,
        "measured_in": name,
        "counting_attempt": 1,
        "point_id": f"{curve[:4]}.tp1.short.c{concurrency}.r{repetition}",
        "point_digest": f"{curve}{concurrency}",
        "got": True,
        "recipe_id": "m/vllm-h200-fp8",
        "model": "m",
        "sku": "h200",
        "engine": "vllm",
        "engine_version": "1.0",
        "weight_precision": "fp8",
        "scenario": "short",
        "scenario_version": 1,
        "scenario_kind": "fixed_length",
        "topology": "tp1",
        "gpus": 1,
        "concurrency": concurrency,
        "repetition": repetition,
        "kind": "measured",
        "source": "own",
        "curve_key": curve,
        "series_key": f"{curve}.tp1.c{concurrency}",
        "verdict": "valid",
        "reasons": [],
        "marks": [],
        "accuracy_state": "passed",
        "official": True,
        "window": "full",
        "interactivity_p50_tps": x,
        "total_tps_per_gpu": y,
        **more,
    }
    assert values.keys() == set(BY_NAME["points"].names)
    return values


def lock_row(row: dict[str, Any], image: str, host: str, driver: str = "570") -> dict[str, Any]:
    """The lock of a point, with what may explain a step."""
    lock = {
        "launch": {"identity": {"image": {"digest": image, "ref": "r"}}},
        "fingerprint": {"driver": driver, "hostname": host},
        "resolved": {"client": {"aiperf": "0.13.0"}},
    }
    return {"run_id": row["run_id"], "point_id": row["point_id"], "attempt": 1, "lock": json.dumps(lock)}


def fill(project: Path, points: list[dict[str, Any]], locks: list[dict[str, Any]] | None = None) -> None:
    """Write the warehouse of a project."""
    runs = dict.fromkeys(row["run_id"] for row in points)
    with open_writer(project / "results" / "warehouse.duckdb") as con:
        insert(con, BY_NAME["runs"], BY_NAME["runs"].rows(run_row(name) for name in runs))
        insert(con, BY_NAME["points"], BY_NAME["points"].rows(points))
        insert(con, BY_NAME["locks"], BY_NAME["locks"].rows(locks or []))
