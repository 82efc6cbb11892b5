"""The cost family: made of readings, null where something is unknown."""

from __future__ import annotations

import pytest

from isoline.analysis.cost import CostBasis, basis_of, interval_of, known_metric, read_as, value_of
from isoline.analysis.intervals import Interval
from isoline.catalog.facts import load_catalog
from isoline.catalog.prices import Rates
from isoline.errors import InputError
from isoline.results.metrics.registry import FROM_READINGS, METRICS

BASIS = CostBasis(usd_per_gpu_hour=3.6, all_in_kw=1.8, prices="2026-10", tier="rental")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("usd_per_m_total_tokens", 1.0),  # 1000 tokens/s are 3.6 M in an hour of 3.6 $
        ("usd_per_m_output_tokens", 1.0),
        ("usd_per_m_input_tokens", 1.0),
        ("total_tokens_per_usd", 1e6),
        ("total_tps_per_mw", 1000 / 0.0018),
        ("rated_j_per_total_token", 1.8),  # 1.8 kW for 1000 tokens/s
        ("rated_j_per_output_token", 1.8),
        ("rated_j_per_input_token", 1.8),
        ("usd_per_session", 0.0036),
    ],
)
def test_formulas(name: str, value: float) -> None:
    """Each one by hand, for a reading of 1000."""
    assert value_of(name, 1000.0, BASIS) == pytest.approx(value)


def test_every_metric_of_the_registry_has_its_formula() -> None:
    """No row of the registry is without a formula, and what it is read from is stored."""
    for name, made in FROM_READINGS.items():
        assert value_of(name, 10.0, BASIS) is not None
        assert read_as(name) == made.of
        assert made.of in METRICS
        assert name not in METRICS  # never stored
        gain = value_of(name, 20.0, BASIS) > value_of(name, 10.0, BASIS)  # type: ignore[operator]
        assert known_metric(name).better == ("max" if gain else "min")


def test_unknown_is_null_and_never_zero_or_infinite() -> None:
    """No price, no power, no reading or a reading of 0: null."""
    for name in FROM_READINGS:
        assert value_of(name, 1000.0, CostBasis()) is None
        for reading in (None, 0.0, float("nan"), float("inf")):
            assert value_of(name, reading, BASIS) is None


def test_a_stored_metric_is_itself() -> None:
    """A metric that is stored needs neither price nor power; an unknown name is an error."""
    assert value_of("total_tps_per_gpu", 7.0, CostBasis()) == 7.0
    assert read_as("total_tps_per_gpu") == "total_tps_per_gpu"
    with pytest.raises(InputError, match="unknown metric"):
        read_as("usd_per_token")


def test_intervals_keep_their_order_and_label() -> None:
    """The faster end is the cheaper one; without a price there is no interval either."""
    interval = Interval(500.0, 2000.0, "range", 3)
    assert interval_of("usd_per_m_total_tokens", interval, BASIS) == Interval(0.5, 2.0, "range", 3)
    assert interval_of("usd_per_m_total_tokens", interval, CostBasis()) is None


def test_the_basis_is_of_the_list_and_the_catalog() -> None:
    """The price comes with its list and tier, the power from the catalog; a CPU has neither."""
    skus = load_catalog().skus
    rates = Rates("2026-10", "2026-10-01", "rental", {"h200": 2.05})
    assert basis_of("h200", rates, skus) == CostBasis(2.05, skus["h200"].power.all_in_kw, "2026-10", "rental")
    assert basis_of("cpu", rates, skus) == CostBasis(None, None, "2026-10", "rental")
    assert basis_of("h200", None, skus).usd_per_gpu_hour is None
