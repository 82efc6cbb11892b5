"""The rules of the trend, night by night, on series that a person can follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from isoline.analysis.noise import Constants, constants_of, night_of
from isoline.analysis.trend import NightState, SeriesNight, trend_of
from isoline.errors import InputError
from isoline.settings import load_settings

STEADY = (990.0, 1000.0, 1010.0)
"""Three repetitions with a CV of 1 %: the threshold is the smallest change, 2.5 %."""


def series(*nights: tuple[float, ...] | SeriesNight) -> list[SeriesNight]:
    """Nights with keys n000, n001, ...; tuples are valid repetitions."""
    made = []
    for number, night in enumerate(nights):
        given = night if isinstance(night, SeriesNight) else SeriesNight("", night, measured=True)
        made.append(SeriesNight(f"n{number:03}", given.values, given.again, given.measured, given.node))
    return made


def times(values: tuple[float, ...], factor: float) -> tuple[float, ...]:
    return tuple(value * factor for value in values)


def states(found: list[NightState]) -> list[str]:
    return [night.state for night in found]


def test_two_nights_below_are_a_regression_one_is_suspicious() -> None:
    """One night below the threshold is suspicious and a second one in a row regressed; then it stays."""
    low = times(STEADY, 0.95)
    found = trend_of(series(*[STEADY] * 10, low, STEADY, low, low, low), "max")
    assert states(found)[:7] == ["insufficient_data"] * 7
    assert states(found)[7:] == ["ok"] * 3 + ["suspicious", "ok", "suspicious", "regressed", "regressed"]
    assert found[13].change == pytest.approx(-0.05, abs=0.002)
    assert found[13].threshold == pytest.approx(0.025)


def test_direction_follows_the_metric() -> None:
    """For a latency the same fall is an improvement."""
    low = times(STEADY, 0.95)
    assert states(trend_of(series(*[STEADY] * 10, low, low), "min"))[-2:] == ["suspicious", "improved"]


def test_a_slowdown_keeps_alarming_until_it_is_accepted() -> None:
    """Regressed nights never become the baseline; an accepted change starts it anew."""
    low = times(STEADY, 0.95)
    nights = series(*[STEADY] * 10, *[low] * 30)
    assert states(trend_of(nights, "max"))[11:] == ["regressed"] * 29
    accepted = states(trend_of(nights, "max", accepted=["n015"]))
    assert accepted[11:15] == ["regressed"] * 4
    assert accepted[15:] == ["insufficient_data"] * 7 + ["ok"] * 18


def test_a_regression_ends_after_two_calm_nights() -> None:
    """One night inside the threshold does not close an alert, two in a row do."""
    low = times(STEADY, 0.95)
    found = trend_of(series(*[STEADY] * 10, low, low, STEADY, low, STEADY, STEADY, STEADY), "max")
    assert states(found)[11:] == ["regressed"] * 4 + ["ok", "ok"]


def test_missing_and_invalid_nights_say_so_and_are_no_baseline() -> None:
    """Nothing measured and nothing valid are two things; neither hides the nights around it."""
    gone, broken = SeriesNight(""), SeriesNight("", measured=True)
    low = times(STEADY, 0.95)
    found = trend_of(series(*[STEADY] * 7, gone, broken, STEADY, low, gone, low), "max")
    assert states(found)[7:] == ["missing_data", "invalid", "ok", "suspicious", "missing_data", "regressed"]
    assert found[7].value is None
    assert found[7].n == 0


def test_few_repetitions_ask_for_a_second_look() -> None:
    """With two repetitions a suspect night asks for more; the fresh ones alone confirm or clear it."""
    pair, low = (990.0, 1010.0), (940.0, 950.0)
    fine, slow = (1000.0, 995.0, 1005.0, 990.0, 1010.0), (950.0, 945.0, 955.0, 940.0, 960.0)
    before = [pair] * 12
    asked = trend_of(series(*before, low), "max")[-1]
    assert (asked.state, asked.remeasure) == ("suspicious", True)
    confirmed = trend_of(series(*before, SeriesNight("", low, slow, True)), "max")[-1]
    assert (confirmed.state, confirmed.remeasure, confirmed.n) == ("regressed", False, 7)
    cleared = trend_of(series(*before, SeriesNight("", low, fine, True)), "max")[-1]
    assert (cleared.state, cleared.value) == ("ok", pytest.approx(np.mean([*low, *fine])))
    too_few = trend_of(series(*before, SeriesNight("", low, slow[:3], True)), "max")[-1]
    assert too_few.state == "suspicious"


def test_a_slow_node_is_no_regression() -> None:
    """Nights that alternate between a fast and a 4 % slower node are all fine."""
    fast = [SeriesNight("", STEADY, measured=True, node="a")]
    slow = [SeriesNight("", times(STEADY, 0.96), measured=True, node="b")]
    found = trend_of(series(*(fast + slow) * 15), "max")
    assert set(states(found)[10:]) == {"ok"}
    assert found[-1].baseline == pytest.approx(960, rel=0.005)
    # A third node may differ as much as these two do, and much more than that is only suspicious
    # until it has been seen on three nights: the node itself may be the change.
    for factor, state in ((0.95, "ok"), (0.85, "suspicious")):
        new = [SeriesNight("", times(STEADY, factor), measured=True, node="c")] * 2
        assert states(trend_of(series(*(fast + slow) * 15, *new), "max"))[-2:] == [state] * 2


def test_a_true_drop_on_known_nodes_is_found() -> None:
    """A drop on all nodes is told from a slow node."""
    nights = [
        SeriesNight("", times(STEADY, 0.99 if n % 2 else 1.0), measured=True, node="ab"[n % 2])
        for n in range(30)
    ]
    drop = [SeriesNight("", times(STEADY, 0.93), measured=True, node="a")] * 2
    assert states(trend_of(series(*nights, *drop), "max"))[-2:] == ["suspicious", "regressed"]


def test_noise_decides_the_threshold() -> None:
    """With a CV of 5 % a fall by 5 % is within the noise."""
    random = np.random.default_rng(5)
    nights = [tuple(1000 * (1 + 0.05 * random.standard_normal(3))) for _ in range(25)]
    found = trend_of(series(*nights, times(STEADY, 0.95)), "max")
    assert found[-1].state == "ok"
    assert found[-1].cv == pytest.approx(0.05, rel=0.25)
    assert 0.05 < (found[-1].threshold or 0) < 0.10


def test_the_baseline_is_the_median_of_the_last_window() -> None:
    """Old nights leave the window, one wild night does not move the baseline."""
    old = [times(STEADY, 0.99)] * 20
    found = trend_of(series(*old, *[STEADY] * 20, times(STEADY, 1.5), STEADY), "max")
    assert found[-1].baseline == pytest.approx(1000, rel=0.001)
    assert found[-1].state == "ok"


def test_constants_are_settings() -> None:
    """A larger smallest change lets the same fall pass."""
    nights = series(*[STEADY] * 10, times(STEADY, 0.95), times(STEADY, 0.95))
    assert states(trend_of(nights, "max", constants=Constants(min_change=0.06)))[-2:] == ["ok", "ok"]
    assert states(trend_of(nights, "max", constants=Constants(min_nights=11)))[-2] == "insufficient_data"


def test_the_settings_hold_the_same_constants(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults of the settings are the constants that the simulation justifies; a project may differ."""
    assert constants_of(load_settings(project.root)) == Constants()
    monkeypatch.setenv("ISOLINE_TREND_WINDOW", "30")
    assert constants_of(load_settings(project.root)).window == 30
    monkeypatch.setenv("ISOLINE_TREND_WINDOW", "2.5")
    with pytest.raises(InputError, match=r"trend_window.*whole number"):
        load_settings(project.root)


def test_a_night_is_its_valid_values() -> None:
    """Zero, NaN and infinity are no measurements; a night without any has no value."""
    night = night_of([990.0, float("nan"), 1010.0, 0.0, float("inf")])
    assert (night.value, night.n) == (1000.0, 2)
    assert night.spread == pytest.approx(2e-4)
    assert np.isnan(night_of([]).value)
    assert trend_of([], "max") == []
