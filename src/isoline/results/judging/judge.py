"""What an attempt is worth: from evidence to a verdict with reasons (DESIGN 5.4). Pure.

Order of blame: a cause that was seen directly (the server died, the machine was suspended) explains
what follows from it (failed requests, a dead client, time-outs); its consequences are then not
reasons of their own, so they cannot turn an engine's fault into the machine's or the other way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa

from isoline.results.bundles.records import ReasonNote
from isoline.results.judging.plausible import cache_state, implausible
from isoline.results.judging.reasons import REASONS, Verdict, worst
from isoline.results.metrics import windows
from isoline.results.metrics.measured import Bools, Requests, lanes, measured
from isoline.results.metrics.windows import Floats

HARD_MAX_FAILED_SHARE = 0.05
TOKEN_TOLERANCE = 0.02
CUT_OFF_TOKENS = 1
"""Tokens by which a response's text may re-tokenise differently at its cut-off end."""
MAX_OTHER_LENGTH_SHARE = 0.1
"""Share of answers that may have another length than ordered, whatever the median says."""
SEND_DELAY_SHARE = 0.02
RATE_CAP_SHARE = 1 / 3
MIN_LOADED_SHARE = 0.5

ROOT_CAUSES: tuple[frozenset[str], ...] = (
    frozenset({"interrupted"}),
    frozenset({"orchestrator_paused"}),
    frozenset({"clock_stepped"}),
    frozenset({"disk_full"}),
    frozenset({"server_died", "server_killed", "server_restarted", "oom"}),
    frozenset({"stalled"}),
    frozenset({"load_timeout"}),
    frozenset({"client_died"}),
)
"""Causes that can be seen directly, first to last: an earlier one explains all later ones."""


@dataclass(frozen=True)
class Rules:
    """What the scenario asks for.

    :param concurrency: requests in flight, or lanes where the table has turns.
    :param asked: measured requests that were asked for.
    :param max_failed_share: lost share up to which a point is partial; 5 % is the hard cap.
    :param min_requests: completed requests below which there is no number.
    :param ignore_eos: the server was told to give exactly the requested output.
    :param cache: prefix-cache hits are forbidden, allowed or expected.
    :param isl: server-side input tokens of each request; None = as the table says, or open.
    :param osl: requested output tokens, likewise.
    :param random_tokens: the engine is declared to emit random tokens (no check of the text).
    """

    concurrency: int
    asked: int
    max_failed_share: float = 0.01
    min_requests: int = 1
    ignore_eos: bool = False
    cache: Literal["forbid", "allow", "expect"] = "allow"
    isl: int | None = None
    osl: int | None = None
    random_tokens: bool = False


@dataclass(frozen=True)
class ExportFacts:
    """What the load generator's export and process say about themselves.

    :param error: why the export could not be read, or "".
    :param start_ns: first intended send in it, epoch nanoseconds.
    """

    exit_code: int | None = 0
    signal: int | None = None
    error: str = ""
    is_ready: bool = True
    is_complete: bool = True
    was_cancelled: bool = False
    start_ns: int | None = None


@dataclass(frozen=True)
class ClientFacts:
    """What shows whether the client was the bottleneck.

    :param tick_hz: the tick rate; None = native closed loop, whose timing manager spins by design.
    :param busy_share: process role to its highest CPU share of one core under load.
    :param max_busy_share: the profile's limit on it.
    :param max_send_delay_ms: send delay (p90) that is allowed however short ttft is.
    """

    tick_hz: float | None = None
    busy_share: Mapping[str, float] = field(default_factory=dict)
    max_busy_share: float = 0.85
    max_send_delay_ms: float = 5.0


