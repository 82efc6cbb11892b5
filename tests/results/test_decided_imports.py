"""Decisions of people about imported rows: applied after the files, taken back, shown, never official."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isoline.analysis.curves import curve_table
from isoline.results.foreign.store import Said, keep
from isoline.results.warehouse.asof import moment_at, open_at
from isoline.results.warehouse.file import open_reader
from isoline.results.warehouse.ingest import ingest
from isoline.results.warehouse.maintain import rebuild
from isoline.results.warehouse.snapshots import snapshot_points
from isoline.settings import Settings

ROW: dict[str, Any] = {
    "id": "9",
    "hardware": "b200",
    "model": "dsr1",
    "framework": "sglang",
    "precision": "fp8",
}
ROW |= {"isl": 1024, "osl": 1024, "decode_tp": 8, "prefill_tp": 8, "num_prefill_gpu": 8, "num_decode_gpu": 8}
ROW |= {"disagg": False, "date": "2026-11-02", "spec_method": "none"}
RUN = "import-inferencex-2026-11-02"


@pytest.fixture
def imported(settings: Settings) -> Settings:
    """Two imported points of one curve."""
    rows = [
        ROW | {"conc": count, "metrics": {"median_tpot": 0.01 * count, "tput_per_gpu": 100.0 * count}}
        for count in (1, 2)
    ]
    file = settings.project / "night" / "agg.json"
    file.parent.mkdir()
    file.write_text(json.dumps(rows))
    keep(settings.store, [file], Said())
    ingest(settings)
    return settings


def decide(settings: Settings, text: str) -> Path:
    """Write the overrides file; each line is one decision: run, point, action."""
    lines = ["schema_version: 1", "overrides:" if text else "overrides: []"]
    for line in text.splitlines():
        run, point, action = line.split()
        lines += [f"  - run_id: {run}", f"    point_id: {point}", f"    action: {action}"]
        lines += ["    reason: counted twice at its source", "    reviewer: ops", "    dated: '2026-11-20'"]
    file = settings.project / "results" / "overrides.yaml"
    file.write_text("\n".join(lines) + "\n")
    return file


def shown(settings: Settings, as_of: str | None = None) -> dict[int, tuple[bool, bool, list[str]]]:
    """Concurrency -> withdrawn, on the frontier, decisions; no point of it is ever official."""
    con = open_at(settings.warehouse, moment_at(settings.warehouse, as_of))
    rows = curve_table(snapshot_points(con))
    con.close()
    assert not any(row["official"] for row in rows)
    return {
        row["concurrency"]: ("withdrawn" in row["marks"], row["frontier"], row["decisions"]) for row in rows
    }


def test_a_withdrawal_comes_goes_and_is_rebuilt(imported: Settings, ask: Any) -> None:
    """It holds back its point alone, is applied again to rows made anew, and leaves nothing behind."""
    (point,) = [name for (name,) in ask("SELECT point_id FROM points WHERE concurrency = 2")]
    decide(imported, f"{RUN} {point} withdraw")
    line = "withdrawn: counted twice at its source (ops, 2026-11-20)"
    wanted = {1: (False, True, []), 2: (True, False, [line])}
    assert ingest(imported).warnings == []
    assert shown(imported) == wanted
    before = imported.warehouse.stat().st_mtime_ns
    ingest(imported)
    assert imported.warehouse.stat().st_mtime_ns == before
    ingest(imported, again=True)
    assert shown(imported) == wanted
    rebuild(imported)
    assert shown(imported) == wanted
    assert shown(imported, "2026-11-19") == {1: (False, True, []), 2: (False, True, [])}
    decide(imported, "")
    ingest(imported)
    assert shown(imported) == {1: (False, True, []), 2: (False, True, [])}
    assert ask("SELECT count(*) FROM overrides") == [(0,)]


def test_a_note_is_for_the_whole_run(imported: Settings) -> None:
    """An annotation changes nothing but what is said."""
    decide(imported, f"{RUN} null annotate")
    assert ingest(imported).warnings == []
    line = "note: counted twice at its source (ops, 2026-11-20)"
    assert shown(imported) == {1: (False, True, [line]), 2: (False, True, [line])}


def test_what_matches_nothing_is_said_with_the_nearest(imported: Settings, ask: Any) -> None:
    """A run that was not imported here, and a point that is not in it."""
    (point,) = [name for (name,) in ask("SELECT point_id FROM points WHERE concurrency = 2")]
    decide(imported, f"import-inferencex-2026-11-03 null withdraw\n{RUN} {point}0 withdraw")
    first, second = ingest(imported).warnings
    assert (
        "nothing was imported as import-inferencex-2026-11-03; did you mean 'import-inferencex-2026-11-02'"
        in first
    )
    assert f"did you mean '{point}'" in second
    assert not any(withdrawn for withdrawn, *_ in shown(imported).values())


def test_imports_are_in_the_past_by_the_time_of_their_rows(imported: Settings) -> None:
    """A run of imports is there from its newest row on; without a time in them it is in no past."""
    con = open_reader(imported.warehouse)
    ((finished,),) = con.execute("SELECT finished_at FROM runs").fetchall()
    con.close()
    day = None if finished is None else finished.date().isoformat()
    assert day == "2026-11-02"
    for text, count in (("2026-11-01", 0), ("2026-11-02", 2)):
        assert len(shown(imported, text)) == count
