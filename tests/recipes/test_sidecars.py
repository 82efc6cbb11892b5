"""Sidecars in a launch: words by condition, expression and worker; every placeholder is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Pool, load_pool, pools_of
from isoline.errors import InputError
from isoline.recipes.deployment import DOTTED, PLACEHOLDERS, Command, deployment_of, placeholders_in
from isoline.recipes.fits import why_not
from isoline.recipes.load import LoadedRecipe, load_recipe, recipe_ids
from isoline.recipes.render import Inputs, Shape, render
from isoline.recipes.schema import Recipe

DISAGG = "deepseek-r1-0528/sglang-disagg-mi355x-fp8-block-8k1k-disagg"
WIDE = "kimi-k3/dynamo-vllm-gb300-nvl72-mxfp4-agentic-disagg-dspark-dram-mooncake"


def rendered(loaded: LoadedRecipe, pool: Pool, number: int = 0, level: int = 64, **scenario: Any) -> Any:
    name = next(iter(loaded.recipe.scenarios))
    topology = loaded.recipe.topologies[number]
    return render(loaded, topology, pool, Shape(name, **scenario), level, Inputs())


def changed(loaded: LoadedRecipe, **fields: Any) -> LoadedRecipe:
    content = {**loaded.recipe.content(), **fields}
    return LoadedRecipe(loaded.recipe_id, Recipe.model_validate(content))


def test_a_router_names_every_worker(project_root: Path) -> None:
    """Words for each worker of a role come as often as it has workers, with that worker's address."""
    loaded, pool = load_recipe(project_root, DISAGG), load_pool(project_root, "examples/mi355x-slurm-docker")
    words = rendered(loaded, pool).deployment.entry.argv
    assert words[-6:] == [
        "--prefill", "{url.prefill.0}", "--decode", "{url.decode.0}", "--decode", "{url.decode.1}",
    ]  # fmt: skip


def test_words_by_condition_and_expression(project_root: Path) -> None:
    """A sidecar's words follow concurrency, lengths and devices as the server's do; so does its identity."""
    sidecar = {
        "name": "router",
        "order": "after",
        "is_entry": True,
        "ports": ["router"],
        "command": [
            "router",
            "--most",
            {"expr": "min(2 * concurrency, 100)"},
            {"if": {"concurrency": {"from": 64}}, "words": ["--large", {"expr": "isl / tp", "suffix": "t"}]},
            {"if": {"topology": ["ptp4_dtp8"]}, "words": ["--small"]},
            {"expr": "port.router"},
        ],
        "env": {"GPUS": {"expr": "gpus"}},
    }
    loaded = changed(load_recipe(project_root, DISAGG), sidecars=[sidecar])
    pool = load_pool(project_root, "examples/mi355x-slurm-docker")
    large, small = rendered(loaded, pool, level=64, isl=8192), rendered(loaded, pool, 1, level=32, isl=8192)
    assert large.deployment.entry.argv == ["router", "--most", "100", "--large", "1024t", "{port.router}"]
    assert small.deployment.entry.argv == ["router", "--most", "64", "--small", "{port.router}"]
    assert (large.deployment.entry.env, small.deployment.entry.env) == ({"GPUS": "8"}, {"GPUS": "4"})
    assert loaded.recipe.sidecars[0].depends_on_concurrency()
    assert rendered(loaded, pool, level=32, isl=8192).launch_digest != large.launch_digest
    with pytest.raises(InputError, match=r"isl is not known here \(sidecar router, concurrency 64\)"):
        rendered(loaded, pool, level=64)


def test_a_sidecar_reads_the_server_s_file(project_root: Path) -> None:
    """A configuration file that a sidecar names is written for it too."""
    loaded = load_recipe(project_root, DISAGG)
    server = {**loaded.recipe.content()["server"], "config_files": {"peers.json": {"n": {"expr": "tp"}}}}
    sidecars = [{"name": "store", "command": ["store", "{file.peers.json}"]}]
    found = changed(loaded, server=server, sidecars=sidecars)
    pool = load_pool(project_root, "examples/mi355x-slurm-docker")
    assert rendered(found, pool).deployment.before[0].config_files == {"peers.json": {"n": 8}}


