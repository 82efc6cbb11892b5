"""Which datasets a scenario can use."""

from __future__ import annotations

from pathlib import Path

from isoline.catalog.documents import DocumentError, locate
from isoline.datasets.schema import Dataset
from isoline.sweeps.planning.schema import Scenario


def scenario_file(name: str) -> str:
    """A scenario's file, relative to the project."""
    return f"sweeps/scenarios/{name}.yaml"


def check_kind(project: Path, scenario: Scenario, dataset: Dataset) -> None:
    """Whether a scenario can use a dataset.

    :raises DocumentError: at the line of the scenario that names it.
    """
    wanted = ("synthetic",) if scenario.kind == "fixed_length" else ("multi_turn", "trace")
    if dataset.kind not in wanted:
        file = scenario_file(scenario.name)
        what = f"a {scenario.kind} scenario cannot use dataset {dataset.name!r} of kind {dataset.kind}"
        raise DocumentError([(locate(project / file, ["dataset"], file), what)])
