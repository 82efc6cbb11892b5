"""The decision files: those of this project are right, and mistakes in them are errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from isoline.errors import InputError
from isoline.results.decisions.documents import FILES, check_decisions, load_overrides

PROJECT = Path(__file__).resolve().parents[2]
GOOD = """schema_version: 1
overrides:
  - run_id: 20261201T020000Z-demo-aaaaaa
    action: withdraw
    reason: the node ran another job at that time
    reviewer: maintainer
    dated: "2026-12-02"
"""


def test_the_files_of_this_project_are_right() -> None:
    """Every decision file is there and of its schema."""
    assert [name for name in FILES if not (PROJECT / "results" / name).is_file()] == []
    check_decisions(PROJECT)


def project(tmp_path: Path, text: str) -> Path:
    """A project with this overrides file."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "overrides.yaml").write_text(text)
    return tmp_path


def test_override_without_a_point_is_for_the_run(tmp_path: Path) -> None:
    """A decision names a run, and a point where it is about one only."""
    (override,) = load_overrides(project(tmp_path, GOOD))
    assert (override.action, override.point_id) == ("withdraw", None)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("withdraw", "delete", "withdraw"),
        ("20261201T020000Z-demo-aaaaaa", "last-night", "run_id"),
        ("the node ran another job at that time", "bad", "reason"),
        ("    reviewer: maintainer\n", "", "reviewer"),
        ('"2026-12-02"', '"yesterday"', "dated"),
        ("schema_version: 1", "schema_version: 9", "schema_version"),
        ("overrides:", "override:", "did you mean 'overrides'"),
    ],
)
def test_mistakes_are_errors(tmp_path: Path, old: str, new: str, word: str) -> None:
    """Each mistake is an error with file and line: a decision is never dropped."""
    with pytest.raises(InputError, match=r"results/overrides\.yaml:\d+") as caught:
        load_overrides(project(tmp_path, GOOD.replace(old, new)))
    assert word in caught.value.line()


def test_the_same_decision_twice_is_an_error(tmp_path: Path) -> None:
    """Two lines about one thing: nobody knows which reason holds."""
    entry = GOOD.split("overrides:\n")[1]
    with pytest.raises(InputError, match="there twice"):
        load_overrides(project(tmp_path, GOOD + entry))
