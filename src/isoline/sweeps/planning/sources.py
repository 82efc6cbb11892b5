"""Reading everything that a plan is made of."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from isoline.catalog.documents import DocumentError, locate, named_at
from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Pool, load_pool
from isoline.catalog.trees import read_text
from isoline.datasets.schema import Dataset, load_dataset
from isoline.errors import InputError
from isoline.recipes.channels import load_channels, read_channels, resolve_used
from isoline.recipes.extends import may_extend
from isoline.recipes.inputs import Inputs, Shape
from isoline.recipes.load import LoadedRecipe, file_of, load_matched, match_recipes, misnamed, parse_recipe
from isoline.results.bundles.bundle import file_sha256
from isoline.runners.staging.registry import registry_digest
from isoline.sweeps.planning.kept import current
from isoline.sweeps.planning.kinds import check_kind, scenario_file
from isoline.sweeps.planning.outline import Draft
from isoline.sweeps.planning.plan import Sources
from isoline.sweeps.planning.schema import Scenario, Sweep, load_scenario


def read_sources(
    project: Path, sweep: Sweep, *, pool: str | Pool | None = None, images: Mapping[str, str] | None = None
) -> Sources:
    """Read recipes, scenarios, datasets and the pool that a sweep names.

    :param pool: instead of the sweep's own; by its name, or one that stands in no file.
    :param images: channel -> image reference instead of the channel's own, for this run.
    :raises DocumentError, InputError: for the first thing that is wrong.
    """
    where = f"sweeps/{sweep.name}.yaml"
    recipes: dict[str, Draft] = {}
    read: dict[str, Draft] = {}  # by what the sweep named: an id, or the path of a lock
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
            read[name] = draft = read_draft(project, name)
            first = recipes.setdefault(draft.recipe_id, draft)
            if first is not draft:
                raise InputError(
                    f"{draft.recipe_id} is selected as {first.file} and as {draft.file}",
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
            draft = recipes[recipe_id]
            if draft.outline.canary is not None:
                dataset(draft.outline.canary, draft.file, "canary")
    return Sources(
        sweep=sweep,
        pools=_pools(project, sweep, pool),
        recipes=recipes,
        selected=selected,
        scenarios=scenarios,
        datasets=datasets,
        scripts={
            name: script_sha256(name)
            for name in sorted({draft.outline.engine for draft in recipes.values()})
            if load_catalog().engines[name].process is not None
        },
        channels=resolve_used(
            [(draft.outline.channel, draft.outline.sku) for draft in recipes.values()],
            read_channels(project),
            images or {},
            registry_digest,
        ),
        files={
            recipe_id: _file_digests(project, recipe_id, draft.file, draft.outline.files)
            for recipe_id, draft in recipes.items()
            if draft.outline.files
        },
    )


def read_draft(project: Path, name: str) -> Draft:
    """A recipe by what :func:`match_recipes` gave; validated only where its text, or a fact, is new.

    :raises DocumentError: when it is wrong.
    """
    kept = current()
    if kept is None or name.endswith(".yaml"):
        return Draft.of(load_matched(project, name))
    file = file_of(name)
    text = read_text(project / file, file)
    if may_extend(text):  # another file has a part in it
        return Draft.of(load_matched(project, name))
    key = kept.key(text)
    outline = kept.outline(key)
    if outline is not None:
        draft = Draft(name, file, outline, key, lambda: parse_recipe(project, name, text))
    else:
        loaded = parse_recipe(project, name, text)
        # The content of a lock says what it renders to, which is checked whenever it is rendered.
        draft = Draft.of(loaded, key if loaded.recipe.locked is None else None)
        if draft.key is not None:
            kept.keep(key, draft.outline)
    made = draft.outline
    if (problem := misnamed(name, made.engine, made.sku, made.weight_precision)) is not None:
        raise DocumentError([(file, problem)])
    return draft


def _pools(project: Path, sweep: Sweep, override: str | Pool | None) -> dict[str, Pool]:
    """SKU -> pool.

    :raises DocumentError: for two pools of one SKU, or one that is not there.
    """
    if override is not None:
        pool = load_pool(project, override) if isinstance(override, str) else override
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
    return _file_digests(project, loaded.recipe_id, loaded.file, loaded.recipe.files)


def _file_digests(project: Path, recipe_id: str, where: str, files: Iterable[str]) -> dict[str, str]:
    folder = (project / file_of(recipe_id)).parent.resolve()
    found = {}
    for index, name in enumerate(files):
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
