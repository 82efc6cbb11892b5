"""Finding recipes by id, path and pattern."""

from __future__ import annotations

from typing import Any

import pytest

from isoline.catalog.documents import DocumentError, UnknownNameError
from isoline.errors import InputError
from isoline.recipes.load import load_recipe, match_recipes, recipe_ids

RECIPE_ID = "smollm2-135m/llamacpp-cpu-q4_1"
RECIPE = f"recipes/{RECIPE_ID}.yaml"


def test_by_id_and_by_path(project: Any) -> None:
    """A recipe is found by its id, and by its path as a shell completes it."""
    by_id = load_recipe(project.root, RECIPE_ID)
    for name in (RECIPE, f"./{RECIPE}", str(project.root / RECIPE)):
        assert load_recipe(project.root, name).recipe_digest == by_id.recipe_digest
    assert by_id.recipe_id == RECIPE_ID


def test_unknown_and_impossible_names(project: Any) -> None:
    """A misspelt id gets the nearest one; a path outside recipes/ is none; a folder is no recipe."""
    with pytest.raises(UnknownNameError, match="did you mean 'smollm2-135m/llamacpp-cpu-q4_1'"):
        load_recipe(project.root, "smollm2-135m/lamacpp-cpu-q4_1")
    with pytest.raises(InputError, match="lies under recipes/"):
        load_recipe(project.root, "sweeps/demo.yaml")
    for name in ("../sweeps/demo", "", "a/b/c", "smollm2-135m"):
        with pytest.raises(UnknownNameError):
            load_recipe(project.root, name)
    (project.root / "recipes" / "m" / "folder.yaml").mkdir(parents=True)
    with pytest.raises(DocumentError, match="this is a folder"):
        load_recipe(project.root, "m/folder")
    project.copy(RECIPE, "recipes/M/Upper.yaml")
    with pytest.raises(DocumentError, match="in lower-case letters"):
        load_recipe(project.root, "M/Upper")


def test_the_name_says_what_is_inside(project: Any) -> None:
    """The file's name begins with engine, SKU and precision; a variant may follow."""
    project.copy(RECIPE, "recipes/m/llamacpp-cpu-q4_1-variant.yaml")
    assert load_recipe(project.root, "m/llamacpp-cpu-q4_1-variant").recipe.sku == "cpu"
    project.copy(RECIPE, "recipes/m/llamacpp-h200-q4_1.yaml")
    with pytest.raises(DocumentError, match="should begin with 'llamacpp-cpu-q4_1'"):
        load_recipe(project.root, "m/llamacpp-h200-q4_1")


def test_patterns(project: Any) -> None:
    """Patterns select by the shell's rules, each recipe once, sorted; one that matches none is told."""
    project.copy(RECIPE, "recipes/m/llamacpp-cpu-q4_1.yaml")
    project.copy(RECIPE, "recipes/_drafts/llamacpp-cpu-q4_1.yaml")
    both = ["m/llamacpp-cpu-q4_1", RECIPE_ID]
    assert recipe_ids(project.root) == both
    assert match_recipes(project.root, ["*", RECIPE_ID]) == both
    assert match_recipes(project.root, ["smollm2-*/llamacpp-*"]) == [RECIPE_ID]
    with pytest.raises(UnknownNameError, match="no recipe matches"):
        match_recipes(project.root, ["*", "vllm-*"])
