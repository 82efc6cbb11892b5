"""``within_run`` intervals of stored metrics, from the per-request table (DESIGN 5.3). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd
import pyarrow as pa

from isoline.analysis.frontier import Floats
from isoline.analysis.intervals import Interval, cut_waves, percentile, rate, within_run
from isoline.results.metrics import windows
from isoline.results.metrics.measured import Requests, lanes, measured
from isoline.results.metrics.registry import METRICS, Metric

Read = Callable[[str], pa.Table | None]
"""From the ``bundle_path`` of a point to its per-request table; None where it is gone."""

_TOKENS: dict[str, Callable[[Requests], Floats]] = {
    "total_tps_per_gpu": lambda r: r.input_tokens + r.output_tokens,
    "output_tps_per_gpu": lambda r: r.output_tokens,
    "input_tps_per_gpu": lambda r: r.input_tokens,
    "uncached_input_tps_per_gpu": lambda r: r.input_tokens - r.cached_tokens,
    "cached_input_tps_per_gpu": lambda r: r.cached_tokens,
    "request_rps": lambda r: np.ones_like(r.output_tokens),
}


def request_interval(
    table: pa.Table, metric: str, *, value: float, concurrency: int, window: str, seed: int = 0
) -> Interval | None:
    """The ``within_run`` interval of one metric of one attempt.

    :param table: per-request table; warm-up rows are left out.
    :param metric: a name of the registry.
    :param value: the stored value. Where tokens at the borders of a steady window make the
        resampled statistic differ from it, the interval is scaled to it.
    :param window: ``full`` or ``steady``.
    :returns: None for a metric that is no function of single requests, or with fewer than 2 waves.
    """
    requests = measured(table)
    start, chosen = 0.0, requests.ok.copy()
    if window == "steady":
        begin, end = lanes(requests)
        span = windows.steady_window(begin, end, concurrency, windows.bridge_s(begin, end))
        if span is None:
            return None
        start = span.start
        chosen &= (requests.last >= span.start) & (requests.last <= span.end)
    if metric in _TOKENS:
        # Not divided by the GPUs: the scaling to the stored value does that.
        rows = cut_waves(requests.last[chosen], _TOKENS[metric](requests)[chosen], start)
        statistic: Callable[[Floats], float] = rate
    else:
        found = _per_request(requests, METRICS[metric])
        if found is None:
            return None
        values, statistic = found
        order = np.argsort(requests.intended[chosen], kind="stable")
        rows = values[chosen][order]
    if not len(rows):
        return None
    whole = statistic(rows)
    interval = within_run(rows, statistic, concurrency=concurrency, seed=seed)
    if interval is None or not np.isfinite(whole) or whole == 0:
        return None
    scale = value / whole
    return Interval(interval.low * scale, interval.high * scale, interval.label, interval.n)


def _per_request(requests: Requests, metric: Metric) -> tuple[Floats, Callable[[Floats], float]] | None:
    """Values of single requests, and the statistic that makes the metric of them."""
    if not metric.statistic:
        return None
    ttft = requests.first - requests.intended
    e2el = requests.last - requests.intended
    after = requests.output_tokens - requests.first_chunk_tokens
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(after > 0, (e2el - ttft) / after, np.nan)
        per_token = np.where(requests.output_tokens > 0, e2el / requests.output_tokens, np.nan)
    values = {
        "ttft": ttft,
        "ttfot": requests.first_output - requests.intended,
        "e2el": e2el,
        "tpot": tpot,
        "interactivity": tpot,
        "e2e_interactivity": per_token,
    }.get(metric.family)
    if values is None:
        return None
    if metric.statistic == "mean":
        return values, lambda rows: float(np.nanmean(rows)) if np.isfinite(rows).any() else np.nan
    middle = percentile(float(metric.statistic.removeprefix("p")))
    if metric.family.endswith("interactivity"):
        return values, lambda rows: 1 / slow if (slow := middle(rows)) > 0 else np.nan
    return values, middle


def within_of(points: pd.DataFrame, metrics: Iterable[str], read: Read) -> dict[str, dict[str, Interval]]:
    """``within_run`` intervals of all points with one valid repetition, for ``curve_table``.

    :param points: rows of the warehouse's ``points``.
    :param metrics: names of the registry; columns that the rows lack are passed over.
    :param read: gives the per-request table of a ``bundle_path``, or None.
    :returns: by ``point_id``, then by metric.
    """
    valid = points[points["verdict"] == "valid"]
    single = valid[~valid.duplicated(["run_id", "point_digest"], keep=False)]
    names = [name for name in metrics if name in points]
    found: dict[str, dict[str, Interval]] = {}
    for row in single.to_dict("records"):
        table = read(row["bundle_path"]) if isinstance(row["bundle_path"], str) else None
        if table is None:
            continue
        for name in names:
            interval = None
            if pd.notna(row[name]):
                interval = request_interval(
                    table,
                    name,
                    value=float(row[name]),
                    concurrency=int(row["concurrency"]),
                    window=row["window"],
                )
            if interval:
                found.setdefault(row["point_id"], {})[name] = interval
    return found