@dataclass(frozen=True)
class Evidence:
    """Everything that the judge looks at.

    :param table: the per-request table; None when there is none.
    :param attempt_started_ns: epoch nanoseconds; requests before it are of another attempt.
    :param events: causes seen directly by the watch and the supervisor.
    :param findings: reasons found by other checks (canary, cache reset, launch facts).
    """

    rules: Rules
    table: pa.Table | None
    export: ExportFacts = field(default_factory=ExportFacts)
    client: ClientFacts = field(default_factory=ClientFacts)
    attempt_started_ns: int | None = None
    events: Sequence[ReasonNote] = ()
    findings: Sequence[ReasonNote] = ()


def judge(evidence: Evidence) -> tuple[Verdict, list[ReasonNote]]:
    """The verdict of an attempt and its reasons, the cause first.

    :raises KeyError: for an event or finding whose code has no row in the registry.
    """
    requests = measured(evidence.table) if evidence.table is not None else None
    notes = _root_cause(evidence, requests)
    if notes:
        # Facts about the launch stand whatever the load did.
        standing = [note for note in evidence.findings if REASONS[note.code].phase in ("launch", "stage")]
    else:
        standing = list(evidence.findings)
        notes = _export(evidence, requests)
        if not notes and requests is not None:
            notes = _requests(evidence, requests)
    notes = _unique([*notes, *standing])
    return worst([note.code for note in notes]), notes


def _unique(notes: Sequence[ReasonNote]) -> list[ReasonNote]:
    found: dict[str, ReasonNote] = {}
    for note in notes:
        found.setdefault(note.code, note)
    return list(found.values())


def _root_cause(evidence: Evidence, requests: Requests | None) -> list[ReasonNote]:
    known = frozenset().union(*ROOT_CAUSES)
    other = [note for note in evidence.events if note.code not in known]
    for causes in ROOT_CAUSES:
        found = _unique([note for note in evidence.events if note.code in causes])
        if not found:
            continue
        later = [note.code for note in _unique(evidence.events) if note.code in known - causes]
        parts = [found[0].detail, f"also seen: {', '.join(later)}" if later else ""]
        if requests is not None and requests.failed.any():
            parts.append(f"{int(requests.failed.sum())} of {requests.ok.size} requests failed")
        first = ReasonNote(code=found[0].code, detail="; ".join(part for part in parts if part))
        return [first, *found[1:], *other]
    return other


def _export(evidence: Evidence, requests: Requests | None) -> list[ReasonNote]:
    export = evidence.export
    ended = f"signal {export.signal}" if export.signal else f"exit code {export.exit_code}"
    failed_to_run = bool(export.signal) or export.exit_code != 0
    if export.error:
        if failed_to_run:
            return [ReasonNote(code="client_died", detail=f"{ended}; {export.error}")]
        return [ReasonNote(code="unreadable_export", detail=export.error)]
    if requests is None:
        return [ReasonNote(code="client_died", detail=f"no export; {ended}")]
    started = evidence.attempt_started_ns
    if started is not None and export.start_ns is not None and export.start_ns < started:
        early = (started - export.start_ns) / 1e9
        return [
            ReasonNote(
                code="stale_export", detail=f"its first request is {early:.1f} s older than the attempt"
            )
        ]
    # AIPerf ends with 1 and without a summary when every request fails: that is the server's doing.
    if requests.failed.any() and not requests.ok.any():
        return []
    problems = [
        text
        for text, is_so in (
            (ended, failed_to_run),
            ("not ready", not export.is_ready),
            ("not complete", not export.is_complete),
            ("cancelled", export.was_cancelled),
        )
        if is_so
    ]
    return [ReasonNote(code="client_died", detail=", ".join(problems))] if problems else []


