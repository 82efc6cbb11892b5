"""Reason codes that only imported rows have."""

from __future__ import annotations

from isoline.results.judging.verdicts import Reason, Verdict, row

IMPORTED: tuple[Reason, ...] = (
    row(
        "mock_data",
        Verdict.INVALID,
        "import",
        "the source says that these numbers are made up",
        "nothing to do; it is never shown as a measurement",
    ),
)
"""One row each."""
