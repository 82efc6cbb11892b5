"""Recipes against the recorded command lines that they come from."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from isoline.recipes.load import LoadedRecipe, load_recipe, recipe_ids

ROOT = Path(__file__).parents[2]
HANDMADE = frozenset(("smollm2-135m",))
CHECKED = ("args.", "env.", "config.", "aggregated.", "prefill.", "decode.")
"""Beginnings of declared differences that a rendered worker shows."""


def _support() -> ModuleType:
    name = "isoline_test_recorded"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / "support" / "recorded.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="module")
def support() -> ModuleType:
    return _support()


@pytest.fixture(scope="module")
def recorded() -> Path:
    folder = ROOT.parent / "shared" / "data" / "recorded"
    if not folder.is_dir():
        pytest.skip("the recorded command lines are not beside the project (../shared/data/recorded)")
    return folder


@pytest.fixture(scope="module")
def recipes() -> list[LoadedRecipe]:
    return [load_recipe(ROOT, recipe_id) for recipe_id in recipe_ids(ROOT)]


def _sourced(
    recipes: list[LoadedRecipe], support: ModuleType, part: str
) -> list[tuple[LoadedRecipe, list[str]]]:
    found = [(loaded, support.paths_of(loaded.recipe.upstream)) for loaded in recipes]
    return [(loaded, paths) for loaded, paths in found if paths and part in paths[0]]


def _undeclared(loaded: LoadedRecipe, paths: set[str], support: ModuleType) -> list[str]:
    declared = [item.what for item in loaded.recipe.differences]
    return sorted(p for p in paths if not any(support.covers(what, p) for what in declared))


def _unseen(loaded: LoadedRecipe, paths: set[str], support: ModuleType) -> list[str]:
    declared = [item.what for item in loaded.recipe.differences if item.what.startswith(CHECKED)]
    return sorted(what for what in declared if not any(support.covers(what, path) for path in paths))


def _matches(single: Any, loaded: LoadedRecipe, row: dict[str, Any]) -> bool:
    """Whether a recorded run is one of the recipe's: image, KV offload and drafting are its own."""
    recipe = loaded.recipe
    spec = single.speculative_of(row, single.command_of(row))
    offload = row["kv_offload_backend"] if row["kv_offloading"] not in (None, "none") else None
    return bool(
        row["image"].replace("#", "/") == recipe.image.ref
        and offload == recipe.kv_offload.backend
        and spec.get("method", "none") == recipe.speculative.method
        and spec.get("draft_tokens") == recipe.speculative.draft_tokens
    )


def test_single_node_recipes_render_what_was_recorded(
    recipes: list[LoadedRecipe], recorded: Path, support: ModuleType
) -> None:
    """Every recorded single-node command of a recipe is rendered, but for what the recipe declares."""
    single, _ = support.tools(ROOT)
    rows = support.read_lines(recorded / "server_commands.jsonl")
    problems: list[str] = []
    compared = 0
    for loaded, (path,) in _sourced(recipes, support, "benchmarks/single_node/"):
        found: set[str] = set()
        points = {
            (topology.label(), scenario, level)
            for topology in loaded.recipe.topologies
            for scenario, use in loaded.recipe.scenarios.items()
            for level in use.at(topology.label())
        }
        for row in (item for item in rows if item["script"] == path and _matches(single, loaded, item)):
            label = single.topology_of(single.command_of(row).role)[0]
            point = next((p for p in points if p[0] == label and p[2] == row["concurrency"]), None)
            if point is None:
                problems.append(f"{loaded.recipe_id}: recorded {label} at {row['concurrency']} is not listed")
                continue
            points.discard(point)
            compared += 1
            topology = next(t for t in loaded.recipe.topologies if t.label() == label)
            deployment, pool = support.rendered(
                loaded, topology, point[1], point[2], row["total_cpu_dram_gb"]
            )
            wanted = support.wanted_single(single, row, single.names.HARNESS_ENV)
            actual = support.said(loaded, deployment.workers[0], pool)
            here = support.differing(actual, wanted.roles["aggregated"], "")
            found |= here
            problems += [
                f"{loaded.recipe_id} {label} c{point[2]}: {p}" for p in _undeclared(loaded, here, support)
            ]
            sidecars = sorted(command.argv for command in (*deployment.before, *deployment.after))
            if sidecars != sorted(wanted.sidecars):
                problems.append(f"{loaded.recipe_id} {label} c{point[2]}: sidecars differ")
        problems += [f"{loaded.recipe_id}: {point} was never recorded" for point in sorted(points)]
        problems += [
            f"{loaded.recipe_id}: {what} is no difference" for what in _unseen(loaded, found, support)
        ]
    assert problems == []
    assert compared > 400


