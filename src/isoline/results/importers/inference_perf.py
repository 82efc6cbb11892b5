"""inference-perf's lifecycle metrics: one file for each stage, and a summary. Pure.

Times are seconds. It names no model, engine or SKU: they have to be given. The summary mixes stages
of several rates and is no point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from isoline.results.importers.foreign import (
    ForeignError,
    ForeignFile,
    ForeignPoint,
    Found,
    load_json,
    number,
    whole,
)
from isoline.results.importers.statistics import (
    nested,
    put,
    put_e2e_interactivity,
    put_interactivity,
    put_times,
)

CLIENT = "inference-perf"


def read(file: ForeignFile) -> Iterator[Found]:
    """The one stage of a file.

    :raises ForeignError: ``not_a_point`` for a summary over stages.
    """
    document = load_json(file.content)
    load, good = document["load_summary"], document["successes"]
    if not isinstance(load, Mapping) or not isinstance(good, Mapping):
        raise ForeignError("unreadable", "load_summary and successes are no objects")
    rate = number(load.get("requested_rate"))
    if rate is None:
        raise ForeignError("not_a_point", "a summary over stages of several rates")
    point = ForeignPoint(0, document, CLIENT, rate=rate)
    point.completed, point.asked = whole(good.get("count")), whole(load.get("count"))
    failures = document.get("failures")
    point.failed = whole(failures.get("count")) if isinstance(failures, Mapping) else None
    latency = good.get("latency")
    if isinstance(latency, Mapping):
        _put_latency(point, latency)
    _put_throughput(point, good)
    yield point


def _put_latency(point: ForeignPoint, latency: Mapping[str, Any]) -> None:
    for theirs, ours in (
        ("time_to_first_token", "ttft"),
        ("time_per_output_token", "tpot"),
        ("inter_token_latency", "icl"),
        ("request_latency", "e2el"),
    ):
        put_times(point, ours, nested(latency.get(theirs)), 1000)
    put_interactivity(point, {})
    put_e2e_interactivity(point, nested(latency.get("normalized_time_per_output_token")))


def _put_throughput(point: ForeignPoint, good: Mapping[str, Any]) -> None:
    throughput = good.get("throughput")
    if isinstance(throughput, Mapping):
        for kind in ("total", "output", "input"):
            value = number(throughput.get(f"{kind}_tokens_per_sec"))
            if value is not None:
                point.system_tps[kind] = value
        put(point, "request_rps", throughput.get("requests_per_sec"))
    for theirs, ours in (("prompt_len", "input_tokens"), ("output_len", "output_tokens")):
        found = nested(good.get(theirs))
        for statistic in ("mean", "p50"):
            put(point, f"{ours}_{statistic}", found.get(statistic))
