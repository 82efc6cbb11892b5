"""From AIPerf's artefact folder to the per-request table of a point, complete for the judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from isoline.load.command import LoadSpec
from isoline.load.profile import ClientProfile
from isoline.load.retokenise import count_tokens, sample_texts
from isoline.load.supervise import LoadOutcome
from isoline.results.importers.aiperf import AiperfExport, UnreadableExportError, read_aiperf
from isoline.results.judging.judge import ClientFacts, ExportFacts, send_delays_ms


def complete_table(
    table: pa.Table, *, requested_input_tokens: int | None, text_tokens: Mapping[str, int]
) -> pa.Table:
    """The table with the asked server-side input length and the re-tokenised counts filled in."""
    asked = pa.array([requested_input_tokens] * table.num_rows, pa.int64())
    ids = table.column("request_id").to_pylist()
    counted = pa.array([text_tokens.get(request_id) for request_id in ids], pa.int64())
    schema = table.schema
    table = table.set_column(
        schema.get_field_index("requested_input_tokens"), schema.field("requested_input_tokens"), asked
    )
    return table.set_column(schema.get_field_index("text_tokens"), schema.field("text_tokens"), counted)


def collect(
    spec: LoadSpec, outcome: LoadOutcome, tokenizer_file: Path | None
) -> tuple[AiperfExport | None, ExportFacts]:
    """Read and complete what a load left. An unreadable export is a fact for the judge, not an error.

    :param tokenizer_file: ``tokenizer.json`` for the check of token counts; None = no check.
    """
    try:
        export = read_aiperf(spec.artifact_dir)
    except UnreadableExportError as error:
        return None, ExportFacts(exit_code=outcome.exit_code, signal=outcome.signal, error=error.line())
    counts: dict[str, int] = {}
    if tokenizer_file is not None and export.texts:
        counts = count_tokens(sample_texts(export.texts, spec.seed), tokenizer_file)
    table = complete_table(
        export.requests,
        requested_input_tokens=spec.isl if spec.kind == "fixed_length" else None,
        text_tokens=counts,
    )
    facts = ExportFacts(
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        is_ready=export.is_ready,
        is_complete=export.is_complete,
        was_cancelled=export.was_cancelled,
        start_ns=export.start_ns,
    )
    return replace(export, requests=table), facts


def client_facts(spec: LoadSpec, outcome: LoadOutcome) -> ClientFacts:
    """What the judge wants to know of the client."""
    return ClientFacts(
        tick_hz=spec.tick_hz,
        busy_share=outcome.busy_share,
        max_busy_share=spec.profile.max_busy_share,
        max_send_delay_ms=spec.profile.max_send_delay_ms,
    )


def client_record(
    profile: ClientProfile, version: str, spec: LoadSpec, outcome: LoadOutcome, table: pa.Table | None
) -> dict[str, object]:
    """The ``client`` part of point.json: who loaded, how, and the evidence of its health."""
    delays = send_delays_ms(table) if table is not None else np.empty(0)
    send_delay = {
        f"p{q}": round(float(np.percentile(delays, q)), 3) if delays.size else None for q in (50, 90, 99)
    }
    return {
        "name": "aiperf",
        "version": version,
        "profile": profile.name,
        "identity": profile.identity(),
        "tick_hz": spec.tick_hz,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "stop_reason": outcome.stop_reason,
        "wall_s": round(outcome.wall_s, 3),
        "cpu_s": round(outcome.cpu_s, 3),
        "busy_share": outcome.busy_share,
        "send_delay_ms": send_delay,
    }
