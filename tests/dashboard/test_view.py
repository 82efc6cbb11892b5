from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from isoline.dashboard.board import view_of
from isoline.dashboard.config import Look
from isoline.dashboard.data import Source
from isoline.dashboard.view import View

Rows = list[dict[str, Any]]
Maker = Callable[..., dict[str, Any]]


def _frontier(view: View, sku: str = "cpu") -> list[tuple[int, str]]:
    return sorted(
        (row.concurrency, row.topology) for row in view.rows if row.on_frontier and row.data["sku"] == sku
    )


def test_one_scenario_at_a_time_with_its_own_axes(source: Source, look: Look) -> None:
    """The scenario with most points is shown first; the other one has the axes of its kind."""
    view = view_of("", source, look.palette)
    assert view.state.scenario == "demo-short"
    assert {row.data["scenario"] for row in view.rows} == {"demo-short"}
    assert (view.x.name, view.y.name) == ("interactivity_p50_tps", "total_tps_per_gpu")
    trace = view_of("?scenario=demo-trace", source, look.palette)
    assert {row.data["scenario"] for row in trace.rows} == {"demo-trace"}
    assert (trace.x.name, trace.y.name) == ("e2e_interactivity_p90_tps", "output_tps_per_gpu")


def test_what_is_shown_first_can_be_drawn(
    warehouse_path: Path, make_point: Maker, make_warehouse: Callable[..., None], look: Look
) -> None:
    """A model with many points and no number of GPUs comes after one whose points have both axes; official
    points come before all."""

    def of(model: str, levels: tuple[int, ...], **more: Any) -> Rows:
        return [make_point(level, recipe_id=f"{model}/r", curve={"model": model}, **more) for level in levels]

    many = of("many", (1, 2, 4, 8), official=False, total_tps_per_gpu=None)
    few = of("few", (1, 2), official=False)
    make_warehouse(warehouse_path, [*many, *few])
    assert view_of("", Source(warehouse_path, 5.0), look.palette).state.model == "few"
    make_warehouse(warehouse_path.with_name("more.duckdb"), [*many, *few, *of("zz", (1,))])
    assert view_of("", Source(warehouse_path.with_name("more.duckdb"), 5.0), look.palette).state.model == "zz"


def test_the_frontier_is_that_of_the_displayed_axes(source: Source, look: Look) -> None:
    """Concurrency 8 is on the frontier of total, and not on that of output throughput."""
    total = _frontier(view_of("", source, look.palette))
    output = _frontier(view_of("?y=output_tps_per_gpu", source, look.palette))
    assert (8, "tp1") in total
    assert (8, "tp1") not in output
    assert (4, "tp1") in output


def test_a_curve_never_joins_precisions_or_skus(source: Source, look: Look) -> None:
    """Three curves are shown, each with one SKU, engine and precision."""
    view = view_of("", source, look.palette)
    assert len(view.curves) == 3
    for curve in view.curves:
        fields = {(row.data["sku"], row.data["engine"], row.data["weight_precision"]) for row in curve.rows}
        assert len(fields) == 1
    # Each of the slower SKU's best points is dominated by the faster one's: pooled, they would be off.
    assert _frontier(view, "h200")


def test_repetitions_are_one_point_at_their_median(source: Source, look: Look) -> None:
    """Two repetitions at concurrency 8 are one row with the median and both ids."""
    view = view_of("?sku=cpu", source, look.palette)
    (row,) = [row for row in view.rows if row.concurrency == 8 and row.topology == "tp1"]
    assert row.repetitions == 2
    assert len(row.members) == 2
    assert row.y == 82.0


def test_partial_and_invalid_points_are_never_on_the_frontier(source: Source, look: Look) -> None:
    """A partial point has coordinates but no place on the frontier; an invalid one has neither."""
    rows = {row.topology: row for row in view_of("", source, look.palette).rows if row.data["sku"] == "cpu"}
    partial, invalid = rows["tp1-part"], rows["tp1-bad"]
    assert (partial.verdict, partial.on_frontier, partial.y) == ("partial", False, 80.0)
    assert (invalid.verdict, invalid.on_frontier, invalid.x, invalid.y) == ("invalid", False, None, None)


