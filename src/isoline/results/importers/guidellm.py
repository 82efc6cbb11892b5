"""guidellm's reports: one row for each benchmark; the v2 form and the older ones. Pure.

Its inter-token latency is our TPOT. Its "time per output token" is left out: it counts the first
token's time in one version and not in the other. Requests that were cut off at the time limit are
``incomplete`` there and no failures.
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
    moment,
    number,
    text,
    whole,
)
from isoline.results.importers.statistics import nested, put, put_interactivity, put_times

CLIENT = "guidellm"


def read(file: ForeignFile) -> Iterator[Found]:
    """The benchmarks of a report.

    :raises ForeignError: ``no_rows`` for a report without any.
    """
    benchmarks = load_json(file.content).get("benchmarks")
    if not isinstance(benchmarks, list) or not benchmarks:
        raise ForeignError("no_rows", "no benchmark in the report")
    for index, benchmark in enumerate(benchmarks):
        if isinstance(benchmark, Mapping) and isinstance(benchmark.get("metrics"), Mapping):
            yield _point(benchmark, index)
        else:
            yield ForeignError("not_a_point", "a benchmark without metrics", index)


def _point(benchmark: Mapping[str, Any], index: int) -> ForeignPoint:
    metrics = benchmark["metrics"]
    config = _mapping(benchmark, "config") or _mapping(benchmark, "args")
    # Per-request records can be gigabytes; the file is kept, they are not kept a second time.
    raw = {key: value for key, value in benchmark.items() if key not in ("requests", "metrics")}
    point = ForeignPoint(index, {**raw, "metrics": _successful_all(metrics)}, CLIENT)
    worker = _mapping(benchmark, "worker")
    point.model = text(worker.get("backend_model")) or text(_mapping(config, "backend").get("model"))
    _put_strategy(point, _mapping(config, "strategy"))
    _put_counts(point, metrics.get("request_totals") or benchmark.get("request_totals"))
    for theirs, ours in (("time_to_first_token_ms", "ttft"), ("inter_token_latency_ms", "tpot")):
        put_times(point, ours, nested(_successful(metrics, theirs)), 1)
    put_times(point, "ttfot", nested(_successful(metrics, "time_to_first_output_token_ms")), 1)
    put_times(point, "e2el", nested(_successful(metrics, "request_latency")), 1000)
    put_interactivity(point, {})
    _put_rates(point, metrics, number(benchmark.get("duration")))
    point.started_at, point.ended_at = moment(benchmark.get("start_time")), moment(benchmark.get("end_time"))
    return point


def _put_strategy(point: ForeignPoint, strategy: Mapping[str, Any]) -> None:
    kind = text(strategy.get("type_"))
    if kind == "synchronous":
        point.concurrency = 1
    elif kind == "concurrent":
        point.concurrency = whole(strategy.get("streams"))
    elif kind in ("constant", "poisson"):
        point.rate = number(strategy.get("rate"))
    point.identity["strategy"] = kind


def _put_counts(point: ForeignPoint, totals: Any) -> None:
    if not isinstance(totals, Mapping):
        return
    point.completed, point.failed = whole(totals.get("successful")), whole(totals.get("errored"))
    if point.completed is not None and point.failed is not None:
        point.asked = point.completed + point.failed
    if whole(totals.get("incomplete")):
        point.notes.append(f"{totals['incomplete']} requests were cut off at the end and are not counted")


def _put_rates(point: ForeignPoint, metrics: Mapping[str, Any], duration: float | None) -> None:
    point.window_s = duration
    for theirs, ours in (("prompt_token_count", "input"), ("output_token_count", "output")):
        block = _successful(metrics, theirs)
        found = nested(block)
        for statistic in ("mean", "p50"):
            put(point, f"{ours}_tokens_{statistic}", found.get(statistic))
        total = number(block.get("total_sum")) if isinstance(block, Mapping) else None
        # Its own tokens/s are means over moments of unequal length: tokens / window is what we say.
        if total is not None and duration:
            point.system_tps[ours] = total / duration
    if len(point.system_tps) == 2:
        point.system_tps["total"] = sum(point.system_tps.values())
    if point.completed is not None and duration:
        put(point, "request_rps", point.completed / duration)


def _mapping(block: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = block.get(name)
    return found if isinstance(found, Mapping) else {}


def _successful(metrics: Mapping[str, Any], name: str) -> Any:
    return _mapping(metrics, name).get("successful")


def _successful_all(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _successful(metrics, name) for name in metrics if _successful(metrics, name) is not None}
