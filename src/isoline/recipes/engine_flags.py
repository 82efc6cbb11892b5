"""How each engine spells a topology: the one place where tp, pp, ep and DP attention become flags.

``tp`` is always the number of devices of one pipeline stage of one worker (DESIGN 5.1). The engines
disagree on what their own flags mean, which is how a GPU count comes out eight times too high:

* vLLM has no flag for DP attention: it is tensor parallel ``tp / dp`` times data parallel ``dp``.
* SGLang keeps tensor parallel at ``tp`` and divides it by ``--data-parallel-size``.
* TensorRT-LLM has a switch in its configuration file; the ways are always ``tp``.
* ATOM has a switch; the ways are always ``tp``.

Values as in the recorded command lines of InferenceX @843c6254, parsed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from isoline.errors import InputError
from isoline.recipes.topology import Role

FAMILIES: dict[str, str] = {
    "llamacpp": "llamacpp",
    "vllm": "vllm",
    "dynamo-vllm": "vllm",
    "llm-d": "vllm",
    "sglang": "sglang",
    "dynamo-sglang": "sglang",
    "sglang-disagg": "sglang",
    "trtllm": "trtllm",
    "dynamo-trtllm": "trtllm",
    "atom": "atom",
    "atom-disagg": "atom",
}
"""Engine -> the server program that it starts."""

TRTLLM_CONFIG = "config.yaml"
"""The configuration file that TensorRT-LLM's topology switches go in."""


@dataclass(frozen=True)
class TopologyFlags:
    """Arguments by name, and what goes into a configuration file."""

    args: dict[str, Any]
    config: dict[str, Any] = field(default_factory=dict)


def owned_by_topology(engine: str) -> frozenset[str]:
    """The argument names that the topology decides: a recipe must not set them itself."""
    return frozenset(_OWNED.get(FAMILIES.get(engine, ""), ()))


_OWNED: dict[str, tuple[str, ...]] = {
    "vllm": (
        "tensor-parallel-size",
        "pipeline-parallel-size",
        "data-parallel-size",
        "enable-expert-parallel",
        "decode-context-parallel-size",
    ),
    "sglang": (
        "tensor-parallel-size",
        "pipeline-parallel-size",
        "data-parallel-size",
        "expert-parallel-size",
        "enable-dp-attention",
    ),
    "trtllm": ("tp_size", "pp_size", "ep_size"),
    "atom": ("tensor-parallel-size", "enable-dp-attention", "enable-expert-parallel"),
    "llamacpp": (),
}


def topology_flags(engine: str, role: Role) -> TopologyFlags:
    """The flags of one worker of a role. What is 1 is left out: it is every engine's default.

    :raises InputError: for a split that the engine cannot do, or an unknown engine.
    """
    family = FAMILIES.get(engine)
    if family is None:
        raise InputError(f"no topology flags are known for engine {engine!r}")
    made: TopologyFlags = _dynamo_trtllm(role) if engine == "dynamo-trtllm" else _MAKERS[family](role)
    return made


def _refuse(role: Role, engine: str, *names: str) -> None:
    for name in names:
        if getattr(role, name) != 1:
            raise InputError(f"{engine} has no flag for {name}", where=role.label())


def _vllm(role: Role) -> TopologyFlags:
    args: dict[str, Any] = {"tensor-parallel-size": role.tp // role.dp_attention}
    if role.dp_attention > 1:
        args["data-parallel-size"] = role.dp_attention
    if role.pp > 1:
        args["pipeline-parallel-size"] = role.pp
    if role.ep > 1:
        if role.ep != role.tp:
            raise InputError(f"vllm places experts on all {role.tp} devices or on none, not on {role.ep}")
        args["enable-expert-parallel"] = True
    if role.dcp > 1:
        args["decode-context-parallel-size"] = role.dcp
    return TopologyFlags(args)


def _sglang(role: Role) -> TopologyFlags:
    _refuse(role, "sglang", "dcp")
    args: dict[str, Any] = {"tensor-parallel-size": role.tp}
    if role.pp > 1:
        args["pipeline-parallel-size"] = role.pp
    if role.ep > 1:
        args["expert-parallel-size"] = role.ep
    if role.dp_attention > 1:
        args |= {"data-parallel-size": role.dp_attention, "enable-dp-attention": True}
    return TopologyFlags(args)


def _trtllm(role: Role) -> TopologyFlags:
    _refuse(role, "trtllm", "dcp")
    if role.dp_attention not in (1, role.tp):
        raise InputError(f"trtllm splits attention {role.tp} ways or not at all, not {role.dp_attention}")
    args: dict[str, Any] = {"tp_size": role.tp}
    if role.pp > 1:
        args["pp_size"] = role.pp
    if role.ep > 1:
        args["ep_size"] = role.ep
    return TopologyFlags(args, {"enable_attention_dp": role.dp_attention > 1})


def _dynamo_trtllm(role: Role) -> TopologyFlags:
    """A worker of Dynamo reads all of it from its configuration file."""
    plain = _trtllm(role)
    names = {
        "tp_size": "tensor_parallel_size",
        "pp_size": "pipeline_parallel_size",
        "ep_size": "moe_expert_parallel_size",
    }
    return TopologyFlags({}, {**{names[key]: value for key, value in plain.args.items()}, **plain.config})


def _atom(role: Role) -> TopologyFlags:
    _refuse(role, "atom", "dcp", "pp")
    if role.dp_attention not in (1, role.tp):
        raise InputError(f"atom splits attention {role.tp} ways or not at all, not {role.dp_attention}")
    args: dict[str, Any] = {"tensor-parallel-size": role.tp}
    if role.dp_attention > 1:
        args["enable-dp-attention"] = True
    if role.ep > 1:
        args["enable-expert-parallel"] = True
    return TopologyFlags(args)


def _llamacpp(role: Role) -> TopologyFlags:
    _refuse(role, "llamacpp", "pp", "ep", "dp_attention", "dcp")
    if role.tp != 1:
        raise InputError("llama.cpp runs on one accelerator here", where=role.label())
    return TopologyFlags({})


_MAKERS = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm, "atom": _atom, "llamacpp": _llamacpp}
