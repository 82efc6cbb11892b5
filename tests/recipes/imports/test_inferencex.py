"""InferenceX's master files: what becomes a recipe, and what is found wrong in them without being told."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.facts import load_catalog
from isoline.recipes.imports.common import Imported, read_tree
from isoline.recipes.imports.inferencex import import_master, is_in_ranks, role_of, topology_of
from isoline.recipes.imports.inferencex_rows import Pool, concurrencies, rows_of, scenario_name
from isoline.recipes.schema import Recipe

RUNNERS = {"labels": {"b200": ["b200-x_0"], "mi355x-disagg": ["mi355x-y_1"], "cluster:b300-nv": ["b300-z_0"]}}


def config(**changes: Any) -> dict[str, Any]:
    """One single-node config in the form of a master file."""
    entry = {"tp": 8, "conc-start": 4, "conc-end": 16}
    made: dict[str, Any] = {
        "image": "lmsysorg/sglang:v0.5.16-cu130",
        "model": "deepseek-ai/DeepSeek-R1-0528",
        "model-prefix": "dsr1",
        "runner": "b200",
        "precision": "fp8",
        "framework": "sglang",
        "multinode": False,
        "scenarios": {"fixed-seq-len": [{"isl": 8192, "osl": 1024, "search-space": [entry]}]},
    }
    return made | changes


def fixed(*entries: dict[str, Any]) -> dict[str, Any]:
    """Scenarios with one 8192/1024 block."""
    return {"fixed-seq-len": [{"isl": 8192, "osl": 1024, "search-space": list(entries)}]}


def agentic(*entries: dict[str, Any]) -> dict[str, Any]:
    """Scenarios with one agentic block."""
    return {"agentic-coding": [{"dram-utilization": 0.8, "search-space": list(entries)}]}


def made(**configs: dict[str, Any]) -> Imported:
    """The import of one file."""
    return import_master({"m.yaml": configs}, RUNNERS, revision="abc1234")


def lines(done: Imported, kind: str) -> list[str]:
    """What lines of one kind say."""
    return [line.what for line in done.lines if line.kind == kind]


def test_a_config_becomes_a_recipe_that_loads() -> None:
    """Topology, image and concurrencies are taken over; what the file does not say is listed as unknown."""
    done = made(a=config())
    assert [draft.recipe_id for draft in done.drafts] == ["deepseek-r1-0528/sglang-b200-fp8-block-a"]
    recipe = Recipe.model_validate(done.drafts[0].tree)
    assert [item.label() for item in recipe.topologies] == ["tp8"]
    assert recipe.scenarios["8k1k"].at("tp8") == [4, 8, 16]
    assert recipe.image.ref == "lmsysorg/sglang:v0.5.16-cu130"
    assert recipe.incomplete == ["server.args", "precision.kv"]
    assert recipe.status == "unverified"
    assert recipe.upstream == "InferenceX @abc1234 configs/m.yaml: a"
    assert done.losses == 0


def test_a_range_doubles_and_has_its_end() -> None:
    """4 to 100 is 4, 8, 16, 32, 64, 100; a list counts as it stands."""
    assert concurrencies({"conc-start": 4, "conc-end": 100}) == [4, 8, 16, 32, 64, 100]
    assert concurrencies({"conc-list": [90, 7]}) == [90, 7]
    with pytest.raises(ValueError, match="no range"):
        concurrencies({"conc-start": 8, "conc-end": 4})


def test_lengths_have_names() -> None:
    """8192/1024 is 8k1k; what is no multiple of 1024 is said in full."""
    assert (scenario_name(8192, 1024), scenario_name(1024, 1024)) == ("8k1k", "1k1k")
    assert scenario_name(1000, 500) == "1000-500"


def test_an_unknown_label_is_found_and_the_recipe_made() -> None:
    """A label that no machine has is a loss of the file's, not of the recipe: it names a SKU."""
    done = made(a=config(runner="gb300-nv", framework="dynamo-sglang"))
    assert lines(done, "unknown_label") == ["no machine has the label 'gb300-nv'"]
    assert done.drafts[0].tree["sku"] == "gb300-nvl72"
    assert done.losses == 1


