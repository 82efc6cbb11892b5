"""Catalog entries out of config.json: what the file says, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from isoline.catalog.documents import validate_text
from isoline.catalog.models import Models
from isoline.errors import InputError
from isoline.recipes.model_entry import key_of, model_entry, precision_in, with_entry

DENSE: dict[str, Any] = {
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
LATENT = {
    **DENSE,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def entry(config: dict[str, Any], precision: str | None = None) -> dict[str, Any]:
    """The entry of a made-up model, which must be one of the catalog's schema."""
    made = model_entry("some/New-Model", config, precision, today="2026-12-01")
    text = with_entry(None, "new-model", made)
    assert validate_text(text, Models, "models.yaml").models["new-model"].hub_id == "some/New-Model"
    return made


def test_a_dense_model() -> None:
    """Layers, heads, context; the head's width follows from the hidden size."""
    made = entry(DENSE)
    shape = made["architecture"]
    assert (shape["layers"], shape["heads"], shape["kv_heads"], shape["head_dim"]) == (32, 32, 8, 128)
    assert shape["kv_layers"] == 32
    assert made["context"] == 131072
    assert list(made["checkpoints"]) == ["bf16"]
    assert "experts" not in shape
    assert made["parameters_total"] is None


def test_a_model_with_latent_attention_and_experts() -> None:
    """What a token keeps is the latent vector; experts, shared ones and drafting layers are taken over."""
    shape = entry(LATENT)["architecture"]
    assert shape["mla"] == {"kv_lora_rank": 512, "rope_dim": 64}
    assert "kv_heads" not in shape
    assert (shape["experts"], shape["experts_per_token"], shape["shared_experts"]) == (256, 8, 1)
    assert shape["mtp_layers"] == 1


def test_layers_of_several_kinds_leave_the_cache_unknown() -> None:
    """Windows and linear attention keep less: nothing is guessed."""
    made = entry({**DENSE, "layer_types": ["linear_attention", "full_attention"]})
    assert "kv_layers" not in made["architecture"]
    assert "not known" in made["architecture"]["attention"]
    assert "kv_layers" not in entry({**DENSE, "sliding_window": 128})["architecture"]


def test_the_language_model_of_a_multimodal_one_is_used() -> None:
    """Its own part says the layers."""
    assert entry({"text_config": DENSE, "vision_config": {}})["architecture"]["layers"] == 32


@pytest.mark.parametrize(
    ("config", "precision"),
    [
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, "fp8-block"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quantization_config": {"quant_method": "awq"}}, None),
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({}, None),
    ],
)
def test_precisions(config: dict[str, Any], precision: str | None) -> None:
    """Exact where the file is, else nothing."""
    assert precision_in(config) == precision


def test_an_unknown_precision_must_be_said() -> None:
    """By the person, not by us."""
    config = {**DENSE, "torch_dtype": None}
    with pytest.raises(InputError, match="say --precision"):
        model_entry("some/Model", config, None, today="2026-12-01")
    assert list(entry(config, "int4")["checkpoints"]) == ["int4"]


@pytest.mark.parametrize("missing", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"])
def test_a_file_without_a_shape_is_refused(missing: str) -> None:
    """It is no config.json of a language model."""
    config = {name: value for name, value in DENSE.items() if name != missing}
    with pytest.raises(InputError, match=f"has no {missing}"):
        model_entry("some/Model", config, None, today="2026-12-01")


def test_a_name_that_is_no_hub_id_is_refused() -> None:
    """An entry needs the repository."""
    with pytest.raises(InputError, match="owner/name"):
        model_entry("model", DENSE, None, today="2026-12-01")


def test_keys_are_plain() -> None:
    """The last part in small letters."""
    assert key_of("Org/New Model_V2.5") == "new-model_v2.5"


def test_a_second_entry_keeps_the_first_and_its_comments() -> None:
    """The file is the person's."""
    text = with_entry(None, "one", entry(DENSE)).replace("  one:", "  # mine\n  one:")
    after = with_entry(text, "two", entry(LATENT))
    assert "# mine" in after
    assert list(validate_text(after, Models, "models.yaml").models) == ["one", "two"]
    with pytest.raises(InputError, match="is there already"):
        with_entry(after, "two", entry(DENSE))
