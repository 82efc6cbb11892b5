"""What is planned and never started: recipes that nobody has said in full, and dangerous ones."""

from __future__ import annotations

from pathlib import Path

from isoline.errors import InputError
from isoline.recipes.lint.base import Context
from isoline.recipes.lint.danger import danger
from isoline.recipes.load import read_recipe
from isoline.results.bundles.records import Plan
from isoline.sweeps.planning.lint import ProjectFiles


def refuse_unfit(project: Path, plan: Plan) -> None:
    """Refuse a plan with a launch that must not start.

    ``recipe check`` says the same and more, but nobody has to have run it before a recipe is tried.

    :raises InputError: for a launch of a recipe that is `incomplete`, or that breaks the rule `danger`.
    """
    for launch in plan.launches:
        if unknown := launch.identity.get("incomplete"):
            raise InputError(
                f"cannot be started: {', '.join(unknown)} of it is not known",
                where=launch.recipe_id,
                remedy="complete the recipe and remove `incomplete`, or leave it out of the sweep",
            )
    files = ProjectFiles(project)
    for recipe_id in dict.fromkeys(launch.recipe_id for launch in plan.launches):
        for found in danger(Context(files, read_recipe(project, recipe_id))):
            raise InputError(
                f"not started, {found.what}", where=f"{found.file}:{found.line}", remedy=found.mend
            )
