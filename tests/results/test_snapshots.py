"""Snapshots: the newest complete run of each curve, never stitched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from isoline.results.warehouse.file import open_reader
from isoline.results.warehouse.ingest import ingest
from isoline.results.warehouse.schema import BY_NAME
from isoline.results.warehouse.snapshots import (
    NEWEST,
    lost_points,
    run_ids,
    snapshot_points,
    steady_frame,
    steady_types,
)
from isoline.settings import Settings

RUNS = [f"2026120{day}T020000Z-demo-aaaaa{day}" for day in range(1, 6)]


@pytest.fixture
def plan(bundles: Any) -> Any:
    """Two launches on two curves, two points each."""
    points = [bundles.PointDef(1), bundles.PointDef(4)]
    return bundles.make_plan(
        [
            (bundles.LaunchDef(), points),
            (bundles.LaunchDef(recipe_id="other/llamacpp-cpu-f16", weight_precision="f16"), points),
        ]
    )


def runs_by_precision(frame: Any) -> dict[str, set[str]]:
    """The runs that each curve's rows come from."""
    return {str(key): set(part["run_id"]) for key, part in frame.groupby("weight_precision")}


def test_newest_complete_run_of_each_curve(bundles: Any, settings: Settings, plan: Any) -> None:
    """An incomplete newer run never gives single points to the snapshot; it is flagged instead."""
    bundles.make_run(settings.store, plan, RUNS[0])
    # The second run lacks one point of the first curve only: its second curve is complete.
    run = bundles.seal_plan(settings.store, plan, RUNS[1])
    for launch, point in list(bundles.points_of(plan))[1:]:
        bundles.seal_attempt(run, launch, point)
    ingest(settings)
    con = open_reader(settings.warehouse)
    frame = snapshot_points(con)
    assert runs_by_precision(frame) == {"q4_1": {RUNS[0]}, "f16": {RUNS[1]}}
    flags = frame.set_index("weight_precision")["newer_incomplete"].groupby(level=0).first()
    assert dict(flags) == {"q4_1": True, "f16": False}
    assert set(frame.loc[frame["newer_incomplete"], "newer_incomplete_run"]) == {RUNS[1]}
    assert len(frame) == 4
    newest = snapshot_points(con, run=NEWEST)
    assert runs_by_precision(newest) == {"q4_1": {RUNS[1]}, "f16": {RUNS[1]}}
    assert not newest["newer_incomplete"].any()
    assert set(newest["curve_complete"]) == {True, False}
    assert set(snapshot_points(con, run=RUNS[0])["run_id"]) == {RUNS[0]}
    assert snapshot_points(con, run="20200101T000000Z-x-000000").empty
    assert run_ids(con) == [RUNS[1], RUNS[0]]
    con.close()


@pytest.mark.parametrize(
    ("reason", "complete"),
    [("server_killed", False), ("interrupted", False), ("server_died", True), ("failed_requests", True)],
)
def test_what_makes_a_curve_complete(
    reason: str, complete: bool, bundles: Any, settings: Settings, plan: Any
) -> None:
    """Invalid and partial say something about the engine; infra_error and cancelled do not."""
    bundles.make_run(settings.store, plan, RUNS[0])
    bundles.make_run(settings.store, plan, RUNS[1], {(4, 1): bundles.Outcome(reasons=(reason,))})
    ingest(settings)
    con = open_reader(settings.warehouse)
    assert set(snapshot_points(con)["run_id"]) == {RUNS[1] if complete else RUNS[0]}
    con.close()


def test_filters_and_types(bundles: Any, settings: Settings, plan: Any) -> None:
    """Filters are equalities; absent numbers are NaN, lists are lists, texts are None, whatever is there."""
    bundles.make_run(settings.store, plan, RUNS[0], {(4, 1): bundles.Outcome(reasons=("server_died",))})
    ingest(settings)
    con = open_reader(settings.warehouse)
    frame = snapshot_points(con, weight_precision="f16", model=None)
    assert set(frame["weight_precision"]) == {"f16"}
    assert list(frame["reasons"]) == [[], ["server_died"]]
    assert frame["ttft_p99_ms"].dtype == np.float64
    assert frame["unofficial_why"].tolist() == [None, "verdict invalid"]
    empty = snapshot_points(con, model="nothing of this name")
    assert empty.empty
    assert list(empty.dtypes) == list(frame.dtypes)
    with pytest.raises(TypeError, match="no filter colour"):
        snapshot_points(con, colour="red")
    con.close()


def test_twins_are_not_on_the_curve(bundles: Any, settings: Settings) -> None:
    """An accuracy twin's points are kept in the tables, but are never official nor in a snapshot."""
    points = [bundles.PointDef(1)]
    plan = bundles.make_plan(
        [
            (bundles.LaunchDef(), points),
            (bundles.LaunchDef(args=("--accept", "all"), twin_of="a launch"), points),
        ]
    )
    bundles.make_run(settings.store, plan, RUNS[0])
    ingest(settings)
    con = open_reader(settings.warehouse)
    assert len(snapshot_points(con)) == 1
    official = "SELECT official FROM points ORDER BY twin_of NULLS FIRST"
    assert con.execute(official).fetchall() == [(True,), (False,)]
    con.close()


