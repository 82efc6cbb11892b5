"""The lint over the files of a project: what recipes name is read once, and told where it is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from isoline.catalog.documents import DocumentError, UnknownNameError
from isoline.sweeps.planning.lint import ProjectFiles, lint_recipes

RECIPE_ID = "smollm2-135m/llamacpp-cpu-q4_1"
RECIPE = f"recipes/{RECIPE_ID}.yaml"
SHORT = "sweeps/scenarios/demo-short.yaml"


def test_a_good_recipe_has_no_problems(project: Any) -> None:
    """The recipe of the demo is fine, by id and by path, and so are all where none is named."""
    for names in ([RECIPE_ID], [RECIPE], [RECIPE_ID, RECIPE], []):
        ids, found = lint_recipes(project.root, names)
        assert set(ids) == {RECIPE_ID}
        assert found == []


def test_all_problems_of_a_recipe_are_told(project: Any) -> None:
    """Scenarios and datasets that are missing, of the wrong kind or broken are all told, each at its line."""
    lines = [
        project.edit(RECIPE, "demo-chat:", "demo-chatty:"),
        project.edit(RECIPE, "canary: canary-smollm2", "canary: synthetic-text"),
        project.edit(RECIPE, "arithmetic-mini: {", "arithmetic-max: {"),
    ]
    broken = project.edit(SHORT, "osl: 48", "osl: many")
    _, found = lint_recipes(project.root, [RECIPE_ID])
    assert [item.where for item in found] == [*(f"{RECIPE}:{line}" for line in lines), f"{SHORT}:{broken}"]
    assert [item.what for item in found] == [
        "scenarios.demo-chatty: unknown scenario 'demo-chatty'",
        "canary: dataset 'synthetic-text' holds no questions",
        "accuracy.arithmetic-max: unknown dataset 'arithmetic-max'",
        "osl: input should be a valid integer, got 'many'",
    ]


def test_a_name_that_is_no_recipe(project: Any) -> None:
    """A name that nobody knows is the caller's mistake, not a finding."""
    with pytest.raises(UnknownNameError, match="did you mean"):
        lint_recipes(project.root, ["smollm2-135m/llamacpp-cpu"])


def test_what_is_around_recipes(project: Any) -> None:
    """Lengths of scenarios, longest answers, the largest pool of a SKU; a mistake is told each time."""
    files = ProjectFiles(project.root)
    facts = files.scenario("demo-short")
    assert (facts.isl, facts.osl, facts.uses_chat_template) == (128, 48, True)
    assert files.scenario("demo-chat").isl is None
    assert files.questions("canary-smollm2") == 16
    assert files.questions("demo-chat") is None
    assert files.pools["cpu"] >= 1
    for _ in range(2):
        with pytest.raises(DocumentError):
            files.scenario("nothing")