@pytest.mark.parametrize(
    ("change", "what", "remedy"),
    [
        ({"model": "some/Unknown"}, "no model 'some/Unknown'", "models: {some/unknown: KEY}"),
        ({"framework": "turbo"}, "no engine 'turbo'", "engines: {turbo: KEY}"),
        ({"runner": "z900"}, "no sku 'z900'", "skus: {z900: KEY}"),
        ({"model": "deepseek-r1-fp4", "precision": "fp4"}, "'fp4' means is not known", "CHECKPOINT"),
    ],
)
def test_a_name_that_the_catalog_lacks_is_told_with_the_alias_to_add(
    change: dict[str, Any], what: str, remedy: str
) -> None:
    """Nothing is guessed: the config is left out, and the line to add is printed."""
    done = made(a=config(**change))
    (line,) = [line for line in done.lines if line.kind == "unknown_name"]
    assert what in line.what
    assert remedy in line.remedy
    assert line.points == 3
    assert done.drafts == []


def test_rows_that_are_exactly_others_are_dropped_once() -> None:
    """The same measurement under two keys is one; its second row is left out and counted."""
    done = made(a=config(), b=config(scenarios=fixed({"tp": 8, "conc-list": [8, 32]})))
    assert lines(done, "duplicate") == ["exactly 8k1k tp8 c8 of a"]
    assert {draft.recipe_id[-1]: draft.tree["scenarios"]["8k1k"]["concurrency"] for draft in done.drafts} == {
        "a": [4, 8, 16],
        "b": [32],
    }


def test_other_measurements_under_one_name_are_found() -> None:
    """Rows that differ in the image alone have one name at the source, and two ids here."""
    done = made(a=config(), b=config(image="lmsysorg/sglang:v0.5.17-cu130"))
    assert len(lines(done, "name_collision")) == 3
    assert len({draft.recipe_id for draft in done.drafts}) == 2
    assert lines(done, "duplicate") == []


def test_a_concurrency_that_two_entries_name_is_told() -> None:
    """Overlapping ranges inside one config are one point, not two."""
    done = made(a=config(scenarios=fixed({"tp": 8, "conc-list": [4, 8]}, {"tp": 8, "conc-list": [8, 16]})))
    assert done.drafts[0].tree["scenarios"]["8k1k"]["concurrency"] == [4, 8, 16]
    assert len(lines(done, "duplicate")) == 1


def test_prefill_and_decode_with_settings() -> None:
    """Both sides, DP attention, the mover of KV blocks, drafting and what becomes a comment."""
    entry = {
        "spec-decoding": "mtp",
        "conc-list": [32, 64],
        "prefill": {
            "num-worker": 1, "tp": 8, "ep": 1, "dp-attn": False, "additional-settings": ["PREFILL_NODES=1"],
        },
        "decode": {
            "num-worker": 2, "tp": 8, "ep": 8, "dp-attn": True, "additional-settings": ["DECODE_MTP_SIZE=3"],
        },
    }  # fmt: skip
    done = made(
        a=config(
            runner="mi355x-disagg",
            framework="sglang-disagg",
            multinode=True,
            disagg=True,
            router={"name": "sglang-router", "version": "0.3.2"},
            scenarios=fixed(entry),
        )
        | {"kv-p2p-transfer": "mori"}
    )
    recipe = Recipe.model_validate(done.drafts[0].tree)
    assert recipe.topologies[0].label() == "ptp8_d2xtp8-ep8-dpa8"
    assert recipe.topologies[0].gpus == 24
    assert recipe.kv_transfer is not None
    assert recipe.kv_transfer.connector == "mori"
    assert (recipe.speculative.method, recipe.speculative.draft_tokens) == ("mtp", 3)
    assert any("PREFILL_NODES=1" in line for line in done.drafts[0].head)
    assert lines(done, "not_said") == ["router sglang-router 0.3.2: its command is not in the files"]


