"""Change points, Wilson, Holm and McNemar against apache-otava and statsmodels.

Their pins contradict ours, so that they live in an environment of their own and their answers are kept here
as a file. ``make soak`` makes the environment and asks them again; ISOLINE_WRITE_GOLDEN=1 then keeps what
they say.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from isoline.analysis.changes import change_points
from isoline.analysis.intervals import wilson
from isoline.analysis.shares import holm, mcnemar

ANSWERS = Path(__file__).with_name("oracle_answers.json")


@pytest.fixture(scope="module")
def asked(support: Callable[[str], ModuleType]) -> ModuleType:
    """The cases."""
    return support("oracle_cases")


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """What the oracles said."""
    found: dict[str, Any] = json.loads(ANSWERS.read_text(encoding="utf-8"))
    return found


def test_change_points_are_those_of_otava_and_of_the_truth(
    asked: ModuleType, answers: dict[str, Any]
) -> None:
    """On 60 series with no, one or two known steps both find exactly the steps that are there."""
    rows = asked.step_series()
    ours = [[change.index for change in change_points(row["values"])] for row in rows]
    assert len(rows) == len(answers["series"]) == 60
    assert ours == answers["series"] == [row["steps"] for row in rows]


def test_wilson_is_statsmodels(asked: ModuleType, answers: dict[str, Any]) -> None:
    """The score interval of a share, ends included."""
    for (correct, n), ends in zip(asked.cases()["wilson"], answers["wilson"], strict=True):
        interval = wilson(correct, n)
        assert interval is not None
        assert [interval.low, interval.high] == pytest.approx(ends, abs=1e-12)


def test_holm_is_statsmodels(asked: ModuleType, answers: dict[str, Any]) -> None:
    """Adjusted p values of families with ties, zeros and ones."""
    for family, adjusted in zip(asked.cases()["holm"], answers["holm"], strict=True):
        assert holm(family) == pytest.approx(adjusted, abs=1e-12)


def test_mcnemar_is_statsmodels(asked: ModuleType, answers: dict[str, Any]) -> None:
    """The exact two-sided p of paired answers; 1 where they never differ."""
    for counts, p in zip(asked.cases()["mcnemar"], answers["mcnemar"], strict=True):
        assert mcnemar(*counts) == pytest.approx(p, abs=1e-12)


@pytest.mark.soak
def test_the_answers_are_what_the_oracles_say_today(asked: ModuleType, project_root: Path) -> None:
    """The kept answers are those of the real programs on the same cases."""
    from isoline.runners.envs import ensure_env
    from isoline.settings import load_settings

    env = ensure_env(load_settings(project_root), "oracles", asked.REQUIREMENTS, locked=False)
    done = subprocess.run(
        [str(env.python), str(asked.PROGRAM)],
        input=asked.dumped(),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    fresh = json.loads(done.stdout)
    if os.environ.get("ISOLINE_WRITE_GOLDEN") == "1":
        ANSWERS.write_text(json.dumps(fresh, separators=(",", ":")) + "\n", encoding="utf-8")
    kept = json.loads(ANSWERS.read_text(encoding="utf-8"))
    assert fresh["versions"] == kept["versions"]
    assert fresh["series"] == kept["series"]
    for name in ("wilson", "holm", "mcnemar"):
        for one, other in zip(fresh[name], kept[name], strict=True):
            assert one == pytest.approx(other, abs=1e-12)
