"""The per-request table: enough to derive every metric again (DESIGN 5.5).

One row for each request that the load generator issued, warm-up included (``phase`` tells).
All times are nanoseconds since the Unix epoch, on one clock inside a file.
"""

from __future__ import annotations

import pyarrow as pa

REQUESTS_SCHEMA_VERSION = 1

REQUESTS_SCHEMA = pa.schema(
    [
        pa.field("request_id", pa.string(), nullable=False),
        pa.field("lane", pa.int32()),  # worker lane or session number where the client tells
        pa.field("session", pa.string()),  # conversation, trace session
        pa.field("turn", pa.int32(), nullable=False),
        pa.field("depth", pa.int32()),  # sub-agent depth, 0 = main session
        pa.field("phase", pa.string(), nullable=False),  # warmup | measured
        pa.field("status", pa.string(), nullable=False),  # ok | error | cancelled
        pa.field("http_status", pa.int32()),
        pa.field("error_type", pa.string()),
        pa.field("error_message", pa.string()),
        pa.field("intended_send_ns", pa.int64(), nullable=False),
        pa.field("send_ns", pa.int64()),
        pa.field("first_token_ns", pa.int64()),  # first token-bearing chunk, reasoning included
        pa.field("first_output_token_ns", pa.int64()),  # first token-bearing chunk that is not reasoning
        pa.field("last_token_ns", pa.int64()),  # last token-bearing chunk
        pa.field("end_ns", pa.int64()),  # end of the response, or of the failure
        pa.field("chunk_ns", pa.list_(pa.int64())),  # time of each token-bearing chunk
        pa.field("chunk_tokens", pa.list_(pa.int32())),  # tokens in each; null where unknown
        pa.field("requested_input_tokens", pa.int64()),  # server-side length asked for, null where open
        pa.field("requested_output_tokens", pa.int64()),
        pa.field("input_tokens", pa.int64()),  # server usage
        pa.field("cached_tokens", pa.int64()),  # server usage, part of input_tokens
        pa.field("output_tokens", pa.int64()),  # server usage
        pa.field("reasoning_tokens", pa.int64()),  # server usage, part of output_tokens
        pa.field("text_tokens", pa.int64()),  # output text re-tokenised afterwards; null where not sampled
    ],
    metadata={b"isoline.schema_version": str(REQUESTS_SCHEMA_VERSION).encode()},
)