def test_workers_that_span_nodes(project_root: Path) -> None:
    """A worker has one command a node, the identity holds them all; what the recipe says itself stays."""
    loaded, pool = load_recipe(project_root, WIDE), load_pool(project_root, "examples/gb300-slurm-pyxis")
    found = rendered(loaded, pool, level=loaded.recipe.scenarios["agentic"].all[0])
    prefill = found.deployment.workers[0]
    assert (prefill.nodes, len(prefill.followers), prefill.mpi) == (2, 1, False)
    first, second = prefill.argv, prefill.argv_of(1)
    assert "--headless" in second and "--headless" not in first
    assert first[first.index("--node-rank") + 1] == "0" and second[second.index("--node-rank") + 1] == "1"
    assert deployment_of(found.identity) == found.deployment
    server = loaded.recipe.content()["server"]
    own = changed(loaded, server={**server, "args": {**server["args"], "master-port": 1234}})
    told = rendered(own, pool, level=loaded.recipe.scenarios["agentic"].all[0]).deployment.workers[0]
    assert [item[item.index("--master-port") + 1] for item in (told.argv, told.argv_of(1))] == [
        "1234",
        "1234",
    ]
    assert told.argv_of(1).count("--master-port") == 1
    eight = pool.model_copy(update={"accelerators": 8})
    assert rendered(loaded, eight, level=1).deployment.workers[0].nodes == 1


def named(command: Command) -> set[str]:
    """The placeholders of a command: its words on every node, its variables, its files."""
    words = [*command.argv, *(word for item in command.followers for word in item)]
    return placeholders_in([*words, *command.env.values(), *map(str, command.config_files.values())])


def is_known(name: str) -> bool:
    return name in PLACEHOLDERS or name.partition(".")[0] in DOTTED


def test_every_placeholder_of_every_rendering_is_known(project_root: Path) -> None:
    """Nothing is rendered, on any pool that fits, which no launcher fills in."""
    pools: dict[str, list[Pool]] = {}
    for pool in pools_of(project_root):
        pools.setdefault(pool.sku, []).append(pool)
    seen: set[str] = set()
    engines = load_catalog().engines
    recipes = [load_recipe(project_root, name) for name in recipe_ids(project_root)]
    for loaded in recipes:
        recipe = loaded.recipe
        complete = recipe.model_copy(update={"incomplete": []})  # such ones are planned all the same
        for pool in pools.get(recipe.sku, []):
            for topology in recipe.topologies:
                if why_not(complete, topology, pool, engines[recipe.engine]):
                    continue
                for scenario, use in recipe.scenarios.items():
                    if not (levels := use.at(topology.label())):
                        continue
                    shape = Shape(scenario, 8192, 1024)
                    found = render(loaded, topology, pool, shape, levels[-1], Inputs())
                    used = set().union(*(named(item) for item in found.deployment.commands))
                    seen |= used
                    unknown = {item for item in used if not is_known(item)}
                    assert unknown == set(), (loaded.recipe_id, pool.name)
    assert {"port.rendezvous", "master_host", "port.data_parallel", "file.config.yaml"} <= seen
    assert "url.prefill.0" in seen
    covered = {recipe.recipe.sku for recipe in recipes}
    assert covered <= pools.keys()


def test_every_recipe_fits_a_pool(project_root: Path) -> None:
    """Each topology of each recipe is rendered somewhere: an example pool has room for it."""
    pools = pools_of(project_root)
    for name in recipe_ids(project_root):
        recipe = load_recipe(project_root, name).recipe
        most = max(topology.gpus for topology in recipe.topologies)
        assert any(pool.sku == recipe.sku and pool.total_accelerators >= most for pool in pools), name
