"""No change of a recipe goes unnoticed: it is refused, it makes new points, or it is a declared note."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Pool
from isoline.catalog.trees import parse_yaml, to_plain
from isoline.errors import InputError
from isoline.recipes.load import LoadedRecipe, load_recipe
from isoline.recipes.render import hub_of, revision_of, sized_for
from isoline.recipes.resolve import Situation, resolve
from isoline.recipes.schema import ANNOTATIONS, Recipe
from isoline.recipes.topology import Role, Topology
from isoline.recipes.words import flags
from isoline.sweeps.planning.schema import load_scenario

DEMO = "smollm2-135m/llamacpp-cpu-q4_1"
GOOD = [
    DEMO,
    "gpt-oss-120b/vllm-h200-mxfp4-8k1k",  # image of a channel
    "deepseek-r1-0528/sglang-disagg-mi355x-fp8-block-8k1k-disagg-dpa",  # roles, a band, expressions
    "deepseek-r1-0528/trtllm-b200-nvfp4-8k1k",  # a configuration file, conditions
    "minimax-m3/vllm-mi355x-mxfp4-agentic-eagle",  # pinned acceptance, conditions
    "kimi-k3/dynamo-vllm-gb300-nvl72-mxfp4-agentic-disagg-dspark-dram-mooncake",  # sidecar, offload
    "kimi-k3/vllm-b300-mxfp4-agentic-dram-mooncake",  # node memory in a JSON argument
]
Place = tuple[str | int, ...]
Key = tuple[str, str, int]  # topology, scenario, concurrency


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
    # The field is drawn first: else a long list of arguments would be all that is ever changed.
    field = rng.choice(sorted(tree))
    place = rng.choice(list(leaves(tree[field], (field,))))
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


def server_of(recipe: Recipe, topology: Topology, scenario: Any, level: int, pool: Pool) -> str:
    """Everything that decides a start, said apart from the renderer: fields as they are, servers resolved.

    Words stand as they reach the server: on a command line 2 and "2" are one.
    """
    label = topology.label()
    top = sized_for(recipe, label, scenario.name, level)

    def role(name: Any, split: Role) -> dict[str, Any]:
        share = recipe.kv_offload.utilization
        values = {
            "concurrency": top,
            "isl": scenario.isl,
            "osl": scenario.osl,
            "tp": split.tp,
            "dp": split.dp_attention,
            "gpus": split.gpus_per_worker,
            "dram_gb": pool.offload_gb(split.gpus_per_worker, share) if share else None,
        }
        part = resolve(
            recipe.server, recipe.roles.get(name), Situation(name, label, scenario.name, top, values)
        )
        return {"argv": flags(part.args), "env": part.env, "files": part.config_files}

    sidecars = [
        item.model_dump(exclude={"when"})
        for item in recipe.sidecars
        if item.when is None or item.when.holds(concurrency=top, scenario=scenario.name, topology=label)
    ]
    model = load_catalog().models[recipe.model]
    apart = {
        "checkpoint",
        "revision",
        "server",
        "roles",
        "sidecars",
        "topologies",
        "launch_bands",
        *ANNOTATIONS,
    }
    return json.dumps(
        {
            "fields": recipe.model_dump(mode="json", by_alias=True, exclude=apart),
            "weights": (hub_of(recipe, model), revision_of(recipe, model)),
            "topology": topology.model_dump(),
            "roles": {name: role(name, split) for name, split in topology.roles.items()},
            "sidecars": sidecars,
            "origin": recipe.upstream if recipe.incomplete else None,
        },
        sort_keys=True,
    )


class Planner:
    """What a changed recipe is: the digests of its points, and what decides them."""

    def __init__(self, root: Path, planning: Any, recipe_id: str) -> None:
        self.root, self.planning, self.recipe_id = root, planning, recipe_id
        self.pool = planning.pool_for(root, load_recipe(root, recipe_id).recipe)

    def digests(self, recipe: Recipe) -> dict[Key, tuple[str, str]]:
        """(topology, scenario, concurrency) -> (launch digest, point digest)."""
        loaded = LoadedRecipe(self.recipe_id, recipe)
        plan = self.planning.plan_of(self.root, loaded, pools={self.pool.sku: self.pool})
        return {key[1:4]: found for key, found in self.planning.points_of(plan).items()}

    def servers(self, recipe: Recipe) -> dict[Key, str]:
        """The same keys -> what decides the start."""
        return {
            (topology.label(), name, level): server_of(
                recipe, topology, load_scenario(self.root, name), level, self.pool
            )
            for topology in recipe.topologies
            for name, use in recipe.scenarios.items()
            for level in use.at(topology.label())
        }


@pytest.mark.parametrize("recipe_id", GOOD)
def test_single_changes(project_root: Path, planning: Any, recipe_id: str) -> None:
    """200 seeded changes of each: refused, or exactly the points that it touches are new, or a declared note.

    A change may touch no launch at all: a default that is written out, ``2`` as ``"2"``, the end of a
    condition between two concurrencies. Then every digest is as before.
    """
    file = project_root / "recipes" / f"{recipe_id}.yaml"
    tree = to_plain(parse_yaml(file.read_text(), "r"), "r")
    planner = Planner(project_root, planning, recipe_id)
    good = load_recipe(project_root, recipe_id).recipe
    before, servers = planner.digests(good), planner.servers(good)
    assert before.keys() == servers.keys()
    rng = random.Random(f"20261201 {recipe_id}")
    counts = {"refused": 0, "new": 0, "noted": 0, "same": 0}
    for _ in range(200):
        place, changed = mutated(tree, rng)
        try:
            recipe = Recipe.model_validate(changed)
            after = planner.digests(recipe)
        except (InputError, ValidationError):
            counts["refused"] += 1
            continue
        now = planner.servers(recipe)
        assert after.keys() == now.keys()
        for key in before.keys() & after.keys():
            is_same = servers[key] == now[key]
            said = f"a change at {place} of {key}: {changed}"
            assert (after[key][0] == before[key][0]) is is_same, said
            assert (after[key][1] == before[key][1]) is is_same, said
        touched = before.keys() != after.keys() or any(servers[key] != now[key] for key in before)
        if place[0] in ANNOTATIONS:
            assert not touched or place[0] == "scenarios", f"{place} is declared to change nothing"
            counts["noted"] += 1
        else:
            counts["new" if touched else "same"] += 1
    assert counts["refused"] > 20, counts
    assert counts["new"] > 8, counts
    assert counts["noted"] > 8, counts


def test_every_field_is_either_covered_or_declared(project_root: Path, planning: Any) -> None:
    """Each field of a recipe is an annotation, or a change of it changes the launch (or is impossible)."""
    recipe_id = GOOD[5]
    planner = Planner(project_root, planning, recipe_id)
    good = load_recipe(project_root, recipe_id).recipe
    before = {launch for launch, _ in planner.digests(good).values()}
    content = good.model_dump(mode="json", by_alias=True)
    role = {"workers": 1, "tp": 8, "dcp": 8}
    one = content["topologies"][0]
    label = "ptp8-dcp8_dtp8-dcp8"
    changes: dict[str, Any] = {
        "checkpoint": "another/checkpoint",
        "image": {"ref": "vllm/vllm-openai:v0.99.0"},
        "topologies": [{"prefill": role, "decode": {**role, "ep": 8}}],
        "server": {**content["server"], "env": {}},
        "roles": {},
        "sidecars": [],
        "files": ["vllm-mi355x-mxfp4-agentic-dspark.yaml"],  # any file of that folder
        "speculative": {"method": "draft", "draft_tokens": 3, "draft_model": "Inferact/Kimi-K3-DSpark"},
        "kv_offload": {"tier": "dram", "backend": "mooncake", "utilization": 0.5},
        "kv_transfer": {"connector": "ucx"},
        "features": {"two_batch_overlap": True},
        "incomplete": ["precision.kv"],
        "launch_bands": ["max"],
        "precision": {"weights": "mxfp4", "kv": "fp16"},
        "model": None,  # of the next ones there is one of each that fits the others
        "engine": None,
        "sku": None,
        "revision": None,
        "schema_version": None,
    }
    assert set(changes) | set(ANNOTATIONS) == set(Recipe.model_fields)
    for name, value in changes.items():
        if value is None:
            with pytest.raises(ValueError, match=name):
                Recipe.model_validate({**content, name: "another"})
            continue
        more: dict[str, Any] = {}
        if name == "topologies":
            more = {"scenarios": {"agentic": {"concurrency": [64]}}}
        if name == "incomplete":
            more = {"precision": {"weights": "mxfp4", "kv": "unknown"}}
        if name == "launch_bands":
            # Alone it says nothing: nothing here depends on the concurrency. With an expression it does.
            server = {**content["server"], "args": {"max-num-seqs": {"expr": "concurrency"}}}
            levels = {"agentic": {"concurrency": {label: [32, 64]}}}
            more = {"server": server, "topologies": [one], "roles": {}, "scenarios": levels}
            bare = planner.digests(Recipe.model_validate({**content, **more}))
            banded = planner.digests(Recipe.model_validate({**content, **more, name: value}))
            assert len({launch for launch, _ in bare.values()}) == 2
            assert {launch for launch, _ in banded.values()} == {bare[label, "agentic", 64][0]}
            continue
        changed = Recipe.model_validate({**content, **more, name: value})
        assert before.isdisjoint(launch for launch, _ in planner.digests(changed).values()), name
