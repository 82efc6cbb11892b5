"""What engine arguments say about topology, drafting, KV cache and KV transfer: read, never guessed. Pure.

A recipe says these things once, in fields of its own; the arguments that said them are taken out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from isoline.catalog.facts import load_catalog
from isoline.recipes import canonical
from isoline.recipes.engine_flags import FAMILIES, TRTLLM_CONFIG

FILE_TOPOLOGY = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "moe_expert_parallel_size",
    "enable_attention_dp",
)
"""Keys of TensorRT-LLM's configuration file that say topology."""

_PINS = (
    "SGLANG_SIMULATE_ACC_LEN",
    "SGLANG_SIMULATE_ACC_METHOD",
    "SGLANG_SIMULATE_ACC_TOKEN_MODE",
    "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS",
)
_CONNECTORS = {
    "NixlConnector": "nixl",
    "MooncakeConnector": "mooncake",
    "MoRIIOConnector": "mori",
    "nixl": "nixl",
    "mooncake": "mooncake",
    "mori": "mori",
    "ucx": "ucx",
}
_STORES = {
    "MooncakeStoreConnector": "mooncake",
    "SimpleCPUOffloadConnector": "vllm-simple",
    "OffloadingConnector": "native",
    "LMCacheConnectorV1": "lmcache",
}
_LOCAL = re.compile(r"(?:^|[=:,\s])/(?!opt/|usr/|workspace/|sgl-workspace/|app/|model$)[A-Za-z0-9]")


@dataclass
class Side:
    """One role: its arguments without those that a recipe says elsewhere, and what they said."""

    role: dict[str, int]
    args: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    config_files: dict[str, dict[str, Any]] = field(default_factory=dict)
    speculative: dict[str, Any] = field(default_factory=dict)
    pinned_length: float | None = None
    kv: str | None = None
    connector: str | None = None
    offload: str | None = None
    dropped: list[str] = field(default_factory=list)

    def parts(self) -> dict[str, Any]:
        """The role as a recipe says it, without empty parts."""
        named = {"args": self.args, "env": self.env, "config_files": self.config_files}
        return {name: value for name, value in named.items() if value}


def read_side(engine: str, workers: int, given: Mapping[str, Any], env: Mapping[str, Any]) -> Side:
    """One role out of its arguments (or configuration file) and environment.

    :raises ValueError: when the arguments say something that a topology cannot be.
    """
    family = FAMILIES.get(engine)
    if family == "trtllm":
        side = _from_file(workers, given)
    elif family in ("vllm", "sglang"):
        side = _from_args(engine, family, workers, given)
    else:
        raise ValueError(f"arguments of engine {engine} are not read here")
    side.env = _clean_env(env, side.dropped)
    _drafting(side, family)
    side.kv = _kv(engine, side)
    return side


def _from_args(engine: str, family: str, workers: int, given: Mapping[str, Any]) -> Side:
    parsed = canonical.canonical_args(given, engine)
    split = canonical.topology_args(parsed, engine)
    tp, dp = _size(split, "tensor-parallel-size"), _size(split, "data-parallel-size")
    if family == "vllm":
        tp *= dp
        ep = tp if "enable-expert-parallel" in split else 1
    else:
        ep = _size(split, "expert-parallel-size")
        if dp > 1 and "enable-dp-attention" not in split:
            raise ValueError(f"data-parallel-size {dp} without DP attention: whole replicas behind one port")
    role = {
        "workers": workers,
        "tp": tp,
        "pp": _size(split, "pipeline-parallel-size"),
        "ep": ep,
        "dp_attention": dp,
        "dcp": _size(split, "decode-context-parallel-size"),
    }
    owned = {
        *canonical.OWN,
        *load_catalog().engines[engine].owned_args,
        *canonical.topology_args(parsed, engine),
    }
    side = Side({name: value for name, value in role.items() if value != 1 or name == "tp"})
    for name, value in canonical.without(parsed, owned).items():
        if name.startswith(
            ("tensor-parallel", "data-parallel-size", "pipeline-parallel", "expert-parallel-size")
        ):
            continue  # 1, which every engine has anyway
        if _is_local(value):
            side.dropped.append(f"argument {name}: a path of their machines")
        else:
            side.args[name] = value
    return side


def _size(args: Mapping[str, Any], name: str) -> int:
    value = args.get(name, 1)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}, not a number of devices")
    return value


