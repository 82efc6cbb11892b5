"""srt-slurm recipes: real arguments for each role, and what belongs to their cluster left behind."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from isoline.recipes.imports.common import Imported
from isoline.recipes.imports.srt_slurm import import_recipes, unfolded
from isoline.recipes.schema import Recipe


def vllm() -> dict[str, Any]:
    """A disaggregated vLLM recipe in their form, written for this test."""
    connector = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
    common = {
        "served-model-name": "x",
        "kv-cache-dtype": "fp8",
        "enable-expert-parallel": True,
        "trust-remote-code": True,
        "enforce-eager": False,
        "kv-transfer-config": connector,
    }
    return {
        "name": "Test 1P1D",
        "model": {
            "path": "deepseek-ai/DeepSeek-V4-Pro",
            "container": "vllm/vllm-openai:v0.25.1",
            "precision": "fp4",
        },
        "resources": {
            "gpu_type": "gb300", "gpus_per_node": 4, "prefill_nodes": 1, "prefill_workers": 1,
            "gpus_per_prefill": 4, "decode_nodes": 2, "decode_workers": 1, "gpus_per_decode": 8,
        },
        "backend": {
            "type": "vllm",
            "prefill_environment": {"VLLM_X": "1", "HF_HOME": "/scratch/hf", "NCCL_IB_HCA": "mlx5_0"},
            "decode_environment": {"VLLM_X": "2"},
            "vllm_config": {
                "prefill": {**common, "tensor-parallel-size": 1, "data-parallel-size": 4},
                "decode": {**common, "tensor-parallel-size": 1, "data-parallel-size": 8, "max-num-seqs": 64},
            },
        },
        "frontend": {"type": "dynamo", "args": {"router-mode": "kv"}},
        "dynamo": {"version": "1.2.0"},
        "benchmark": {"type": "sa-bench", "isl": 8192, "osl": 1024, "concurrencies": "64x128"},
        "setup_script": "patch.sh",
    }  # fmt: skip


def trtllm() -> dict[str, Any]:
    """An aggregated TensorRT-LLM recipe in their form, written for this test."""
    return {
        "name": "agg",
        "model": {
            "path": "nvidia/GLM-5.2-NVFP4",
            "container": "nvcr.io#nvidia/tensorrt-llm/release:1.3.0rc18",
        },
        "resources": {
            "gpu_type": "b300",
            "gpus_per_node": 8,
            "agg_nodes": 1,
            "agg_workers": 1,
            "gpus_per_agg": 8,
        },
        "backend": {
            "type": "trtllm",
            "trtllm_config": {
                "agg": {
                    "tensor_parallel_size": 8,
                    "moe_expert_parallel_size": 8,
                    "enable_attention_dp": True,
                    "max_batch_size": 64,
                    "kv_cache_config": {"dtype": "fp8", "enable_block_reuse": False},
                    "speculative_config": {"decoding_type": "MTP", "num_nextn_predict_layers": 3},
                }
            },
        },
        "frontend": {"type": "dynamo"},
        "benchmark": {"type": "sa-bench", "isl": 8192, "osl": 1024, "concurrencies": [4]},
    }


def one(tree: dict[str, Any]) -> tuple[Imported, Recipe]:
    """The import of one file that becomes one recipe."""
    done = import_recipes({"r.yaml": tree}, revision="abc")
    assert len(done.drafts) == 1, [line.row() for line in done.lines]
    return done, Recipe.model_validate(done.drafts[0].tree)


def why(tree: dict[str, Any]) -> str:
    """Why a file is not imported."""
    done = import_recipes({"r.yaml": tree})
    assert done.drafts == []
    (line,) = [line for line in done.lines if line.kind in ("left_out", "unknown_name")]
    return f"{line.what}; {line.remedy}"


def test_each_role_has_its_arguments() -> None:
    """Arguments, environment and split of both roles; the launcher's own arguments are gone."""
    done, recipe = one(vllm())
    assert done.drafts[0].recipe_id == "deepseek-v4-pro/dynamo-vllm-gb300-nvl72-mxfp4-test-1p1d"
    assert recipe.topologies[0].label() == "ptp4-ep4-dpa4_dtp8-ep8-dpa8"
    assert recipe.roles["decode"].args == {
        "kv-cache-dtype": "fp8",
        "trust-remote-code": True,
        "max-num-seqs": 64,
        "kv-transfer-config": {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
    }
    assert recipe.roles["prefill"].env == {"VLLM_X": "1"}
    assert recipe.precision.kv == "fp8"
    assert recipe.kv_transfer is not None
    assert recipe.kv_transfer.connector == "nixl"
    assert recipe.scenarios["8k1k"].all == [64, 128]
    assert recipe.incomplete == []
    assert recipe.upstream == "srt-slurm @abc r.yaml"


def test_what_is_of_their_cluster_is_told_and_left() -> None:
    """Paths, devices, set-up scripts and the front end are in the report and as a comment in the file."""
    done, _ = one(vllm())
    told = " | ".join(line.what for line in done.lines if line.kind == "not_said")
    for word in ("setup_script", "front end", "dynamo 1.2.0", "HF_HOME", "NCCL_IB_HCA"):
        assert word in told
        assert any(word in line for line in done.drafts[0].head)
    assert "/scratch" not in done.drafts[0].text()
    assert done.losses == 0


def test_a_configuration_file_stays_one() -> None:
    """TensorRT-LLM's settings stay in its file, without the keys that the topology says."""
    _, recipe = one(trtllm())
    assert recipe.topologies[0].label() == "tp8-ep8-dpa8"
    content = recipe.roles["aggregated"].config_files["config.yaml"]
    assert content["max_batch_size"] == 64
    assert "tensor_parallel_size" not in content
    assert (recipe.speculative.method, recipe.speculative.draft_tokens) == ("mtp", 3)
    assert recipe.image.ref == "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc18"
    assert recipe.precision.kv == "fp8"


def test_a_base_with_zipped_overrides_is_several_recipes() -> None:
    """Lists of one length count by position, single values for all."""
    base = vllm()
    base.pop("name")
    tree = {
        "base": base,
        "zip_override_low": {
            "name": ["one", "two"],
            "backend": {"vllm_config": {"decode": {"max-num-seqs": [8, 16]}}},
            "benchmark": {"concurrencies": ["8", "16"]},
            "frontend": {"args": {"router-mode": "round-robin"}},
        },
    }
    done = import_recipes({"r.yaml": tree})
    found = {
        draft.recipe_id.rpartition("-")[2]: (
            draft.tree["roles"]["decode"]["args"]["max-num-seqs"],
            draft.tree["scenarios"]["8k1k"]["concurrency"],
        )
        for draft in done.drafts
    }
    assert found == {"one": (8, [8]), "two": (16, [16])}


def test_lists_that_do_not_fit_together_are_refused() -> None:
    """Two lengths, and nobody says which is which."""
    tree = {"base": vllm(), "zip_override_x": {"a": [1, 2], "b": [1, 2, 3]}}
    with pytest.raises(ValueError, match="which of them belong together"):
        list(unfolded(tree))
    assert "which of them belong together" in why(tree)


def test_pinned_acceptance_is_looked_up_never_copied() -> None:
    """A length in the source becomes `acceptance: pinned`; one that the golden table lacks is refused."""
    tree = vllm()
    spec = {"method": "deepseek_mtp", "num_speculative_tokens": 2, "synthetic_acceptance_length": 2.27}
    for side in ("prefill", "decode"):
        spec_text = {**spec, "rejection_sample_method": "synthetic"}
        tree["backend"]["vllm_config"][side]["speculative-config"] = spec_text
    done, recipe = one(tree)
    assert recipe.speculative.acceptance == "pinned"
    assert "synthetic" not in done.drafts[0].text()
    for side in ("prefill", "decode"):
        tree["backend"]["vllm_config"][side]["speculative-config"] = {
            **spec, "num_speculative_tokens": 30, "rejection_sample_method": "synthetic",
        }  # fmt: skip
    assert "the golden table has no length" in why(tree)


def changed(path: str, value: Any) -> dict[str, Any]:
    """The vLLM recipe with one value changed; None removes it."""
    tree = copy.deepcopy(vllm())
    node: Any = tree
    *parents, last = path.split("/")
    for part in parents:
        node = node[part]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return tree


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("model/path", "someone/Nothing", "no model 'someone/Nothing'; add `models: {someone/nothing: KEY}`"),
        ("resources/gpu_type", "z100", "no sku 'z100'"),
        ("model/container", "/images/x.sqsh", "a name or file of their machines"),
        ("backend/type", "mlc", "backend type 'mlc'"),
        ("resources/gpus_per_decode", 4, "the arguments use 8 devices a worker, 4 are declared"),
        ("benchmark/concurrencies", None, "concurrencies is missing"),
        ("benchmark/isl", None, "says neither isl and osl"),
        ("backend/vllm_config/decode", None, "roles with workers and a section: prefill"),
        ("model", None, "'model' is missing"),
        ("sweep", {"a": [1]}, "placeholders"),
        ("backend/vllm_config/decode/data-parallel-size", "many", "not a number of devices"),
        ("backend/vllm_config/decode/kv-cache-dtype", "nvfp4", "the roles have KV caches of fp8, nvfp4"),
    ],
)
def test_what_cannot_be_imported_says_why(path: str, value: Any, words: str) -> None:
    """Each reason in one line, and no recipe."""
    assert words in why(changed(path, value))


def test_an_unknown_kv_precision_is_said_to_be_unknown() -> None:
    """Where no argument says it, the recipe is incomplete; nothing is assumed."""
    tree = changed("backend/vllm_config/decode/kv-cache-dtype", None)
    del tree["backend"]["vllm_config"]["prefill"]["kv-cache-dtype"]
    _, recipe = one(tree)
    assert recipe.precision.kv == "unknown"
    assert recipe.incomplete == ["precision.kv"]
