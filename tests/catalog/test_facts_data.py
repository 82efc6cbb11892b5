"""The facts that ship: they hold together, are read the same both ways, and know the public names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.documents import Document
from isoline.catalog.facts import DATA, SECTIONS, Catalog, load_catalog
from isoline.catalog.fastyaml import fast_parse
from isoline.catalog.models import FAMILIES
from isoline.catalog.sourced import Sourced
from isoline.catalog.trees import parse_yaml, to_plain

RECORDED = json.loads((Path(__file__).parent / "recorded_names.json").read_text())

MODELS = {
    "smollm2-135m-instruct",
    "gpt-oss-120b",
    "qwen3.5-397b-a17b",
    "minimax-m3",
    "deepseek-v4-pro",
    "deepseek-r1-0528",
    "kimi-k3",
    "kimi-k2.5",
    "kimi-k2.6",
    "glm-5",
    "glm-5.1",
    "glm-5.2",
    "llama-3.3-70b-instruct",
}
ENGINES = {
    "llamacpp",
    "vllm",
    "sglang",
    "trtllm",
    "atom",
    "dynamo-vllm",
    "dynamo-sglang",
    "dynamo-trtllm",
    "llm-d",
    "sglang-disagg",
    "atom-disagg",
}
SKUS = {
    "cpu",
    "h100",
    "h200",
    "b200",
    "b300",
    "gb200-nvl72",
    "gb300-nvl72",
    "vr200-nvl72",
    "mi300x",
    "mi325x",
    "mi355x",
    "mi455x",
    "rtx-pro-6000",
    "tpu-v7x",
}


def test_all_that_was_asked_for_is_there() -> None:
    """Every model, engine and SKU of the list has an entry under its key."""
    catalog = load_catalog()
    assert set(catalog.models) >= MODELS
    assert set(catalog.engines) >= ENGINES
    assert set(catalog.skus) >= SKUS


WITH_EXPRESSIONS = ("causes.yaml", "startup.yaml")
"""Files whose backslashes the fast reader leaves to the careful one."""


@pytest.mark.parametrize(
    "path",
    sorted(path for path in DATA.rglob("*.yaml") if path.name not in WITH_EXPRESSIONS),
    ids=lambda path: path.name,
)
def test_shipped_files_read_the_same_both_ways(path: Path) -> None:
    """The fast reader is sure of every shipped file, and gives what the careful one gives."""
    text = path.read_text(encoding="utf-8")
    assert fast_parse(text) == to_plain(parse_yaml(text, path.name), path.name)


def parts_of(item: Any) -> list[Document]:
    """A document and all documents in it."""
    if isinstance(item, Document):
        inner = [parts_of(getattr(item, name)) for name in type(item).model_fields]
        return [item, *(part for parts in inner for part in parts)]
    values = item.values() if isinstance(item, dict) else item if isinstance(item, (list, tuple)) else []
    return [part for value in values for part in parts_of(value)]


def test_every_group_of_facts_has_its_source() -> None:
    """Nothing in the catalog stands without a source of more than a word and a date of this decade."""
    catalog = load_catalog()
    sections = [catalog.models, catalog.engines, catalog.skus, catalog.precisions, catalog.curves]
    sourced = [part for part in parts_of(sections) if isinstance(part, Sourced)]
    assert len(sourced) > 200
    for part in sourced:
        assert len(part.source) >= 12, part
        assert "2023" <= part.dated[:4] <= "2026", part


def test_precisions_are_the_known_ones() -> None:
    """Each precision of a checkpoint, of a part of it and of a KV cache has an entry that says its bits."""
    catalog = load_catalog()
    for model in catalog.models.values():
        assert model.precisions, model.name
        assert model.precisions <= set(catalog.precisions)
        for item in model.checkpoints.values():
            assert set(item.parts.values()) <= set(catalog.precisions), item.hub_id
            assert item.kv_precision is None or item.kv_precision in catalog.precisions
    for engine in catalog.engines.values():
        kinds = engine.kv_dtype.values.values() if engine.kv_dtype else []
        assert {item for item in kinds if item} <= set(catalog.precisions)
    assert {name for names in FAMILIES.values() for name in names} <= set(catalog.precisions)


def test_bits_count_the_scales() -> None:
    """A value of NVFP4 takes 4.5 bits, of MXFP4 4.25, of Q4_1 5: the share of the scale is counted."""
    bits = {name: item.bits_per_value for name, item in load_catalog().precisions.items()}
    assert (bits["nvfp4"], bits["mxfp4"], bits["q4_1"], bits["bf16"]) == (4.5, 4.25, 5.0, 16)


def test_kv_bytes_of_known_shapes() -> None:
    """Bytes of a token: latent attention 61 x 576, GQA 80 layers of 8 heads of 128; unknown stays unknown."""

    def bytes_of(model: str, each: float) -> float | None:
        architecture = load_catalog().models[model].architecture
        assert architecture is not None
        return architecture.kv_bytes_per_token(each)

    assert bytes_of("deepseek-r1-0528", 1) == 61 * 576
    assert bytes_of("llama-3.3-70b-instruct", 2) == 80 * 2 * 8 * 128 * 2
    assert bytes_of("gpt-oss-120b", 2) == 18 * 2 * 8 * 64 * 2
    assert bytes_of("qwen3.5-397b-a17b", 1) == 15 * 2 * 2 * 256
    assert bytes_of("kimi-k3", 1) == 24 * 576
    assert bytes_of("deepseek-v4-pro", 1) is None


def test_sku_facts_are_in_their_units() -> None:
    """Usable memory is bytes out of MiB; FP8 is faster than BF16, FP4 than FP8; what is announced says so."""
    skus = load_catalog().skus
    assert skus["h200"].usable_bytes == 143771 * 1024 * 1024
    assert skus["cpu"].memory_bytes is None
    assert skus["vr200-nvl72"].usable_bytes is None and skus["vr200-nvl72"].memory_bytes == 288 * 10**9
    for key, sku in skus.items():
        if sku.compute is not None:
            rates = [sku.compute.bf16_tflops, sku.compute.fp8_tflops, sku.compute.fp4_tflops]
            known = [rate for rate in rates if rate is not None]
            assert known == sorted(known) and len(set(known)) == len(known), key
            assert ("fp4" in sku.compute.lacks) <= (sku.compute.fp4_tflops is None), key
        if sku.power is not None and sku.power.tdp_w and sku.power.all_in_kw:
            assert sku.power.tdp_w / 1000 < sku.power.all_in_kw < 4
    assert {key for key, sku in skus.items() if sku.status == "announced"} == {"vr200-nvl72", "mi455x"}


def test_a_sku_without_public_images_says_what_is_missing() -> None:
    """What no public engine image serves has a readiness card with a reason for each engine on it."""
    catalog = load_catalog()
    for key in ("vr200-nvl72", "mi455x", "tpu-v7x"):
        cards = catalog.skus[key].readiness
        assert cards and set(cards) <= set(catalog.engines)
        assert all(card.missing for card in cards.values())


def test_all_recorded_names_resolve() -> None:
    """Models, SKUs, labels and engines of the recorded data are found; hub ids name their checkpoint."""
    catalog = load_catalog()
    for name in RECORDED["models"]:
        assert catalog.resolve("model", name) in catalog.models, name
    for name in [*RECORDED["skus"], *RECORDED["labels"]]:
        assert catalog.resolve("sku", name) in catalog.skus, name
    for name in RECORDED["engines"]:
        assert catalog.resolve("engine", name) in catalog.engines, name
    for name in RECORDED["checkpoints"]:
        found = catalog.resolve_checkpoint(name)
        assert found is not None, name
        assert catalog.models[found[0]].checkpoints[found[1]].hub_id == name


@pytest.mark.parametrize(
    ("kind", "name", "key"),
    [
        ("sku", "cluster:b300-nv", "b300"),
        ("sku", "h100-dgxc-slurm_07", "h100"),
        ("sku", "b200-dsv4", "b200"),
        ("sku", "NVIDIA GB300", "gb300-nvl72"),
        ("sku", "AMD Instinct MI355X", "mi355x"),
        ("sku", "gb200", "gb200-nvl72"),
        ("sku", "h100-nvl", None),
        ("sku", "h100-pcie_00", None),
        ("sku", "b2000", None),
        ("sku", "cluster:", None),
        ("model", "hf:zai-org/GLM-5.2-FP8", "glm-5.2"),
        ("model", "DeepSeek-R1-0528-MXFP4", "deepseek-r1-0528"),
        ("model", "deepseek-v5", None),
        ("engine", "TRT", "trtllm"),
        ("engine", "sglang-disagg", "sglang-disagg"),
        ("sku", "b200-trt", "b200"),
        ("sku", "mi355x-amds_07", "mi355x"),
        ("sku", "h200-xx_3", None),
        ("model", "kimik2.7", "kimi-k2.7-code"),
        ("engine", "tilert", None),
        ("precision", "FP8_E4M3", "fp8"),
        ("precision", "fp4", None),
    ],
)
def test_names_resolve_or_do_not(kind: Any, name: str, key: str | None) -> None:
    """Labels lose the words of their fleet, and a name that may be another product is not resolved."""
    assert load_catalog().resolve(kind, name) == key


def test_aliases_lead_somewhere() -> None:
    """No alias hides a key of its own kind, and each names an entry (and a checkpoint) that is there."""
    catalog = load_catalog()
    kinds: list[tuple[dict[str, str], dict[str, Any]]] = [
        (catalog.aliases.engines, catalog.engines),
        (catalog.aliases.skus, catalog.skus),
        (catalog.aliases.precisions, catalog.precisions),
    ]
    for names, keys in kinds:
        assert set(names.values()) <= set(keys)
        assert not set(names) & set(keys)
    for name, target in catalog.aliases.models.items():
        key, _, checkpoint = target.partition(":")
        assert name not in catalog.models
        assert not checkpoint or checkpoint in catalog.models[key].checkpoints, name


def test_a_vague_precision_is_only_what_the_model_has() -> None:
    """fp4 is NVFP4 for a model with that alone, and nothing where there are two kinds."""
    models = load_catalog().models
    assert models["glm-5"].precision_of("fp4") == "nvfp4"
    assert models["glm-5.2"].precision_of("fp4") is None
    assert models["glm-5.2"].precision_of("mxfp4") == "mxfp4"
    assert models["minimax-m3"].precision_of("fp8") == "mxfp8"


def test_one_checkpoint_or_none() -> None:
    """A precision with one checkpoint names it, the model's own wins, and of several others none is taken."""
    models = load_catalog().models
    assert models["glm-5.2"].checkpoint_of("mxfp4") == "amd/GLM-5.2-MXFP4"
    assert models["deepseek-v4-pro"].checkpoint_of("mxfp4") == "deepseek-ai/DeepSeek-V4-Pro"
    assert models["qwen3.5-397b-a17b"].checkpoint_of("nvfp4") is None
    assert models["glm-5"].checkpoint_of("mxfp4") is None


