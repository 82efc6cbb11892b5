"""From the per-request table to every stored metric (DESIGN 5.3). Pure and vectorised.

Population: measured requests that completed without error. In the full window these are all of
them; in the steady window those whose last token lies in it. Failures are counted apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from isoline.errors import InputError
from isoline.results.bundles.records import Counts, MetricRow, WindowSpan
from isoline.results.metrics import windows
from isoline.results.metrics.energy import Power
from isoline.results.metrics.measured import NS, Bools, Requests, lanes, measured
from isoline.results.metrics.registry import METRICS, PERCENTILES
from isoline.results.metrics.windows import Floats, Span

WindowName = Literal["full", "steady"]

SLO_LIMITS: tuple[str, ...] = ("ttft_ms", "ttfot_ms", "tpot_ms", "e2el_ms")
"""Limits that a scenario may set on each request; all are upper limits in milliseconds."""

MIN_STEADY_COMPLETIONS = 30


@dataclass(frozen=True)
class Derived:
    """All numbers of one attempt.

    :param rows: every metric of the registry for the full window, and for the steady one where
        it is usable.
    :param windows: ``full`` and ``steady``; None where there is none.
    :param counts: measured requests.
    :param steady_usable: whether the steady window has enough completions and length.
    :param steady_note: why it is not, or "".
    """

    rows: list[MetricRow]
    windows: dict[str, WindowSpan | None]
    counts: Counts
    steady_usable: bool
    steady_note: str = ""

    def value(self, name: str, window: WindowName = "full") -> float | None:
        """The value of one metric; None where it is null or its window is not there."""
        for row in self.rows:
            if row.name == name and row.window == window:
                return row.value
        return None


def percentile_n(percentile: int) -> int:
    """The smallest n for which a percentile is stored: 1 / (1 - XX/100), and 100 for p99."""
    return -(-100 // (100 - percentile))


def token_gaps(times: Sequence[Floats], tokens: Sequence[Floats]) -> Floats:
    """Inter-token gaps of requests, seconds: k gaps of gap/k for each chunk of k after the first.

    :param times: of each request's chunks, of which there is at least one.
    :param tokens: in each of them.
    """
    if not times:
        return np.empty(0, dtype=np.float64)
    is_first = _is_first(times)
    all_tokens = np.concatenate(tokens)
    # A chunk of no token carries its gap over to the next chunk that has one.
    kept = is_first | (all_tokens > 0)
    after = ~is_first[kept][1:]
    counts = all_tokens[kept][1:][after].astype(np.int64)
    gaps = np.diff(np.concatenate(times)[kept])[after]
    return np.asarray(np.repeat(gaps / np.maximum(counts, 1), counts), dtype=np.float64)


def _is_first(times: Sequence[Floats]) -> Bools:
    """For the chunks of several requests in a row: whether one is the first of its request."""
    sizes = [one.size for one in times]
    found = np.zeros(sum(sizes), dtype=bool)
    found[np.cumsum([0, *sizes[:-1]])] = True
    return found


class _Rows:
    """Collects rows of one window; every metric of the registry gets exactly one."""

    def __init__(self, window: WindowName) -> None:
        self.window: WindowName = window
        self.rows: dict[str, MetricRow] = {}

    def add(self, name: str, value: float | None, n: int | None = None, note: str = "") -> None:
        if value is not None and not math.isfinite(value):
            value, note = None, note or "not_finite"
        self.rows[name] = MetricRow(
            name=name, window=self.window, value=value, unit=METRICS[name].unit, n=n, note=note
        )

    def distribution(self, family: str, values_ms: Floats, note: str = "", blank: bool = False) -> None:
        """Percentiles and mean of one family, milliseconds. ``blank``: all null, with the note."""
        values = values_ms[~np.isnan(values_ms)]
        n = int(values.size)
        for percentile, (value, why) in zip(PERCENTILES, _percentiles(values), strict=True):
            self.add(
                f"{family}_p{percentile}_ms", None if blank else value, n, note if blank else why or note
            )
        mean = float(values.mean()) if n and not blank else None
        self.add(f"{family}_mean_ms", mean, n, note)

    def done(self) -> list[MetricRow]:
        for name in METRICS:
            if name not in self.rows:
                raise AssertionError(f"metric {name} is in the registry but not derived")
        return [self.rows[name] for name in METRICS]


def _percentiles(values: Floats) -> list[tuple[float | None, str]]:
    """All of :data:`PERCENTILES`, with the reason for each that is null."""
    ordered = np.sort(values)
    return [_percentile(ordered, percentile) for percentile in PERCENTILES]


def _percentile(ordered: Floats, percentile: int) -> tuple[float | None, str]:
    """One percentile of ordered values, linear between neighbours: as ``numpy.percentile`` gives it.

    That takes forty times as long, and an ingest derives two dozen families for each attempt.
    """
    need = percentile_n(percentile)
    if ordered.size < need:
        return None, f"n<{need}"
    place = percentile / 100 * (ordered.size - 1)
    below = int(place)
    low, high = ordered.item(below), ordered.item(min(below + 1, ordered.size - 1))
    share = place - below
    step = high - low
    return (high - step * (1 - share) if share >= 0.5 else low + step * share), ""


def _gaps(requests: Requests, chosen: Bools) -> tuple[Floats, Floats, int, int]:
    """(itl gaps, icl gaps, requests with unknown chunk tokens, requests with chunk times), seconds."""
    timed: list[Floats] = []
    told: list[tuple[Floats, Floats]] = []
    for index in np.flatnonzero(chosen).tolist():
        times, tokens = requests.chunk_ns[index], requests.chunk_tokens[index]
        if times is None or times.size < 2:
            continue
        timed.append(times)
        if tokens is not None and tokens.size == times.size:
            told.append((times, tokens))
    icl = np.empty(0, dtype=np.float64)
    if timed:
        icl = np.diff(np.concatenate(timed))[~_is_first(timed)[1:]]
    itl = token_gaps([times for times, _ in told], [tokens for _, tokens in told])
    return itl, icl, len(timed) - len(told), len(timed)


def _good(requests: Requests, per_request: Mapping[str, Floats], slo: Mapping[str, float]) -> Bools:
    """Requests that met every limit. A request that has no such value (tpot of one token) meets it."""
    good = requests.ok.copy()
    for name, limit in slo.items():
        values = per_request[name]
        good &= np.isnan(values) | (values <= limit)
    return good


def _check_slo(slo: Mapping[str, float] | None) -> None:
    for name in slo or {}:
        if name not in SLO_LIMITS:
            raise InputError(f"unknown limit {name!r}", where="slo", remedy=f"known: {', '.join(SLO_LIMITS)}")


def _sessions_done(requests: Requests, span: Span) -> int | None:
    """Sessions of which every measured turn completed and whose last token lies in the window."""
    if (requests.session < 0).any() or not requests.session.size:
        return None
    count = int(requests.session.max()) + 1
    whole = np.ones(count, dtype=bool)
    np.logical_and.at(whole, requests.session, requests.ok)
    last = np.full(count, -np.inf)
    known = ~np.isnan(requests.last)
    np.maximum.at(last, requests.session[known], requests.last[known])
    return int((whole & (last >= span.start) & (last <= span.end)).sum())


def _window_rows(
    requests: Requests,
    name: WindowName,
    span: Span,
    gpus: int,
    slo: Mapping[str, float] | None,
    power: Power,
) -> list[MetricRow]:
    rows = _Rows(name)
    ok = requests.ok
    chosen = ok if name == "full" else ok & (requests.last >= span.start) & (requests.last <= span.end)
    n = int(chosen.sum())

    ttft = (requests.first - requests.intended) * 1e3
    ttfot = (requests.first_output - requests.intended) * 1e3
    e2el = (requests.last - requests.intended) * 1e3
    after_first = requests.output_tokens - requests.first_chunk_tokens
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(after_first > 0, (e2el - ttft) / after_first, np.nan)
        per_token = np.where(requests.output_tokens > 0, e2el / requests.output_tokens, np.nan)

    # tpot depends on the first chunk's tokens only where there is something after it.
    assumed = int((chosen & ~np.isnan(tpot) & ~requests.first_chunk_known).sum())
    tpot_note = f"first_chunk_tokens_assumed={assumed}" if assumed else ""
    rows.distribution("ttft", ttft[chosen])
    rows.distribution("ttfot", ttfot[chosen])
    rows.distribution("e2el", e2el[chosen])
    rows.distribution("tpot", tpot[chosen], tpot_note)
    itl, icl, unknown, timed = _gaps(requests, chosen)
    itl_note = f"chunk_tokens_unknown={unknown}/{timed}" if unknown else ""
    # With most requests left out the rest would not stand for them.
    rows.distribution("itl", itl * 1e3, itl_note, blank=unknown * 2 > timed)
    rows.distribution("icl", icl * 1e3)

    tokens_per_request = per_token[chosen]
    tokens_per_request = tokens_per_request[~np.isnan(tokens_per_request)]
    for percentile, (slow, why) in zip(PERCENTILES, _percentiles(tokens_per_request), strict=True):
        base = rows.rows[f"tpot_p{percentile}_ms"]
        value = 1e3 / base.value if base.value else None
        note = base.note or ("zero_time" if base.value == 0 else "")
        rows.add(f"interactivity_p{percentile}_tps", value, base.n, note)
        rows.add(
            f"e2e_interactivity_p{percentile}_tps",
            1e3 / slow if slow else None,
            int(tokens_per_request.size),
            why or ("zero_time" if slow == 0 else ""),
        )

    _throughput(rows, requests, name, span, gpus, chosen)

    good: float | None = None
    if slo:
        limits = {"ttft_ms": ttft, "ttfot_ms": ttfot, "e2el_ms": e2el, "tpot_ms": tpot}
        good = float((_good(requests, limits, slo) & chosen).sum()) / span.length
    rows.add("goodput_rps", good, n, "" if slo else "no_limits")
    rows.add("goodput_rps_per_gpu", None if good is None else good / gpus, n, "" if slo else "no_limits")
    rows.add("request_rps", n / span.length, n)

    for token_name, values in (("input", requests.input_tokens), ("output", requests.output_tokens)):
        known = values[chosen & ~np.isnan(values)]
        rows.add(f"{token_name}_tokens_mean", float(known.mean()) if known.size else None, int(known.size))
        rows.add(f"{token_name}_tokens_p50", *_median(known))
    reasoning = requests.reasoning_tokens[chosen & ~np.isnan(requests.reasoning_tokens)]
    rows.add(
        "reasoning_tokens_mean", float(reasoning.mean()) if reasoning.size else None, int(reasoning.size)
    )

    ended = requests.failed
    if name == "steady":
        ended = ended & (requests.end >= span.start) & (requests.end <= span.end)
    finished = int(ended.sum()) + n
    rows.add("failed_share", int(ended.sum()) / finished if finished else None, finished)
    end = np.where(np.isnan(requests.end), requests.last, requests.end)
    rows.add("in_flight_mean", windows.mean_in_flight(requests.intended, end, span))
    rows.add("window_s", span.length)
    _energy(rows, requests, span, gpus, power)
    return rows.done()


def _energy(rows: _Rows, requests: Requests, span: Span, gpus: int, power: Power) -> None:
    """Measured energy in the window, and for each token: null as a whole where power does not cover it."""
    found = power.energy(*(requests.origin_ns + round(moment * NS) for moment in (span.start, span.end)))
    rows.add("energy_j", found.value_j, None, found.note)
    for metric, base in (
        ("power_w_per_gpu", span.length * gpus),
        ("j_per_total_token", _tokens(rows, "total_tps_per_gpu", span, gpus)),
        ("j_per_output_token", _tokens(rows, "output_tps_per_gpu", span, gpus)),
        ("j_per_input_token", _tokens(rows, "input_tps_per_gpu", span, gpus)),
    ):
        note = found.note or ("" if base else "usage_missing")
        rows.add(metric, found.value_j / base if found.value_j is not None and base else None, None, note)


def _tokens(rows: _Rows, metric: str, span: Span, gpus: int) -> float | None:
    """The tokens in the window that a rate was made of."""
    rate = rows.rows[metric].value
    return None if rate is None else rate * span.length * gpus


def _median(values: Floats) -> tuple[float | None, int, str]:
    value, why = _percentile(np.sort(values), 50)
    return value, int(values.size), why


def _throughput(
    rows: _Rows, requests: Requests, name: WindowName, span: Span, gpus: int, chosen: Bools
) -> None:
    """Token and session rates. A kind of token that one request does not report is null as a whole."""
    ok = requests.ok
    n = int(chosen.sum())
    seconds = span.length * gpus

    def total(tokens: Floats, spread: bool) -> float | None:
        if not ok.any() or np.isnan(tokens[ok]).any():
            return None
        if name == "full":
            return float(tokens[ok].sum())
        if spread:
            return windows.output_tokens_in(span, requests.first[ok], requests.last[ok], tokens[ok])
        return windows.input_tokens_in(span, requests.first[ok], tokens[ok])

    into = total(requests.input_tokens, False)
    cached = total(requests.cached_tokens, False)
    out = total(requests.output_tokens, True)
    both = None if into is None or out is None else into + out
    uncached = None if into is None or cached is None else into - cached
    for metric, tokens in (
        ("total_tps_per_gpu", both),
        ("output_tps_per_gpu", out),
        ("input_tps_per_gpu", into),
        ("uncached_input_tps_per_gpu", uncached),
        ("cached_input_tps_per_gpu", cached),
    ):
        rows.add(
            metric, None if tokens is None else tokens / seconds, n, "usage_missing" if tokens is None else ""
        )
    share = cached / into if cached is not None and into else None
    rows.add("cache_hit_share", share, n, "usage_missing" if share is None else "")
    sessions = _sessions_done(requests, span)
    rows.add(
        "sessions_per_gpu_hour",
        None if sessions is None else sessions / seconds * 3600,
        sessions,
        "" if sessions is not None else "no_sessions",
    )


def derive(
    table: pa.Table,
    *,
    gpus: int,
    concurrency: int,
    slo: Mapping[str, float] | None = None,
    asked: int | None = None,
    power: Power | None = None,
) -> Derived:
    """Every metric of the registry, for the full window and, where usable, the steady one.

    :param table: per-request table, warm-up rows allowed (they are left out).
    :param gpus: all allocated accelerators; at least 1.
    :param concurrency: asked requests in flight, or lanes where the table has turns.
    :param slo: limits of the scenario on each request (:data:`SLO_LIMITS`), milliseconds.
    :param asked: requests that should have been measured; default: the measured rows.
    :param power: samples of power of the allocated accelerators; None = there are none.
    :raises InputError: for gpus or concurrency below 1, or an unknown limit.
    """
    if gpus < 1 or concurrency < 1:
        raise InputError(f"gpus ({gpus}) and concurrency ({concurrency}) must be at least 1")
    _check_slo(slo)
    requests = measured(table)
    completed = int(requests.ok.sum())
    counts = Counts(
        asked=int(requests.ok.size) if asked is None else asked,
        completed=completed,
        failed=int(requests.failed.sum()),
    )
    full = windows.full_window(requests.intended, requests.last[requests.ok])
    if full is None or full.length <= 0:
        return Derived([], {"full": None, "steady": None}, counts, False, "nothing was measured")

    def record(span: Span | None) -> WindowSpan | None:
        if span is None:
            return None
        inside = requests.ok & (requests.last >= span.start) & (requests.last <= span.end)
        return WindowSpan(
            start_ns=requests.origin_ns + round(span.start * NS),
            end_ns=requests.origin_ns + round(span.end * NS),
            completions=int(inside.sum()),
        )

    start, end = lanes(requests)
    steady = windows.steady_window(start, end, concurrency, windows.bridge_s(start, end))
    spans = {"full": record(full), "steady": record(steady)}
    note = _steady_note(steady, spans["steady"], full, concurrency)
    watts = power if power is not None else Power(gpus)
    rows = _window_rows(requests, "full", full, gpus, slo, watts)
    if steady is not None and not note:
        rows += _window_rows(requests, "steady", steady, gpus, slo, watts)
    return Derived(rows, spans, counts, not note, note)


def _steady_note(steady: Span | None, record: WindowSpan | None, full: Span, concurrency: int) -> str:
    """Why the steady window may not be used; "" when it may."""
    if steady is None or record is None:
        return "the asked concurrency was never in flight"
    need = max(MIN_STEADY_COMPLETIONS, 3 * concurrency)
    if record.completions < need:
        return f"{record.completions} completions, {need} needed"
    if steady.length < full.length / 2:
        return f"{steady.length:.1f} s are less than half of {full.length:.1f} s"
    return ""
