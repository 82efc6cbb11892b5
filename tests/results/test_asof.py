"""The warehouse as it was: runs finished by then, decisions and prices of then, and nothing else differs."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from isoline.errors import InputError
from isoline.results.warehouse.asof import moment_at, open_at
from isoline.results.warehouse.ingest import ingest
from isoline.results.warehouse.schema import TABLES
from isoline.results.warehouse.snapshots import snapshot_points
from isoline.results.warehouse.timeline import timeline_points
from isoline.settings import Settings

RUNS = [f"2026120{day}T020000Z-demo-aaaaa{day}" for day in range(1, 4)]


def withdraw(settings: Settings, run_id: str, point_id: str, dated: str, action: str = "withdraw") -> None:
    """Write an overrides file with one decision."""
    (settings.project / "results" / "overrides.yaml").write_text(
        f"schema_version: 1\noverrides:\n  - run_id: {run_id}\n    point_id: {point_id}\n"
        f"    action: {action}\n    reason: another job ran there\n    reviewer: maintainer\n"
        f"    dated: '{dated}'\n"
    )


def at(settings: Settings, text: str | None) -> Any:
    """A reader at a moment."""
    return open_at(settings.warehouse, moment_at(settings.warehouse, text))


@pytest.fixture
def three(bundles: Any, settings: Settings) -> Settings:
    """Three nights of one curve."""
    for name in RUNS:
        bundles.make_run(settings.store, bundles.make_plan(), name)
    ingest(settings)
    return settings


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2026-11-30", 0),
        ("2026-12-01", 1),
        ("2026-12-02T02:01", 1),  # the second run has begun, but is not finished
        ("2026-12-02T23:59Z", 2),
        ("2026-12-03T01:59+00:00", 2),
        (RUNS[1], 2),
        ("2027-01-01", 3),
    ],
)
def test_only_runs_that_were_finished_by_then(three: Settings, text: str, count: int) -> None:
    """A day counts to its end, a time to the moment, a run to its own end; the snapshot is that of then."""
    con = at(three, text)
    assert [name for (name,) in con.execute("SELECT run_id FROM runs ORDER BY ALL").fetchall()] == RUNS[
        :count
    ]
    assert set(snapshot_points(con)["run_id"]) == set(RUNS[:count][-1:])
    assert list(dict.fromkeys(timeline_points(con)["run_id"])) == RUNS[:count]
    con.close()


def test_every_table_is_of_then_and_has_the_same_columns(three: Settings) -> None:
    """No table shows a row of a run that was not there, and none is shaped otherwise than now."""
    then, now = at(three, "2026-12-01"), at(three, None)
    for table in TABLES:
        assert then.execute(f"DESCRIBE {table.name}").fetchall()[:1]
        names = [row[0] for row in then.execute(f"DESCRIBE {table.name}").fetchall()]
        assert names == [row[0] for row in now.execute(f"DESCRIBE {table.name}").fetchall()] == table.names
        if table.by_run:
            found = then.execute(f"SELECT DISTINCT run_id FROM {table.name}").fetchall()
            assert found in ([], [(RUNS[0],)]), table.name
    whole = at(three, "2027-01-01")
    for table in TABLES:
        rows = f"SELECT count(*), bit_xor(hash(t)) FROM {table.name} t"
        assert whole.execute(rows).fetchall() == now.execute(rows).fetchall(), table.name
    for con in (then, now, whole):
        con.close()


def test_what_was_withdrawn_later_was_official_before(bundles: Any, settings: Settings) -> None:
    """A withdrawal counts from its date on; before, the point is what it otherwise is."""
    run = bundles.make_run(settings.store, bundles.make_plan(), RUNS[0])
    point = next(run.glob("*.c4.r1.*")).name
    bad = next(run.glob("*.c8.r1.*")).name
    withdraw(settings, RUNS[0], point, "2026-12-05")
    ingest(settings)
    shown = "SELECT official, unofficial_why, marks FROM points WHERE point_id = ?"
    for text, row in (("2026-12-04", (True, None, [])), ("2026-12-05", (False, "withdrawn", ["withdrawn"]))):
        con = at(settings, text)
        assert con.execute(shown, [point]).fetchall() == [row]
        assert con.execute(shown, [bad]).fetchall() == [(True, None, [])]
        assert con.execute("SELECT count(*) FROM overrides").fetchall() == [(1 if row[1] else 0,)]
        decisions = snapshot_points(con).set_index("point_id")["decisions"]
        wanted = ["withdrawn: another job ran there (maintainer, 2026-12-05)"] if row[1] else []
        assert decisions[point] == wanted and decisions[bad] == []
        con.close()


def test_a_withdrawn_point_that_is_not_official_anyway_stays_so(bundles: Any, settings: Settings) -> None:
    """Looking back before the withdrawal finds the other reason, not official."""
    plan = bundles.make_plan()
    run = bundles.make_run(settings.store, plan, RUNS[0], {(4, 1): bundles.Outcome(accuracy_state="failed")})
    point = next(run.glob("*.c4.r1.*")).name
    withdraw(settings, RUNS[0], point, "2026-12-05")
    ingest(settings)
    con = at(settings, "2026-12-01")
    shown = "SELECT official, unofficial_why, marks FROM points WHERE point_id = ?"
    assert con.execute(shown, [point]).fetchall() == [(False, "accuracy failed", [])]
    con.close()


def test_a_run_without_a_plan_is_in_quarantine_from_its_day_on(bundles: Any, three: Settings) -> None:
    """It is in no table with a time; its id says when it began."""
    broken = "20261202T030000Z-demo-cccccc"
    run = bundles.make_run(three.store, bundles.make_plan(), broken)
    (run / "_run" / "plan.json").write_text("{}")
    ingest(three)
    for text, some in (("2026-12-01", False), ("2026-12-02", True)):
        con = at(three, text)
        assert bool(con.execute("SELECT count(*) FROM quarantine").fetchone()[0]) is some
        con.close()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("2026-13-01", "no such day or time"),
        ("2026-12-01T25:00", "no such day or time"),
        ("yesterday", "no day, time or run"),
        (RUNS[1][:-1] + "9", f"did you mean '{RUNS[1]}'"),
        ("'; DROP TABLE points; --", "no day, time or run"),
    ],
)
def test_what_is_no_moment_is_refused(three: Settings, text: str, word: str) -> None:
    """One line with what to write instead; a run that is nearly right is named."""
    with pytest.raises(InputError) as caught:
        moment_at(three.warehouse, text)
    assert word in caught.value.line()


def test_a_run_that_nobody_finished_is_no_moment(bundles: Any, settings: Settings) -> None:
    """A plan alone has no end, and is in no past."""
    bundles.make_run(settings.store, bundles.make_plan(), RUNS[0])
    bundles.seal_plan(settings.store, bundles.make_plan(), RUNS[1])
    ingest(settings)
    with pytest.raises(InputError, match="nobody knows when"):
        moment_at(settings.warehouse, RUNS[1])
    con = at(settings, "2030-01-01")
    assert con.execute("SELECT run_id FROM runs").fetchall() == [(RUNS[0],)]
    con.close()


def test_prices_are_the_lists_of_the_project_and_of_then(
    settings: Settings, ask: Any, project_root: Path
) -> None:
    """Every price of every dated list is a row; a list that goes away takes its rows with it."""
    folder = settings.project / "dashboard" / "prices"
    folder.mkdir(parents=True)
    for month in ("2026-04", "2026-10"):
        text = (project_root / "dashboard" / "prices" / f"{month}.yaml").read_text()
        (folder / f"{month}.yaml").write_text(text)
    ingest(settings)
    columns = "version, dated, usd_per_gpu_hour, is_default"
    shown = f"SELECT {columns} FROM prices WHERE sku = 'h200' AND tier = ? ORDER BY 1"
    rows = ask(shown, ["hyperscaler"])
    assert [row[0] for row in rows] == ["2026-04", "2026-10"]
    assert rows[1] == ("2026-10", "2026-10-01", 1.22, True)
    assert ask("SELECT count(*) FROM prices WHERE usd_per_gpu_hour <= 0 OR source = ''") == [(0,)]
    con = at(settings, "2026-09-30")
    assert con.execute("SELECT DISTINCT version FROM prices").fetchall() == [("2026-04",)]
    con.close()
    before = settings.warehouse.stat().st_mtime_ns
    ingest(settings)
    assert len(ask(shown, ["hyperscaler"])) == 2
    assert settings.warehouse.stat().st_mtime_ns == before  # a second time nothing is written
    (folder / "2026-04.yaml").unlink()
    ingest(settings)
    assert len(ask(shown, ["hyperscaler"])) == 1


def test_the_moment_of_a_run_is_its_end(three: Settings) -> None:
    """To the microsecond: what another run finished later on that day does not count."""
    moment = moment_at(three.warehouse, RUNS[0])
    assert moment is not None
    assert moment.day == date(2026, 12, 1)
    assert datetime(2026, 12, 1, 2) < moment.until < datetime(2026, 12, 1, 3)
    assert moment_at(three.warehouse, None) is None
