"""Rendering: the exact command line, and an identity that covers what decides a start."""

from __future__ import annotations

import json
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
from isoline.recipes.render import Inputs, RenderedLaunch, Shape, render, sized_for
from isoline.recipes.schema import Recipe
from isoline.recipes.topology import Role, Topology
from isoline.recipes.words import flags

RECIPE_ID = "smollm2-135m/llamacpp-cpu-q4_1"
RECIPE = f"recipes/{RECIPE_ID}.yaml"
SHAPE = Shape("demo-short", 96, 48)
INPUTS = Inputs("ab" * 32)


def rendered(
    project: Any, topology: Topology | None = None, pool: Pool | None = None, inputs: Inputs = INPUTS
) -> RenderedLaunch:
    """The demo's recipe at concurrency 8, on the local pool."""
    loaded = load_recipe(project.root, RECIPE_ID)
    where = pool or load_pool(project.root, "local")
    return render(loaded, topology or loaded.recipe.topologies[0], where, SHAPE, 8, inputs)


def launch_digest(project: Any) -> str:
    """The digest of the first topology's launch on the local pool."""
    return rendered(project).launch_digest


def test_the_command_line_in_full(project: Any) -> None:
    """The rendered words are exactly these: Isoline's own with placeholders, then the recipe's by name."""
    found = rendered(project)
    assert " ".join(found.argv) == (
        "{python} {script} --model {model_path} --alias {model_alias} --host {host} --port {port} "
        "--metrics --slots --slot-save-path {scratch} "
        "--effective-args-file {scratch}/effective_args.json "
        "--cache-ram 0 --cache-type-k f16 --cache-type-v f16 --ctx-size 8192 --parallel 8 "
        "--threads 2 --threads-batch 2"
    )
    assert found.env == {}
    assert found.identity["argv"] == found.argv
    assert found.is_resolved


def test_flags() -> None:
    """True is a bare flag, a list is one flag with several words, a mapping is JSON in one word."""
    args = {
        "b": True,
        "a": 1,
        "c": ["y", "x", 2],
        "d": 0.5,
        "e": {"k": [1, {"z": True}], "a": None},
        "f": 4.0,
    }
    assert flags(args) == [
        *("--a", "1", "--b", "--c", "y", "x", "2", "--d", "0.5"),
        *("--e", '{"k": [1, {"z": true}], "a": null}', "--f", "4"),
    ]


@given(st.permutations([("a", 1), ("b", True), ("c", "x"), ("d", ["q", "p"])]))
def test_the_order_of_arguments_is_nobody_s_choice(rows: list[tuple[str, Any]]) -> None:
    """However the lines of a recipe are ordered, the command is the same."""
    assert flags(dict(rows)) == ["--a", "1", "--b", "--c", "x", "--d", "q", "p"]


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
    digests = {rendered(project, inputs=Inputs(letter * 64)).launch_digest for letter in "ab"}
    assert len(digests) == 2


def test_placeholders_keep_ports_out_of_the_digest(project: Any) -> None:
    """Port, host and paths are placeholders; the name of the pool is no part of the identity."""
    before = launch_digest(project)
    project.edit("runners/local.yaml", "name: local", "name: other")
    (project.root / "runners" / "local.yaml").rename(project.root / "runners" / "other.yaml")
    assert rendered(project, pool=load_pool(project.root, "other")).launch_digest == before


def shuffled(value: Any, rng: random.Random) -> Any:
    """The same mapping with its keys in another order, at every level."""
    if isinstance(value, dict):
        rows = list(value.items())
        rng.shuffle(rows)
        return {key: shuffled(item, rng) for key, item in rows}
    return [shuffled(item, rng) for item in value] if isinstance(value, list) else value


