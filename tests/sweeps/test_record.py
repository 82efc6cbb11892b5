"""What an attempt leaves: the record's verdict, the client's warm-up, and a lock that is enough."""

from __future__ import annotations

import pyarrow as pa
import pytest

from isoline.results.bundles.requests import REQUESTS_SCHEMA
from isoline.sweeps.execution.record import client_warmup_s


def rows(*spans: tuple[str, int, int | None]) -> pa.Table:
    """Requests of (phase, intended send, end) in seconds."""
    return pa.Table.from_pylist(
        [
            {
                "request_id": f"q{number}",
                "turn": 0,
                "phase": phase,
                "status": "ok" if end is not None else "error",
                "intended_send_ns": begin * 10**9,
                "end_ns": None if end is None else end * 10**9,
            }
            for number, (phase, begin, end) in enumerate(spans)
        ],
        schema=REQUESTS_SCHEMA,
    )


@pytest.mark.parametrize(
    ("table", "seconds"),
    [
        (rows(), None),
        (rows(("measured", 10, 12)), None),
        (rows(("warmup", 3, 5), ("measured", 10, 12)), 2.0),
        (rows(("warmup", 3, 5), ("warmup", 4, 9), ("measured", 10, 99)), 6.0),
        (rows(("warmup", 3, None)), None),
    ],
)
def test_the_client_s_own_warm_up(table: pa.Table, seconds: float | None) -> None:
    """From its first warm-up request to the end of its last; null where there was none."""
    assert client_warmup_s(table) == seconds
