"""Names and general rules of the conversion: what a recorded command is called here. Pure data."""

from __future__ import annotations

import re
from typing import Any

from isoline.catalog.facts import load_catalog
from isoline.errors import InputError
from isoline.recipes.acceptance import golden_length

COMMIT = "843c6254"
UPSTREAM = f"InferenceX @{COMMIT} {{path}} (Apache-2.0), values as in that {{kind}}"

MODELS = {
    "deepseek-ai/DeepSeek-R1-0528": ("deepseek-r1-0528", "fp8-block"),
    "nvidia/DeepSeek-R1-0528-FP4-V2": ("deepseek-r1-0528", "nvfp4"),
    "deepseek-r1-fp4": ("deepseek-r1-0528", "nvfp4"),
    "amd/DeepSeek-R1-0528-MXFP4": ("deepseek-r1-0528", "mxfp4"),
    "amd/DeepSeek-R1-0528-MXFP4-Preview": ("deepseek-r1-0528", "mxfp4"),
    "deepseek-ai/DeepSeek-V4-Pro": ("deepseek-v4-pro", "mxfp4"),
    "Qwen/Qwen3.5-397B-A17B-FP8": ("qwen3.5-397b-a17b", "fp8-block"),
    "nvidia/Qwen3.5-397B-A17B-NVFP4": ("qwen3.5-397b-a17b", "nvfp4"),
    "nvidia/Qwen3.5-397B-A17B-NVFP4-V2": ("qwen3.5-397b-a17b", "nvfp4"),
    "amd/Qwen3.5-397B-A17B-MXFP4": ("qwen3.5-397b-a17b", "mxfp4"),
    "MiniMaxAI/MiniMax-M3-MXFP8": ("minimax-m3", "mxfp8"),
    "nvidia/MiniMax-M3-NVFP4": ("minimax-m3", "nvfp4"),
    "amd/MiniMax-M3-MXFP4": ("minimax-m3", "mxfp4"),
    "zai-org/GLM-5.2-FP8": ("glm-5.2", "fp8-block"),
    "nvidia/GLM-5.2-NVFP4": ("glm-5.2", "nvfp4"),
    "amd/GLM-5.2-MXFP4": ("glm-5.2", "mxfp4"),
    "moonshotai/Kimi-K3": ("kimi-k3", "mxfp4"),
    "nvidia/Kimi-K2.6-NVFP4": ("kimi-k2.6", "nvfp4"),
}
"""Checkpoint -> (model key, precision of the weights)."""

DRAFTS = {
    "MiniMax-M3-EAGLE3-GQA": "Inferact/MiniMax-M3-EAGLE3-GQA",
    "MiniMax-M3-EAGLE3": "Inferact/MiniMax-M3-EAGLE3",
    "Kimi-K3-DSpark": "Inferact/Kimi-K3-DSpark",
}
"""Folder of a draft model -> its hub id: a recipe names a model, the launcher knows where it lies."""

SKUS = {
    "rtx6000pro": "rtx-pro-6000",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
}
ENGINES = {"trt": "trtllm"}
TITLES = {
    "deepseek-r1-0528": "DeepSeek-R1-0528",
    "deepseek-v4-pro": "DeepSeek-V4-Pro",
    "qwen3.5-397b-a17b": "Qwen3.5-397B-A17B",
    "minimax-m3": "MiniMax-M3",
    "glm-5.2": "GLM-5.2",
    "kimi-k3": "Kimi-K3",
    "kimi-k2.6": "Kimi-K2.6",
}

MODEL_DTYPE = {"deepseek-r1-0528": "bf16", "qwen3.5-397b-a17b": "bf16", "kimi-k3": "bf16"}
"""What ``auto`` is for the KV cache: the type that the checkpoint computes in (documentation of vLLM and
SGLang), where its attention keeps plain keys and values; the reference's changelog says it of Kimi-K3."""

HARNESS_ENV = frozenset(
    (
        "PYTHONNOUSERSITE",  # the harness mounts a home folder
        "PYTHONUNBUFFERED",  # how its logs are written
        "HF_HUB_DISABLE_PROGRESS_BARS",
        "TQDM_DISABLE",
        "HF_HUB_CACHE",  # where its cache lies
        "HUGGINGFACE_HUB_CACHE",
        "TRANSFORMERS_CACHE",
    )
)
"""Variables of the harness and its machines: no part of a recipe, on both sides of every comparison."""

CLIENT_PACKAGES = frozenset(("datasets", "pandas"))
"""What the reference installs for its own client."""

MTP_AS = {"eagle3": "eagle", "dspark": "draft", "mtp": "mtp"}
"""How a drafting method is called -> method of a recipe."""


def scenario_of(model: str, kind: str) -> str:
    """The scenario: the reference replays a corpus of up to 1M tokens for these models, 256k for others."""
    if kind != "agentic":
        return "8k1k"
    return (
        "agentic" if model.startswith(("deepseek-v4", "glm-5.2", "minimax-m3", "kimi-k3")) else "agentic-256k"
    )


def image_of(text: str) -> str:
    """An image reference: Slurm's form separates the registry by ``#``."""
    return text.replace("#", "/")


def map_text(text: str) -> str:
    """Placeholders of the recorded files as those of recipes."""
    match = re.fullmatch(r"<(?:models|path)>/(.+)", text)
    if match:
        return DRAFTS.get(match[1], text)
    return text.replace("<model>/chat_template.jinja", "{model_path}/chat_template.jinja")


def map_tree(value: Any) -> Any:
    """:func:`map_text` at any depth."""
    if isinstance(value, dict):
        return {name: map_tree(item) for name, item in value.items()}
    if isinstance(value, list):
        return [map_tree(item) for item in value]
    return map_text(value) if isinstance(value, str) else value


def kv_precision(engine: str, checkpoint: str, args: dict[str, Any], files: dict[str, dict[str, Any]]) -> str:
    """The KV cache's precision; ``auto`` where nobody says it: the engine's choice for the checkpoint."""
    catalog = load_catalog()
    dtype = catalog.engines[engine].kv_dtype
    assert dtype is not None
    given: Any = args.get(dtype.name)
    for content in files.values():
        given = content.get("kv_cache_config", {}).get("dtype", given)
    exact = dtype.values.get(dtype.default if given is None else str(given))
    if exact is None:
        model, precision = MODELS[checkpoint]
        if model in dtype.models:
            return dtype.models[model]
        fits = catalog.models[model].checkpoints_at(precision).values()
        exact = next((item.kv_precision for item in fits if item.hub_id == checkpoint), None)
    if exact is None and MODELS[checkpoint][0] in MODEL_DTYPE:
        exact = MODEL_DTYPE[MODELS[checkpoint][0]]
    return exact or "auto"


def own_checkpoint(checkpoint: str) -> bool:
    """Whether a recipe must name the checkpoint: the model has none, or several, of that precision."""
    model, precision = MODELS[checkpoint]
    fits = load_catalog().models[model].checkpoints_at(precision)
    return len(fits) != 1 or next(iter(fits.values())).hub_id != checkpoint


def golden(model: str, method: str, drafted: int) -> float | None:
    """The golden acceptance length, None where the catalog has none."""
    try:
        return golden_length(model, method, drafted)
    except InputError:
        return None