def test_golden_lengths_are_those_that_were_recorded() -> None:
    """The lengths that public recipes pin are what the table gives for their model and draft length."""
    table = load_catalog().acceptance
    assert table("deepseek-v4-pro", "mtp", 3) == (2.49, "deepseek-v4-pro-mtp")
    assert table("qwen3.5-397b-a17b", "mtp", 3) == (3.39, "qwen3.5-397b-a17b-mtp")
    assert table("glm-5.2", "mtp", 5) == (3.61, "glm-5.2-mtp")
    assert table("minimax-m3", "eagle3", 3) == (2.78, "minimax-m3-eagle3-gqa-on")
    assert table("kimi-k3", "dspark", 2) == (2.51, "kimi-k3-dspark-block")
    assert table("minimax-m3", "eagle3", 3, thinking="off", draft_model="Inferact/MiniMax-M3-EAGLE3") == (
        2.93,
        "minimax-m3-eagle3-off",
    )
    assert table("kimi-k3", "dspark", 7, variant="greedy") == (3.78, "kimi-k3-dspark")
    assert table("deepseek-v4-pro", "dspark", 7) is None  # several, and none is the usual one
    assert table("glm-5.2", "mtp", 2) is None
    assert table("deepseek-r1-0528", "mtp", 3) is None


