"""The recipe schema: topologies that are counted right, and values that nobody means."""

from __future__ import annotations

from typing import Any

import pytest

from isoline.catalog.documents import DocumentError
from isoline.recipes.load import load_recipe
from isoline.recipes.schema import ANNOTATIONS, Recipe
from isoline.recipes.topology import Role, Topology

RECIPE = "recipes/smollm2-135m/llamacpp-cpu-q4_1.yaml"
RECIPE_ID = "smollm2-135m/llamacpp-cpu-q4_1"


@pytest.mark.parametrize(
    ("fields", "gpus", "label"),
    [
        ({}, 1, "tp1"),
        ({"tp": 8}, 8, "tp8"),
        ({"tp": 8, "ep": 8}, 8, "tp8-ep8"),  # experts are placed on the devices, they are no devices
        ({"tp": 8, "ep": 8, "dp_attention": 8}, 8, "tp8-ep8-dpa8"),
        ({"tp": 8, "dcp": 2}, 8, "tp8-dcp2"),
        ({"tp": 4, "pp": 2}, 8, "tp4-pp2"),
        ({"workers": 2, "tp": 4, "ep": 4}, 8, "2xtp4-ep4"),
    ],
)
def test_devices_are_counted_once(fields: dict[str, int], gpus: int, label: str) -> None:
    """GPUs are workers x tp x pp; ep, DP attention and dcp divide these and never multiply."""
    topology = Topology(aggregated=Role(**fields))
    assert (topology.gpus, topology.label()) == (gpus, label)


@pytest.mark.parametrize(
    "fields", [{"tp": 4, "dp_attention": 3}, {"tp": 2, "dcp": 4}, {"tp": 0}, {"workers": -1}]
)
def test_impossible_topologies_are_refused(fields: dict[str, int]) -> None:
    """What does not divide, and what is no device, is refused."""
    with pytest.raises(ValueError, match=r"does not divide|greater than or equal"):
        Role(**fields)


def test_annotations_are_fields() -> None:
    """Each declared annotation is a field of the recipe, and has a reason."""
    assert set(ANNOTATIONS) < set(Recipe.model_fields)
    assert all(len(reason) > 20 for reason in ANNOTATIONS.values())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("owner: isoline", "ownr: isoline", "unknown key 'ownr'; did you mean 'owner'?"),
        ("weights: q4_1", "wieghts: q4_1", "unknown key 'wieghts'; did you mean 'weights'?"),
        ("workers: 1", "worker: 1", "unknown key 'worker'; did you mean 'workers'?"),
        ("packages:", "package:", "unknown key 'package'; did you mean 'packages'?"),
        ("ready_s: 60", "readys: 60", "unknown key 'readys'; did you mean 'ready_s'?"),
        ("{concurrency: [1, 4]}", "{concurency: [1, 4]}", "unknown key 'concurency'"),
        ("tolerance: 0.15", "tolerence: 0.15", "unknown key 'tolerence'; did you mean 'tolerance'?"),
        ("model: smollm2-135m-instruct", "model: smollm-135m", "unknown model 'smollm-135m'; did you mean"),
        ("engine: llamacpp", "engine: lamacpp", "unknown engine 'lamacpp'; did you mean 'llamacpp'?"),
        ("sku: cpu", "sku: gb200", "unknown SKU 'gb200'; did you mean 'gb200-nvl72'"),
        ("weights: q4_1", "weights: q4_k", "unknown weight precision of smollm2-135m-instruct 'q4_k'"),
        ("kv: f16", "kv: q8_0", "precision.kv is 'q8_0', but the server gets cache-type-k f16"),
        ("parallel: 8", "-parallel: 8", "without dashes in front"),
        ("parallel: 8", "port: 8", "argument 'port' is set by Isoline itself"),
        ("parallel: 8", "parallel: false", "argument 'parallel' is false"),
        ("parallel: 8", "parallel: []", "argument 'parallel' is an empty list"),
        ("parallel: 8", "parallel: {expr: 8}", "an expression is a text"),
        ("parallel: 8", "parallel: {expr: 'conc * 2'}", "unknown name 'conc'; known: concurrency, isl"),
        ("parallel: 8", "parallel: {expr: '2', to: 3}", "expr stands alone in its mapping"),
        ("parallel: 8", "parallel:", "argument 'parallel' has no value: true for a flag alone"),
        ("threads: 2", "parallel: 2", 'found duplicate key "parallel"'),
        ("xllamacpp==2026.10.11549", "xllamacpp", "is not pinned; write name==version"),
        ("[1, 2, 4, 8]", "[1, 2, 8, 4]", "positive, ascending and without repeats"),
        ("[1, 2, 4, 8]", "[1, 2, 2, 8]", "positive, ascending and without repeats"),
        ("[1, 2, 4, 8]", "[0, 2, 4, 8]", "positive, ascending and without repeats"),
        ("[1, 2, 4, 8]", "[1, 2, four]", "demo-short.concurrency.2: input should be a valid integer"),
        ("tolerance: 0.15", "tolerance: 0.4", "tolerance 0.4 leaves nothing of 0.37"),
        ("correct_share: 0.37", "correct_share: much", "correct_share: input should be a valid number"),
        ("status: verified", "status: good", "status: input should be 'verified' or 'unverified'"),
        ("schema_version: 1", "schema_version: 2", "schema_version: input should be 1, got 2"),
        ("sku: cpu", "sku: cpu\nrevision: main", "unknown revision of smollm2-135m-instruct 'main'"),
        ("sku: cpu", "sku: cpu\nspeculative: mtp", "speculative: input should be a valid dictionary"),
        ("sku: cpu", "sku: cpu\nspeculative: {method: mpt}", "speculative.method: input should be 'none'"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(project: Any, old: str, new: str, words: str) -> None:
    """Each mistake in the real recipe is one line with the file, its line number and what to write."""
    line = project.edit(RECIPE, old, new) + new.count("\n")
    with pytest.raises(DocumentError) as caught:
        load_recipe(project.root, RECIPE_ID)
    (said,) = caught.value.lines()
    assert said.startswith(f"{RECIPE}:{line}: ")
    assert words in said


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "ISOLINE_STORE", "PYTHONPATH", "lower", "A B"])
def test_environment_that_is_not_a_recipe_s(project: Any, name: str) -> None:
    """A recipe sets variables of the engine, none that decide which program runs."""
    project.edit(RECIPE, "server:\n", f"server:\n  env: {{{name}: x}}\n")
    with pytest.raises(DocumentError, match=f"environment variable '{name}'"):
        load_recipe(project.root, RECIPE_ID)


def test_two_topologies_of_one_label(project: Any) -> None:
    """Points are told apart by the topology's label, so no recipe has one twice."""
    line = project.edit(RECIPE, "  - aggregated: {workers: 1, tp: 1}\n", "  - aggregated: {tp: 1}\n" * 2)
    with pytest.raises(DocumentError, match=f"yaml:{line + 1}: topologies.1: two topologies"):
        load_recipe(project.root, RECIPE_ID)
