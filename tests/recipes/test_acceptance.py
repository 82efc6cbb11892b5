"""Pinned acceptance: looked up, and said in each engine's own way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.engines import Settings
from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import load_pool
from isoline.errors import InputError
from isoline.recipes.acceptance import acceptance_flags, golden_length
from isoline.recipes.load import LoadedRecipe, load_recipe
from isoline.recipes.render import Inputs, Shape, render
from isoline.recipes.schema import Recipe


def test_lengths_are_those_of_the_recorded_commands() -> None:
    """The golden table gives what the reference forces for each model, method and draft length."""
    assert golden_length("deepseek-v4-pro", "mtp", 3) == 2.49
    assert golden_length("qwen3.5-397b-a17b", "mtp", 3) == 3.39
    assert golden_length("glm-5.2", "mtp", 5) == 3.61
    assert golden_length("minimax-m3", "eagle", 3) == 2.78
    assert golden_length("kimi-k3", "draft", 7) == 3.84


def test_an_unknown_draft_length_is_refused_with_what_to_do() -> None:
    """Nothing is estimated where the table has no value."""
    with pytest.raises(InputError, match="acceptance table, or write acceptance: real"):
        golden_length("llama-3.3-70b-instruct", "mtp", 3)


def test_the_draft_model_chooses_the_length() -> None:
    """Two draft models of one method have two lengths; one that the table does not know has none."""
    usual = golden_length("minimax-m3", "eagle", 3, "Inferact/MiniMax-M3-EAGLE3-GQA")
    assert usual == golden_length("minimax-m3", "eagle", 3) == 2.78
    with pytest.raises(InputError, match="3 draft tokens by somebody/else; add it"):
        golden_length("minimax-m3", "eagle", 3, "somebody/else")


def told(engine: str, length: float, drafted: int = 3, **more: Any) -> Settings:
    return acceptance_flags(load_catalog().engines[engine], length, drafted, **more)


def test_each_engine_is_told_in_its_own_way() -> None:
    """vLLM and ATOM take an argument, SGLang and TensorRT-LLM a variable; TensorRT-LLM counts drafts only."""
    assert told("dynamo-vllm", 2.49).args == {
        "speculative-config": {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.49}
    }
    assert told("sglang", 3.39).env == {
        "SGLANG_SIMULATE_ACC_LEN": "3.39",
        "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
    }
    assert told("trtllm", 2.78).env == {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "1.78"}
    assert told("atom", 2.49).args == {"spec-decode-acceptance-length": 2.49}


def test_a_rate_is_the_accepted_share_of_drafts() -> None:
    """Images of ATOM that take a rate only get (length - 1) / drafted tokens, as they were recorded."""
    assert told("atom", 2.99, form="rate").args == {"spec-decode-acceptance-rate": 0.663333}
    with pytest.raises(InputError, match="vLLM takes the length, not a rate; leave pinned_as out"):
        told("vllm", 2.99, form="rate")


def test_an_engine_that_cannot_pin_is_refused() -> None:
    """llama.cpp has no such switch."""
    with pytest.raises(InputError, match="cannot pin acceptance; write acceptance: real"):
        told("llamacpp", 2.0)


def test_how_it_is_said_is_no_other_curve(project_root: Path) -> None:
    """A recipe chooses the form; the label of its curve stays, its launch is another as its words are."""
    loaded = load_recipe(project_root, "glm-5.2/atom-mi355x-mxfp4-agentic-mtp")
    assert loaded.recipe.speculative.pinned_as == "rate"
    pool = load_pool(project_root, "examples/mi355x-docker")
    launches = []
    for form in ("rate", "length"):
        content = loaded.recipe.content()
        recipe = Recipe.model_validate(
            {**content, "speculative": {**content["speculative"], "pinned_as": form}}
        )
        found = LoadedRecipe(loaded.recipe_id, recipe)
        launches.append(render(found, recipe.topologies[0], pool, Shape("agentic"), 4, Inputs()))
        assert f"--spec-decode-acceptance-{form}" in launches[-1].argv
    assert len({item.launch_digest for item in launches}) == 2
    assert len({item.identity["speculative"] for item in launches}) == 1
