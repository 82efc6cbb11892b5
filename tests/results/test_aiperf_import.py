"""AIPerf's exports as they are, and as they are when something went wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isoline.results.importers.aiperf import (
    PER_REQUEST,
    RAW,
    READY,
    SUMMARY,
    UnreadableExportError,
    read_aiperf,
)
from isoline.results.importers.streams import read_stream

EPOCH = 1_796_000_000_000_000_000
PERF = 5_000_000_000


def _event(content: str | None = None, **more: Any) -> dict[str, Any]:
    delta = {} if content is None else {"content": content}
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]} | more


def _finish() -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}


def _usage(prompt: int, completion: int, cached: int | None = 0) -> dict[str, Any]:
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion} | details}


def _answer(count: int = 3, prompt: int = 40) -> list[tuple[float, Any]]:
    """A whole answer: role chunk at 90 ms, tokens at 100, 110, ..., then the end."""
    events: list[tuple[float, Any]] = [(90, {"choices": [{"delta": {"role": "assistant", "content": None}}]})]
    events += [(100 + 10 * index, _event(" a")) for index in range(count)]
    last = 100 + 10 * count
    return [*events, (last, _finish()), (last, _usage(prompt, count)), (last, "[DONE]")]


def _metadata(number: int, **more: Any) -> dict[str, Any]:
    send = EPOCH + number * 1_000_000_000
    return {
        "session_num": number,
        "x_request_id": f"id{number}",
        "x_correlation_id": f"cor{number}",
        "root_correlation_id": f"cor{number}",
        "conversation_id": f"conv{number}",
        "turn_index": 0,
        "agent_depth": 0,
        "credit_issued_ns": send - 2_000_000,
        "request_start_ns": send,
        "request_end_ns": send + 500_000_000,
        "benchmark_phase": "profiling",
        "was_cancelled": False,
    } | more


def _raw(
    number: int, events: list[tuple[float, Any]], status: int | None = 200, **more: Any
) -> dict[str, Any]:
    metadata = more.pop("metadata", {})
    responses = [
        {
            "perf_ns": PERF + round(at * 1e6),
            "packets": [{"name": "data", "value": event if isinstance(event, str) else json.dumps(event)}],
        }
        for at, event in events
    ]
    return {
        "metadata": _metadata(number, **metadata),
        "start_perf_ns": PERF,
        "status": status,
        "responses": responses,
        "payload": {"max_completion_tokens": 3, "messages": []},
    } | more


def _write(folder: Path, raw: list[dict[str, Any]] | None, plain: list[dict[str, Any]] = []) -> Path:  # noqa: B006
    summary = {"schema_version": "1.4", "aiperf_version": "0.13.0", "benchmark_id": "b1", "is_complete": True}
    (folder / SUMMARY).write_text(json.dumps(summary | {"was_cancelled": False, "error_summary": []}))
    (folder / READY).write_text('{"ready":true,"was_cancelled":false,"partial":false}')
    if raw is not None:
        (folder / RAW).write_text("".join(json.dumps(row) + "\n" for row in raw))
    (folder / PER_REQUEST).write_text("".join(json.dumps(row) + "\n" for row in plain))
    return folder


def _one(tmp_path: Path, row: dict[str, Any]) -> dict[str, Any]:
    return read_aiperf(_write(tmp_path, [row])).requests.to_pylist()[0]


def test_a_whole_answer_is_timed_on_the_epoch(tmp_path: Path) -> None:
    """Chunk times are the send time plus what the performance counter says; the role chunk is no token."""
    export = read_aiperf(_write(tmp_path, [_raw(0, _answer())]))
    row = export.requests.to_pylist()[0]
    assert row["status"] == "ok" and row["phase"] == "measured"
    assert row["intended_send_ns"] == EPOCH - 2_000_000 and row["send_ns"] == EPOCH
    assert row["chunk_ns"] == [EPOCH + ms * 1_000_000 for ms in (100, 110, 120)]
    assert row["first_token_ns"] == row["first_output_token_ns"] == row["chunk_ns"][0]
    assert row["last_token_ns"] == row["chunk_ns"][-1]
    assert row["chunk_tokens"] == [1, 1, 1]
    assert (row["input_tokens"], row["cached_tokens"], row["output_tokens"]) == (40, 0, 3)
    assert row["requested_output_tokens"] == 3
    assert export.texts == {"id0": " a a a"}
    assert (export.exact, export.tokens_from, export.is_ready, export.is_complete) == (
        True,
        "server",
        True,
        True,
    )
    assert (export.version, export.benchmark_id, export.start_ns) == ("0.13.0", "b1", EPOCH - 2_000_000)


def test_reasoning_counts_for_the_first_token_only(tmp_path: Path) -> None:
    """Reasoning is a token for ttft; the first other token comes later; such text is not counted again."""
    events = _answer()
    events[1] = (100, {"choices": [{"delta": {"reasoning_content": "hm"}}]})
    export = read_aiperf(_write(tmp_path, [_raw(0, events)]))
    row = export.requests.to_pylist()[0]
    assert row["first_token_ns"] == EPOCH + 100_000_000
    assert row["first_output_token_ns"] == EPOCH + 110_000_000
    assert export.texts == {}


def test_a_tool_call_is_an_output_token(tmp_path: Path) -> None:
    """Arguments of a tool call bear tokens."""
    events = _answer(1)
    events[1] = (100, {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "{"}}]}}]})
    row = _one(tmp_path, _raw(0, events))
    assert row["first_output_token_ns"] == EPOCH + 100_000_000 and row["status"] == "ok"


def test_chunks_of_several_tokens_take_the_running_usage(tmp_path: Path) -> None:
    """Where the server sends usage with each chunk, tokens of a chunk are its differences."""
    events: list[tuple[float, Any]] = [
        (100, _event(" a a", usage={"prompt_tokens": 9, "completion_tokens": 2})),
        (110, _event(" a a a", usage={"prompt_tokens": 9, "completion_tokens": 5})),
        (120, _finish() | {"usage": {"prompt_tokens": 9, "completion_tokens": 5}}),
        (120, "[DONE]"),
    ]
    row = _one(tmp_path, _raw(0, events))
    assert row["chunk_tokens"] == [2, 3] and row["output_tokens"] == 5


def test_tokens_of_chunks_are_unknown_where_counts_differ(tmp_path: Path) -> None:
    """Three chunks for six tokens without running usage: the split is unknown, not guessed."""
    events = [*_answer()[:-2], (130, _usage(40, 6)), (130, "[DONE]")]
    row = _one(tmp_path, _raw(0, events))
    assert row["chunk_tokens"] is None and row["output_tokens"] == 6 and len(row["chunk_ns"]) == 3


@pytest.mark.parametrize(
    ("events", "status", "error", "expected"),
    [
        ([(90, _event()), (95, _finish()), (95, _usage(4, 0)), (95, "[DONE]")], 200, None, "empty_stream"),
        ([], 200, {"type": "InvalidInferenceResultError", "message": "no content"}, "empty_stream"),
        (_answer()[:-3], 200, None, "early_end"),
        (_answer()[:3], 200, {"type": "ClientPayloadError", "message": "not completed"}, "early_end"),
        (_answer()[:3], 200, {"type": "TimeoutError", "message": "too late"}, "TimeoutError"),
        ([*_answer()[:3], (140, {"error": {"message": "OOM"}})], 200, None, "stream_error"),
        ([(90, {"error": {"message": "no slot"}})], 200, None, "stream_error"),
        ([*_answer()[:3], (140, "{broken")], 200, None, "stream_error"),
        ([], 500, {"code": 500, "type": "Internal Server Error", "message": "boom"}, "http_500"),
        ([], None, {"type": "ClientConnectorError", "message": "refused"}, "ClientConnectorError"),
    ],
)
def test_each_way_to_fail_has_its_name(
    tmp_path: Path, events: list[tuple[float, Any]], status: int | None, error: Any, expected: str
) -> None:
    """What ended badly is an error of its own kind, also where HTTP said 200 and AIPerf said nothing."""
    more = {"error": error} if error else {}
    row = _one(tmp_path, _raw(0, events, status, **more))
    assert (row["status"], row["error_type"]) == ("error", expected)


def test_an_answer_without_done_but_with_a_finish_reason_is_whole(tmp_path: Path) -> None:
    """Servers that leave out [DONE] are not punished for it."""
    assert _one(tmp_path, _raw(0, _answer()[:-1]))["status"] == "ok"


def test_cancelled_requests_are_cancelled(tmp_path: Path) -> None:
    """Neither completed nor failed: the client took them back."""
    row = _one(tmp_path, _raw(0, _answer()[:2], metadata={"was_cancelled": True}))
    assert row["status"] == "cancelled"


def test_failures_that_only_the_per_request_export_has_are_taken(tmp_path: Path) -> None:
    """A request that never reached the wire is not in the raw export, and must not get lost."""
    plain = [
        {"metadata": _metadata(0), "metrics": {}},
        {"metadata": _metadata(1), "metrics": {}, "error": {"type": "DatasetError", "message": "x"}},
    ]
    rows = read_aiperf(_write(tmp_path, [_raw(0, _answer())], plain)).requests.to_pylist()
    assert [(row["request_id"], row["status"]) for row in rows] == [("id0", "ok"), ("id1", "error")]


def test_warm_up_is_told_apart(tmp_path: Path) -> None:
    """Warm-up rows are in the table with their phase, and their text is not sampled."""
    rows = [_raw(0, _answer(), metadata={"benchmark_phase": "warmup"}), _raw(1, _answer())]
    export = read_aiperf(_write(tmp_path, rows))
    assert export.requests.column("phase").to_pylist() == ["warmup", "measured"]
    assert list(export.texts) == ["id1"]


def test_a_conversation_that_is_replayed_again_is_another_session(tmp_path: Path) -> None:
    """Turns of one replay share a session, sub-agents too; the next replay has another one."""
    same = {"conversation_id": "c"}
    rows = [
        _raw(0, _answer(), metadata=same | {"root_correlation_id": "A"}),
        _raw(1, _answer(), metadata={"conversation_id": "sub", "root_correlation_id": "A", "agent_depth": 1}),
        _raw(2, _answer(), metadata=same | {"root_correlation_id": "B"}),
        _raw(3, _answer(), metadata=same | {"root_correlation_id": "A", "turn_index": 1}),
    ]
    sessions = read_aiperf(_write(tmp_path, rows)).requests.column("session").to_pylist()
    assert sessions == ["c", "c", "c#2", "c"]


def _plain(number: int, **metrics: Any) -> dict[str, Any]:
    units = {name: {"value": value, "unit": "x"} for name, value in metrics.items()}
    return {"metadata": _metadata(number), "metrics": units}


def test_without_a_raw_export_the_gaps_are_used(tmp_path: Path) -> None:
    """The per-request export gives chunk times by its list of gaps, marked as not exact."""
    row = _plain(
        0,
        time_to_first_token=100.0,
        time_to_first_output_token=100.0,
        inter_chunk_latency=[10.0, 15.0],
        usage_prompt_tokens=40,
        usage_completion_tokens=3,
        output_sequence_length=7,
    )
    export = read_aiperf(_write(tmp_path, None, [row]))
    found = export.requests.to_pylist()[0]
    assert not export.exact and export.tokens_from == "server"
    assert found["chunk_ns"] == [EPOCH + ms * 1_000_000 for ms in (100, 110, 125)]
    assert found["chunk_tokens"] == [1, 1, 1] and found["output_tokens"] == 3
    assert found["cached_tokens"] is None


def test_client_counts_are_taken_only_where_no_usage_is_and_said(tmp_path: Path) -> None:
    """Foreign exports without usage keep the client's counts under that name."""
    row = _plain(0, ttft=100.0, request_latency=150.0, input_sequence_length=30, output_sequence_length=7)
    export = read_aiperf(_write(tmp_path, None, [row]))
    found = export.requests.to_pylist()[0]
    assert export.tokens_from == "client"
    assert (found["input_tokens"], found["output_tokens"]) == (30, 7)
    assert found["last_token_ns"] == EPOCH + 150_000_000


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (RAW, lambda text: text[: len(text) // 2]),
        (RAW, lambda text: text + '{"metadata": {}}\n'),
        (RAW, lambda text: text + "[1]\n"),
        (RAW, lambda text: text + text),
        (SUMMARY, lambda text: text[:-5]),
        (SUMMARY, lambda text: "[]"),
    ],
)
def test_damaged_exports_are_refused_with_their_place(tmp_path: Path, name: str, damage: Any) -> None:
    """A cut line, a foreign row or a doubled request is one clear error with file and line, no crash."""
    folder = _write(tmp_path, [_raw(0, _answer())])
    path = folder / name
    path.write_text(damage(path.read_text()))
    with pytest.raises(UnreadableExportError, match=name):
        read_aiperf(folder)


