"""A warehouse made of the real schema, with a small fleet in it; and the served page."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from isoline.dashboard.config import Look, load_look
from isoline.dashboard.data import Source
from isoline.dashboard.serve import bind, close
from isoline.results.identity import CURVE_FIELDS, curve_key
from isoline.results.metrics.registry import HEADLINE, METRICS
from isoline.results.warehouse.file import insert, open_writer
from isoline.results.warehouse.schema import BY_NAME
from isoline.settings import Settings

RUN = "20261201T020000Z-demo-aaaaaa"
OLDER_RUN = "20261130T020000Z-demo-bbbbbb"

CURVE: dict[str, Any] = {
    "model": "smollm2-135m-instruct",
    "model_revision": "main",
    "sku": "cpu",
    "engine": "llamacpp",
    "weight_precision": "q4_1",
    "kv_precision": "f16",
    "scenario": "demo-short",
    "scenario_version": 1,
    "dataset_digest": "d" * 64,
    "speculative": "none",
    "kv_offload": "none",
    "deployment_class": "single_node",
    "client_class": "shared-cpu",
    "kind": "measured",
    "source": "own",
}

SPEEDS = {1: (58.0, 19.0), 2: (72.0, 14.5), 4: (78.0, 9.0), 8: (82.0, 5.4)}
"""Concurrency: (total tokens/s/GPU, interactivity p50)."""


def metrics_of(total: float, speed: float, concurrency: int) -> dict[str, float | None]:
    """Headline metrics of a point that is consistent in itself; p99 is absent, as with few requests."""
    values: dict[str, float | None] = dict.fromkeys(HEADLINE)
    for rank, percentile in enumerate((50, 75, 90, 95)):
        slower = 1 + 0.08 * rank
        tpot = 1000 / speed * slower
        ttft = 350.0 * concurrency**0.9 * slower
        values |= {
            f"tpot_p{percentile}_ms": tpot,
            f"itl_p{percentile}_ms": tpot,
            f"ttft_p{percentile}_ms": ttft,
            f"e2el_p{percentile}_ms": ttft + 63 * tpot,
            f"interactivity_p{percentile}_tps": 1000 / tpot,
            f"e2e_interactivity_p{percentile}_tps": 64_000 / (ttft + 63 * tpot),
        }
    # Output throughput peaks at 4: a frontier over it is another one than that over the total.
    output = total / 3 if concurrency < 8 else total / 3.4
    return values | {
        "total_tps_per_gpu": total,
        "output_tps_per_gpu": output,
        "input_tps_per_gpu": total - output,
        "request_rps": output / 64,
        "failed_share": 0.0,
    }


def point_row(
    concurrency: int,
    repetition: int = 1,
    *,
    run_id: str = RUN,
    recipe_id: str = "smollm2-135m/llamacpp-cpu-q4_1",
    topology: str = "tp1",
    gpus: int = 1,
    verdict: str | None = "valid",
    values: tuple[float, float] | None = None,
    curve: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One row of ``points``; ``values`` are (total throughput, interactivity p50)."""
    fields = CURVE | (curve or {})
    key = curve_key({name: fields[name] for name in CURVE_FIELDS})
    digest = sha256(f"{recipe_id} {topology} {concurrency} {key}".encode()).hexdigest()
    total, speed = values or SPEEDS[concurrency]
    got = verdict is not None
    measured = metrics_of(total, speed, concurrency) if verdict in ("valid", "partial") else {}
    row: dict[str, Any] = dict.fromkeys(BY_NAME["points"].names)
    row |= fields | {
        "run_id": run_id,
        "point_id": f"{recipe_id.replace('/', '.')}.{topology}.{fields['scenario']}.c{concurrency}"
        f".r{repetition}.{digest[:10]}",
        "point_digest": digest,
        "launch_digest": "1" * 64,
        "launch_id": "1111111111-1" if got else None,
        "counting_attempt": 1 if got else None,
        "measured_in": run_id,
        "attempts": 1 if got else 0,
        "got": got,
        "sweep": "demo",
        "pool": "local",
        "recipe_id": recipe_id,
        "recipe_digest": "2" * 64,
        "engine_version": "0.4",
        "scenario_kind": "fixed_length",
        "dataset": "demo-text",
        "topology": topology,
        "gpus": gpus,
        "concurrency": concurrency,
        "repetition": repetition,
        "seed": 7,
        "curve_key": key,
        "series_key": f"{key}.{topology}.c{concurrency}",
        "verdict": verdict,
        "reasons": [],
        "accuracy_state": "passed" if got else None,
        "official": verdict == "valid",
        "marks": [],
        "started_at": datetime(2026, 12, 1, 2, 0),
        "ended_at": datetime(2026, 12, 1, 2, 0) + timedelta(seconds=20),
        "asked": 40 if got else None,
        "completed": 40 if got else None,
        "failed": 0 if got else None,
        "window": "full" if got else None,
    }
    return row | dict.fromkeys(HEADLINE) | measured | more