def test_a_try_out_never_stands_in_for_the_curve(bundles: Any, settings: Settings) -> None:
    """A newer run of an unpublished sweep has the same curve: it is official nowhere, shown only by name."""
    bundles.make_run(settings.store, bundles.make_plan(), RUNS[0])
    points = [(bundles.LaunchDef(), [bundles.PointDef(4)])]
    smoke = bundles.make_plan(points, sweep="smoke", publish=False)
    name = "20261205T020000Z-smoke-bbbbbb"
    bundles.make_run(settings.store, smoke, name)
    ingest(settings)
    con = open_reader(settings.warehouse)
    assert set(snapshot_points(con)["run_id"]) == {RUNS[0]}
    assert set(snapshot_points(con, run=NEWEST)["run_id"]) == {RUNS[0]}
    tried = snapshot_points(con, run=name)
    assert len(tried) == 1
    assert not tried["official"].any()
    assert tried["marks"].iloc[0] == ["unofficial"]
    assert tried["unofficial_why"].iloc[0] == "a try-out: its sweep is not published"
    con.close()


def test_a_part_of_a_curve_never_stands_in_for_it(bundles: Any, settings: Settings) -> None:
    """A run of only what changed is complete by its own plan; the whole stays, the part is named."""
    whole = bundles.make_plan()
    bundles.make_run(settings.store, whole, RUNS[0])
    some = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(4)])])
    key = next(point.curve_key for _, point in bundles.points_of(some))
    bundles.make_run(settings.store, some.model_copy(update={"parts": [key]}), RUNS[1])
    ingest(settings)
    con = open_reader(settings.warehouse)
    frame = snapshot_points(con)
    assert (set(frame["run_id"]), len(frame)) == ({RUNS[0]}, 4)
    assert set(frame["newer_incomplete_run"]) == {RUNS[1]}
    assert set(frame["newer_is_part"]) == {True}
    assert lost_points(con) == []
    newest = snapshot_points(con, run=NEWEST)
    assert set(newest["run_id"]) == {RUNS[1]}
    assert not newest["curve_complete"].any() and newest["curve_is_part"].all()
    con.close()


def test_a_lost_point_is_named_with_what_it_is_now(bundles: Any, settings: Settings) -> None:
    """What the snapshot before had valid and this one has not: no more planned, or no more valid."""
    old = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(c) for c in (1, 4, 8, 16)])])
    new = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(c) for c in (1, 4, 16, 32)])])
    bundles.make_run(settings.store, old, RUNS[0], {(16, 1): bundles.Outcome(reasons=("server_died",))})
    bundles.make_run(
        settings.store,
        new,
        RUNS[1],
        dict.fromkeys([(4, 1), (16, 1)], bundles.Outcome(reasons=("server_died",))),
    )
    ingest(settings)
    con = open_reader(settings.warehouse)
    # Concurrency 16 was not valid before either: it is not lost, 32 is new.
    found = [(row["concurrency"], row["now"], row["reasons"]) for row in lost_points(con)]
    assert found == [(4, "invalid", ["server_died"]), (8, "not planned", [])]
    assert {(row["run_id"], row["former_run_id"]) for row in lost_points(con)} == {(RUNS[1], RUNS[0])}
    assert lost_points(con, model="another") == []
    con.close()


def test_only_the_snapshot_right_before_can_be_lost_from(bundles: Any, settings: Settings) -> None:
    """A repetition less is no loss, nor what an incomplete run lacks, nor what was lost a night earlier."""
    points = [bundles.PointDef(4, repetition=1), bundles.PointDef(4, repetition=2)]
    whole = bundles.make_plan([(bundles.LaunchDef(), [*points, bundles.PointDef(8)])])
    less = bundles.make_plan([(bundles.LaunchDef(), points)])
    bad = {(4, 2): bundles.Outcome(reasons=("server_died",))}
    bundles.make_run(settings.store, whole, RUNS[0])
    bundles.make_run(settings.store, whole, RUNS[1], bad)
    bundles.make_run(settings.store, whole, RUNS[2], {(8, 1): None})
    ingest(settings)
    con = open_reader(settings.warehouse)
    assert lost_points(con) == []
    con.close()
    bundles.make_run(settings.store, less, RUNS[3])
    ingest(settings)
    con = open_reader(settings.warehouse)
    assert [row["concurrency"] for row in lost_points(con)] == [8]
    con.close()
    bundles.make_run(settings.store, less, RUNS[4])
    ingest(settings)
    con = open_reader(settings.warehouse)
    assert lost_points(con) == []
    con.close()


def test_frames_are_steady_whatever_way_they_come(bundles: Any, settings: Settings, plan: Any) -> None:
    """The database's arrays and pandas' own reading give the same frame: types, lists, nothing for null."""
    bundles.make_run(settings.store, plan, RUNS[0], {(4, 1): bundles.Outcome(reasons=("server_died",))})
    bundles.make_run(settings.store, plan, RUNS[1], {(1, 1): None})
    ingest(settings)
    con = open_reader(settings.warehouse)
    for where in ("true", "got", "NOT got", "false", "verdict = 'invalid'"):
        sql = f"SELECT * FROM points WHERE {where} ORDER BY run_id, point_id"
        fast, plain = steady_frame(con.execute(sql)), steady_types(con.execute(sql).df())
        kinds = dict(BY_NAME["points"].columns)
        for name in plain:
            if kinds[name] != "BOOLEAN" or len(plain):  # of no rows nobody knows whether some are null
                pd.testing.assert_series_equal(fast[name], plain[name], obj=f"{where}: {name}")
    con.close()
