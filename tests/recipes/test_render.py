"""Rendering: the exact command line, and an identity that covers what decides a start."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isoline.catalog.documents import DocumentError, load_document
from isoline.catalog.pools import Pool, load_pool
from isoline.errors import InputError
from isoline.recipes.load import LoadedRecipe, load_recipe
from isoline.recipes.render import flags, render
from isoline.recipes.schema import Recipe, Role, Topology

RECIPE_ID = "smollm2-135m/llamacpp-cpu-q4_1"
RECIPE = f"recipes/{RECIPE_ID}.yaml"
SCRIPT = "ab" * 32


def launch_digest(project: Any, recipe_id: str = RECIPE_ID) -> str:
    """The digest of the first topology's launch on the local pool."""
    loaded = load_recipe(project.root, recipe_id)
    return render(loaded, loaded.recipe.topologies[0], load_pool(project.root, "local"), SCRIPT).launch_digest


def test_the_command_line_in_full(project: Any) -> None:
    """The rendered words are exactly these: Isoline's own with placeholders, then the recipe's by name."""
    loaded = load_recipe(project.root, RECIPE_ID)
    rendered = render(loaded, loaded.recipe.topologies[0], load_pool(project.root, "local"), SCRIPT)
    assert " ".join(rendered.argv) == (
        "{python} {script} --model {model_path} --alias {model_alias} --host {host} --port {port} "
        "--metrics --slots --slot-save-path {scratch} "
        "--effective-args-file {scratch}/effective_args.json "
        "--cache-ram 0 --cache-type-k f16 --cache-type-v f16 --ctx-size 8192 --parallel 8 "
        "--threads 2 --threads-batch 2"
    )
    assert rendered.env == {}
    assert rendered.identity["argv"] == rendered.argv


def test_flags() -> None:
    """True is a bare flag, a list repeats it in its own order, and the names' order is the alphabet's."""
    args = {"b": True, "a": 1, "c": ["y", "x", 2], "d": 0.5}
    assert flags(args) == ["--a", "1", "--b", "--c", "y", "--c", "x", "--c", "2", "--d", "0.5"]


@given(st.permutations([("a", 1), ("b", True), ("c", "x"), ("d", ["q", "p"])]))
def test_the_order_of_arguments_is_nobody_s_choice(rows: list[tuple[str, Any]]) -> None:
    """However the lines of a recipe are ordered, the command is the same."""
    assert flags(dict(rows)) == ["--a", "1", "--b", "--c", "x", "--d", "q", "--d", "p"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("threads: 2", "threads: 3"),
        ("cache-ram: 0", "cache-ram: 1"),
        ("ctx-size: 8192", "no-warmup: true\n    ctx-size: 8192"),
        ("server:\n", "server:\n  env: {OMP_NUM_THREADS: '2'}\n"),
        ("2026.10.11549", "2026.10.11550"),
    ],
)
def test_what_decides_a_start_is_in_its_digest(project: Any, old: str, new: str) -> None:
    """Another argument, variable or package version is another launch."""
    before = launch_digest(project)
    project.edit(RECIPE, old, new)
    assert launch_digest(project) != before


def test_the_start_script_is_in_the_digest(project: Any) -> None:
    """Another start script is another launch, though its name is the same."""
    loaded, pool = load_recipe(project.root, RECIPE_ID), load_pool(project.root, "local")
    topology = loaded.recipe.topologies[0]
    assert (
        render(loaded, topology, pool, "a" * 64).launch_digest
        != render(loaded, topology, pool, "b" * 64).launch_digest
    )


def test_placeholders_keep_ports_out_of_the_digest(project: Any) -> None:
    """Port, host and paths are placeholders; the name of the pool is no part of the identity."""
    before = launch_digest(project)
    project.edit("runners/local.yaml", "name: local", "name: other")
    (project.root / "runners" / "local.yaml").rename(project.root / "runners" / "other.yaml")
    loaded = load_recipe(project.root, RECIPE_ID)
    other = load_pool(project.root, "other")
    assert render(loaded, loaded.recipe.topologies[0], other, SCRIPT).launch_digest == before


def shuffled(value: Any, rng: random.Random) -> Any:
    """The same mapping with its keys in another order, at every level."""
    if isinstance(value, dict):
        rows = list(value.items())
        rng.shuffle(rows)
        return {key: shuffled(item, rng) for key, item in rows}
    return [shuffled(item, rng) for item in value] if isinstance(value, list) else value


def test_order_and_comments_change_no_digest(project: Any, tmp_path: Path) -> None:
    """A recipe with all keys in another order, and comments everywhere, has the same digests."""
    import json

    loaded = load_recipe(project.root, RECIPE_ID)
    rng = random.Random(20261201)
    pool = load_pool(project.root, "local")
    wanted = render(loaded, loaded.recipe.topologies[0], pool, SCRIPT).launch_digest
    for _ in range(20):
        content = shuffled(json.loads(json.dumps(loaded.content)), rng)
        lines = [f"# {rng.random()}\n{key}: {json.dumps(item)}  # so\n" for key, item in content.items()]
        path = tmp_path / "r.yaml"
        path.write_text("".join(lines))
        again = LoadedRecipe(RECIPE_ID, load_document(path, Recipe))
        assert again.recipe_digest == loaded.recipe_digest
        assert render(again, again.recipe.topologies[0], pool, SCRIPT).launch_digest == wanted


def test_what_a_pool_cannot_serve(project: Any) -> None:
    """Another SKU, more accelerators than the pool has, and more than one worker are refused."""
    loaded = load_recipe(project.root, RECIPE_ID)
    local = load_pool(project.root, "local")
    with pytest.raises(InputError, match="recipe is for SKU 'cpu', pool 'local' has 'h200'"):
        render(loaded, loaded.recipe.topologies[0], local.model_copy(update={"sku": "h200"}), SCRIPT)
    eight = Topology(aggregated=Role(tp=8))
    with pytest.raises(InputError, match="needs 8 accelerators, pool 'local' has 1"):
        render(loaded, eight, local, SCRIPT)
    large = Pool.model_validate({**local.model_dump(), "accelerators": 8})
    with pytest.raises(InputError, match="starts one worker on one accelerator"):
        render(loaded, eight, large, SCRIPT)


def test_a_recipe_that_says_one_kv_precision_and_serves_another(project: Any) -> None:
    """The KV cache's precision is what the server gets, also where the argument is left out."""
    project.edit(RECIPE, "    cache-type-k: f16\n    cache-type-v: f16\n", "")
    launch_digest(project)  # the engine takes f16 by itself
    project.edit(RECIPE, "kv: f16", "kv: q8_0")
    with pytest.raises(DocumentError, match="the server gets cache-type-k f16"):
        launch_digest(project)
    project.edit(RECIPE, "  args:\n", "  args:\n    cache-type-k: q8_0\n    cache-type-v: q8_0\n")
    launch_digest(project)