def test_an_empty_folder_is_no_export(tmp_path: Path) -> None:
    """Nothing there is an error, not a run of zero requests."""
    with pytest.raises(UnreadableExportError, match="no profile_export"):
        read_aiperf(tmp_path)


def test_all_failed_runs_have_rows_without_a_summary(tmp_path: Path) -> None:
    """AIPerf writes no summary when every request fails; the failures are still read."""
    folder = _write(tmp_path, [_raw(0, [], 500)])
    (folder / SUMMARY).unlink()
    (folder / READY).unlink()
    export = read_aiperf(folder)
    assert not export.is_complete and not export.is_ready
    assert export.requests.column("error_type").to_pylist() == ["http_500"]


def test_a_whole_body_has_no_first_token() -> None:
    """An answer that was not streamed has an end and no time to first token."""
    body = {
        "choices": [{"message": {"content": "hi"}, "finish_reason": None}],
        "usage": {"completion_tokens": 1},
    }
    stream = read_stream([(5, json.dumps(body))], streamed=False)
    assert stream.ending == "complete" and stream.text == "hi"


def test_completions_bear_text() -> None:
    """The text endpoint's chunks count as the chat endpoint's do."""
    events = [(1, json.dumps({"choices": [{"text": " a", "finish_reason": None}]})), (2, "[DONE]")]
    stream = read_stream(events)
    assert stream.times == [1] and stream.first_output == 1 and stream.ending == "complete"
