"""What happened in a run and when, from its sealed bundles: the rows of the table ``events``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from isoline.results.bundles.checks import utc
from isoline.results.bundles.readers import RunFiles
from isoline.results.bundles.records import CauseRecord, PhaseRow, ReasonNote

Row = dict[str, Any]

WHAT: tuple[str, ...] = (
    "launch_started",
    "attempt_started",
    "phase_failed",
    "reason",
    "cause",
    "attempt_ended",
    "skipped",
    "launch_ended",
)
"""What can happen, in the order of what has one time: why comes before the end.

``code`` is the verdict of an end, the name of a phase, the code of a reason, the name of what a log proves,
or why a point was skipped; ``detail`` is what was seen.
"""


def event_rows(files: RunFiles) -> list[Row]:
    """Every event of a run in the order of time; what has one time in the order of :data:`WHAT`."""
    rows = [*_of_launches(files), *_of_attempts(files), *_of_skips(files)]
    return sorted(rows, key=lambda row: (row["happened_at"], WHAT.index(row["what"])))


def _of_launches(files: RunFiles) -> Iterator[Row]:
    for item in files.launches:
        record = item.record
        who = _who(record.run_id, record.launch_id)
        yield _row(who, record.started_at, "launch_started", None, record.recipe_id)
        yield from _trouble(who, record.ended_at, record.phases, record.reasons, record.cause)
        yield _row(who, record.ended_at, "launch_ended", record.verdict.value)


def _of_attempts(files: RunFiles) -> Iterator[Row]:
    for item in files.points:
        record = item.record
        who = _who(record.run_id, record.launch_id, record.point_id, record.attempt)
        yield _row(who, record.started_at, "attempt_started")
        yield from _trouble(who, record.ended_at, record.phases, record.reasons, record.cause)
        yield _row(who, record.ended_at, "attempt_ended", record.verdict.value)


def _of_skips(files: RunFiles) -> Iterator[Row]:
    for item in files.skipped:
        for point in item.record.points:
            who = _who(item.record.run_id, None, point.point_id)
            yield _row(who, item.record.at, "skipped", point.cause, point.detail)


def _trouble(
    who: Row,
    ended_at: str,
    phases: Sequence[PhaseRow],
    reasons: Sequence[ReasonNote],
    cause: CauseRecord | None,
) -> Iterator[Row]:
    for phase in phases:
        if phase.outcome != "ok":
            yield _row(who, phase.started_at, "phase_failed", phase.name, phase.outcome)
    for reason in reasons:
        yield _row(who, ended_at, "reason", reason.code, reason.detail)
    if cause is not None:
        yield _row(who, ended_at, "cause", cause.name, next((line.text for line in cause.lines), ""))


def _who(run_id: str, launch_id: str | None, point_id: str | None = None, attempt: int | None = None) -> Row:
    return {"run_id": run_id, "launch_id": launch_id, "point_id": point_id, "attempt": attempt}


def _row(who: Row, at: str, what: str, code: str | None = None, detail: str = "") -> Row:
    moment: datetime = utc(at)
    return {**who, "happened_at": moment, "what": what, "code": code, "detail": detail or None}