def test_counts_name_what_is_lost_and_why(
    warehouse_path: Path, make_point: Maker, make_warehouse: Callable[..., None], look: Look
) -> None:
    """Expected, measured, verdicts, causes, missing and quarantine add up."""
    rows = [make_point(1), make_point(2, verdict="invalid", reasons=["server_died"])]
    rows.append(make_point(4, verdict=None, missing_cause="window_closed"))
    rows.append(make_point(8, verdict=None))
    make_warehouse(warehouse_path, rows, quarantined=3)
    counts = view_of("?run=newest", Source(warehouse_path, 10.0), look.palette).counts
    assert (counts.expected, counts.got, counts.missing, counts.quarantined) == (4, 2, 2, 3)
    assert counts.verdicts == (("valid", 1), ("invalid", 1))
    assert dict(counts.causes) == {"server_died": 1, "window_closed": 1, "nobody knows why": 1}


def test_a_point_without_a_value_on_an_axis_is_counted_not_drawn_at_zero(source: Source, look: Look) -> None:
    """p99 needs 100 requests, which nobody made: no row has an x, and the count says so."""
    view = view_of("?x=ttft_p99_ms", source, look.palette)
    assert all(row.x is None for row in view.rows)
    assert view.counts.off_axes == sum(row.verdict in ("valid", "partial") for row in view.rows)


def test_an_incomplete_newer_run_does_not_replace_the_snapshot(
    warehouse_path: Path, make_point: Maker, make_warehouse: Callable[..., None], look: Look
) -> None:
    """The older complete run stays, a note names the newer one, and both can be asked for."""
    old, new = "20261130T020000Z-demo-bbbbbb", "20261201T020000Z-demo-aaaaaa"
    rows = [make_point(c, run_id=old) for c in (1, 2)]
    rows += [make_point(1, run_id=new, values=(99.0, 30.0)), make_point(2, run_id=new, verdict=None)]
    make_warehouse(warehouse_path, rows)
    source = Source(warehouse_path, 10.0)
    view = view_of("", source, look.palette)
    assert {row.run_id for row in view.rows} == {old}
    assert any(new in note for note in view.notes)
    assert {row.run_id for row in view_of("?run=newest", source, look.palette).rows} == {new}
    assert {row.run_id for row in view_of(f"?run={new}", source, look.palette).rows} == {new}


def test_without_any_complete_run_the_newest_is_shown_with_a_note(
    warehouse_path: Path, make_point: Maker, make_warehouse: Callable[..., None], look: Look
) -> None:
    """The first, unfinished run can be seen, and the page says that it is unfinished."""
    make_warehouse(warehouse_path, [make_point(1), make_point(2, verdict=None)])
    view = view_of("", Source(warehouse_path, 10.0), look.palette)
    assert len(view.rows) == 2
    assert any("No run is complete" in note for note in view.notes)


def test_filters_narrow_and_what_does_not_fit_is_said(source: Source, look: Look) -> None:
    """A SKU filter keeps that SKU; one that was not measured in the scenario is off, with a note."""
    assert {row.data["sku"] for row in view_of("?sku=h200&sku=b200", source, look.palette).rows} == {
        "h200",
        "b200",
    }
    other = view_of("?scenario=demo-trace&sku=h200", source, look.palette)
    assert {row.data["sku"] for row in other.rows} == {"cpu"}
    assert any("h200" in note for note in other.ignored)


def test_official_only_hides_the_rest(source: Source, look: Look) -> None:
    """With official=1 neither partial, invalid nor unverified points are there."""
    view = view_of("?official=1&sku=cpu", source, look.palette)
    assert {row.topology for row in view.rows} == {"tp1", "tp1-slow"}


def test_an_empty_warehouse_is_an_empty_view(warehouse_path: Path, look: Look) -> None:
    """Nothing ingested yet: no curve, no error."""
    view = view_of("?model=x", Source(warehouse_path, 10.0), look.palette)
    assert view.curves == ()
    assert view.updated_at is None