def write_warehouse(path: Path, points: list[dict[str, Any]], *, quarantined: int = 0) -> None:
    """Write ``points`` and what belongs to them through the real writer, which makes the read copy."""
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in BY_NAME}
    tables["points"] = points
    for run_id in sorted({row["run_id"] for row in points}):
        of_run = [row for row in points if row["run_id"] == run_id]
        got = sum(row["got"] for row in of_run)
        row = dict.fromkeys(BY_NAME["runs"].names) | {
            "run_id": run_id,
            "sweep": "demo",
            "started_at": datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ"),
            "expected": len(of_run),
            "got": got,
            "missing": len(of_run) - got,
            "complete": got == len(of_run),
        }
        tables["runs"].append(row)
    for point in points:
        if point["got"]:
            _details(tables, point)
    for number in range(quarantined):
        row = dict.fromkeys(BY_NAME["quarantine"].names) | {"path": f"broken-{number}", "reason": "no plan"}
        tables["quarantine"].append(row)
    with open_writer(path) as con:
        for name, table in BY_NAME.items():
            con.execute(f'DELETE FROM "{name}"')
            insert(con, table, table.rows(tables[name]))


def _details(tables: dict[str, list[dict[str, Any]]], point: dict[str, Any]) -> None:
    who = {"run_id": point["run_id"], "point_id": point["point_id"], "attempt": 1}

    def add(table: str, **values: Any) -> None:
        tables[table].append(dict.fromkeys(BY_NAME[table].names) | who | values)

    answers = [{"id": "q1", "text": "5", "correct": True, "error": None}]
    canary = {"asked": 1, "correct": 1, "concurrency": point["concurrency"], "answers": answers}
    details = ["seen by the test" for _ in point["reasons"]]
    add("attempts", verdict=point["verdict"], reason_details=details, canary=json.dumps(canary))
    for name in HEADLINE:
        if point[name] is not None:
            unit = METRICS[name].unit
            add("metrics", name=name, window="full", value=point[name], unit=unit, n=40, note="")
    accuracy = {"n": 50, "correct": 17, "reference": 0.33, "interval_low": 0.2, "interval_high": 0.5}
    add("accuracy", task="word-problems", state="passed", concurrency=point["concurrency"], **accuracy)
    for second, (name, took) in enumerate((("reset", 0.1), ("warmup", 2.0), ("load", 15.2), ("canary", 1.4))):
        moment = point["started_at"] + timedelta(seconds=second)
        add("phases", name=name, duration_s=took, outcome="ok", started_at=moment)
    lock = {
        "schema_version": 1,
        "launch": {"argv": ["serve", "--port", "{port}"]},
        "fingerprint": {"hostname": "node-of-the-test"},
    }
    add("locks", lock=json.dumps(lock))