def _requests(evidence: Evidence, requests: Requests) -> list[ReasonNote]:
    rules = evidence.rules
    table = evidence.table
    assert table is not None
    notes: list[ReasonNote] = []
    asked = max(rules.asked, int(requests.ok.size))
    completed = int(requests.ok.sum())
    lost = asked - completed
    errors = _errors(table)
    if empty := errors.get("empty_stream", 0):
        notes.append(ReasonNote(code="empty_stream", detail=f"{empty} of {asked} requests"))
    if lost:
        share = lost / asked
        limit = min(rules.max_failed_share, HARD_MAX_FAILED_SHARE)
        kinds = ", ".join(f"{count} {name}" for name, count in errors.items())
        detail = f"{lost} of {asked} ({share:.1%}) lost, {limit:.1%} allowed"
        detail += f": {kinds}" if kinds else ""
        code = "failed_requests" if share <= limit else "too_many_failed"
        notes.append(ReasonNote(code=code, detail=detail))
        if code == "too_many_failed":
            return notes
    tokens = requests.output_tokens[requests.ok]
    if not completed or (not np.isnan(tokens).all() and np.nansum(tokens) == 0):
        return [*notes, ReasonNote(code="zero_output_tokens", detail=f"{completed} requests completed")]
    if completed < rules.min_requests:
        notes.append(
            ReasonNote(code="too_few_requests", detail=f"{completed} completed, {rules.min_requests} needed")
        )
    notes += implausible(requests)
    notes += _tokens(rules, table, requests)
    notes += cache_state(rules.cache, requests)
    notes += _concurrency(rules, requests)
    notes += _client(evidence.client, table, requests)
    return notes


def _errors(table: pa.Table) -> dict[str, int]:
    """Failed measured requests by type, the most frequent first."""
    counts: dict[str, int] = {}
    for phase, status, type_ in zip(
        table.column("phase").to_pylist(),
        table.column("status").to_pylist(),
        table.column("error_type").to_pylist(),
        strict=True,
    ):
        if phase == "measured" and status != "ok":
            name = type_ or status
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _column(table: pa.Table, name: str) -> Floats:
    """A column of the measured rows, in the order of :func:`measured`."""
    rows = np.array([phase == "measured" for phase in table.column("phase").to_pylist()], dtype=bool)
    values = table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
    chosen: Floats = np.asarray(values, dtype=np.float64)[rows]
    return chosen


def _median_ratio(found: Floats, asked: Floats) -> float | None:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = found / asked
    ratio = ratio[np.isfinite(ratio)]
    return float(np.median(ratio)) if ratio.size else None


def _is_off(ratio: float) -> bool:
    # 102 of 100 tokens are 2 % more, but 1.02 - 1 is a little more than 0.02.
    return abs(ratio - 1) > TOKEN_TOLERANCE + 1e-9


def _asked_tokens(table: pa.Table, column: str, default: int | None, ok: Bools) -> Floats:
    values = _column(table, column)[ok]
    open_ = np.nan if default is None else float(default)
    return np.asarray(np.where(np.isnan(values), open_, values), dtype=np.float64)


def _tokens(rules: Rules, table: pa.Table, requests: Requests) -> list[ReasonNote]:
    ok = requests.ok
    notes: list[ReasonNote] = []
    missing = int((np.isnan(requests.input_tokens) | np.isnan(requests.output_tokens))[ok].sum())
    if missing:
        notes.append(ReasonNote(code="usage_missing", detail=f"{missing} of {int(ok.sum())} requests"))

    def off(found: Floats, asked: Floats, code: str) -> None:
        ratio = _median_ratio(found, asked)
        if ratio is not None and _is_off(ratio):
            detail = (
                f"median {np.nanmedian(found):.0f} tokens, {np.nanmedian(asked):.0f} asked ({ratio - 1:+.1%})"
            )
            notes.append(ReasonNote(code=code, detail=detail))

    off(
        requests.input_tokens[ok],
        _asked_tokens(table, "requested_input_tokens", rules.isl, ok),
        "isl_mismatch",
    )
    if rules.ignore_eos:
        off(
            requests.output_tokens[ok],
            _asked_tokens(table, "requested_output_tokens", rules.osl, ok),
            "osl_mismatch",
        )
        notes += _two_lengths(
            requests.output_tokens[ok], _asked_tokens(table, "requested_output_tokens", rules.osl, ok)
        )
    text = _column(table, "text_tokens")
    sampled = ok & ~np.isnan(text) & ~np.isnan(requests.output_tokens)
    if sampled.any() and not rules.random_tokens:
        counted, said = float(text[sampled].sum()), float(requests.output_tokens[sampled].sum())
        # An answer that is cut off may end inside a character: one token of each is no evidence.
        slack = CUT_OFF_TOKENS * int(sampled.sum())
        if said > 0 and _is_off(counted / said) and abs(counted - said) > slack:
            notes.append(
                ReasonNote(
                    code="token_count_mismatch",
                    detail=f"{int(sampled.sum())} responses: {counted:.0f} tokens, {said:.0f} reported",
                )
            )
    return notes