def _from_file(workers: int, given: Mapping[str, Any]) -> Side:
    content = {name: value for name, value in given.items() if name not in FILE_TOPOLOGY}
    tp, pp = _size(given, "tensor_parallel_size"), _size(given, "pipeline_parallel_size")
    role = {
        "workers": workers,
        "tp": tp,
        "pp": pp,
        "ep": _size(given, "moe_expert_parallel_size"),
        "dp_attention": tp if given.get("enable_attention_dp") else 1,
    }
    side = Side({name: value for name, value in role.items() if value != 1 or name == "tp"})
    for name in [name for name, value in content.items() if _is_local(value)]:
        del content[name]
        side.dropped.append(f"{name}: a path of their machines")
    side.config_files = {TRTLLM_CONFIG: content}
    backend = str((content.get("cache_transceiver_config") or {}).get("backend", "")).lower()
    side.connector = _CONNECTORS.get(backend)
    return side


def _is_local(value: Any) -> bool:
    """Whether a value holds a path that only their machines have."""
    if isinstance(value, str):
        return _LOCAL.search(value) is not None
    if isinstance(value, Mapping):
        return any(_is_local(item) for item in value.values())
    return isinstance(value, list) and any(_is_local(item) for item in value)


_NOT_OURS = re.compile(
    r"^(ISOLINE_|LD_|PATH$|PYTHONPATH$|HOME$|HF_|TRANSFORMERS_CACHE$)|_IFNAME$|_HCA|NET_DEVICES"
)


def _clean_env(env: Mapping[str, Any], dropped: list[str]) -> dict[str, str]:
    kept = {}
    for name, value in env.items():
        if name in _PINS:
            kept[name] = str(value)
        elif _NOT_OURS.search(name) or _is_local(str(value)):
            dropped.append(f"environment variable {name}: it names a path, device or cache of their machines")
        else:
            kept[name] = str(value)
    return kept


def _drafting(side: Side, family: str) -> None:
    """Take drafting and its pinned acceptance out of arguments, file and environment."""
    args, env = side.args, side.env
    if family == "vllm" and isinstance(args.get("speculative-config"), dict):
        config = dict(args["speculative-config"])
        side.pinned_length = config.pop("synthetic_acceptance_length", None)
        if config.get("rejection_sample_method") == "synthetic":
            del config["rejection_sample_method"]
        args["speculative-config"] = config
        method = str(config.get("method", "draft_model"))
        ours = "mtp" if method.endswith("mtp") else "eagle" if method.startswith("eagle") else "draft"
        side.speculative = _draft(ours, config.get("num_speculative_tokens"), config.get("model"))
    elif family == "sglang" and "speculative-algorithm" in args:
        model = args.get("speculative-draft-model")
        ours = "eagle" if model else "mtp"
        side.speculative = _draft(ours, args.get("speculative-num-steps"), model)
    elif family == "trtllm":
        config = side.config_files[TRTLLM_CONFIG].get("speculative_config") or {}
        if config:
            ours = "mtp" if str(config.get("decoding_type")).upper() == "MTP" else "eagle"
            drafted = config.get("max_draft_len", config.get("num_nextn_predict_layers"))
            side.speculative = _draft(ours, drafted, config.get("speculative_model"))
    values = {name: env.pop(name) for name in _PINS if name in env}
    if "SGLANG_SIMULATE_ACC_LEN" in values:
        side.pinned_length = float(values["SGLANG_SIMULATE_ACC_LEN"])
    if "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS" in values:
        side.pinned_length = float(values["TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"]) + 1


def _draft(method: str, tokens: Any, model: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"method": method}
    if isinstance(tokens, int):
        made["draft_tokens"] = tokens
    if model is not None and not _is_local(str(model)):
        made["draft_model"] = str(model)
    return made


def _kv(engine: str, side: Side) -> str | None:
    """The KV cache's precision and connectors, from the arguments. None where they do not say."""
    args = side.args
    transfer = args.get("kv-transfer-config")
    for name in _connector_names(transfer):
        side.connector = side.connector or _CONNECTORS.get(name)
        side.offload = side.offload or _STORES.get(name)
    backend = args.get("disaggregation-transfer-backend")
    side.connector = side.connector or _CONNECTORS.get(str(backend).lower())
    if args.get("enable-hierarchical-cache"):
        side.offload = "hicache"
    for content in side.config_files.values():
        if (content.get("kv_cache_config") or {}).get("host_cache_size"):
            side.offload = "native"
    dtype = load_catalog().engines[engine].kv_dtype
    if dtype is None:
        return None
    given: Any = args.get(dtype.name)
    if dtype.where == "file":
        given = side.config_files.get(TRTLLM_CONFIG, {})
        for part in dtype.name.split("."):
            given = (given or {}).get(part)
    return dtype.values.get(str(given)) if given is not None else None


def _connector_names(config: Any) -> list[str]:
    if not isinstance(config, Mapping):
        return []
    names = [str(config.get("kv_connector"))]
    for item in (config.get("kv_connector_extra_config") or {}).get("connectors", []):
        names += _connector_names(item)
    return names
