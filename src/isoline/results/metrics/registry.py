"""The one registry of metrics (DESIGN 5.3): every stored number has its row here.

The warehouse takes its typed columns from it, the dashboard its labels and directions, and
``docs/metrics.md`` its table. A metric that is not here is neither derived nor stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

PERCENTILES: tuple[int, ...] = (50, 75, 90, 95, 99)
"""The percentiles that every scenario stores (linear interpolation)."""

Better = Literal["max", "min"]


@dataclass(frozen=True)
class Metric:
    """One metric.

    :param name: its name, with the unit at the end.
    :param unit: the unit as people write it.
    :param better: the direction that is better; None where neither is.
    :param headline: whether it is a typed column of the ``points`` table.
    :param definition: one line.
    :param family: the metric without its statistic (``ttft``), for selection by percentile.
    :param statistic: ``p50`` and so on, ``mean``, or "" where there is only one value.
    """

    name: str
    unit: str
    better: Better | None
    headline: bool
    definition: str
    family: str
    statistic: str = ""


_TIMES: tuple[tuple[str, bool, str], ...] = (
    ("ttft", True, "first token-bearing chunk (reasoning tokens count) - intended send"),
    ("ttfot", False, "first token-bearing chunk that is not reasoning - intended send"),
    ("e2el", True, "last token-bearing chunk - intended send"),
    (
        "tpot",
        True,
        "(e2el - ttft) / (output tokens - tokens of the first chunk); null for one-token outputs",
    ),
    (
        "itl",
        True,
        "gap between tokens: a chunk of k tokens after the first gives k gaps of gap / k",
    ),
    ("icl", False, "gap between two token-bearing chunks, as they came"),
)


def _times() -> Iterator[Metric]:
    for family, headline, text in _TIMES:
        for percentile in PERCENTILES:
            yield Metric(
                f"{family}_p{percentile}_ms",
                "ms",
                "min",
                headline,
                f"p{percentile} of: {text}",
                family,
                f"p{percentile}",
            )
        yield Metric(f"{family}_mean_ms", "ms", "min", headline, f"mean of: {text}", family, "mean")


def _interactivity() -> Iterator[Metric]:
    # No mean and no deviation: the mean of a reciprocal is not the reciprocal of a mean.
    for percentile in PERCENTILES:
        yield Metric(
            f"interactivity_p{percentile}_tps",
            "tokens/s/user",
            "max",
            True,
            f"1000 / tpot_p{percentile}_ms: {percentile} % of requests are at least this fast",
            "interactivity",
            f"p{percentile}",
        )
    for percentile in PERCENTILES:
        yield Metric(
            f"e2e_interactivity_p{percentile}_tps",
            "tokens/s/user",
            "max",
            True,
            f"1000 / p{percentile} of (e2el in ms / output tokens)",
            "e2e_interactivity",
            f"p{percentile}",
        )


def _one(
    name: str, unit: str, better: Better | None, headline: bool, definition: str, statistic: str = ""
) -> Metric:
    family = name.removesuffix(f"_{statistic}") if statistic else name
    return Metric(name, unit, better, headline, definition, family, statistic)


_SINGLE: tuple[Metric, ...] = (
    _one(
        "total_tps_per_gpu",
        "tokens/s/GPU",
        "max",
        True,
        "input + output tokens in the window / window / all allocated GPUs",
    ),
    _one(
        "output_tps_per_gpu",
        "tokens/s/GPU",
        "max",
        True,
        "output tokens in the window / window / all allocated GPUs",
    ),
    _one(
        "input_tps_per_gpu",
        "tokens/s/GPU",
        "max",
        True,
        "input tokens in the window, cached ones too / window / all allocated GPUs",
    ),
    _one(
        "uncached_input_tps_per_gpu",
        "tokens/s/GPU",
        "max",
        True,
        "input tokens that the server did not take from its cache / window / all allocated GPUs",
    ),
    _one(
        "cached_input_tps_per_gpu",
        "tokens/s/GPU",
        None,
        True,
        "input tokens that the server took from its cache / window / all allocated GPUs",
    ),
    _one(
        "sessions_per_gpu_hour",
        "sessions/GPU/h",
        "max",
        True,
        "sessions whose every turn completed, in the window / window in hours / all allocated GPUs",
    ),
    _one(
        "goodput_rps",
        "requests/s",
        "max",
        True,
        "completed requests that met all limits of the scenario / window; null without limits",
    ),
    _one(
        "goodput_rps_per_gpu",
        "requests/s/GPU",
        "max",
        True,
        "goodput_rps / all allocated GPUs",
    ),
    _one("request_rps", "requests/s", "max", True, "completed requests / window"),
    _one(
        "cache_hit_share",
        "share",
        None,
        True,
        "cached input tokens / input tokens, by the server's usage",
    ),
    _one("input_tokens_mean", "tokens", None, True, "mean input tokens a request (server usage)", "mean"),
    _one("output_tokens_mean", "tokens", None, True, "mean output tokens a request (server usage)", "mean"),
    _one("input_tokens_p50", "tokens", None, False, "median input tokens a request (server usage)", "p50"),
    _one("output_tokens_p50", "tokens", None, False, "median output tokens a request (server usage)", "p50"),
    _one(
        "reasoning_tokens_mean",
        "tokens",
        None,
        False,
        "mean reasoning tokens a request, part of output",
        "mean",
    ),
    _one("failed_share", "share", "min", True, "measured requests that failed / measured requests"),
    _one(
        "in_flight_mean",
        "requests",
        None,
        False,
        "mean requests in flight over the window (intended send to end)",
        "mean",
    ),
    _one("window_s", "s", None, False, "length of the window"),
    _one(
        "energy_j",
        "J",
        None,
        False,
        "measured energy of all allocated GPUs in the window; null where samples of power do not cover it",
    ),
    _one(
        "power_w_per_gpu",
        "W/GPU",
        None,
        True,
        "mean power of an allocated GPU: energy_j / window / all allocated GPUs",
    ),
    _one(
        "j_per_total_token",
        "J/token",
        "min",
        True,
        "energy_j / (input + output tokens in the window)",
    ),
    _one("j_per_output_token", "J/token", "min", True, "energy_j / output tokens in the window"),
    _one("j_per_input_token", "J/token", "min", False, "energy_j / input tokens in the window"),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in (*_times(), *_interactivity(), *_SINGLE)}
"""Every metric by name, in the order of display."""

HEADLINE: tuple[str, ...] = tuple(name for name, metric in METRICS.items() if metric.headline)
"""The typed columns of the ``points`` table, in order."""


@dataclass(frozen=True)
class Axes:
    """The two default axes of a curve: ``y`` against ``x``."""

    x: str
    y: str


AXES: dict[str, Axes] = {
    "fixed_length": Axes(x="interactivity_p50_tps", y="total_tps_per_gpu"),
    "trace": Axes(x="e2e_interactivity_p90_tps", y="output_tps_per_gpu"),
}
"""Default axes by scenario kind."""


def by_family(family: str) -> list[Metric]:
    """The metrics of one family, in order (for a choice of percentile)."""
    return [metric for metric in METRICS.values() if metric.family == family]


@dataclass(frozen=True)
class FromReading:
    """A metric that is computed from a reading of another one, with a price or a power of the SKU.

    It is never stored and never interpolated on its own (DESIGN 5.3).

    :param metric: its name, unit and direction; ``definition`` for people.
    :param of: the stored metric whose reading it is made of.
    :param needs: what else: ``usd`` ($ per GPU and hour) or ``kw`` (all-in kW per GPU).
    """

    metric: Metric
    of: str
    needs: Literal["usd", "kw"]


def _from_readings() -> Iterator[FromReading]:
    price = "$ per GPU-hour of the dated list and tier"
    for kind in ("total", "output", "input"):
        throughput = f"{kind}_tps_per_gpu"
        yield FromReading(
            _one(
                f"usd_per_m_{kind}_tokens",
                "$/M tokens",
                "min",
                False,
                f"{price} / ({throughput} × 0.0036): all cost charged to {kind} tokens",
            ),
            throughput,
            "usd",
        )
        yield FromReading(
            _one(
                f"rated_j_per_{kind}_token",
                "J/token",
                "min",
                False,
                f"all-in kW per GPU × 1000 / {throughput}: rated, not measured",
            ),
            throughput,
            "kw",
        )
    throughput = "total_tps_per_gpu"
    yield FromReading(
        _one("total_tokens_per_usd", "tokens/$", "max", False, f"{throughput} × 3600 / {price}"),
        throughput,
        "usd",
    )
    yield FromReading(
        _one("total_tps_per_mw", "tokens/s/MW", "max", False, f"{throughput} × 1000 / all-in kW per GPU"),
        throughput,
        "kw",
    )
    yield FromReading(
        _one("usd_per_session", "$/session", "min", False, f"{price} / sessions_per_gpu_hour"),
        "sessions_per_gpu_hour",
        "usd",
    )


FROM_READINGS: dict[str, FromReading] = {item.metric.name: item for item in _from_readings()}
"""The metrics that are made of readings, by name, in the order of display."""