def test_an_aggregated_multi_node_entry_has_no_decode() -> None:
    """Decode with no workers means that the first side does everything; it is not counted twice."""
    side = {"tp": 8, "ep": 1, "dp-attn": False}
    entry = {
        "conc-list": [1], "prefill": {"num-worker": 2, **side}, "decode": {"num-worker": 0, **side},
    }  # fmt: skip
    done = made(a=config(framework="dynamo-sglang", multinode=True, scenarios=fixed(entry)))
    assert done.drafts[0].tree["topologies"] == [{"aggregated": {"workers": 2, "tp": 8}}]


def test_drafting_and_offload_make_recipes_of_their_own() -> None:
    """A recipe has one way of drafting and one offload: a config with several becomes several."""
    entries = [
        {"tp": 4, "spec-decoding": "mtp", "kv-offloading": "none", "conc-list": [1]},
        {
            "tp": 4, "spec-decoding": "mtp", "conc-list": [1],
            "kv-offloading": "dram", "kv-offload-backend": {"name": "hicache"},
        },
        {"tp": 4, "spec-decoding": "none", "kv-offloading": "none", "conc-list": [1]},
    ]  # fmt: skip
    done = made(a=config(runner="cluster:b300-nv", scenarios=agentic(*entries)))
    recipes = [Recipe.model_validate(draft.tree) for draft in done.drafts]
    found = {(recipe.speculative.label(), recipe.kv_offload.label()) for recipe in recipes}
    assert found == {("mtp-unknown", "none"), ("mtp-unknown", "dram-hicache"), ("none", "none")}
    assert len({draft.recipe_id for draft in done.drafts}) == 3
    assert [recipe.kv_offload.utilization for recipe in recipes].count(0.8) == 1


def test_one_topology_with_two_configurations_becomes_two_recipes() -> None:
    """A label means one launch in a recipe: another file behind the same label is another recipe."""

    def entry(name: str, level: int) -> dict[str, Any]:
        side = {"num-worker": 1, "tp": 8, "ep": 1, "dp-attn": False}
        return {
            "conc-list": [level],
            "prefill": {**side, "additional-settings": [f"CONFIG_FILE={name}"]},
            "decode": {**side, "num-worker": 0},
        }

    done = made(
        a=config(framework="dynamo-sglang", multinode=True, scenarios=fixed(entry("x", 1), entry("y", 1)))
    )
    assert [draft.recipe_id.rpartition("/")[2] for draft in done.drafts] == [
        "dynamo-sglang-b200-fp8-block-a",
        "dynamo-sglang-b200-fp8-block-a-2",
    ]
    assert len({draft.tree["upstream"] for draft in done.drafts}) == 2


def test_a_split_that_the_engine_cannot_do_is_left_out() -> None:
    """ATOM splits attention as wide as tp or not at all; experts over more devices than there are: no."""
    done = made(a=config(framework="vllm", scenarios=fixed({"tp": 8, "ep": 4, "conc-list": [1]})))
    assert "experts are spread" in lines(done, "left_out")[0]
    assert done.drafts == []


def test_ranks_of_vllm_are_one_worker() -> None:
    """Experts over more devices than tp: tp is that of one rank, and workers that are the ranks are one."""
    side = {"num-worker": 4, "tp": 8, "ep": 32, "dp-attn": True}
    entry = {"conc-list": [1], "prefill": side, "decode": {**side, "num-worker": 0}}
    done = made(a=config(framework="dynamo-vllm", multinode=True, scenarios=fixed(entry)))
    assert done.drafts[0].tree["topologies"] == [{"aggregated": {"tp": 32, "ep": 32, "dp_attention": 4}}]
    assert "tp is that of one rank" in lines(done, "differs")[0]


@pytest.mark.parametrize("broken", [{}, {"scenarios": {"fixed-seq-len": [{"isl": 1}]}}, {"scenarios": 3}])
def test_what_has_not_the_form_is_left_out_alone(broken: dict[str, Any]) -> None:
    """One bad config does not stop the others."""
    bad = {key: value for key, value in config().items() if key != "scenarios"} | broken
    done = made(a=bad, b=config())
    assert len(lines(done, "left_out")) == 1
    assert len(done.drafts) == 1


def test_a_name_in_two_files_counts_once() -> None:
    """The second config of a name is reported, never last-wins."""
    done = import_master({"m.yaml": {"a": config()}, "n.yaml": {"a": config()}}, RUNNERS)
    assert lines(done, "left_out") == ["another file has a config of this name"]


