"""The journal, and the overhead that is computed from a run's records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isoline.results.bundles.records import PhaseRow, PointRecord, WindowSpan
from isoline.sweeps.state.journal import Journal, Overhead, overhead, read_journal


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Events come back in order, with their fields and times."""
    journal = Journal(tmp_path / "deep" / "journal.jsonl")
    journal.write("phase", phase="load", point_id="p")
    journal.write("end")
    first, second = read_journal(tmp_path / "deep" / "journal.jsonl")
    assert (first["event"], first["phase"], first["point_id"]) == ("phase", "load", "p")
    assert second["event"] == "end"
    assert second["mono_s"] >= first["mono_s"]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    """After a crash the last line may be half; what is no event is passed; no journal is no events."""
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"event": "a"}\n[1]\n\xff\n{"event": "b"}\n{"event": "c')
    assert [event["event"] for event in read_journal(path)] == ["a", "b"]
    assert read_journal(tmp_path / "none") == []


def at(second: float) -> str:
    return f"2026-12-01T02:{int(second) // 60:02d}:{second % 60:06.3f}Z"


@pytest.fixture
def record(bundles: Any, tmp_path: Path) -> PointRecord:
    """One honest attempt; tests change what they need."""
    plan = bundles.make_plan()
    run = bundles.make_run(tmp_path, plan)
    path = run / plan.launches[0].points[0].point_id / "1" / "point.json"
    return PointRecord.model_validate_json(path.read_bytes())


def attempt(record: PointRecord, begin_s: float, end_s: float, started_s: float, **more: Any) -> PointRecord:
    """An attempt that started at ``started_s`` and whose load was from ``begin_s`` to ``end_s``.

    Warm-up takes 2 s, the canary 3 s and a check 4 s.
    """
    window = WindowSpan(start_ns=int(begin_s * 1e9), end_ns=int(end_s * 1e9), completions=1)
    phases = [
        PhaseRow(name=name, started_at=at(started_s), duration_s=duration)
        for name, duration in (
            ("reset", 0.5),
            ("warmup", 2.0),
            ("load", 99.0),
            ("canary", 3.0),
            ("accuracy", 4.0),
        )
    ]
    changes = {"windows": {"full": window}, "phases": phases, "started_at": at(started_s), **more}
    return record.model_copy(update=changes)


def test_overhead_is_what_is_left_between_two_loads(record: PointRecord) -> None:
    """20 s between two loads, of which 2 + 3 + 4 s were work: 11 s are the harness."""
    first = attempt(record, 10, 30, started_s=1)
    second = attempt(record, 50, 60, started_s=40)
    assert overhead([second, first]) == Overhead(median_s=11.0, pairs=1)


def test_the_client_s_own_warm_up_is_work(record: PointRecord) -> None:
    """The load generator's warm-up request lies in the gap and is no overhead; null is nothing."""
    first = attempt(record, 10, 30, started_s=1, client={"client_warmup_s": 9.0})
    second = attempt(record, 50, 60, started_s=40, client={"client_warmup_s": 1.5})
    third = attempt(record, 80, 90, started_s=70, client={"client_warmup_s": None})
    assert overhead([first, second]).median_s == 9.5
    assert overhead([second, third]).median_s == 11.0


def test_only_neighbours_on_one_server_are_compared(record: PointRecord) -> None:
    """A start of a server between two points is no overhead of a point; an attempt without load is passed."""
    first = attempt(record, 10, 30, started_s=1)
    other = attempt(record, 50, 60, started_s=40, launch_id="0123456789-2")
    assert overhead([first, other]) == Overhead(None, 0)
    no_load = attempt(record, 0, 0, started_s=35).model_copy(update={"windows": {"full": None}})
    second = attempt(record, 50, 60, started_s=40)
    assert overhead([first, no_load, second]).pairs == 1
    assert overhead([]) == Overhead(None, 0)


def test_the_median_over_all_pairs(record: PointRecord) -> None:
    """One slow gap does not move the figure."""
    begins = [10, 40, 70, 160]  # gaps of 20, 20 and 80 s
    records = [attempt(record, b, b + 10, started_s=b - 5) for b in begins]
    assert overhead(records) == Overhead(median_s=11.0, pairs=3)
