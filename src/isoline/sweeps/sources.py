"""Reading everything that a plan is made of."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isoline.catalog.documents import DocumentError, locate, named_at
from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Pool, load_pool
from isoline.datasets.schema import Dataset, load_dataset
from isoline.errors import InputError
from isoline.recipes.channels import load_channels, read_channels, resolve_channels
from isoline.recipes.load import LoadedRecipe, file_of, load_matched, match_recipes
from isoline.recipes.render import Inputs, Shape
from isoline.results.bundle import file_sha256
from isoline.runners.registry import registry_digest
from isoline.sweeps.kinds import check_kind, scenario_file
from isoline.sweeps.plan import Sources
from isoline.sweeps.schema import Scenario, Sweep, load_scenario


def read_sources(
    project: Path, sweep: Sweep, *, pool: str | None = None, images: Mapping[str, str] | None = None
) -> Sources:
    """Read recipes, scenarios, datasets and the pool that a sweep names.

    :param pool: instead of the sweep's own.
    :param images: channel -> image reference instead of the channel's own, for this run.
    :raises DocumentError, InputError: for the first thing that is wrong.
    """
    where = f"sweeps/{sweep.name}.yaml"
    recipes: dict[str, LoadedRecipe] = {}
    read: dict[str, LoadedRecipe] = {}  # by what the sweep named: an id, or the path of a lock
    selected: dict[int, list[str]] = {}
    scenarios: dict[str, Scenario] = {}
    datasets: dict[str, Dataset] = {}

    def dataset(name: str, file: str, *loc: int | str) -> None:
        with named_at(project, file, *loc):
            datasets[name] = datasets.get(name) or load_dataset(project, name)

    for index, selection in enumerate(sweep.select):
        here = ("select", index)
        names: set[str] = set()
        for number, pattern in enumerate(selection.recipes):
            with named_at(project, where, *here, "recipes", number):
                names.update(match_recipes(project, [pattern]))
        for name in sorted(names - read.keys()):
            read[name] = loaded = load_matched(project, name)
            first = recipes.setdefault(loaded.recipe_id, loaded)
            if first is not loaded:
                raise InputError(
                    f"{loaded.recipe_id} is selected as {first.file} and as {loaded.file}",
                    where=where,
                    remedy="select one of the two",
                )
        selected[index] = sorted(read[name].recipe_id for name in names)
        with named_at(project, where, *here, "scenario"):
            scenario = load_scenario(project, selection.scenario)
        scenarios[scenario.name] = scenario
        dataset(scenario.dataset, scenario_file(scenario.name), "dataset")
        check_kind(project, scenario, datasets[scenario.dataset])
        for task in selection.accuracy:
            dataset(task, where, *here, "accuracy", task)
        for recipe_id in selected[index]:
            loaded = recipes[recipe_id]
            if loaded.recipe.canary is not None:
                dataset(loaded.recipe.canary, loaded.file, "canary")
    return Sources(
        sweep=sweep,
        pools=_pools(project, sweep, pool),
        recipes=recipes,
        selected=selected,
        scenarios=scenarios,
        datasets=datasets,
        scripts={
            name: script_sha256(name)
            for name in sorted({loaded.recipe.engine for loaded in recipes.values()})
            if load_catalog().engines[name].process is not None
        },
        channels=resolve_channels(
            [loaded.recipe for loaded in recipes.values()],
            read_channels(project),
            images or {},
            registry_digest,
        ),
        files={recipe_id: file_digests(project, loaded) for recipe_id, loaded in recipes.items()},
    )


def _pools(project: Path, sweep: Sweep, override: str | None) -> dict[str, Pool]:
    """SKU -> pool.

    :raises DocumentError: for two pools of one SKU, or one that is not there.
    """
    if override is not None:
        pool = load_pool(project, override)
        return {pool.sku: pool}
    where = f"sweeps/{sweep.name}.yaml"
    names = sweep.pool if isinstance(sweep.pool, list) else [sweep.pool]
    found: dict[str, Pool] = {}
    for number, name in enumerate(names):
        loc: tuple[int | str, ...] = ("pool", number) if isinstance(sweep.pool, list) else ("pool",)
        with named_at(project, where, *loc):
            pool = load_pool(project, name)
        if pool.sku in found:
            what = f"pools {found[pool.sku].name!r} and {name!r} have the same SKU"
            raise DocumentError([(locate(project / where, list(loc), where), what)])
        found[pool.sku] = pool
    return found


def file_digests(project: Path, loaded: LoadedRecipe) -> dict[str, str]:
    """SHA-256 of each file that a recipe names in its folder.

    :raises DocumentError: when one is not there or lies elsewhere.
    """
    where = loaded.file
    folder = (project / file_of(loaded.recipe_id)).parent.resolve()
    found = {}
    for index, name in enumerate(loaded.recipe.files):
        path = (folder / name).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            place = locate(project / where, ["files", index], where)
            raise DocumentError([(place, f"no file {name!r} beside the recipe")])
        found[name] = file_sha256(path)
    return found


def script_sha256(engine: str) -> str:
    """Digest of the start script of an engine that runs as a plain process."""
    from isoline.runners.engines import engine_adapter  # with what talks to servers: 0.4 s to load

    return file_sha256(engine_adapter(engine).script())


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


def inputs_of(project: Path, loaded: LoadedRecipe) -> Inputs:
    """What decides a recipe's rendering and is not in it, with channels by their tags."""
    engine = load_catalog().engines[loaded.recipe.engine]
    script = script_sha256(loaded.recipe.engine) if engine.process else None
    channels = load_channels(project)
    if loaded.recipe.image.channel is not None:
        with named_at(project, loaded.file, "image", "channel"):
            channels[loaded.recipe.image.channel]  # an unknown one is told here
    return Inputs(script, channels, file_digests(project, loaded))


def shape_of(project: Path, scenario: str) -> Shape:
    """The lengths of a scenario, as rendering needs them."""
    document = load_scenario(project, scenario)
    return Shape(document.name, document.isl, document.osl)
