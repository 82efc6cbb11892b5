"""Following a run: each change of phase with cause, evidence and next step, across restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isoline.sweeps.state.follow import follow, journal_events, line
from isoline.sweeps.state.journal import JOURNAL, Journal
from isoline.sweeps.state.logs import find_logs, follow_logs, is_written, launch_logs, tail
from isoline.sweeps.state.runs import Run


@pytest.fixture
def run(bundles: Any, tmp_path: Path) -> Run:
    """A run with a sealed point."""
    plan = bundles.make_plan()
    folder = bundles.make_run(tmp_path / "store", plan)
    return Run(folder.name, folder, plan)


def test_lines_have_cause_evidence_and_next(run: Run) -> None:
    """All keys are always there; evidence is a path; what nothing is said about is null."""
    journal = Journal(run.work / JOURNAL)
    journal.write("run", run_id=run.run_id)
    journal.write("phase", phase="load", point_id="p", launch_id="a-1", attempt=1)
    journal.write("waits", **{"for": {}})
    journal.write("launch_failed", phase="failed", launch_id="a-1", cause="oom: full", evidence="x", next="n")
    journal.write("end", skipped={"breaker": 2})
    rows = list(follow(run, lambda: True))
    assert [row["event"] for row in rows] == ["run", "phase", "launch_failed", "end"]
    assert len({tuple(row) for row in rows}) == 1
    assert rows[1]["next"] == "canary"
    assert rows[1]["evidence"] == str(run.folder / "_launch/a-1/server.log")
    assert rows[2]["evidence"] == str(run.folder / "x")
    assert rows[3]["cause"] == "2 skipped: breaker"
    assert rows[0]["cause"] is rows[0]["evidence"] is rows[0]["next"] is None
    assert line(rows[2])[9:] == "launch a-1 failed: oom: full; n"


def test_following_goes_on_over_a_kill(tmp_path: Path) -> None:
    """A journal without an end is waited for; a half line is read once it is whole; then it ends."""
    path = tmp_path / "journal.jsonl"
    steps = iter(['{"event": "ph', 'ase"}\n{"event": "run"}\n', '{"event": "end"}\n'])
    path.write_text('{"event": "run"}\n')

    def sleep(_: float) -> None:
        with path.open("a") as file:
            file.write(next(steps))

    found = [item["event"] for item in journal_events(path, lambda: True, sleep)]
    assert found == ["run", "phase", "run", "end"]


def test_a_run_whose_process_still_works_is_not_over(tmp_path: Path) -> None:
    """An end of an earlier start does not end the following while somebody works at the run."""
    path = tmp_path / "journal.jsonl"
    path.write_text('{"event": "end"}\n')
    answers = iter([False, True])
    assert len(list(journal_events(path, lambda: next(answers), lambda _: None))) == 1


def test_logs_of_a_sealed_point_and_of_a_launch(run: Run, tmp_path: Path) -> None:
    """A point has its launch's server log; a launch its own; an unknown name is one line."""
    point = run.plan.launches[0].points[0].point_id
    found_in, logs = find_logs(tmp_path / "store", point)
    assert found_in.run_id == run.run_id
    assert [log.path.name for log in logs] == ["server.log"]
    launch_id = logs[0].label.split()[-1]
    assert find_logs(tmp_path / "store", launch_id)[1] == logs
    assert not is_written(run, logs)
    assert tail(logs[0].path, 5) == "listening\n"
    with pytest.raises(Exception, match="no log of point or launch 'nobody'"):
        find_logs(tmp_path / "store", "nobody")


def test_logs_that_are_written_are_followed_over_their_sealing(run: Run) -> None:
    """What comes after the folder was renamed in is still read: it is the same file."""
    work = run.work / "_launch~feedfeedfe-1.abcd"
    work.mkdir(parents=True)
    (work / "server.log").write_text("old\n")
    logs = launch_logs(run, "feedfeedfe-1")
    assert is_written(run, logs)
    target = run.folder / "_launch" / "feedfeedfe-1"

    def sleep(_: float) -> None:
        with (work / "server.log").open("a") as file:
            file.write("new\n")
        work.rename(target)

    assert [text for _, text in follow_logs(logs, lambda: not is_written(run, logs), sleep)] == ["new\n"]