def test_curves_rise_at_first_and_name_known_models() -> None:
    """A curve belongs to a model of the catalog, its draft model too, and starts below its second value."""
    catalog = load_catalog()
    drafts = {item.hub_id for model in catalog.models.values() for item in model.drafts.values()}
    drafts |= {item.hub_id for model in catalog.models.values() for item in model.checkpoints.values()}
    for name, curve in catalog.curves.items():
        assert curve.model in catalog.models, name
        assert curve.draft_model is None or curve.draft_model in drafts, name
        lengths = [curve.lengths[key] for key in sorted(curve.lengths, key=int)]
        assert lengths[0] < lengths[1]


def test_every_recorded_variable_has_a_kind() -> None:
    """What 283 recorded variables do is told; those that change results are among them."""
    catalog = load_catalog()
    kinds = {name: catalog.variable_kind(name) for name in RECORDED["environment"]}
    assert None not in kinds.values()
    assert kinds["SGLANG_SIMULATE_ACC_LEN"] == kinds["SGLANG_RADIX_FORCE_MISS"] == "result"
    assert kinds["VLLM_ROCM_QUICK_REDUCE_QUANTIZATION"] == "result"
    assert kinds["VLLM_ROCM_USE_AITER"] == kinds["NCCL_NVLS_ENABLE"] == "kernel"
    assert kinds["VLLM_ENGINE_READY_TIMEOUT_S"] == "liveness"
    assert kinds["PYTHONUNBUFFERED"] == "quiet"
    assert catalog.variable_kind("SOMETHING_ELSE") is None


def test_sections_are_all_files_and_all_files_sections() -> None:
    """Nothing lies beside the sections: a file that nobody reads would be a fact that nobody has."""
    assert {path.stem for path in DATA.glob("*.yaml")} >= set(SECTIONS)
    catalog = Catalog()
    for path in (DATA / "args").glob("*.yaml"):
        flags = catalog.known_flags(path.stem)
        assert flags is not None and flags.flags, path
