"""Reading everything that a plan is made of."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from isoline.catalog.documents import DocumentError
from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import load_pool
from isoline.datasets.schema import Dataset, load_dataset
from isoline.errors import InputError
from isoline.recipes.load import LoadedRecipe, load_recipe, match_recipes
from isoline.results.bundle import file_sha256
from isoline.runners.engines import engine_adapter
from isoline.sweeps.plan import Sources
from isoline.sweeps.schema import Scenario, Sweep, load_scenario


def read_sources(project: Path, sweep: Sweep, *, pool: str | None = None) -> Sources:
    """Read recipes, scenarios, datasets and the pool that a sweep names.

    :param pool: instead of the sweep's own.
    :raises DocumentError, InputError: for the first thing that is wrong.
    """
    recipes: dict[str, LoadedRecipe] = {}
    selected: dict[int, list[str]] = {}
    scenarios: dict[str, Scenario] = {}
    datasets: dict[str, Dataset] = {}
    for index, selection in enumerate(sweep.select):
        ids = match_recipes(project, selection.recipes)
        selected[index] = ids
        scenario = scenarios.setdefault(selection.scenario, load_scenario(project, selection.scenario))
        names = {scenario.dataset, *selection.accuracy}
        for recipe_id in ids:
            loaded = recipes.setdefault(recipe_id, load_recipe(project, recipe_id))
            names.add(loaded.recipe.canary)
        for name in names:
            datasets.setdefault(name, load_dataset(project, name))
        wanted = {"synthetic"} if scenario.kind == "fixed_length" else {"multi_turn"}
        if datasets[scenario.dataset].kind not in wanted:
            raise InputError(
                f"a {scenario.kind} scenario cannot use dataset {scenario.dataset!r} "
                f"of kind {datasets[scenario.dataset].kind}",
                where=f"sweeps/scenarios/{scenario.name}.yaml",
            )
    return Sources(
        sweep=sweep,
        pool=load_pool(project, pool or sweep.pool),
        recipes=recipes,
        selected=selected,
        scenarios=scenarios,
        datasets=datasets,
        scripts={
            name: file_sha256(engine_adapter(name).script())
            for name in {r.recipe.engine for r in recipes.values()}
        },
    )


def check_recipe(project: Path, recipe_id: str) -> list[tuple[str, str]]:
    """Everything that can be said about a recipe without a machine; empty when all is well.

    :returns: (file:line, what is wrong), in order.
    """
    try:
        loaded = load_recipe(project, recipe_id)
    except DocumentError as error:
        return error.problems
    except InputError as error:
        return [(error.where, error.what)]
    where = f"recipes/{loaded.recipe_id}.yaml"
    problems: list[tuple[str, str]] = []
    for name in loaded.recipe.scenarios:
        try:
            load_scenario(project, name)
        except InputError as error:
            problems.append((where, f"scenario {name!r}: {error.line()}"))
    for name in [loaded.recipe.canary, *loaded.recipe.accuracy]:
        try:
            if load_dataset(project, name).kind != "questions":
                problems.append((where, f"dataset {name!r} holds no questions"))
        except InputError as error:
            problems.append((where, f"dataset {name!r}: {error.line()}"))
    if load_catalog().engines[loaded.recipe.engine].process is None:
        problems.append((where, f"engine {loaded.recipe.engine!r} cannot be started yet"))
    return problems


def git_state(project: Path) -> dict[str, Any]:
    """``{rev, dirty}`` of the checkout; nulls where there is none."""

    def git(*args: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(project), *args], capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    rev = git("rev-parse", "HEAD")
    status = git("status", "--porcelain")
    return {"rev": rev, "dirty": None if status is None else bool(status)}