def test_multi_node_recipes_render_what_was_recorded(
    recipes: list[LoadedRecipe], recorded: Path, support: ModuleType
) -> None:
    """Every role of every recorded multi-node object of a recipe is rendered, but for what it declares."""
    _, multi = support.tools(ROOT)
    rows = support.read_lines(recorded / "multi_node.jsonl")
    problems: list[str] = []
    compared = 0
    for loaded, paths in _sourced(recipes, support, "srt-slurm-recipes/"):
        found: set[str] = set()
        own = [row for row in rows if row["path"] in paths]
        for topology in loaded.recipe.topologies:
            for scenario, use in loaded.recipe.scenarios.items():
                for level in use.at(topology.label()):
                    row = _object_at(multi, own, loaded, topology.label(), level)
                    if row is None:
                        problems.append(f"{loaded.recipe_id}: {topology.label()} c{level} was never recorded")
                        continue
                    compared += 1
                    deployment, pool = support.rendered(loaded, topology, scenario, level)
                    wanted = support.wanted_multi(multi, row, multi.names.HARNESS_ENV)
                    for command in deployment.workers:
                        prefix = "" if command.role == "aggregated" else f"{command.role}."
                        here = support.differing(
                            support.said(loaded, command, pool), wanted[str(command.role)], prefix
                        )
                        found |= here
                        problems += [
                            f"{loaded.recipe_id} {topology.label()} c{level}: {p}"
                            for p in _undeclared(loaded, here, support)
                        ]
        problems += [
            f"{loaded.recipe_id}: {what} is no difference" for what in _unseen(loaded, found, support)
        ]
    assert problems == []
    assert compared > 100


def _object_at(
    multi: Any, rows: list[dict[str, Any]], loaded: LoadedRecipe, label: str, level: int
) -> dict[str, Any] | None:
    for row in rows:
        item = multi.object_of(row)
        same = item.topology.label() == label and level in item.levels
        if same and item.spec.get("draft_tokens") == loaded.recipe.speculative.draft_tokens:
            return row
    return None


def test_llm_d_recipes_have_the_arguments_of_their_documents(
    recipes: list[LoadedRecipe], recorded: Path, support: ModuleType
) -> None:
    """Each role of the llm-d recipe gets the document's arguments and variables, but for what is declared."""
    rows = {
        row["path"]: row for row in support.read_lines(recorded / "multi_node_other.jsonl") if "index" in row
    }
    found = _sourced(recipes, support, "llm-d-recipes/")
    assert len(found) == 1
    loaded, paths = found[0]
    seen: set[str] = set()
    for topology, path in zip(loaded.recipe.topologies, (rows[name] for name in paths), strict=True):
        level = loaded.recipe.scenarios["8k1k"].at(topology.label())[0]
        deployment, pool = support.rendered(loaded, topology, "8k1k", level)
        for command in deployment.workers:
            wanted = support.wanted_document(path["values"][str(command.role)])
            here = support.differing(support.said(loaded, command, pool), wanted, f"{command.role}.")
            seen |= {item.split(".", 1)[1] for item in here}
    assert _undeclared(loaded, seen, support) == []
    assert _unseen(loaded, seen, support) == []


