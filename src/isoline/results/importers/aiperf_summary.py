"""AIPerf's exports as foreign points: the summary, and its per-request export where that is beside it.

With the per-request export everything is derived anew by the reader and the derivation that our own
runs go through. From the summary alone its own statistics are taken: ``inter_token_latency`` is our
TPOT, ``inter_chunk_latency`` our ICL.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from isoline.errors import IsolineError
from isoline.results.importers.aiperf import PER_REQUEST, SUMMARY, read_aiperf
from isoline.results.importers.foreign import (
    ForeignError,
    ForeignFile,
    ForeignPoint,
    Found,
    load_json,
    moment,
    number,
    text,
    whole,
)
from isoline.results.importers.statistics import nested, put, put_interactivity, put_times
from isoline.results.metrics.derive import derive

CLIENT = "aiperf"

_TIMES = (
    (("time_to_first_token", "ttft"), "ttft"),
    (("time_to_first_output_token",), "ttfot"),
    (("request_latency",), "e2el"),
    (("inter_token_latency",), "tpot"),
    (("inter_chunk_latency",), "icl"),
)


def read(file: ForeignFile) -> Iterator[Found]:
    """The one run of an export.

    :raises ForeignError: when the per-request export beside it cannot be read.
    """
    document = load_json(file.content)
    blocks = document.get("records") if isinstance(document.get("records"), Mapping) else document
    config = _mapping(document, "input_config")
    point = ForeignPoint(0, {"input_config": config, **_small(blocks)}, CLIENT)
    names = _mapping(config, "endpoint").get("model_names")
    point.model = text(names[0]) if isinstance(names, list) and names else None
    _put_load(point, config)
    point.started_at, point.ended_at = moment(document.get("start_time")), moment(document.get("end_time"))
    requests = next((data for name, data in file.parts.items() if name.endswith(PER_REQUEST)), None)
    if requests is None:
        _from_summary(point, blocks, document)
    else:
        _from_requests(point, file.content, requests)
    if document.get("was_cancelled") is True:
        raise ForeignError("not_a_point", "the run was cancelled")
    yield point


def _put_load(point: ForeignPoint, config: Mapping[str, Any]) -> None:
    loadgen, given = _mapping(config, "loadgen"), _mapping(config, "input")
    point.concurrency = whole(loadgen.get("concurrency"))
    if point.concurrency is None:
        point.rate = number(loadgen.get("request_rate"))
    trace = text(given.get("public_dataset")) or text(given.get("file"))
    scenario = text(config.get("scenario"))
    if trace or scenario:
        point.scenario_kind = "trace"
        point.scenario = "-".join(name.rpartition("/")[2] for name in (scenario, trace) if name)
        return
    prompt = _mapping(given, "prompt")
    point.isl = whole(_mapping(prompt, "input_tokens").get("mean"))
    point.osl = whole(_mapping(prompt, "output_tokens").get("mean"))


def _from_summary(point: ForeignPoint, blocks: Mapping[str, Any], document: Mapping[str, Any]) -> None:
    for names, ours in _TIMES:
        block = next((blocks[name] for name in names if name in blocks), None)
        put_times(point, ours, nested(block), 1)
    put_interactivity(point, {})

    def one(name: str) -> float | None:
        return nested(blocks.get(name)).get("mean")

    for theirs, ours in (
        ("input_sequence_length", "input_tokens"),
        ("output_sequence_length", "output_tokens"),
    ):
        found = nested(blocks.get(theirs))
        for statistic in ("mean", "p50"):
            put(point, f"{ours}_{statistic}", found.get(statistic))
    point.window_s = one("benchmark_duration")
    for theirs, ours in (("total_isl", "input"), ("total_osl", "output")):
        total = one(theirs)
        if total is not None and point.window_s:
            point.system_tps[ours] = total / point.window_s
    if len(point.system_tps) == 2:
        point.system_tps["total"] = sum(point.system_tps.values())
    put(point, "request_rps", one("request_throughput"))
    point.completed = whole(one("request_count"))
    errors = sum(whole(entry.get("count")) or 0 for entry in document.get("error_summary") or [])
    point.failed = max(whole(one("error_request_count")) or 0, errors)
    if point.completed is not None:
        point.asked = point.completed + point.failed


def _from_requests(point: ForeignPoint, summary: bytes, requests: bytes) -> None:
    # The reader takes a folder, as `load` leaves it.
    with tempfile.TemporaryDirectory(prefix="isoline-import-") as name:
        folder = Path(name)
        (folder / SUMMARY).write_bytes(summary)
        (folder / PER_REQUEST).write_bytes(requests)
        try:
            export = read_aiperf(folder)
            found = derive(export.requests, gpus=1, concurrency=point.concurrency or 1)
        except (IsolineError, ValueError) as error:
            raise ForeignError("unreadable", f"{PER_REQUEST}: {error}") from None
    point.asked, point.completed, point.failed = (
        found.counts.asked,
        found.counts.completed,
        found.counts.failed,
    )
    for row in found.rows:
        if row.window != "full" or row.value is None:
            continue
        kind = row.name.removesuffix("_tps_per_gpu")
        if row.name != kind and kind in ("total", "output", "input"):
            point.system_tps[kind] = row.value  # derived for one GPU: that is the whole system
        elif "per_gpu" not in row.name:
            point.values[row.name] = row.value
    point.notes.append(f"derived from {point.completed} requests, as our own runs are")


def _small(blocks: Mapping[str, Any]) -> dict[str, Any]:
    """The blocks without the run's configuration, which is kept beside them."""
    return {name: block for name, block in blocks.items() if name != "input_config"}


def _mapping(block: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = block.get(name)
    return found if isinstance(found, Mapping) else {}
