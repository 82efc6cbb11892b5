"""A topology as an engine's own arguments: the catalog's spelling, split into arguments and file keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from isoline.catalog.facts import load_catalog
from isoline.catalog.topology import Layout
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
    known = load_catalog().engines.get(engine)
    return frozenset(known.topology.names) if known and known.topology else frozenset()


def topology_flags(engine: str, role: Role, given: Mapping[str, Any] | None = None) -> TopologyFlags:
    """The flags of one worker of a role. What is 1 is left out: it is every engine's default.

    :param given: the recipe's own arguments; one of them may imply where experts lie.
    :raises InputError: for a split that the engine cannot do, or an unknown engine.
    """
    known = load_catalog().engines.get(engine)
    if known is None:
        raise InputError(f"no topology flags are known for engine {engine!r}")
    layout = Layout(role.tp, role.pp, role.ep, role.dp_attention, role.dcp)
    spelling = known.topology
    if spelling is None:
        if role.gpus_per_worker != 1 or layout != Layout(1):
            raise InputError(f"{engine} runs on one accelerator here", where=role.label())
        return TopologyFlags({})
    implied = spelling.ep_implied_by is not None and spelling.ep_implied_by in (given or {})
    try:
        found = spelling.args(layout._replace(ep=1) if implied else layout)
    except InputError as error:
        raise InputError(f"{engine}: {error.what}", where=role.label()) from None
    switch = spelling.dp_switch
    if switch in spelling.in_file and switch is not None:
        found.setdefault(switch, False)  # in a file the absence of a switch is easily overlooked
    return TopologyFlags(
        {name: value for name, value in found.items() if name not in spelling.in_file},
        {name: value for name, value in found.items() if name in spelling.in_file},
    )
