"""Paired answers and many decisions: borders (the numbers are in test_oracles)."""

from __future__ import annotations

import math

import pytest

from isoline.analysis.shares import holm, mcnemar, mcnemar_of


def test_sheets_are_counted_pair_by_pair() -> None:
    """Only questions on which the two differ count: here 3 against 1."""
    first = [True, True, True, True, False, False]
    second = [True, False, False, False, True, False]
    assert mcnemar_of(first, second) == mcnemar(3, 1) == 0.625


def test_wrong_input_is_refused() -> None:
    """Sheets of two lengths, counts below 0 and what is no probability are errors, never a p value."""
    with pytest.raises(ValueError, match="same questions"):
        mcnemar_of([True], [True, False])
    with pytest.raises(ValueError, match="below 0"):
        mcnemar(-1, 2)
    for wrong in (math.nan, -0.1, 1.1):
        with pytest.raises(ValueError, match="between 0 and 1"):
            holm([0.01, wrong])
    assert holm([]) == []
