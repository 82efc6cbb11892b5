"""Reads what AIPerf leaves in its artefact folder (schema 1.x; tried with 0.13).

The raw export (``--export-level raw``) is the source: every chunk with its time. Time of a chunk
= ``request_start_ns + (perf_ns - start_perf_ns)``; client and server times are compared on the
epoch clock of one machine. Without it the per-request export is read (``exact=False``): chunk
times from its list of gaps, no text, no tokens per chunk unless the counts agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from isoline.errors import InfraError
from isoline.results.bundles.requests import REQUESTS_SCHEMA
from isoline.results.importers.streams import Stream, read_stream, usage_numbers

SUMMARY = "profile_export_aiperf.json"
PER_REQUEST = "profile_export.jsonl"
RAW = "profile_export_raw.jsonl"
READY = ".aiperf_results_ready.json"

MAX_MESSAGE = 300


class UnreadableExportError(InfraError):
    """The export is missing, cut short or of another form. Reason code ``unreadable_export``."""

    reason = "unreadable_export"


@dataclass(frozen=True)
class AiperfExport:
    """One AIPerf run.

    :param version: AIPerf's version, "" where it left no summary (all requests failed).
    :param benchmark_id: the export's own id of the run, "" without a summary.
    :param requests: table of :data:`isoline.results.bundles.requests.REQUESTS_SCHEMA`, warm-up included.
    :param exact: True where chunk times come from the raw export.
    :param tokens_from: ``server`` (usage), ``client`` (its tokenizer: only where no request has
        usage and there is no raw export) or ``none``.
    :param is_ready: the results-ready file is there and says so.
    :param is_complete: the summary says that the run came to its end.
    :param was_cancelled: the summary or the ready file says that it was cancelled.
    :param error_summary: (count, type, message) of the failed requests, as AIPerf groups them.
    :param texts: request id to plain output text, completed measured requests only.
    :param start_ns: first intended send of any request, epoch nanoseconds; None without a request.
    :param client_ms: per-request times inside the client, milliseconds: ``connecting``,
        ``sending``; for the judgement of the client.
    """

    version: str
    schema_version: str
    benchmark_id: str
    requests: pa.Table
    exact: bool
    tokens_from: str
    is_ready: bool
    is_complete: bool
    was_cancelled: bool
    error_summary: list[tuple[int, str, str]]
    texts: dict[str, str]
    start_ns: int | None
    client_ms: dict[str, list[float]]


def _json_file(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UnreadableExportError(f"not valid JSON: {error}", where=str(path)) from None
    if not isinstance(value, dict):
        raise UnreadableExportError("not a JSON object", where=str(path))
    return value


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, row) of a JSONL file."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                    if not isinstance(row, dict) or not isinstance(row["metadata"], dict):
                        raise KeyError("metadata")
                except (ValueError, KeyError) as error:
                    raise UnreadableExportError(
                        f"unreadable line: {error}", where=f"{path}:{number}"
                    ) from None
                yield number, row
    except FileNotFoundError:
        return


def _phase(metadata: Mapping[str, Any]) -> str:
    phase = metadata.get("benchmark_phase") or metadata.get("credit_phase")
    return "measured" if phase == "profiling" else "warmup"


def _error(row: Mapping[str, Any]) -> tuple[int | None, str, str] | None:
    error = row.get("error")
    if not isinstance(error, Mapping):
        return None
    code = error.get("code")
    return (
        code if isinstance(code, int) else None,
        str(error.get("type") or "error"),
        " ".join(str(error.get("message") or "").split())[:MAX_MESSAGE],
    )


def _is_cancelled(metadata: Mapping[str, Any], error: tuple[int | None, str, str] | None) -> bool:
    return bool(metadata.get("was_cancelled")) or (
        error is not None and error[1] == "RequestCancellationError"
    )


def _common(metadata: Mapping[str, Any]) -> dict[str, Any]:
    send = metadata.get("request_start_ns") or metadata.get("timestamp_ns")
    intended = metadata.get("credit_issued_ns") or send
    if intended is None:
        raise ValueError("no send time")
    return {
        "request_id": metadata["x_request_id"],
        "lane": None,  # AIPerf does not tell; its session_num counts requests
        "session": None,  # named when all rows are known
        "turn": metadata.get("turn_index") or 0,
        "depth": metadata.get("agent_depth"),
        "phase": _phase(metadata),
        "status": "ok",
        "intended_send_ns": intended,
        "send_ns": send,
        "end_ns": metadata.get("request_end_ns"),
    }


def _messages(row: Mapping[str, Any], offset: int) -> tuple[list[tuple[int, str]], bool]:
    """((time, data) of each message, whether it was a stream) of a raw row."""
    found: list[tuple[int, str]] = []
    streamed = True
    for response in row.get("responses") or []:
        time = response["perf_ns"] + offset
        if "packets" in response:
            found += [
                (time, packet.get("value") or "")
                for packet in response["packets"]
                if packet.get("name") == "data"
            ]
        elif response.get("text"):
            streamed = False
            found.append((time, response["text"]))
    return found, streamed


# What AIPerf calls a request whose stream it read to the end but could not use: our own reading
# of the same stream is more exact.
_OWN_READING = ("NoInferenceResults", "InvalidInferenceResultError", "SSEResponseError")

# A connection that broke inside a stream: the answer ended early.
_BROKEN = ("ClientPayloadError", "ServerDisconnectedError", "ConnectionResetError", "ClientOSError")


def _raw_row(row: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """One row of the raw export as (columns, plain text or None)."""
    metadata = row["metadata"]
    out = _common(metadata)
    error = _error(row)
    status = row.get("status")
    out["http_status"] = status if isinstance(status, int) else (error[0] if error else None)
    messages, streamed = _messages(row, out["send_ns"] - row["start_perf_ns"])
    stream = read_stream(messages, streamed=streamed)
    out |= _timing(stream, streamed) | usage_numbers(stream.usage)
    payload = row.get("payload") or {}
    asked = payload.get("max_completion_tokens") or payload.get("max_tokens")
    out["requested_output_tokens"] = asked if isinstance(asked, int) else None
    if _is_cancelled(metadata, error):
        out |= {"status": "cancelled", "error_type": "cancelled", "error_message": error[2] if error else ""}
    elif status is not None and not 200 <= status < 300:
        out |= _failed(f"http_{status}", error[2] if error else "")
    elif stream.ending == "stream_error":
        out |= _failed("stream_error", stream.message)
    elif error and error[1] == "SSEResponseError":
        out |= _failed("stream_error", error[2])
    elif error and error[1] in _BROKEN and status is not None and stream.ending != "complete":
        out |= _failed("early_end", error[2])
    elif error and not (error[1] in _OWN_READING and stream.ending != "complete"):
        out |= _failed(error[1], error[2])
    elif stream.ending != "complete":
        out |= _failed(stream.ending, stream.message or (error[2] if error else ""))
    is_ok = out["status"] == "ok" and out["phase"] == "measured"
    return out, stream.text if is_ok else None


def _timing(stream: Stream, streamed: bool) -> dict[str, Any]:
    if not stream.times:
        return {}
    if not streamed:  # a whole body has an end, but no first token
        return {"last_token_ns": stream.times[-1]}
    return {
        "first_token_ns": stream.times[0],
        "first_output_token_ns": stream.first_output,
        "last_token_ns": stream.times[-1],
        "chunk_ns": stream.times,
        "chunk_tokens": stream.tokens,
    }


def _failed(type_: str, message: str) -> dict[str, Any]:
    return {"status": "error", "error_type": type_, "error_message": " ".join(message.split())[:MAX_MESSAGE]}


def _metric(row: Mapping[str, Any], *names: str) -> Any:
    metrics = row.get("metrics") or {}
    for name in names:
        entry = metrics.get(name)
        if isinstance(entry, Mapping) and entry.get("value") is not None:
            return entry["value"]
    return None


def _whole(value: Any) -> int | None:
    return None if value is None else round(value)


def _plain_row(row: Mapping[str, Any]) -> tuple[dict[str, Any], int | None, int | None]:
    """One row of the per-request export as (columns, client's input count, client's output count)."""
    metadata = row["metadata"]
    out = _common(metadata)
    error = _error(row)
    if _is_cancelled(metadata, error):
        return out | {"status": "cancelled", "error_type": "cancelled"}, None, None
    if error is not None:
        code, type_, message = error
        name = f"http_{code}" if code and code >= 400 else type_
        return out | {"http_status": code} | _failed(name, message), None, None
    ttft = _metric(row, "time_to_first_token", "ttft")
    latency = _metric(row, "request_latency")
    out["http_status"] = 200
    if ttft is None:
        return out | _failed("empty_stream", "no first token in the export"), None, None
    gaps = _metric(row, "inter_chunk_latency")
    first = out["send_ns"] + round(ttft * 1e6)
    times = [first]
    if isinstance(gaps, list):
        for gap in gaps:
            times.append(times[-1] + round(gap * 1e6))
        last: int | None = times[-1]
    else:
        last = None if latency is None else out["send_ns"] + round(latency * 1e6)
    output = _metric(row, "time_to_first_output_token")
    reasoning = _whole(_metric(row, "usage_reasoning_tokens"))
    out |= {
        "first_token_ns": first,
        "first_output_token_ns": None if output is None else out["send_ns"] + round(output * 1e6),
        "last_token_ns": last,
        "input_tokens": _whole(_metric(row, "usage_prompt_tokens")),
        "cached_tokens": _whole(_metric(row, "usage_prompt_cache_read_tokens")),
        "output_tokens": _whole(_metric(row, "usage_completion_tokens")),
        "reasoning_tokens": reasoning,
    }
    if out["end_ns"] is None:
        out["end_ns"] = last
    if isinstance(gaps, list):
        out["chunk_ns"] = times
        if out["output_tokens"] == len(times):
            out["chunk_tokens"] = [1] * len(times)
    return (
        out,
        _whole(_metric(row, "input_sequence_length")),
        _whole(_metric(row, "output_sequence_length")),
    )


def _name_sessions(rows: list[dict[str, Any]], metadata: list[Mapping[str, Any]]) -> None:
    """Give each row its session: the conversation's name, ``#2`` and on where it was replayed again.

    A sub-agent belongs to the session of its root.
    """
    names: dict[str, str] = {}
    seen: dict[str, int] = {}
    order = sorted(range(len(rows)), key=lambda index: rows[index]["intended_send_ns"])
    for index in sorted(order, key=lambda index: rows[index]["depth"] or 0):
        data = metadata[index]
        root = data.get("root_correlation_id") or data.get("x_correlation_id")
        name = data.get("conversation_id")
        if root is None or name is None or root in names:
            continue
        seen[name] = seen.get(name, 0) + 1
        names[root] = name if seen[name] == 1 else f"{name}#{seen[name]}"
    for row, data in zip(rows, metadata, strict=True):
        root = data.get("root_correlation_id") or data.get("x_correlation_id")
        row["session"] = names.get(root) if root is not None else data.get("conversation_id")


def _client_times(row: Mapping[str, Any], client_ms: dict[str, list[float]]) -> None:
    if _phase(row["metadata"]) != "measured":
        return
    for ours, theirs in (("connecting", "http_req_connecting"), ("sending", "http_req_sending")):
        value = _metric(row, theirs)
        if isinstance(value, int | float):
            client_ms[ours].append(float(value))


def read_aiperf(folder: Path) -> AiperfExport:
    """Read one artefact folder.

    :raises UnreadableExportError: when there is no export, or a line of it cannot be read.
    """
    summary = _json_file(folder / SUMMARY)
    ready = _json_file(folder / READY) or {}
    rows: list[dict[str, Any]] = []
    metadata: list[Mapping[str, Any]] = []
    texts: dict[str, str] = {}
    seen: set[str] = set()
    client_ms: dict[str, list[float]] = {"connecting": [], "sending": []}

    def take(path: Path, number: int, row: Mapping[str, Any], columns: dict[str, Any]) -> None:
        if columns["request_id"] in seen:
            raise UnreadableExportError(
                f"request {columns['request_id']} is there twice", where=f"{path}:{number}"
            )
        seen.add(columns["request_id"])
        rows.append(columns)
        metadata.append(row["metadata"])

    path = folder / RAW
    exact = path.is_file()
    try:
        number = 0
        for number, row in _rows(path):
            columns, text = _raw_row(row)
            take(path, number, row, columns)
            if text is not None:
                texts[columns["request_id"]] = text
        path, in_raw, client_counts, own = folder / PER_REQUEST, set(seen), {}, set[str]()
        for number, row in _rows(path):
            _client_times(row, client_ms)
            if row["metadata"]["x_request_id"] in in_raw:
                continue
            columns, client_in, client_out = _plain_row(row)
            take(path, number, row, columns)
            own.add(columns["request_id"])
            client_counts[columns["request_id"]] = (client_in, client_out)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableExportError(
            f"not of AIPerf's form: {type(error).__name__}: {error}", where=f"{path}:{number}"
        ) from None
    if summary is None and not rows:
        raise UnreadableExportError(
            f"no {SUMMARY}, {PER_REQUEST} or {RAW}", where=str(folder), remedy="read aiperf's log"
        )
    tokens_from = "server" if any(row.get("output_tokens") is not None for row in rows) else "none"
    if tokens_from == "none" and not exact and any(out for _, out in client_counts.values()):
        tokens_from = "client"
        for row in rows:
            row["input_tokens"], row["output_tokens"] = client_counts[row["request_id"]]
    _name_sessions(rows, metadata)
    rows.sort(key=lambda row: (row["intended_send_ns"], row["request_id"]))
    summary = summary or {}
    return AiperfExport(
        version=str(summary.get("aiperf_version") or ""),
        schema_version=str(summary.get("schema_version") or ""),
        benchmark_id=str(summary.get("benchmark_id") or ""),
        requests=pa.Table.from_pylist(
            [{name: row.get(name) for name in REQUESTS_SCHEMA.names} for row in rows], REQUESTS_SCHEMA
        ),
        exact=exact,
        tokens_from=tokens_from,
        is_ready=bool(ready.get("ready")),
        is_complete=bool(summary.get("is_complete")),
        was_cancelled=bool(summary.get("was_cancelled")) or bool(ready.get("was_cancelled")),
        error_summary=_error_summary(summary),
        texts=texts,
        start_ns=min((row["intended_send_ns"] for row in rows), default=None),
        client_ms=client_ms,
    )


def _error_summary(summary: Mapping[str, Any]) -> list[tuple[int, str, str]]:
    found = []
    for entry in summary.get("error_summary") or []:
        details = entry.get("error_details") or {}
        message = " ".join(str(details.get("message") or "").split())[:MAX_MESSAGE]
        found.append((int(entry.get("count") or 0), str(details.get("type") or "error"), message))
    return found
