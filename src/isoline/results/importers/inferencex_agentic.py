"""InferenceX's agentic rows: the flat forms and the nested one. Pure.

Latencies are seconds, throughput is of all GPUs. Their ``itl`` and ``tpot`` are AIPerf's
``inter_token_latency`` of a request, which is our TPOT; ``ttlt`` is our end-to-end latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isoline.results.importers.foreign import ForeignPoint, boolean, number, text, whole
from isoline.results.importers.inferencex_agg import put_names, put_power, put_throughput, put_topology
from isoline.results.importers.statistics import (
    flat,
    nested,
    put,
    put_e2e_interactivity,
    put_interactivity,
    put_times,
)

CLIENT = "inferencex-agentic"


def read(row: Mapping[str, Any], index: int) -> ForeignPoint:
    """One agentic row, of any of the forms."""
    point = ForeignPoint(index, row, CLIENT, scenario_kind="trace")
    put_names(point, row)
    put_topology(point, row)
    dataset = row.get("dataset")
    loader = text(dataset.get("loader")) if isinstance(dataset, Mapping) else None
    point.scenario = text(row.get("scenario_type")) or "agentic"
    if loader is not None:
        point.scenario += f"-{loader}"
    point.kv_offload = _offload(row)
    if isinstance(row.get("request_metrics"), Mapping):
        _nested(point, row["request_metrics"])
        _put_cache(point, row.get("server_metrics"))
    else:
        _flat(point, row)
    _put_counts(point, row)
    put_power(point, row)
    return point


def _offload(row: Mapping[str, Any]) -> str | None:
    """``none`` where it is off, in the three ways that rows say it; else the backend or medium."""
    backend = row.get("kv_offload_backend")
    name = text(backend.get("name")) if isinstance(backend, Mapping) else text(backend)
    for key in ("kv_offloading", "offloading", "offload_mode"):
        said = text(row.get(key))
        if said is None:
            continue
        if said.lower() in ("none", "off") or boolean(said) is False:
            return "none"
        return "-".join([said.lower(), *([name.lower()] if name else [])])
    return None


def _nested(point: ForeignPoint, metrics: Mapping[str, Any]) -> None:
    latency = metrics.get("latency") or {}
    for theirs, ours in (("ttft", "ttft"), ("e2el", "e2el")):
        put_times(point, ours, nested(latency.get(theirs)), 1000)
    put_times(point, "tpot", nested(latency.get("tpot") or latency.get("itl")), 1000)
    put_interactivity(point, nested(latency.get("intvty")))
    norm = nested(latency.get("e2e_norm_intvty"))
    put_e2e_interactivity(point, {name: 1 / value for name, value in norm.items() if value > 0})
    tokens = metrics.get("tokens") or {}
    for theirs, ours in (("input", "input_tokens"), ("output_actual", "output_tokens")):
        found = nested(tokens.get(theirs))
        for statistic in ("mean", "p50"):
            put(point, f"{ours}_{statistic}", found.get(statistic))
    throughput = metrics.get("throughput") or {}
    per_gpu = throughput.get("per_gpu") or {}
    for kind in ("total", "output", "input"):
        put(point, f"{kind}_tps_per_gpu", per_gpu.get(f"{kind}_tput_tps"))
    point.window_s = number(throughput.get("duration_seconds"))


def _flat(point: ForeignPoint, row: Mapping[str, Any]) -> None:
    put_times(point, "ttft", flat(row, "ttft"), 1000)
    put_times(point, "e2el", flat(row, "e2el") or flat(row, "ttlt"), 1000)
    put_times(point, "tpot", flat(row, "tpot") or flat(row, "itl"), 1000)
    put_interactivity(point, flat(row, "intvty"))
    for theirs, ours in (("input_tokens", "input_tokens"), ("output_tokens_actual", "output_tokens")):
        found = flat(row, theirs)
        for statistic in ("mean", "p50"):
            put(point, f"{ours}_{statistic}", found.get(statistic))
    put_throughput(point, row)
    point.window_s = number(row.get("duration_seconds"))


def _put_counts(point: ForeignPoint, row: Mapping[str, Any]) -> None:
    """Requests: warm-up records are dropped on purpose and are no failures."""
    total, good = whole(row.get("num_requests_total")), whole(row.get("num_requests_successful"))
    if total is None or good is None:
        return
    point.completed = good
    account = row.get("request_accounting")
    if isinstance(account, Mapping):
        dropped, warm = (
            whole(account.get(name)) or 0 for name in ("records_dropped_total", "records_warmup_dropped")
        )
        point.failed = max(dropped - warm, 0)
        errors = whole(account.get("records_error_dropped")) or 0
        if errors > point.failed:
            point.notes.append(f"{errors - point.failed} errors were in the warm-up, which does not count")
    else:
        point.failed = max(total - good, 0)
    point.asked = good + point.failed


def _put_cache(point: ForeignPoint, server: Any) -> None:
    """The share of input tokens that came from a cache: of GPU and outside together, never summed twice."""
    cache = server.get("cache") if isinstance(server, Mapping) else None
    share = number(cache.get("overall_cache_hit_rate")) if isinstance(cache, Mapping) else None
    if share is not None and 0 <= share <= 1:
        put(point, "cache_hit_share", share)