def _two_lengths(found: Floats, asked: Floats) -> list[ReasonNote]:
    """Where the exact length was ordered: a part of the answers of another length has no say in a median."""
    known = ~np.isnan(found) & ~np.isnan(asked) & (asked > 0)
    off = known & (np.abs(found - asked) > TOKEN_TOLERANCE * asked)
    if not known.any() or off.sum() <= MAX_OTHER_LENGTH_SHARE * known.sum():
        return []
    detail = f"{int(off.sum())} of {int(known.sum())} answers are of another length than asked"
    return [ReasonNote(code="osl_mismatch", detail=detail)]


def _concurrency(rules: Rules, requests: Requests) -> list[ReasonNote]:
    start, end = lanes(requests)
    span = windows.full_window(start, end)
    if span is None:
        return []
    bridge = windows.bridge_s(start, end)
    share = windows.loaded_share(start, end, rules.concurrency, bridge, span)
    if share >= MIN_LOADED_SHARE:
        return []
    peak = int(windows.in_flight(start, end)[1].max(initial=0))
    return [
        ReasonNote(
            code="concurrency_not_reached",
            detail=f"{rules.concurrency} asked, {peak} at most, the asked load for {share:.0%} of the time",
        )
    ]


def send_delays_ms(table: pa.Table) -> Floats:
    """Milliseconds from when each measured request was issued to when it was sent."""
    send, intended = table.column("send_ns"), table.column("intended_send_ns")
    rows = [
        (sent - issued) / 1e6
        for phase, sent, issued in zip(
            table.column("phase").to_pylist(), send.to_pylist(), intended.to_pylist(), strict=True
        )
        if phase == "measured" and sent is not None
    ]
    return np.asarray(rows, dtype=np.float64)


def _client(client: ClientFacts, table: pa.Table, requests: Requests) -> list[ReasonNote]:
    notes: list[ReasonNote] = []
    ok = requests.ok
    span = windows.full_window(requests.intended, requests.last[ok])
    if client.tick_hz is not None and span is not None and span.length > 0:
        rate = int(ok.sum()) / span.length
        if rate > client.tick_hz * RATE_CAP_SHARE:
            notes.append(
                ReasonNote(
                    code="client_rate_capped",
                    detail=f"{rate:.1f} completions/s at a tick of {client.tick_hz:g}/s",
                )
            )
    evidence: list[str] = []
    delays = send_delays_ms(table)
    ttft = (requests.first - requests.intended)[ok] * 1e3
    ttft = ttft[~np.isnan(ttft)]
    if delays.size and ttft.size:
        limit = max(client.max_send_delay_ms, SEND_DELAY_SHARE * float(np.median(ttft)))
        p90 = float(np.percentile(delays, 90))
        if p90 > limit:
            evidence.append(f"requests were sent {p90:.1f} ms late (p90), {limit:.1f} ms allowed")
    for role, share in client.busy_share.items():
        # Only these two are between the clock and the socket.
        timing = role == "timing_manager" and client.tick_hz is not None
        if (role == "worker" or timing) and share > client.max_busy_share:
            evidence.append(f"its {role} used {share:.0%} of a core")
    if evidence:
        notes.append(ReasonNote(code="client_saturated", detail="; ".join(evidence)))
    return notes
