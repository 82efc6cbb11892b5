"""One JSON file for each concurrency: vLLM's ``bench serve`` and its forks, and Together's rows. Pure.

``bench serve`` writes ``median_ttft_ms``; a fork writes the same in seconds without a suffix. They
name neither engine, SKU nor topology: ``backend`` is the client's dialect. Their ITL are gaps between
chunks, which we call ICL; throughput is of the whole system.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isoline.results.importers.foreign import (
    ForeignError,
    ForeignPoint,
    Role,
    clean_keys,
    moment,
    number,
    one_role,
    stated_count,
    text,
    whole,
)
from isoline.results.importers.statistics import flat, put, put_interactivity, put_times

CLIENT = "vllm-bench"


def read(row: Mapping[str, Any], index: int) -> ForeignPoint:
    """One file of ``bench serve``.

    :raises ForeignError: when its times are of no known unit.
    """
    given = clean_keys(row)  # "request_goodput:" has a colon in it
    point = ForeignPoint(index, row, CLIENT)
    point.model = text(given.get("model_id"))
    point.concurrency = whole(given.get("max_concurrency"))
    point.rate = number(given.get("request_rate"))
    point.asked, point.completed = whole(given.get("num_prompts")), whole(given.get("completed"))
    if point.asked is not None and point.completed is not None:
        point.failed = max(point.asked - point.completed, 0)
    point.window_s = number(given.get("duration"))
    _put_times(point, given)
    _put_tokens(point, given)
    put(point, "request_rps", given.get("request_throughput"))
    put(point, "goodput_rps", given.get("request_goodput"))
    point.ended_at = moment(given.get("benchmark_end_time_unix")) or moment(given.get("date"))
    point.started_at = moment(given.get("benchmark_start_time_unix")) or point.ended_at
    point.identity |= {
        name: given[name] for name in ("burstiness", "tokenizer_id") if given.get(name) is not None
    }
    return point


def _put_times(point: ForeignPoint, given: Mapping[str, Any]) -> None:
    in_ms = any(f"{name}_ttft_ms" in given for name in ("mean", "median", "p99"))
    in_seconds = any(f"{name}_ttft" in given for name in ("mean", "median", "p99"))
    if in_ms and in_seconds:
        raise ForeignError("unreadable", "times with and without _ms in one row: of which unit?")
    suffix, factor = ("_ms", 1.0) if in_ms else ("", 1000.0)
    if in_seconds:
        _check_seconds(point, given)
        point.notes.append("times without a suffix are seconds")
    for theirs, ours in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "icl"), ("e2el", "e2el")):
        put_times(point, ours, flat(given, theirs, suffix), factor)
    put_interactivity(point, {})


def _check_seconds(point: ForeignPoint, given: Mapping[str, Any]) -> None:
    """No latency is longer than the run: where one is, it is not in seconds.

    :raises ForeignError: then.
    """
    longest = max((number(given.get(f"median_{name}")) or 0 for name in ("ttft", "e2el")), default=0)
    if point.window_s and longest > point.window_s:
        raise ForeignError(
            "unreadable", f"a median of {longest:g} in a run of {point.window_s:g} s: not seconds"
        )


def _put_tokens(point: ForeignPoint, given: Mapping[str, Any]) -> None:
    done = point.completed
    for kind in ("input", "output"):
        total = number(given.get(f"total_{kind}_tokens"))
        if total is None or not done:
            continue
        put(point, f"{kind}_tokens_mean", total / done)
        if point.window_s:
            point.system_tps[kind] = total / point.window_s
    if len(point.system_tps) == 2:
        point.system_tps["total"] = sum(point.system_tps.values())
    if whole(given.get("total_output_tokens")) == 0:
        point.completed = 0


def read_together(row: Mapping[str, Any], index: int) -> ForeignPoint:
    """One row with a block ``metrics`` in milliseconds and a block ``gpu`` with power.

    Throughput is of the whole system; ``n_gpus`` counts the GPUs of the machine, idle ones too.

    :raises ForeignError: when it says no lengths.
    """
    metrics = row.get("metrics")
    if not isinstance(metrics, Mapping):
        raise ForeignError("not_a_point", "no metrics")
    point = ForeignPoint(index, row, CLIENT)
    point.model, point.engine = text(row.get("model")), text(row.get("framework"))
    point.sku, point.precision = text(row.get("hw")), text(row.get("precision"))
    point.isl, point.osl = whole(row.get("isl")), whole(row.get("osl"))
    point.concurrency = stated_count(row, "conc")
    point.completed = whole(metrics.get("successful_requests"))
    tp = whole(row.get("tp"))
    if tp:
        point.topology = one_role(Role(tp=tp, ep=max(whole(row.get("ep")) or 1, 1)))
    for theirs, ours in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "icl"), ("e2el", "e2el")):
        put_times(point, ours, flat(metrics, theirs, "_ms"), 1)
    put_interactivity(point, {})
    put(point, "request_rps", metrics.get("request_throughput"))
    total, output = (number(metrics.get(f"{name}_token_throughput")) for name in ("total", "output"))
    if total is not None and output is not None:
        point.system_tps = {"total": total, "output": output, "input": total - output}
    point.started_at = moment(row.get("ts"))
    point.identity |= {
        name: row[name] for name in ("image", "profile", "tuning") if row.get(name) is not None
    }
    _put_power(point, row.get("gpu"))
    return point


def _put_power(point: ForeignPoint, gpu: Any) -> None:
    if not isinstance(gpu, Mapping) or point.topology is None:
        return
    seen, used = whole(gpu.get("n_gpus")), point.topology.gpus
    if seen != used:
        point.notes.append(f"power: {used} GPUs were used, but {seen} are in the mean; left out")
    else:
        put(point, "power_w_per_gpu", gpu.get("mean_power_per_gpu_w"))
        point.notes.append("power: the mean of the source's log, of which the window is not said")
