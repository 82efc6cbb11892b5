"""Commands to a run: durable, in order, and each with one meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from isoline.results.judging.reasons import Verdict
from isoline.sweeps.state.control import (
    Command,
    Controls,
    fold,
    give,
    new_command,
    read_commands,
    read_controls,
)


def test_commands_count_in_their_order() -> None:
    """A resume ends a pause, a cancel and what was skipped by hand; what comes later counts."""
    pause, resume, cancel = (Command(verb, "t") for verb in ("pause", "resume", "cancel"))  # type: ignore[arg-type]
    assert fold([pause]).is_paused and not fold([pause, resume]).is_paused
    assert fold([cancel]).is_cancelled and not fold([cancel, resume]).is_cancelled
    assert fold([resume, cancel, pause]).is_cancelled
    assert fold([]) == Controls()
    skipped = fold([Command("skip", "t", "abcdefabcd-2", reason="slow")])
    assert skipped.why_skipped("abcdefabcd" + "0" * 54) == "skipped by hand: slow"
    assert skipped.why_skipped("0" * 64) == ""


def test_a_retry_is_for_one_attempt() -> None:
    """The point is due until it has one attempt more than when it was asked for."""
    controls = fold([Command("retry", "t1", "p", attempts=1)])
    assert controls.is_due("p", [Verdict.INVALID])
    assert not controls.is_due("p", [Verdict.INVALID, Verdict.INVALID])
    assert not controls.is_due("q", [Verdict.INVALID])
    assert controls.is_due("q", [])


def test_commands_survive_as_files(tmp_path: Path) -> None:
    """What was given is read back in order; a file that is none does no harm."""
    for number in range(3):
        give(tmp_path, new_command("retry", f"p{number}", attempts=number))
    (tmp_path / "control-0-x.json").write_text("{")
    assert [item.target for item in read_commands(tmp_path)] == ["p0", "p1", "p2"]
    assert read_controls(tmp_path).retries == {"p0": 0, "p1": 1, "p2": 2}
    assert read_controls(tmp_path / "absent").retries == {}


def test_a_clock_that_was_set_back_changes_no_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume that is given after a pause ends it, whatever the clock says."""
    for moment, verb in ((2_000, "pause"), (1_000, "resume"), (500, "cancel")):
        monkeypatch.setattr("time.time_ns", lambda moment=moment: moment)
        give(tmp_path, new_command(verb))  # type: ignore[arg-type]
    assert [item.verb for item in read_commands(tmp_path)] == ["pause", "resume", "cancel"]


def test_a_damaged_command_does_no_harm(tmp_path: Path) -> None:
    """One of other types is none."""
    give(tmp_path, new_command("pause"))
    (tmp_path / "control-1-skip.json").write_text('{"verb": "skip", "at": "t", "target": 5}')
    (tmp_path / "control-2-skip.json").write_text("[" * 100_000)
    assert read_controls(tmp_path).is_paused and read_controls(tmp_path).skipped == {}
