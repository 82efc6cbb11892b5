"""The rule of what is official, line by line of DESIGN 5.4."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from isoline.results.judging.official import Candidate, headline_window, official
from isoline.results.warehouse.expected import disturbed

GOOD = Candidate("p", "recipe tp1", 8, "valid", "passed")


def states(**by_concurrency: str) -> dict[int, bool]:
    """Which concurrencies are official, from ``c<concurrency>=<accuracy state>``."""
    points = [
        Candidate(key, "recipe tp1", int(key[1:]), "valid", state) for key, state in by_concurrency.items()
    ]
    return {int(key[1:]): not why for key, why in official(points).items()}


def test_good_point_is_official() -> None:
    """A valid, measured, own, conforming point with passed accuracy is official."""
    assert official([GOOD]) == {"p": ""}


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": None},
        {"verdict": "partial"},
        {"verdict": "invalid"},
        {"verdict": "infra_error"},
        {"kind": "simulated"},
        {"source": "elsewhere"},
        {"conforming": False},
        {"withdrawn": True},
        {"twin": True},
        {"accuracy_state": "failed"},
        {"accuracy_state": "invalid"},
        {"accuracy_state": "a new word"},
    ],
)
def test_each_condition_alone_withholds(change: dict[str, Any]) -> None:
    """Each condition that does not hold makes the point unofficial, and says why."""
    assert official([replace(GOOD, **change)])["p"] != ""


@pytest.mark.parametrize("state", ["passed", "provisional", "inconclusive", "not_run"])
def test_accepted_states(state: str) -> None:
    """Passed, provisional, inconclusive and, alone, not_run do not stand in the way."""
    assert official([replace(GOOD, accuracy_state=state)]) == {"p": ""}


def test_failure_reaches_the_next_passed_concurrency() -> None:
    """A failure withholds unevaluated points up to the next evaluated concurrency that passed."""
    assert states(c1="passed", c2="not_run", c4="failed", c8="not_run", c16="passed", c32="not_run") == {
        1: True,
        2: False,
        4: False,
        8: False,
        16: True,
        32: True,
    }


def test_failure_without_a_pass_reaches_everything() -> None:
    """Where nothing passed, one failure withholds every unevaluated point."""
    assert not any(states(c1="not_run", c4="failed", c64="not_run").values())


def test_failure_at_the_same_concurrency_counts_for_repetitions() -> None:
    """An unevaluated repetition of a failed concurrency is withheld."""
    points = [
        Candidate("a", "g", 4, "valid", "failed"),
        Candidate("b", "g", 4, "valid", "not_run"),
        Candidate("c", "g", 8, "valid", "passed"),
    ]
    assert official(points)["b"] != ""
    assert official(points)["c"] == ""


def test_failure_counts_though_its_point_is_not_valid() -> None:
    """Wrong answers of a point with another verdict still withhold the others."""
    points = [Candidate("a", "g", 4, "partial", "failed"), Candidate("b", "g", 8, "valid", "not_run")]
    assert official(points)["b"] != ""


def test_other_topology_is_not_touched() -> None:
    """A failure says nothing about another topology."""
    points = [Candidate("a", "g", 4, "valid", "failed"), Candidate("b", "h", 4, "valid", "not_run")]
    assert official(points)["b"] == ""


def test_headline_window_is_one_for_the_curve() -> None:
    """Steady only when every point that can be drawn has it; points that cannot have no say."""
    assert (
        headline_window([("valid", True), ("partial", True), ("invalid", False), (None, False)]) == "steady"
    )
    assert headline_window([("valid", True), ("valid", False)]) == "full"
    assert headline_window([("invalid", True)]) == "full"
    assert headline_window([]) == "full"


def test_a_planned_check_that_never_ran_did_not_pass() -> None:
    """The point whose check was planned fell out: its neighbours are not official for lack of a failure."""
    points = [
        Candidate("a", "g", 1, "valid", "not_run"),
        Candidate("b", "g", 4, "invalid", "not_run", planned_accuracy=True),
        Candidate("c", "g", 8, "valid", "not_run"),
    ]
    why = official(points)
    assert why["a"] == why["c"] == "accuracy not run here, and not passed at concurrency 4"
    passed = [*points[:1], Candidate("b", "g", 4, "valid", "passed", planned_accuracy=True), points[2]]
    assert official(passed) == {"a": "", "b": "", "c": ""}


def test_a_disturbed_measurement_is_not_official() -> None:
    """Other programs on the same cores make a number that nobody can have again."""
    assert disturbed({"foreign_cpu_share": 0.46}, "cpu") == "other programs used 46% of the CPU"
    for client, sku in (
        ({"foreign_cpu_share": 0.46}, "h200"),
        ({"foreign_cpu_share": 0.25}, "cpu"),
        ({}, "cpu"),
    ):
        assert disturbed(client, sku) == ""
    point = Candidate("a", "g", 1, "valid", "passed", disturbed="other programs used 46% of the CPU")
    assert official([point]) == {"a": "other programs used 46% of the CPU"}


def test_an_image_by_its_tag_alone_is_never_official() -> None:
    """Where neither plan nor lock knows the digest nobody can say what answered."""
    one = Candidate(
        key="p", group="g", concurrency=1, verdict="valid", accuracy_state="passed", resolved=False
    )
    assert "known by a tag only" in official([one])["p"]