# The real files.


@pytest.fixture(scope="module")
def shared(project_root: Path) -> Path:
    """The public files beside the project."""
    folder = project_root.parent / "shared/data"
    if not (folder / "inferencex").is_dir():
        pytest.skip("the public files are not beside the project (../shared/data/inferencex)")
    return folder


@pytest.fixture(scope="module")
def real(shared: Path) -> Imported:
    """The import of both master files."""
    folder = shared / "inferencex"
    masters = {name: read_tree(folder / name) for name in ("nvidia-master.yaml", "amd-master.yaml")}
    return import_master(masters, read_tree(folder / "runners.yaml"), revision="843c6254")


def test_the_real_files_have_these_faults(real: Imported) -> None:
    """8 unknown labels, 5 exact duplicates and 20 rows under a taken name are found, without being told."""
    kinds = Counter(line.kind for line in real.lines)
    assert kinds["unknown_label"] == 8
    exact = [line for line in real.lines if line.kind == "duplicate" and line.what.startswith("exactly")]
    assert len(exact) == 5
    # Rows that share a name: the exact ones, and the others.
    assert kinds["name_collision"] + len(exact) == 20
    assert kinds["left_out"] == 0


def test_every_point_of_the_real_files_is_accounted_for(real: Imported) -> None:
    """208 configs and 2,078 points: imported, or told why not."""
    points = Counter[str]()
    for line in real.lines:
        points[line.kind] += line.points or 0
    assert points["imported"] + points["unknown_name"] + points["duplicate"] == 2078
    sources = {line.source for line in real.lines if line.kind in ("imported", "unknown_name")}
    assert len(sources) == 208
    assert points["imported"] > 1990


def test_imported_recipes_load_and_have_ids_of_their_own(real: Imported) -> None:
    """Each is a recipe of the schema, under one id, with its points once."""
    ids = [draft.recipe_id for draft in real.drafts]
    assert len(set(ids)) == len(ids)
    for draft in real.drafts:
        Recipe.model_validate(draft.tree)


def test_ranks_agree_with_the_recipes_that_the_rows_name(shared: Path) -> None:
    """Where a row's tp can only be that of a rank, the recipe it names has the devices that we read."""
    checked = 0
    with (shared / "recorded/multi_node.jsonl").open(encoding="utf-8") as file:
        for text in file:
            item = json.loads(text)
            for row in item.get("matrix_rows") or []:
                for side in ("prefill", "decode"):
                    actual = item["agg"] if item["aggregated"] else item[side]
                    given = row[side]
                    pool = Pool(
                        given["num_worker"], given["tp"], given["pp"], 1, given["pcp_size"], given["ep"],
                        given["dp_attn"], (),
                    )  # fmt: skip
                    if not pool.workers or not is_in_ranks(pool):
                        continue

                    role = role_of(pool, counts_ranks=True)
                    assert role["tp"] == actual["gpus_per_worker"], item["path"]
                    assert role.get("workers", 1) == actual["workers"], item["path"]
                    assert role.get("dp_attention", 1) == actual["dp"], item["path"]
                    checked += 1
    assert checked > 60


def test_rows_as_the_reference_counts_them(shared: Path) -> None:
    """690 + 482 single-node rows and 384 + 264 multi-node ones, as its own generator makes."""
    found = Counter[tuple[bool, bool]]()
    for name in ("nvidia-master.yaml", "amd-master.yaml"):
        for key, entry in read_tree(shared / "inferencex" / name).items():
            for row in rows_of(name, key, entry):
                found[(row.second is not None, row.scenario == "agentic")] += 1
                assert topology_of(row)
    assert found == {(False, False): 690, (False, True): 482, (True, False): 384, (True, True): 264}


def test_every_engine_that_is_imported_is_in_the_catalog(real: Imported) -> None:
    """A recipe never names an engine, model or SKU that is not known."""
    catalog = load_catalog()
    for draft in real.drafts:
        assert draft.tree["engine"] in catalog.engines
        assert draft.tree["sku"] in catalog.skus
