"""No change of a recipe goes unnoticed: it is refused, it makes new points, or it is a declared note."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.documents import load_document
from isoline.catalog.trees import parse_yaml, to_plain
from isoline.errors import InputError
from isoline.recipes.load import LoadedRecipe
from isoline.recipes.schema import ANNOTATIONS, Recipe
from isoline.sweeps.plan import Sources, make_plan
from isoline.sweeps.schema import load_sweep
from isoline.sweeps.sources import read_sources

RECIPE_ID = "smollm2-135m/llamacpp-cpu-q4_1"
Place = tuple[str | int, ...]


def leaves(value: Any, place: Place = ()) -> Iterator[Place]:
    """The places of all single values of a tree."""
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = False
    for key, item in rows:
        found = True
        yield from leaves(item, (*place, key))
    if not found:
        yield place


def another(value: Any, rng: random.Random) -> Any:
    """Another value: of the same type more often than not."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([value + 1, value * 2 + 1, value - 1, 0, -value - 1, float(value), str(value)])
    if isinstance(value, float):
        return rng.choice([value / 2, value + 0.01, 1.5, -value, "x"])
    if isinstance(value, str):
        near = [value + "x", value[:-1], value.upper() + "1"]
        return rng.choice([*near, "cpu", "llamacpp", "h200", "q8_0", 7, None])
    return rng.choice(["x", 1, None])


def mutated(tree: dict[str, Any], rng: random.Random) -> tuple[Place, dict[str, Any]]:
    """One single-value change: another value, a key gone, a key more, an item more or less."""
    changed = copy.deepcopy(tree)
    place = rng.choice(list(leaves(tree)))
    holder: Any = changed
    for part in place[:-1]:
        holder = holder[part]
    last = place[-1]
    kind = rng.choice(["value", "value", "value", "gone", "more"])
    if kind == "value":
        holder[last] = another(holder[last], rng)
    elif kind == "gone":
        del holder[last]
    elif isinstance(holder, list):
        holder.append(holder[last])
    else:
        holder[f"{last}x"] = holder[last]
    return place, changed


def with_recipe(sources: Sources, recipe: Recipe) -> Sources:
    """The sources of a sweep over everything that the one recipe is meant for."""
    return Sources(
        sweep=sources.sweep,
        pool=sources.pool,
        recipes={RECIPE_ID: LoadedRecipe(RECIPE_ID, recipe)},
        selected=sources.selected,
        scenarios=sources.scenarios,
        datasets=sources.datasets,
        scripts=sources.scripts,
    )


def digests(sources: Sources) -> tuple[set[str], set[str]]:
    """(launch digests, point digests) of a plan."""
    plan = make_plan(sources, {})
    return (
        {launch.launch_digest for launch in plan.launches},
        {point.point_digest for launch in plan.launches for point in launch.points},
    )


def spelt(recipe: Recipe) -> str:
    """A recipe as it reaches the server: on a command line 2 and "2" are one word."""
    content = recipe.model_dump(mode="json")
    args = content["server"]["args"]
    content["server"]["args"] = {
        name: value if isinstance(value, bool) else [str(item) for item in value]
        if isinstance(value, list) else str(value)
        for name, value in args.items()
    }  # fmt: skip
    return json.dumps(content)


@pytest.fixture
def sources(project: Any) -> Sources:
    """A sweep over all scenarios and concurrencies of the recipe."""
    both = "".join(f"  - {{recipes: ['*'], scenario: {name}}}\n" for name in ("demo-short", "demo-chat"))
    project.write("sweeps/all.yaml", f"schema_version: 1\nname: all\npool: local\nselect:\n{both}")
    return read_sources(project.root, load_sweep(project.root, "all"))


def test_two_hundred_single_changes(project: Any, tmp_path: Path, sources: Sources) -> None:
    """200 seeded changes: each is refused, changes a digest, or touches only a declared annotation."""
    file = project.root / "recipes" / f"{RECIPE_ID}.yaml"
    tree = to_plain(parse_yaml(file.read_text(), "r"))
    good = load_document(file, Recipe)
    before = digests(with_recipe(sources, good))
    rng = random.Random(20261201)
    counts = {"refused": 0, "new": 0, "noted": 0, "same": 0}
    tried = 0
    while tried < 200:
        place, changed = mutated(tree, rng)
        path = tmp_path / "mutated.yaml"
        path.write_text(json.dumps(changed))
        tried += 1
        try:
            recipe = load_document(path, Recipe)
            if recipe.canary not in sources.datasets:
                raise InputError("unknown dataset")  # what reading the sources says
            after = digests(with_recipe(sources, recipe))
        except InputError:
            counts["refused"] += 1
            continue
        if spelt(recipe) == spelt(good):
            # A default that was written out or left to itself, 2 as "2": nothing was changed.
            assert after == before
            counts["same"] += 1
        elif place[0] in ANNOTATIONS:
            if place[0] != "scenarios":
                assert after == before, f"{place} is declared to change nothing"
            counts["noted"] += 1
        else:
            assert after[0].isdisjoint(before[0]), f"a change at {place} goes unnoticed: {changed}"
            assert after[1].isdisjoint(before[1])
            counts["new"] += 1
    assert counts["refused"] > 60
    assert counts["new"] > 15
    assert counts["noted"] > 10


def test_every_field_is_either_covered_or_declared(project: Any, sources: Sources) -> None:
    """Each field of a recipe is an annotation, or a change of it changes the launch (or is impossible)."""
    good = load_document(project.root / "recipes" / f"{RECIPE_ID}.yaml", Recipe)
    before = digests(with_recipe(sources, good))
    content = good.model_dump(mode="json")
    changes: dict[str, Any] = {
        "image": {"packages": ["xllamacpp==1.0"]},
        "topologies": None,  # one worker on one accelerator is all that this launcher starts
        "server": {"args": {"threads": 1}, "env": {}},
        "precision": None,  # tied to the weights of the catalog and to the arguments
        "model": None,
        "engine": None,
        "sku": None,
        "revision": None,
        "speculative": None,
        "kv_offload": None,
        "schema_version": None,
    }
    assert set(changes) | set(ANNOTATIONS) == set(Recipe.model_fields)
    for name, value in changes.items():
        if value is not None:
            changed = Recipe.model_validate({**content, name: value})
            assert digests(with_recipe(sources, changed))[0].isdisjoint(before[0]), name
        else:
            with pytest.raises(ValueError, match=name):
                Recipe.model_validate({**content, name: "another"})
