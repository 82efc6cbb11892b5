"""What a pool can start: the same answer as rendering gives, without rendering."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import load_pool, pools_of
from isoline.cli.main import run
from isoline.errors import InputError
from isoline.recipes.fits import fitting, why_not
from isoline.recipes.load import load_recipe, recipe_ids
from isoline.recipes.render import Inputs, Shape, render
from isoline.recipes.renderers.slurm import slurm_script

DEMO = "smollm2-135m/llamacpp-cpu-q4_1"
WIDE = "glm-5.2/dynamo-trtllm-gb300-nvl72-nvfp4-agentic-disagg-mtp-dram-native"


def test_what_fits_is_what_renders(project_root: Path) -> None:
    """Every topology of every recipe is rendered, with its batch script, on just the pools that it fits."""
    engines = load_catalog().engines
    checked = {True: 0, False: 0}
    for name in recipe_ids(project_root):
        loaded = load_recipe(project_root, name)
        scenario, use = next(iter(loaded.recipe.scenarios.items()))
        for pool in (item for item in pools_of(project_root) if item.sku == loaded.recipe.sku):
            for topology in loaded.recipe.topologies:
                level = (use.at(topology.label()) or use.all)[-1]
                try:
                    shape = Shape(scenario, 8192, 1024)
                    found = render(loaded, topology, pool, shape, level, Inputs("0" * 64)).deployment
                    if pool.slurm is not None:
                        slurm_script(found, pool)
                    renders = True
                except InputError:
                    renders = False
                fits = why_not(loaded.recipe, topology, pool, engines[loaded.recipe.engine]) is None
                assert fits == renders, (name, pool.name, topology.label())
                checked[fits] += 1
    assert min(checked.values()) > 10


def test_reasons(project_root: Path) -> None:
    """Each thing that stands in the way is said in a few words."""
    recipe = load_recipe(project_root, WIDE).recipe
    engine, gb300 = (
        load_catalog().engines[recipe.engine],
        load_pool(project_root, "examples/gb300-slurm-pyxis"),
    )
    assert gb300.slurm is not None
    wide = recipe.topologies[0]

    def said(changes: dict[str, Any], topology: Any = wide) -> str | None:
        return why_not(recipe, topology, gb300.model_copy(update=changes), engine)

    assert said({}) is None
    assert said({"sku": "b200"}) == "it has b200, the recipe is for gb300-nvl72"
    assert said({"nodes": 2}) == "12 accelerators are needed, a launch has 8"
    assert said({"launcher": "process"}) == "launcher process needs packages"
    assert said({"launcher": "simulated"}) == "launcher simulated starts nothing"
    assert "does not come out even on nodes of 3" in (said({"accelerators": 3}) or "")
    docker = gb300.slurm.model_copy(update={"container": "docker", "image_cache": "/i"})
    assert "is started by MPI" in (said({"slurm": docker}) or "")
    assert fitting(recipe, gb300.model_copy(update={"accelerators": 8, "slurm": docker}), engine) == [
        topology.label() for topology in recipe.topologies
    ]
    without = docker.model_copy(update={"image_cache": None})
    whole = {"accelerators": 8, "slurm": without}
    assert "ai-dynamo" in (said(whole) or "") and "no folder for such an image" in (said(whole) or "")
    atom = load_catalog().engines["atom"]
    assert why_not(recipe, wide, gb300, atom) == "nothing says how ATOM spreads a worker over 2 nodes"


def test_recipes_that_a_pool_can_start(project_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The list names the recipes of the pool's SKU that fit, with the topologies that do."""
    assert run(["recipe", "list", "--fits", "examples/mi355x-docker", "--format", "csv"]) == 0
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()[1:]]
    assert {row[3] for row in rows} == {"mi355x"}
    assert not any("-disagg" in row[0] for row in rows)
    assert run(["recipe", "list", "--fits", "local", "--format", "csv"]) == 0
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()[1:]] == [DEMO]


@pytest.mark.parametrize("sku", ["vr200-nvl72", "mi455x", "tpu-v7x"])
def test_a_sku_without_recipes_has_a_readiness_card(capsys: pytest.CaptureFixture[str], sku: str) -> None:
    """No recipe is there, and what is missing is said for each engine with its source and date."""
    assert run(["recipe", "list", "--sku", sku]) == 0
    seen = capsys.readouterr()
    assert f"no recipe for {sku}; what is missing: isoline engine list --sku {sku}" in seen.err
    assert run(["engine", "list", "--sku", sku, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) >= 2
    assert all(row["recipes"] == 0 and row["missing"] and row["source"] and row["dated"] for row in rows)


def test_every_sku_has_recipes_or_a_card() -> None:
    """Whoever asks for a SKU gets an answer."""
    root = Path(__file__).resolve().parents[2]
    catalog = load_catalog()
    used = {load_recipe(root, name).recipe.sku for name in recipe_ids(root)}
    assert [key for key, sku in catalog.skus.items() if key not in used and not sku.readiness] == []


def test_an_unknown_sku_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A name that nobody knows is told with the nearest one."""
    for command in (["recipe", "list"], ["engine", "list"]):
        assert run([*command, "--sku", "mi455"]) == 1
        assert "unknown SKU 'mi455'; did you mean 'mi455x'" in capsys.readouterr().err