def test_order_and_comments_change_no_digest(project: Any, tmp_path: Path) -> None:
    """A recipe with all keys in another order, and comments everywhere, has the same digests."""
    loaded = load_recipe(project.root, RECIPE_ID)
    rng = random.Random(20261201)
    pool = load_pool(project.root, "local")
    wanted = render(loaded, loaded.recipe.topologies[0], pool, SHAPE, 8, INPUTS).launch_digest
    for _ in range(20):
        content = shuffled(json.loads(json.dumps(loaded.content)), rng)
        lines = [f"# {rng.random()}\n{key}: {json.dumps(item)}  # so\n" for key, item in content.items()]
        path = tmp_path / "r.yaml"
        path.write_text("".join(lines))
        again = LoadedRecipe(RECIPE_ID, load_document(path, Recipe))
        assert again.recipe_digest == loaded.recipe_digest
        assert render(again, again.recipe.topologies[0], pool, SHAPE, 8, INPUTS).launch_digest == wanted


def test_the_order_of_files_is_none(project_root: Path) -> None:
    """Files of a folder, files written beside the server, variables: their order is no identity."""
    loaded = load_recipe(project_root, DISAGGREGATED)
    pool = load_pool(project_root, "examples/gb300-slurm-pyxis")
    found = []
    for turn in (list, lambda rows: list(reversed(list(rows)))):
        content = json.loads(json.dumps(loaded.content))
        content["files"] = turn(["a.jinja", "b.json"])
        content["server"]["config_files"] = dict(turn({"x.json": {"a": 1}, "y.json": {"b": 2}}.items()))
        content["server"]["env"] = dict(turn(content["server"]["env"].items()))
        one = LoadedRecipe(DISAGGREGATED, Recipe.model_validate(content))
        shape = Shape("agentic")
        launch = render(
            one, one.recipe.topologies[0], pool, shape, 8, Inputs(files={"a.jinja": "1", "b.json": "2"})
        )
        found.append((one.recipe_digest, launch.launch_digest))
    assert found[0] == found[1]


def test_what_a_pool_cannot_serve(project: Any) -> None:
    """Another SKU, more accelerators than the pool has, and more than one worker are refused."""
    local = load_pool(project.root, "local")
    with pytest.raises(InputError, match="recipe is for SKU 'cpu', pool 'local' has 'h200'"):
        rendered(project, pool=local.model_copy(update={"sku": "h200"}))
    eight = Topology(aggregated=Role(tp=8))
    with pytest.raises(InputError, match="needs 8 accelerators, pool 'local' has 1"):
        rendered(project, eight)
    large = Pool.model_validate({**local.model_dump(), "accelerators": 8})
    with pytest.raises(InputError, match="starts one worker on one accelerator"):
        rendered(project, eight, large)


def test_a_recipe_that_says_one_kv_precision_and_serves_another(project: Any) -> None:
    """The KV cache's precision is what the server gets, also where the argument is left out."""
    project.edit(RECIPE, "    cache-type-k: f16\n    cache-type-v: f16\n", "")
    launch_digest(project)  # the engine takes f16 by itself
    project.edit(RECIPE, "kv: f16", "kv: q8_0")
    with pytest.raises(DocumentError, match="the server gets cache-type-k f16"):
        launch_digest(project)
    project.edit(RECIPE, "  args:\n", "  args:\n    cache-type-k: q8_0\n    cache-type-v: q8_0\n")
    launch_digest(project)


PINNED = "minimax-m3/vllm-mi355x-mxfp4-agentic-eagle"
DISAGGREGATED = "kimi-k3/dynamo-vllm-gb300-nvl72-mxfp4-agentic-disagg-dspark-dram-mooncake"
TRACE = Shape("agentic")


def of(root: Path, recipe_id: str, pool: str, *, is_twin: bool = False, **changes: Any) -> RenderedLaunch:
    """A real recipe, first topology, at its lowest concurrency; ``changes`` of its fields."""
    loaded = load_recipe(root, recipe_id)
    if changes:
        content = {**json.loads(json.dumps(loaded.content)), **changes}
        loaded = LoadedRecipe(recipe_id, Recipe.model_validate(content))
    topology = loaded.recipe.topologies[0]
    level = loaded.recipe.scenarios["agentic"].at(topology.label())[0]
    where = load_pool(root, f"examples/{pool}")
    return render(loaded, topology, where, TRACE, level, Inputs(), is_twin=is_twin)


