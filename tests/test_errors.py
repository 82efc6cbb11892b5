"""Errors for people: one line, and the exit code of their kind."""

from __future__ import annotations

import pytest

from isoline.errors import GateFailedError, IncompleteError, InfraError, InputError, IsolineError


def test_one_line_says_where_what_and_what_to_do() -> None:
    """Parts that are empty leave no trace; line breaks and runs of blanks become single blanks."""
    assert IsolineError("wrong").line() == "wrong"
    assert IsolineError("wrong", where="f:1", remedy="mend it").line() == "f:1: wrong; mend it"
    assert str(IsolineError("a\nb   c", remedy="d\te")) == "a b c; d e"


@pytest.mark.parametrize(
    ("kind", "code"), [(InputError, 1), (GateFailedError, 2), (IncompleteError, 3), (InfraError, 4)]
)
def test_exit_codes(kind: type[IsolineError], code: int) -> None:
    """Each kind has the exit code of DESIGN 5.7."""
    assert kind("x").exit_code == code
