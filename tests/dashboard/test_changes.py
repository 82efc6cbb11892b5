from __future__ import annotations

from dataclasses import replace

from isoline.dashboard.changes import CHANGES, SNAPSHOT, metric_of
from isoline.dashboard.state import PageState

SHOWN = PageState(
    model="m", scenario="s", x="interactivity_p90_tps", y="total_tps_per_gpu", skus=("cpu",), point="p"
)


def test_another_metric_keeps_the_statistic() -> None:
    """From interactivity p90 to time to first token stays at p90."""
    changed = CHANGES["x-family.value"](PageState(), SHOWN, "ttft")
    assert changed.x == "ttft_p90_ms"


def test_a_metric_without_that_statistic_takes_its_median_or_only_value() -> None:
    """interactivity has no mean, so p50 is taken; a single value has no choice."""
    assert metric_of("interactivity", "mean") == "interactivity_p50_tps"
    assert metric_of("output_tps_per_gpu", "p90") == "output_tps_per_gpu"
    assert metric_of("nothing", "p50") is None


def test_another_statistic_keeps_the_metric() -> None:
    """p50 of the shown family."""
    assert CHANGES["x-statistic.value"](PageState(), SHOWN, "p50").x == "interactivity_p50_tps"


def test_another_model_drops_filters_and_point() -> None:
    """Filters of the old model are gone; axes and run stay."""
    chosen = PageState(model="m", skus=("cpu",), point="p", x="ttft_p50_ms", run="r")
    assert CHANGES["model.value"](chosen, SHOWN, "n") == PageState(model="n", x="ttft_p50_ms", run="r")


def test_another_scenario_takes_its_own_axes() -> None:
    """The axes of a fixed-length scenario are not carried into a trace."""
    chosen = PageState(x="ttft_p50_ms", y="output_tps_per_gpu")
    changed = CHANGES["scenario.value"](chosen, SHOWN, "t")
    assert (changed.scenario, changed.x, changed.y) == ("t", None, None)


def test_a_click_beside_a_point_changes_nothing() -> None:
    """No point in the click, no selected row: the state stays."""
    chosen = PageState(point="p")
    assert CHANGES["graph.clickData"](chosen, SHOWN, {"points": [{}]}) == chosen
    assert CHANGES["grid.selectedRows"](chosen, SHOWN, []) == chosen


def test_clicks_choose_and_close_the_point() -> None:
    """A click on a point or row puts its id into the address; close takes it out."""
    click = {"points": [{"customdata": ["run", "q"]}]}
    assert CHANGES["graph.clickData"](PageState(), SHOWN, click).point == "q"
    assert CHANGES["grid.selectedRows"](PageState(), SHOWN, [{"point_id": "r"}]).point == "r"
    assert CHANGES["close-panel.n_clicks"](PageState(point="q"), SHOWN, 1).point is None


def test_the_snapshot_needs_no_run_in_the_address() -> None:
    """Choosing the snapshot takes the run out."""
    chosen = replace(PageState(), run="r")
    assert CHANGES["run.value"](chosen, SHOWN, SNAPSHOT).run is None
    assert CHANGES["run.value"](chosen, SHOWN, "q").run == "q"
