"""The registry keeps DESIGN 5.3's rules about names."""

from __future__ import annotations

from isoline.results.metrics.registry import AXES, HEADLINE, METRICS, PERCENTILES, by_family

UNITS = {
    "ms": ("ms",),
    "tps": ("tokens/s/user",),
    "gpu": ("tokens/s/GPU", "requests/s/GPU", "W/GPU"),
    "j": ("J",),
    "token": ("J/token",),
    "hour": ("sessions/GPU/h",),
    "rps": ("requests/s",),
    "share": ("share",),
    "s": ("s",),
}


def test_names_end_in_their_unit() -> None:
    """The last word of a name and its unit agree, where the name ends in a unit."""
    for name, metric in METRICS.items():
        assert metric.name == name
        last = name.rsplit("_", 1)[1]
        if last in UNITS:
            assert metric.unit in UNITS[last], name
        else:
            assert metric.unit in ("tokens", "requests"), name


def test_interactivity_has_no_mean() -> None:
    """No mean or deviation of an interactivity is stored."""
    for family in ("interactivity", "e2e_interactivity"):
        assert [metric.statistic for metric in by_family(family)] == [f"p{p}" for p in PERCENTILES]


def test_axes_are_headline_metrics_with_a_direction() -> None:
    """The default axes can be drawn from the typed columns and have a better side."""
    for axes in AXES.values():
        for name in (axes.x, axes.y):
            assert name in HEADLINE and METRICS[name].better == "max"


def test_latencies_are_better_low_and_rates_high() -> None:
    """Every time is to be minimised, every interactivity maximised."""
    for name, metric in METRICS.items():
        if metric.unit == "ms":
            assert metric.better == "min", name
        if metric.unit == "tokens/s/user":
            assert metric.better == "max", name
