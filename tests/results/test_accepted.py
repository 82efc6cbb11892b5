"""Accepted changes as a reviewed file."""

from __future__ import annotations

from pathlib import Path

import pytest

from isoline.errors import InputError
from isoline.results.decisions.accepted import FILE, accept_change, load_accepted, starts_of

CHANGE = {
    "curve_key": "0123456789abcdef",
    "from_run_id": "20261201T020000Z-nightly-a1b2c3",
    "reason": "the engine's new default, agreed",
    "reviewer": "perf-team",
    "dated": "2026-12-02",
}


def test_a_project_without_the_file_gets_one(tmp_path: Path) -> None:
    """None are accepted where there is no file; the first one makes it."""
    assert load_accepted(tmp_path) == []
    accept_change(tmp_path, CHANGE)
    accept_change(tmp_path, {**CHANGE, "from_run_id": "20261101T020000Z-nightly-a1b2c3"})
    accept_change(tmp_path, {**CHANGE, "curve_key": "fedcba9876543210"})
    found = load_accepted(tmp_path)
    assert len(found) == 3
    assert starts_of(found, "0123456789abcdef") == [
        "20261101T020000Z-nightly-a1b2c3",
        "20261201T020000Z-nightly-a1b2c3",
    ]
    assert starts_of(found, "0" * 16) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reason", "short"),
        ("curve_key", "xyz"),
        ("from_run_id", "newest"),
        ("reviewer", ""),
        ("dated", "today"),
    ],
)
def test_what_is_no_change_is_refused(tmp_path: Path, field: str, value: str) -> None:
    """Each field that is not of the schema is named, and nothing is written."""
    with pytest.raises(InputError, match=field):
        accept_change(tmp_path, {**CHANGE, field: value})
    assert not (tmp_path / FILE).exists()


def test_a_file_that_is_broken_is_an_error(tmp_path: Path) -> None:
    """An unreadable decision is never taken for none."""
    (tmp_path / "results").mkdir()
    (tmp_path / FILE).write_text("schema_version: 1\naccepted_changes: [{curve_key: a}]\n", encoding="utf-8")
    with pytest.raises(InputError):
        load_accepted(tmp_path)
