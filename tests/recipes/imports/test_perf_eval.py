"""perf-eval workloads: one vLLM command line, and benches that are fixed-length scenarios."""

from __future__ import annotations

from typing import Any

import pytest

from isoline.recipes.imports.common import Imported
from isoline.recipes.imports.perf_eval import import_workloads, words_of
from isoline.recipes.schema import Recipe


def workload(**changes: Any) -> dict[str, Any]:
    """A workload in their form, written for this test."""
    made: dict[str, Any] = {
        "name": "v4-h200",
        "gpu": "H200",
        "num_gpus": 8,
        "vllm": {
            "model": "deepseek-ai/DeepSeek-V4-Pro",
            "env": {"TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas", "VLLM_X": 1},
            "serve_args": "--data-parallel-size 8 --enable-expert-parallel --kv-cache-dtype fp8 "
            '--compilation-config {"mode":0,"cudagraph_mode":"FULL"} --trust-remote-code '
            "--attention_config.use_fp4=True --max-num-seqs=512 --served-model-name x",
        },
        "lm_eval": {"tasks": [{"name": "gsm8k"}]},
        "vllm_bench": {
            "configs": [
                {
                    "name": "8k",
                    "dataset": "random",
                    "input_len": 8192,
                    "output_len": 1024,
                    "max_concurrency": 128,
                },
                {
                    "name": "1k",
                    "dataset": "random",
                    "input_len": 1024,
                    "output_len": 1024,
                    "max_concurrency": [1, 64],
                },
                {"name": "speed", "dataset": "speed_bench", "input_len": 8192, "output_len": 1024},
            ]
        },
    }
    return made | changes


def why(tree: dict[str, Any]) -> str:
    """Why a workload is not imported."""
    done = import_workloads({"w.yaml": tree})
    assert done.drafts == []
    return " | ".join(f"{line.what}; {line.remedy}" for line in done.lines)


def one(tree: dict[str, Any]) -> tuple[Imported, Recipe]:
    """The import of one workload."""
    done = import_workloads({"w.yaml": tree}, revision="abc")
    assert len(done.drafts) == 1, [line.row() for line in done.lines]
    return done, Recipe.model_validate(done.drafts[0].tree)


def test_a_command_line_becomes_arguments() -> None:
    """Numbers, switches, JSON and dotted names; the split goes into the topology, the launcher's own away."""
    done, recipe = one(workload())
    assert recipe.topologies[0].label() == "tp8-ep8-dpa8"
    assert recipe.server.args == {
        "kv-cache-dtype": "fp8",
        "compilation-config": {"mode": 0, "cudagraph_mode": "FULL"},
        "trust-remote-code": True,
        "attention-config": {"use_fp4": True},
        "max-num-seqs": 512,
    }
    assert recipe.server.env == {"TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas", "VLLM_X": "1"}
    assert recipe.scenarios["8k1k"].all == [128]
    assert recipe.scenarios["1k1k"].all == [1, 64]
    assert done.drafts[0].recipe_id == "deepseek-v4-pro/vllm-h200-mxfp4-perf-eval"


def test_the_image_is_the_nightly_channel_of_the_vendor() -> None:
    """Their pipeline gives the image: a nightly build. One that a workload names is kept."""
    assert one(workload())[1].image.channel == "vllm-nightly"
    amd = workload(gpu="MI355X")
    assert one(amd)[1].image.channel == "vllm-nightly-rocm"
    named = workload()
    named["vllm"] = {**named["vllm"], "image": "vllm/vllm-openai:v0.25.0"}
    assert one(named)[1].image.ref == "vllm/vllm-openai:v0.25.0"


def test_other_datasets_and_accuracy_are_told() -> None:
    """What is no fixed-length scenario is left out by name; accuracy belongs to a sweep."""
    done, _ = one(workload())
    kinds = {line.kind: line.what for line in done.lines}
    assert kinds["left_out"] == "bench speed: dataset speed_bench is no fixed-length scenario"
    assert kinds["not_said"].startswith("lm_eval")
    assert done.losses == 1


def test_words_keep_the_quotes_inside_json() -> None:
    """Quotes around a word go, as in a shell; those of bare JSON stay, as their runner keeps them."""
    assert words_of("""--a '{"b": 1}' --c {"d":"e"} --f "g h" """) == [
        "--a", '{"b": 1}', "--c", '{"d":"e"}', "--f", "g h",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpu": "Z9"}, "no sku 'Z9'"),
        ({"num_gpus": 4}, "the arguments use 8 devices, num_gpus is 4"),
        ({"vllm": {"model": "x/Y"}}, "no model 'x/Y'; add `models: {x/y: KEY}`"),
        ({"vllm": None}, "NoneType"),
        ({"vllm_bench": {"configs": []}}, "no bench configuration of fixed lengths"),
        (
            {"vllm_bench": {"configs": [{"dataset": "sharegpt"}]}},
            "dataset sharegpt is no fixed-length scenario",
        ),
    ],
)
def test_what_cannot_be_imported_says_why(changes: dict[str, Any], words: str) -> None:
    """Each reason in one line, and no recipe."""
    assert words in why(workload(**changes))


def test_two_workloads_have_two_ids() -> None:
    """The second one of a model and SKU has its name behind."""
    done = import_workloads({"w.yaml": workload(), "v.yaml": workload(name="Other One")})
    assert [draft.recipe_id.rpartition("/")[2] for draft in done.drafts] == [
        "vllm-h200-mxfp4-perf-eval",
        "vllm-h200-mxfp4-perf-eval-other-one",
    ]
