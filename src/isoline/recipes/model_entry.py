"""A catalog entry for an unknown model, out of its Hugging Face ``config.json``. Pure.

Only what the file says: parameters, license and sizes are not in it and stay unknown.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML

from isoline.errors import InputError
from isoline.recipes.yamltext import to_yaml

FILE = "recipes/_catalog/models.yaml"


def key_of(hub_id: str) -> str:
    """The catalog key of a hub id: its last part in small letters."""
    return re.sub(r"[^a-z0-9._-]+", "-", hub_id.rsplit("/", 1)[-1].lower()).strip("-.")


def model_entry(
    hub_id: str, config: Mapping[str, Any], precision: str | None, *, today: str
) -> dict[str, Any]:
    """One entry of ``models``.

    :param config: the content of ``config.json``; the language model of a multimodal one is used.
    :param precision: of its weights, where the file does not say it exactly.
    :param today: ``yyyy-mm-dd``, when the file was read.
    :raises InputError: when it is no such file.
    """
    if not re.match(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*\Z", hub_id):
        raise InputError(
            f"model {hub_id!r} is not in the catalog",
            where="--model",
            remedy="write owner/name as on the hub",
        )
    text = config.get("text_config")
    inner: Mapping[str, Any] = text if isinstance(text, Mapping) else config
    said = {"source": f"config.json of huggingface.co/{hub_id}", "dated": today}
    found = precision_in(config) or precision_in(inner)
    weights = found or precision
    if weights is None:
        raise InputError(
            "config.json does not say the precision of the weights", where=hub_id, remedy="say --precision"
        )
    entry: dict[str, Any] = {"name": hub_id.split("/")[1], "hub_id": hub_id, "parameters_total": None}
    context = _number(inner, "max_position_embeddings", "model_max_length", "seq_length")
    if context is not None:
        entry["context"] = context
    entry["architecture"] = {**_architecture(inner, hub_id), **said}
    entry["checkpoints"] = {weights: {"hub_id": hub_id, "precision": weights, **said}}
    return entry | said


def precision_in(config: Mapping[str, Any]) -> str | None:
    """The exact precision that ``quantization_config`` or the data type says; None when neither does."""
    quant = config.get("quantization_config")
    if isinstance(quant, Mapping):
        method = str(quant.get("quant_method", "")).lower()
        algo = str(
            quant.get("quant_algo") or (quant.get("quantization") or {}).get("quant_algo") or ""
        ).lower()
        if method in ("mxfp4", "mxfp8"):
            return method
        if "nvfp4" in (algo, method):
            return "nvfp4"
        if method == "fp8":
            return "fp8-block" if quant.get("weight_block_size") else "fp8"
        return "fp8" if algo == "fp8" else None
    kind = str(config.get("dtype") or config.get("torch_dtype") or "")
    return {"bfloat16": "bf16", "float16": "f16"}.get(kind.removeprefix("torch."))


def _number(config: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _architecture(config: Mapping[str, Any], hub_id: str) -> dict[str, Any]:
    needed = {
        "layers": ("num_hidden_layers", "n_layer"),
        "hidden": ("hidden_size", "n_embd"),
        "heads": ("num_attention_heads", "n_head"),
        "vocab": ("vocab_size",),
    }
    shape: dict[str, Any] = {}
    for ours, names in needed.items():
        value = _number(config, *names)
        if value is None:
            raise InputError(f"config.json has no {names[0]}", where=hub_id)
        shape[ours] = value
    lora, rope = _number(config, "kv_lora_rank"), _number(config, "qk_rope_head_dim")
    if lora is not None and rope is not None:
        shape["mla"] = {"kv_lora_rank": lora, "rope_dim": rope}
        attention = "latent attention (MLA)"
    else:
        shape["kv_heads"] = _number(config, "num_key_value_heads") or shape["heads"]
        head_dim = _number(config, "head_dim")
        if head_dim is None and shape["hidden"] % shape["heads"] == 0:
            head_dim = shape["hidden"] // shape["heads"]
        shape["head_dim"] = head_dim
        attention = (
            "grouped queries" if shape["kv_heads"] < shape["heads"] else "one KV head for each query head"
        )
    kinds = {str(kind) for kind in config.get("layer_types") or []}
    windowed = bool(config.get("use_sliding_window", True)) and _number(config, "sliding_window") is not None
    if kinds - {"full_attention"} or windowed or _number(config, "index_topk") is not None:
        attention += "; layers of several kinds, or windows or an index: what a token keeps is not known"
    else:
        shape["kv_layers"] = shape["layers"]
    shape["attention"] = attention
    experts = _number(config, "n_routed_experts", "num_local_experts", "num_experts")
    each = _number(config, "num_experts_per_tok", "num_experts_per_token", "moe_topk")
    if experts is not None and each is not None:
        shape |= {"experts": experts, "experts_per_token": each}
        shared = config.get("n_shared_experts")
        if isinstance(shared, int):
            shape["shared_experts"] = shared
    drafting = _number(config, "num_nextn_predict_layers", "mtp_num_hidden_layers")
    if drafting is not None:
        shape["mtp_layers"] = drafting
    return shape


def with_entry(text: str | None, key: str, entry: Mapping[str, Any]) -> str:
    """The file with one more model; comments of what was there stay.

    :param text: the file as it is; None when there is none.
    :raises InputError: when the key is there.
    """
    if text is None or not text.strip():
        head = ["Models of this project that the catalog does not know (yet). They win over the catalog's."]
        return to_yaml({"schema_version": 1, "models": {key: dict(entry)}}, head=head)
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    tree: Any = yaml.load(text)
    models = tree.setdefault("models", {})
    if key in models:
        raise InputError(f"model {key!r} is there already", where=FILE)
    models[key] = _plain(entry)
    out = io.StringIO()
    yaml.dump(tree, out)
    return out.getvalue()


def _plain(value: Any) -> Any:
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, Mapping) else value
