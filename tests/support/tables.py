"""Makes per-request tables for tests from short descriptions. Times are milliseconds from an epoch.

table([request(send=0, chunks=[100, 120, 140], tokens=[1, 1, 1])])
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from isoline.results.bundles.requests import REQUESTS_SCHEMA

EPOCH_NS = 1_796_000_000_000_000_000


def ns(ms: float) -> int:
    """Epoch nanoseconds of a time in milliseconds."""
    return EPOCH_NS + round(ms * 1e6)


def request(
    send: float,
    chunks: list[float],
    tokens: list[int] | None = None,
    *,
    output: int | None = -1,
    input: int | None = 100,
    cached: int | None = 0,
    delay: float = 0.5,
    end: float | None = None,
    **columns: Any,
) -> dict[str, Any]:
    """One completed measured request, issued at ``send``, with token-bearing chunks at ``chunks``.

    ``output`` -1: the sum of ``tokens``, or one for each chunk.
    """
    if output == -1:
        output = sum(tokens) if tokens is not None else len(chunks)
    last = chunks[-1] if chunks else send
    row: dict[str, Any] = {
        "turn": 0,
        "phase": "measured",
        "status": "ok",
        "http_status": 200,
        "intended_send_ns": ns(send),
        "send_ns": ns(send + delay),
        "first_token_ns": ns(chunks[0]) if chunks else None,
        "first_output_token_ns": ns(chunks[0]) if chunks else None,
        "last_token_ns": ns(last) if chunks else None,
        "end_ns": ns(last if end is None else end),
        "chunk_ns": [ns(chunk) for chunk in chunks] if chunks else None,
        "chunk_tokens": tokens,
        "input_tokens": input,
        "cached_tokens": cached,
        "output_tokens": output,
    }
    return row | columns


def failed(send: float, end: float, error_type: str = "http_500", **columns: Any) -> dict[str, Any]:
    """One failed measured request."""
    row = request(send, [], output=None, input=None, cached=None, end=end)
    return row | {"status": "error", "http_status": 500, "error_type": error_type} | columns


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """A table of the schema; request ids and sessions are numbered where not given."""
    named = [{"request_id": f"r{index}", "session": f"s{index}"} | row for index, row in enumerate(rows)]
    return pa.Table.from_pylist(
        [{name: row.get(name) for name in REQUESTS_SCHEMA.names} for row in named], REQUESTS_SCHEMA
    )


def closed_loop(
    concurrency: int,
    count: int,
    *,
    ttft: float = 100,
    itl: float = 10,
    tokens: int = 11,
    gap: float = 10,
    stagger: float = 20,
) -> list[dict[str, Any]]:
    """``count`` requests by ``concurrency`` lanes in a perfect closed loop, in order of sending."""
    free = [lane * stagger for lane in range(concurrency)]
    rows = []
    for _ in range(count):
        lane = free.index(min(free))
        send = free[lane]
        chunks = [send + ttft + itl * index for index in range(tokens)]
        rows.append(request(send, chunks, [1] * tokens))
        free[lane] = chunks[-1] + gap
    return rows
