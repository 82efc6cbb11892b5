"""The measured requests of a per-request table as numpy arrays. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from isoline.results.metrics.windows import Floats

Bools = NDArray[np.bool_]
NS = 1e9


@dataclass(frozen=True)
class Requests:
    """The measured requests as arrays of one length; seconds since ``origin_ns``, NaN = absent."""

    origin_ns: int
    ok: Bools
    failed: Bools
    intended: Floats
    first: Floats
    first_output: Floats
    last: Floats
    end: Floats
    input_tokens: Floats
    cached_tokens: Floats
    output_tokens: Floats
    reasoning_tokens: Floats
    first_chunk_tokens: Floats  # 1 where unknown
    first_chunk_known: Bools
    session: NDArray[np.int64]  # number of the session, -1 = none
    multi_turn: bool
    chunk_ns: list[Floats | None] = field(repr=False)
    chunk_tokens: list[Floats | None] = field(repr=False)


def _floats(table: pa.Table, name: str) -> Floats:
    column = table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(column, dtype=np.float64)


def _seconds(table: pa.Table, name: str, origin: int) -> Floats:
    # Subtract as integers: epoch nanoseconds do not fit in a float64 exactly.
    column = table.column(name)
    missing = np.asarray(column.is_null().to_numpy(zero_copy_only=False), dtype=bool)
    whole = np.asarray(column.fill_null(origin).to_numpy(zero_copy_only=False), dtype=np.int64)
    seconds = (whole - origin) / NS
    seconds[missing] = np.nan
    return np.asarray(seconds, dtype=np.float64)


def _lists(table: pa.Table, name: str, origin: int | None) -> list[Floats | None]:
    """A list column as arrays; None for a null list or one with a null in it."""
    column = pa.concat_arrays(table.column(name).chunks) if table.num_rows else None
    if column is None:
        return []
    offsets = np.asarray(column.offsets.to_numpy(zero_copy_only=False))
    is_null = np.asarray(column.is_null().to_numpy(zero_copy_only=False), dtype=bool)
    values = column.values
    missing = np.asarray(values.is_null().to_numpy(zero_copy_only=False), dtype=bool)
    whole = np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    # Subtract as integers: epoch nanoseconds do not fit in a float64 exactly.
    flat = whole.astype(np.float64) if origin is None else (whole - origin) / NS
    missing_before = np.concatenate([[0], np.cumsum(missing)])
    return [
        None if null or missing_before[stop] > missing_before[start] else flat[start:stop]
        for start, stop, null in zip(offsets[:-1], offsets[1:], is_null, strict=True)
    ]


def measured(table: pa.Table) -> Requests:
    """The measured rows of a per-request table (schema of ``requests.py``)."""
    table = table.filter(pc.equal(table.column("phase"), "measured"))
    origin = pc.min(table.column("intended_send_ns")).as_py() or 0

    def has_status(status: str) -> Bools:
        found = pc.equal(table.column("status"), status).to_numpy()
        return np.asarray(found, dtype=bool)

    chunk_tokens = _lists(table, "chunk_tokens", None)
    first_chunk = np.array(
        [tokens[0] if tokens is not None and tokens.size else np.nan for tokens in chunk_tokens],
        dtype=np.float64,
    )
    names = table.column("session").to_pylist()
    numbers: dict[str, int] = {}
    session = np.array(
        [-1 if name is None else numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64
    )
    turns = np.asarray(table.column("turn").to_numpy(zero_copy_only=False), dtype=np.int64)
    return Requests(
        origin_ns=origin,
        ok=has_status("ok"),
        failed=has_status("error"),
        intended=_seconds(table, "intended_send_ns", origin),
        first=_seconds(table, "first_token_ns", origin),
        first_output=_seconds(table, "first_output_token_ns", origin),
        last=_seconds(table, "last_token_ns", origin),
        end=_seconds(table, "end_ns", origin),
        input_tokens=_floats(table, "input_tokens"),
        cached_tokens=_floats(table, "cached_tokens"),
        output_tokens=_floats(table, "output_tokens"),
        reasoning_tokens=_floats(table, "reasoning_tokens"),
        first_chunk_tokens=np.where(np.isnan(first_chunk), 1.0, first_chunk),
        first_chunk_known=~np.isnan(first_chunk),
        session=session,
        multi_turn=bool((turns > 0).any()),
        chunk_ns=_lists(table, "chunk_ns", origin),
        chunk_tokens=chunk_tokens,
    )


def lanes(requests: Requests) -> tuple[Floats, Floats]:
    """(start, end) of what counts as in flight, seconds: requests, or sessions where there are turns.

    A session is in flight from its first send to the end of its last request: a lane that waits
    between two turns is occupied.
    """
    end = np.where(np.isnan(requests.end), requests.last, requests.end)
    if not requests.multi_turn:
        return requests.intended, end
    count = int(requests.session.max(initial=-1)) + 1
    starts = np.full(count, np.inf)
    ends = np.full(count, -np.inf)
    named = requests.session >= 0
    np.minimum.at(starts, requests.session[named], requests.intended[named])
    known = named & ~np.isnan(end)
    np.maximum.at(ends, requests.session[known], end[known])
    whole = np.isfinite(starts) & np.isfinite(ends)
    return starts[whole], ends[whole]
