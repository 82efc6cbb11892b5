"""Verdicts, and what a reason code is. The rows are in :mod:`isoline.results.judging.reasons`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What an attempt is worth."""

    VALID = "valid"
    PARTIAL = "partial"
    INVALID = "invalid"
    INFRA_ERROR = "infra_error"
    CANCELLED = "cancelled"


SEVERITY: tuple[Verdict, ...] = (
    Verdict.VALID,
    Verdict.PARTIAL,
    Verdict.INVALID,
    Verdict.INFRA_ERROR,
    Verdict.CANCELLED,
)
"""From best to worst; the verdict of an attempt is the worst that its reasons give.

``infra_error`` outranks ``invalid``: where the machine failed, nothing is known about the engine.
"""

MAX_INFRA_RETRIES = 2


@dataclass(frozen=True)
class Reason:
    """One reason code. ``verdict`` is what it makes of the attempt that carries it."""

    code: str
    verdict: Verdict
    phase: str
    meaning: str
    remedy: str


def row(code: str, verdict: Verdict, phase: str, meaning: str, remedy: str) -> Reason:
    """One row of the table."""
    return Reason(code, verdict, phase, meaning, remedy)