def test_amd_recipes_have_the_flags_of_their_tables(
    recipes: list[LoadedRecipe], recorded: Path, support: ModuleType
) -> None:
    """Flags that a table gives to every role are rendered, those for DP attention exactly where it is on."""
    tables = {
        row["key"]: row["values"]
        for row in support.read_lines(recorded / "multi_node_other.jsonl")
        if row.get("path") == "benchmarks/multi_node/amd_utils/models.yaml"
    }
    found = [
        (loaded, loaded.recipe.upstream)
        for loaded in recipes
        if "amd_utils/models.yaml (" in loaded.recipe.upstream
    ]
    assert len(found) == 4
    for loaded, upstream in found:
        table = tables[upstream.partition("models.yaml (")[2].partition(")")[0]]
        topology = loaded.recipe.topologies[0]
        assert topology.prefill is not None
        wide = topology.prefill.dp_attention > 1
        level = loaded.recipe.scenarios["8k1k"].all[0]
        deployment, pool = support.rendered(loaded, topology, "8k1k", level)
        declared = {item.what.rpartition("args.")[2] for item in loaded.recipe.differences}
        for command in deployment.workers:
            args = support.said(loaded, command, pool)["args"]
            for name, value in support.words(table["base_flags"]).items():
                assert name in declared or args[name] == value, (loaded.recipe_id, name)
            for name, value in support.words(table["dp_flags"]).items():
                assert (args.get(name) == value) is wide, (loaded.recipe_id, name)
            assert args["mem-fraction-static"] == table[str(command.role)]["mem_fraction_static"]


def test_every_recipe_names_a_source_that_is_checked(
    recipes: list[LoadedRecipe], support: ModuleType
) -> None:
    """A recipe is compared with recorded data, or names a public file with its commit."""
    for loaded in recipes:
        recipe = loaded.recipe
        if loaded.recipe_id.split("/")[0] in HANDMADE:
            continue
        assert support.paths_of(recipe.upstream) or "@" in recipe.upstream, loaded.recipe_id
        assert recipe.status == "unverified", loaded.recipe_id
        assert recipe.owner == "isoline"


def test_recipes_cover_models_engines_skus_and_features(recipes: list[LoadedRecipe]) -> None:
    """There are enough recipes of every kind that the catalog promises."""
    own = [loaded.recipe for loaded in recipes]
    assert len(own) >= 60
    assert len({recipe.model for recipe in own}) >= 8
    assert len({recipe.engine for recipe in own}) >= 6
    assert len({recipe.sku for recipe in own}) >= 9
    assert sum(any(t.is_disaggregated for t in recipe.topologies) for recipe in own) >= 12
    assert sum(recipe.speculative.method != "none" for recipe in own) >= 8
    assert sum(recipe.kv_offload.tier != "none" for recipe in own) >= 4
    by_model = {
        ("qwen3.5-397b-a17b", "sglang"): {
            "h100",
            "h200",
            "b200",
            "b300",
            "gb300-nvl72",
            "mi300x",
            "mi325x",
            "mi355x",
        },
        ("minimax-m3", "vllm"): {"h100", "h200", "b200", "b300", "mi300x", "mi325x", "mi355x"},
        ("gpt-oss-120b", "vllm"): {"h200", "mi355x"},
        ("deepseek-v4-pro", "llm-d"): {"gb200-nvl72"},
        ("llama-3.3-70b-instruct", "vllm"): {"h100"},
    }
    for (model, engine), skus in by_model.items():
        assert skus <= {recipe.sku for recipe in own if (recipe.model, recipe.engine) == (model, engine)}


def test_no_recipe_writes_an_acceptance_length(recipes: list[LoadedRecipe]) -> None:
    """Pinned acceptance is looked up: no argument, variable or file of a recipe has it."""
    forced = ("synthetic_acceptance", "SIMULATE_ACC", "FORCE_NUM_ACCEPTED", "spec-decode-acceptance")
    for loaded in recipes:
        parts = [loaded.recipe.server, *loaded.recipe.roles.values()]
        text = "".join(part.model_dump_json() for part in parts)
        assert not [word for word in forced if word in text], loaded.recipe_id


def test_one_k_is_for_bringing_up_only(recipes: list[LoadedRecipe]) -> None:
    """1k1k stands in recipes for bringing a machine up, and in no other."""
    for loaded in recipes:
        assert ("1k1k" in loaded.recipe.scenarios) is loaded.recipe_id.endswith("-bringup"), loaded.recipe_id
