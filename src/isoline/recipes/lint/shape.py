"""Rules about sizes: devices and nodes, what divides, context lengths, memory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from isoline.errors import InputError
from isoline.recipes.engine_flags import FAMILIES, topology_flags
from isoline.recipes.lint.base import Case, Context, Finding, Rule, Said, ScenarioFacts
from isoline.recipes.lint.parts import Place, parts, value_loc
from isoline.recipes.memory import Need, kv_bytes, need, weights_to_read
from isoline.recipes.resolve import Resolved
from isoline.recipes.topology import Role, Topology


def _roles(context: Context) -> Iterable[tuple[int, str, Role]]:
    for index, topology in enumerate(context.recipe.topologies):
        for name, role in topology.roles.items():
            yield index, name, role


def devices(context: Context) -> Iterable[Finding]:
    """A worker fits a node, or takes whole nodes; a pool has as many devices as a launch needs."""
    said = Said(context, "devices", "error")
    per_node, world = context.sku.devices_per_node, None
    if context.sku.scale_up is not None:
        world = context.sku.scale_up.world
    for index, name, role in _roles(context):
        loc = ("topologies", index, name)
        size = role.gpus_per_worker
        if per_node is None:
            continue
        if size > per_node and size % per_node:
            said.add(
                loc,
                f"a worker takes {size} devices, which is neither within a node of {context.recipe.sku} "
                f"({per_node} devices) nor whole nodes",
                f"make tp × pp at most {per_node}, or a multiple of it",
            )
        elif world is not None and size > world:
            said.add(
                loc,
                f"a worker takes {size} devices, but the fast network of {context.recipe.sku} joins {world}",
                "use more workers, or say pp between the groups",
                severity="note",
            )
    largest = context.project.pools.get(context.recipe.sku)
    for index, topology in enumerate(context.recipe.topologies):
        if largest is not None and topology.gpus > largest:
            said.add(
                ("topologies", index),
                f"topology {topology.label()} needs {topology.gpus} devices; "
                f"the largest pool of {context.recipe.sku} gives a launch {largest}",
                "add nodes to a pool in runners/, or make the topology smaller",
                severity="warning",
            )
    return said


def divides(context: Context) -> Iterable[Finding]:
    """Heads, KV heads and experts can be split as the topology says."""
    said = Said(context, "divides", "error")
    shape = context.model.architecture
    for index, name, role in _roles(context):
        loc = ("topologies", index, name)
        tensor = role.tp // role.dp_attention
        try:
            topology_flags(context.recipe.engine, role)
        except InputError as error:
            said.add(loc, error.what, "choose a split that this engine has", key="engine")
        if shape is None:
            continue
        if shape.heads % tensor:
            said.add(
                (*loc, "tp"),
                f"{shape.heads} attention heads of {context.recipe.model} cannot be split {tensor} ways "
                f"(tp / dp_attention)",
                f"use a tp that divides {shape.heads}, or DP attention",
            )
        kv = shape.kv_heads if shape.mla is None else None
        if kv is not None and kv % tensor and tensor % kv:
            said.add(
                (*loc, "tp"),
                f"{kv} KV heads of {context.recipe.model} cannot be split or copied evenly {tensor} ways",
                f"use a tp / dp_attention that divides {kv} or is a multiple of it",
                key="kv",
            )
        if role.ep > 1:
            for redundant in sorted(_redundant_experts(context, context.recipe.topologies[index], name)):
                if (problem := _experts(context, role, redundant)) is not None:
                    said.add((*loc, "ep"), *problem)
        if shape.layers < role.pp:
            said.add(
                (*loc, "pp"),
                f"{shape.layers} layers cannot make {role.pp} pipeline stages",
                f"use a pp of at most {shape.layers}",
            )
    return said


def _experts(context: Context, role: Role, redundant: int) -> tuple[str, str] | None:
    shape = context.model.architecture
    assert shape is not None
    if shape.experts is None:
        return f"{context.recipe.model} has no experts to place on {role.ep} devices", "leave ep out"
    if (shape.experts + redundant) % role.ep:
        extra = f" + {redundant} redundant ones" if redundant else ""
        return (
            f"{shape.experts} experts{extra} of {context.recipe.model} do not divide by ep {role.ep}",
            f"use an ep that divides {shape.experts + redundant}",
        )
    if role.ep > role.gpus_per_worker:
        return (
            f"ep {role.ep} is more than the worker's {role.gpus_per_worker} devices",
            "experts are placed on the worker's own devices: make ep at most tp × pp",
        )
    return None


_REDUNDANT = ("ep-num-redundant-experts", "num-redundant-experts")


def _redundant_experts(context: Context, topology: Topology, name: str) -> set[int]:
    """How many copies of busy experts the engine adds, in each case of a role."""
    found = {
        _copies(part) for case, part in parts(context) if case.topology is topology and case.role_name == name
    }
    return found or {0}


def _copies(part: Resolved) -> int:
    for name, value in part.args.items():
        if name in _REDUNDANT and isinstance(value, int):
            return value
        if isinstance(value, dict) and isinstance(inner := value.get("num_redundant_experts"), int):
            return inner
    return 0


_CONTEXT: dict[str, tuple[str, ...]] = {
    "vllm": ("max-model-len",),
    "sglang": ("context-length",),
    "trtllm": ("max_seq_len",),
    "atom": ("max-model-len",),
    "llamacpp": ("ctx-size",),
}
"""Family of engines -> the arguments (or keys of its file) that limit the tokens of one request."""

_LENGTH = re.compile(r"^(\d+(?:\.\d+)?)([kKmM]?)\Z")


def tokens_of(value: Any) -> int | None:
    """A context length as a number: ``9216``, ``"9216"``, ``"128k"`` (of 1000), ``"128K"`` (of 1024)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return int(value) if value > 0 else None
    found = _LENGTH.match(value) if isinstance(value, str) else None
    if found is None:
        return None
    factor = {"": 1, "k": 1000, "K": 1024, "m": 1000_000, "M": 1024 * 1024}[found[2]]
    return int(float(found[1]) * factor)