def fleet() -> list[dict[str, Any]]:
    """A demo curve with each kind of point, and two curves of another SKU and precision."""
    rows = [point_row(concurrency) for concurrency in SPEEDS]
    rows[3] = point_row(8, 1, values=(81.0, 5.2))
    rows.append(point_row(8, 2, values=(83.0, 5.6)))
    rows.append(point_row(2, topology="tp1-slow", values=(60.0, 12.0)))
    rows.append(
        point_row(
            4,
            topology="tp1-part",
            verdict="partial",
            values=(80.0, 8.5),
            official=False,
            reasons=["failed_requests"],
        )
    )
    rows.append(
        point_row(
            1,
            topology="tp1-new",
            values=(50.0, 21.0),
            official=False,
            unofficial_why="recipe is unverified",
            marks=["unverified"],
        )
    )
    rows.append(point_row(8, topology="tp1-bad", verdict="invalid", reasons=["server_died"]))
    h200 = {"sku": "h200", "engine": "vllm", "weight_precision": "fp8"}
    for concurrency, values in {1: (300.0, 90.0), 2: (520.0, 80.0), 4: (800.0, 61.0)}.items():
        rows.append(point_row(concurrency, recipe_id="smollm2-135m/vllm-h200-fp8", values=values, curve=h200))
    b200 = {"sku": "b200", "engine": "vllm", "weight_precision": "fp4"}
    for concurrency, values in {1: (420.0, 110.0), 2: (700.0, 95.0), 4: (1100.0, 70.0)}.items():
        rows.append(point_row(concurrency, recipe_id="smollm2-135m/vllm-b200-fp4", values=values, curve=b200))
    trace = {"scenario": "demo-trace", "dataset_digest": "e" * 64}
    for concurrency in (1, 4):
        rows.append(point_row(concurrency, curve=trace, scenario_kind="trace"))
    return rows


@pytest.fixture
def warehouse_path(tmp_path: Path) -> Path:
    """Where a test's warehouse lies."""
    return tmp_path / "results" / "warehouse.duckdb"


@pytest.fixture(scope="session")
def make_point() -> Callable[..., dict[str, Any]]:
    """:func:`point_row`."""
    return point_row


@pytest.fixture(scope="session")
def make_warehouse() -> Callable[..., None]:
    """:func:`write_warehouse`."""
    return write_warehouse


@pytest.fixture(scope="session")
def make_fleet() -> Callable[[], list[dict[str, Any]]]:
    """:func:`fleet`."""
    return fleet


@pytest.fixture
def source(warehouse_path: Path) -> Source:
    """A reader of a warehouse with the fleet in it."""
    write_warehouse(warehouse_path, fleet(), quarantined=2)
    return Source(warehouse_path, 10.0)


@pytest.fixture(scope="session")
def look(project_root: Path) -> Look:
    """The palette and presets of the project."""
    return load_look(project_root / "dashboard")


def make_settings(folder: Path, project_root: Path) -> Settings:
    """Settings of a project of its own with the real ``dashboard/`` folder."""
    shutil.copytree(project_root / "dashboard", folder / "dashboard")
    return Settings(
        project=folder,
        store=folder / "store",
        warehouse=folder / "results" / "warehouse.duckdb",
        state=folder / ".isoline",
        aiperf_bin="",
        uv_bin="",
        query_timeout_s=10.0,
    )


@pytest.fixture
def settings(tmp_path: Path, project_root: Path) -> Settings:
    """Settings of an empty project in a temporary folder."""
    return make_settings(tmp_path, project_root)


@pytest.fixture
def serving() -> Iterator[Callable[[Settings], str]]:
    """``serving(settings)`` serves the page on a free port and gives its address; ended afterwards."""
    servers = []

    def start(settings: Settings) -> str:
        server = bind(settings, "127.0.0.1", 0)

        def run() -> None:
            # It is closed from another thread, maybe while it waits on its sockets.
            with contextlib.suppress(OSError):
                server.run()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.effective_port}"

    yield start
    for server, thread in servers:
        close(server)
        thread.join(timeout=10)


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]
