"""Pinned acceptance: looked up, and said in each engine's own way."""

from __future__ import annotations

import pytest

from isoline.catalog.facts import load_catalog
from isoline.errors import InputError
from isoline.recipes.acceptance import acceptance_flags, golden_length


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


def test_each_engine_is_told_in_its_own_way() -> None:
    """vLLM and ATOM take an argument, SGLang and TensorRT-LLM a variable; TensorRT-LLM counts drafts only."""
    assert acceptance_flags("dynamo-vllm", 2.49).args == {
        "speculative-config": {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.49}
    }
    assert acceptance_flags("sglang", 3.39).env == {
        "SGLANG_SIMULATE_ACC_LEN": "3.39",
        "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
    }
    assert acceptance_flags("trtllm", 2.78).env == {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "1.78"}
    assert acceptance_flags("atom", 2.49).args == {"spec-decode-acceptance-length": 2.49}


def test_a_rate_is_the_accepted_share_of_drafts() -> None:
    """Versions of ATOM that take a rate get (length - 1) / drafted tokens."""
    flags = acceptance_flags("atom", 2.99, draft_tokens=3, form="rate")
    assert flags.args == {"spec-decode-acceptance-rate": 0.663333}


def test_an_engine_that_cannot_pin_is_refused() -> None:
    """llama.cpp has no such switch."""
    with pytest.raises(InputError, match="cannot pin acceptance"):
        acceptance_flags("llamacpp", 2.0)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "atom"])
def test_it_agrees_with_the_catalog(engine: str) -> None:
    """What the renderer sets is what the catalog says of the engine."""
    settings = load_catalog().engines[engine].pinned(2.49)
    assert settings is not None
    flags = acceptance_flags(engine, 2.49)
    assert (flags.args, flags.env) == (settings.args, settings.env)