def test_a_twin_differs_in_the_acceptance_alone(project_root: Path) -> None:
    """The accuracy twin's words are the timed ones without the pinned acceptance: nothing else differs."""
    timed = of(project_root, PINNED, "mi355x-slurm-docker")
    twin = of(project_root, PINNED, "mi355x-slurm-docker", is_twin=True)
    differing = [(a, b) for a, b in zip(timed.argv, twin.argv, strict=True) if a != b]
    ((pinned, real),) = differing
    added = {"rejection_sample_method", "synthetic_acceptance_length"}
    one, two = json.loads(pinned), json.loads(real)
    assert one.keys() - two.keys() == added
    assert {name: value for name, value in one.items() if name not in added} == two
    assert timed.env == twin.env
    assert timed.launch_digest != twin.launch_digest
    apart = {"argv", "commands", "speculative", "speculative_detail"}
    rest = [
        {name: value for name, value in item.identity.items() if name not in apart} for item in (timed, twin)
    ]
    assert rest[0] == rest[1]


def test_roles_sidecars_and_devices(project_root: Path) -> None:
    """Each role has its own words and devices; a sidecar stands where it is started; who answers is known."""
    found = of(project_root, DISAGGREGATED, "gb300-slurm-pyxis").deployment
    assert [(item.name, item.workers, item.gpus) for item in found.commands] == [
        ("prefill", 1, 8),
        ("decode", 1, 8),
        ("frontend", 1, 0),
    ]
    assert found.gpus == 16
    assert found.entry.name == "frontend"
    modes = [item.argv[item.argv.index("--disaggregation-mode") + 1] for item in found.workers]
    assert modes == ["prefill", "decode"]


@pytest.mark.parametrize(
    "change",
    [
        {"is_entry": False},
        {"ready": "/health"},
        {"ports": ["frontend", "metrics"]},
        {"env": {}},
        {"packages": []},
        {"command": ["python3", "-m", "dynamo.frontend"]},
        {"order": "before"},
        {"per_gpu": True},
        {"name": "router"},
    ],
)
def test_a_sidecar_is_part_of_the_launch(project_root: Path, change: dict[str, Any]) -> None:
    """Whatever a sidecar is, a launch with another one is another launch."""
    before = of(project_root, DISAGGREGATED, "gb300-slurm-pyxis")
    (sidecar,) = load_recipe(project_root, DISAGGREGATED).content["sidecars"]  # type: ignore[misc, attr-defined]
    after = of(project_root, DISAGGREGATED, "gb300-slurm-pyxis", sidecars=[{**sidecar, **change}])
    assert after.launch_digest != before.launch_digest


def test_an_image_by_tag_is_unresolved(project_root: Path) -> None:
    """A launch whose image is known by its tag only says so; one with a digest is resolved."""
    assert not of(project_root, PINNED, "mi355x-slurm-docker").is_resolved
    ref = "rocm/vllm-dev:x@sha256:" + "a" * 64
    assert of(project_root, PINNED, "mi355x-slurm-docker", image={"ref": ref}).is_resolved


def test_a_channel_is_what_the_run_resolved_it_to(project_root: Path) -> None:
    """A channel's image is the run's; without one the launch names the channel, and is unresolved."""
    loaded = load_recipe(project_root, "gpt-oss-120b/vllm-h200-mxfp4-8k1k")
    pool = load_pool(project_root, "examples/h200-docker")
    ref = "vllm/vllm-openai:v1@sha256:" + "b" * 64
    found = [
        render(
            loaded, loaded.recipe.topologies[0], pool, Shape("8k1k", 8192, 1024), 128, Inputs(None, images)
        )
        for images in ({"vllm-release": ref}, {"vllm-release": "vllm/vllm-openai:v1"}, {})
    ]
    assert [item.is_resolved for item in found] == [True, False, False]
    assert [item.deployment.image for item in found] == [
        ref,
        "vllm/vllm-openai:v1",
        "channel:vllm-release",
    ]
    assert len({item.launch_digest for item in found}) == 3