def context_limit(context: Context, case: Case, part: Resolved) -> tuple[int | None, Place]:
    """(tokens that one request may have, where that is said); the model's own limit where nothing is said."""
    family = FAMILIES.get(context.recipe.engine, "")
    for name in _CONTEXT.get(family, ()):
        if (limit := tokens_of(part.args.get(name))) is not None:
            loc = value_loc(context, case, "args", name)
            if family == "llamacpp":
                slots = part.args.get("parallel")
                return (limit // slots if isinstance(slots, int) and slots > 0 else limit), loc
            return limit, loc
        for file, content in part.config_files.items():
            if (limit := tokens_of(content.get(name))) is not None:
                return limit, value_loc(context, case, "config_files", file, name)
    return context.model.context, ("model",)


def context_length(context: Context) -> Iterable[Finding]:
    """What a scenario or an accuracy task sends and asks for fits the context of the launch."""
    said = Said(context, "context", "error")
    answers = {name: tokens for name in context.recipe.accuracy if (tokens := _answer(context, name))}
    # A prefill worker needs less: where both read one argument, the other one is told.
    for case, part in sorted(parts(context), key=lambda item: item[0].role_name == "prefill"):
        limit, loc = context_limit(context, case, part)
        if limit is None:
            continue
        isl, osl = case.scenario.isl, case.scenario.osl
        if isl is not None and osl is not None:
            # A prefill worker answers one token; the rest is the decode worker's.
            asked = isl + (1 if case.role_name == "prefill" else osl)
            if asked > limit:
                said.add(
                    loc,
                    f"a request takes {asked} tokens, the context has {limit} ({case.label})",
                    f"make it at least {asked}",
                    key=case.scenario.name,
                )
        for name, tokens in answers.items():
            if tokens >= limit:
                said.add(
                    loc,
                    f"answers of accuracy task {name} take up to {tokens} tokens, the context is {limit}",
                    f"make it larger than {tokens} plus the prompt",
                    key=name,
                )
    return said


def _answer(context: Context, name: str) -> int | None:
    from isoline.catalog.documents import DocumentError

    try:
        return context.project.questions(name)
    except DocumentError:
        return None  # the rule `dataset` says so


def memory(context: Context) -> Iterable[Finding]:
    """Weights and the KV cache of the smallest concurrency fit the devices' memory."""
    if context.recipe.sku == "cpu":
        return []  # a share of a machine: its memory is no fact of the SKU
    said = Said(context, "memory", "error")
    recipe, model, catalog = context.recipe, context.model, context.project.catalog
    bits = {name: item.bits_per_value for name, item in catalog.precisions.items()}
    weights = weights_to_read(recipe.precision.weights, recipe.checkpoint, model, catalog)
    kv = kv_bytes(model.architecture, recipe.precision.kv, bits=bits.get(recipe.precision.kv))
    usable = context.sku.memory_bytes
    for index, topology in enumerate(recipe.topologies):
        for name, role in topology.roles.items():

            def at(tokens: int | None, role: Role = role) -> Need:
                return need(
                    role,
                    weights=weights,
                    kv_per_token=kv,
                    architecture=model.architecture,
                    tokens=tokens,
                    usable=usable,
                )

            loc = ("topologies", index, name)
            least, (own, label) = _smallest(context, role, name), _smallest_own(context, topology, name)
            found = at(own)
            if (certain := at(least)).fits is False:
                said.add(
                    loc,
                    f"does not fit: {certain.text()} ({label}, smallest concurrency of the recipe, at least)",
                    "use more devices, or fewer bits",
                )
            elif found.fits is False:
                said.add(
                    loc,
                    f"not all requests fit at once, so some will wait: {found.text()} ({label}, at least)",
                    "list a smaller concurrency, or use more devices",
                    severity="warning",
                )
            elif found.unknown:
                said.add(
                    ("topologies",),
                    f"whether it fits the memory is unknown: {'; '.join(found.unknown)}",
                    "add the fact with its source to the catalog",
                    severity="warning",
                    key=found.unknown,
                )
            else:
                said.add(loc, f"{found.text()} ({label}, at least)", weights.how, severity="note")
    return said


def _tokens(scenario: ScenarioFacts, concurrency: int, role: Role, name: str) -> int | None:
    """Tokens that one worker of a role holds at once; None for traces, which do not say."""
    if scenario.isl is None or scenario.osl is None:
        return None
    if name == "prefill":
        return scenario.isl
    return -(-concurrency // role.workers) * (scenario.isl + scenario.osl)


def _smallest(context: Context, role: Role, name: str) -> int | None:
    """The fewest tokens of any scenario at the smallest concurrency of any topology."""
    found = [_tokens(case.scenario, case.concurrency, role, name) for case in context.cases]
    return min((item for item in found if item is not None), default=None)


def _smallest_own(context: Context, topology: Topology, name: str) -> tuple[int | None, str]:
    """(the fewest tokens that this topology is listed for, the case in words)."""
    cases = [case for case in context.cases if case.topology is topology and case.role_name == name]
    found = [(_tokens(case.scenario, case.concurrency, case.role, name), case.label) for case in cases]
    sized = [(tokens, label) for tokens, label in found if tokens is not None]
    return min(sized, default=(None, found[0][1] if found else topology.label()))


RULES = (
    Rule("devices", "error", "a worker fits a node or takes whole nodes; a pool is large enough", devices),
    Rule(
        "divides", "error", "heads, KV heads, layers and experts can be split as the topology says", divides
    ),
    Rule(
        "context",
        "error",
        "isl + osl, and answers of accuracy tasks, fit the launch's context",
        context_length,
    ),
    Rule("memory", "error", "weights and KV cache of the smallest concurrency fit the memory", memory),
)