def test_the_offload_budget_is_the_pool_s(project_root: Path) -> None:
    """``dram_gb`` is the share of the node's memory; a pool that does not say its memory cannot serve it."""
    loaded = load_recipe(project_root, "kimi-k3/vllm-b300-mxfp4-agentic-dram-mooncake")
    pool = load_pool(project_root, "examples/b300-slurm")
    topology = loaded.recipe.topologies[0]
    level = loaded.recipe.scenarios["agentic"].at(topology.label())[0]
    found = []
    for memory in (2000.0, 1000.0):
        sized = pool.model_copy(update={"node_memory_gb": memory})
        found.append(render(loaded, topology, sized, TRACE, level, Inputs()).launch_digest)
    assert found[0] != found[1]
    silent = pool.model_copy(update={"node_memory_gb": None})
    with pytest.raises(InputError, match=r"dram_gb is not known here \(role aggregated, concurrency"):
        render(loaded, topology, silent, TRACE, level, Inputs())


@pytest.mark.parametrize(
    ("bands", "sizes"),
    [([], [32, 64, 128, 2048]), (["max"], [2048] * 4), ([64, "max"], [64, 64, 2048, 2048])],
)
def test_what_a_server_is_sized_for(project_root: Path, bands: list[Any], sizes: list[int]) -> None:
    """The top of the band among the recipe's own concurrencies, and it is what expressions see."""
    name = "deepseek-r1-0528/sglang-disagg-mi355x-fp8-block-8k1k-disagg-dpa"
    content = json.loads(json.dumps(load_recipe(project_root, name).content))
    loaded = LoadedRecipe(name, Recipe.model_validate({**content, "launch_bands": bands}))
    topology, pool = loaded.recipe.topologies[0], load_pool(project_root, "examples/mi355x-slurm-docker")
    levels = [32, 64, 128, 2048]
    label = topology.label()
    assert [sized_for(loaded.recipe, label, "8k1k", level) for level in levels] == sizes
    for level, size in zip(levels, sizes, strict=True):
        argv = render(loaded, topology, pool, Shape("8k1k", 8192, 1024), level, Inputs()).argv
        assert argv[argv.index("--max-running-requests") + 1] == str(size)


def test_files_of_the_folder_are_in_the_digest(project_root: Path) -> None:
    """A chat template with another content is another launch under the same name."""
    loaded = load_recipe(project_root, PINNED)
    content = {**json.loads(json.dumps(loaded.content)), "files": ["template.jinja"]}
    changed = LoadedRecipe(PINNED, Recipe.model_validate(content))
    pool = load_pool(project_root, "examples/mi355x-slurm-docker")
    topology = loaded.recipe.topologies[0]
    level = loaded.recipe.scenarios["agentic"].at(topology.label())[0]
    digests = {
        render(
            changed, topology, pool, TRACE, level, Inputs(files={"template.jinja": letter * 64})
        ).launch_digest
        for letter in "ab"
    }
    assert len(digests) == 2


def test_the_weights_of_the_catalog_are_in_the_digest(project_root: Path) -> None:
    """Another checkpoint or revision is another launch; writing out the catalog's own is none."""
    name = "gpt-oss-120b/vllm-h200-mxfp4-8k1k"
    loaded = load_recipe(project_root, name)
    pool = load_pool(project_root, "examples/h200-docker")

    def digest_of(**changes: Any) -> str:
        content = {**json.loads(json.dumps(loaded.content)), **changes}
        made = LoadedRecipe(name, Recipe.model_validate(content))
        shape = Shape("8k1k", 8192, 1024)
        return render(made, made.recipe.topologies[0], pool, shape, 128, Inputs()).launch_digest

    plain = digest_of()
    assert digest_of(checkpoint="openai/gpt-oss-120b") == plain
    other = digest_of(checkpoint="another/gpt-oss-120b")
    pinned = digest_of(checkpoint="another/gpt-oss-120b", revision="a" * 40)
    assert len({plain, other, pinned}) == 3
