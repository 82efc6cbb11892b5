"""Rules about arguments: known to the engine, and saying the same as the recipe's own fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from isoline.catalog.documents import nearest
from isoline.catalog.engines import Flag, Flags
from isoline.errors import InputError
from isoline.recipes.engine_flags import FAMILIES, owned_by_topology
from isoline.recipes.lint.base import Case, Context, Finding, Rule, Said
from isoline.recipes.lint.parts import Place, parts, value_loc
from isoline.recipes.resolve import Resolved
from isoline.recipes.server import is_expression

_VERSION = re.compile(r"(?<![0-9a-f])v?(\d+)\.(\d+)(?:\.(\d+))?")
_DEV = re.compile(r"dev|nightly|main|latest|preview|pr-?\d|rc\d|alpha|beta", re.IGNORECASE)


def version_of(text: str) -> tuple[int, ...] | None:
    """The release in an image's tag, a package or a flag file: ``v0.11.2-cu130`` is (0, 11, 2)."""
    found = _VERSION.search(text)
    return tuple(int(part or 0) for part in found.groups()) if found else None


def is_older_or_same(image: str, known: Flags) -> bool:
    """Whether an image is a release that the known flags cover, so that an unknown one is a mistake."""
    tag = image.partition("@")[0].rpartition(":")[2]
    version, newest = version_of(tag), version_of(known.versions[-1]) if known.versions else None
    return bool(known.complete and version and newest and not _DEV.search(tag) and version <= newest)


def image_text(context: Context) -> str:
    """The recipe's image as text; of a channel what stands in ``recipes/channels.yaml``, else empty."""
    from isoline.catalog.documents import DocumentError

    image = context.recipe.image
    if image.ref is not None:
        return image.ref
    if image.channel is None:
        return ":".join((image.packages or [""])[0].split("=="))
    try:
        return context.project.channel(image.channel)
    except DocumentError:
        return ""  # the rule `channel` says so


def _arguments(context: Context) -> Iterator[tuple[Place, str, Any]]:
    """(place, name, value) of every argument that any layer sets."""
    for loc, layer, _ in context.layers():
        for name, value in layer.args.items():
            if value is not None:
                yield (*loc, "args", name), name, value


def flags(context: Context) -> Iterable[Finding]:
    """Each argument is one that the engine has, and takes such a value."""
    said = Said(context, "flags", "warning")
    engine, known = context.engine, context.project.catalog.known_flags(context.recipe.engine)
    if known is None:
        said.add(
            ("engine",),
            f"no arguments of {context.recipe.engine} are known, so none are checked",
            "capture its --help and run `isoline engine learn`",
        )
        return said
    options = known.flags  # a key of its file may be an argument too
    image = image_text(context)
    severity: Any = "error" if is_older_or_same(image, known) else "warning"
    upto = known.versions[-1] if known.versions else "?"
    for loc, name, value in _arguments(context):
        canonical = engine.canonical(name).partition(".")[0]
        negation = engine.flag_style.negation if engine.flag_style else None
        plain = canonical.removeprefix(negation) if negation else canonical
        flag = options.get(canonical) or options.get(plain)
        if flag is None:
            said.add(
                loc,
                f"{context.recipe.engine} has no argument {name!r} as far as is known (up to {upto})",
                f"{nearest(canonical, options)} (or `isoline engine learn {context.recipe.engine}`)",
                severity=severity,
            )
        elif (problem := _wrong_value(flag, value, canonical not in options, known.complete)) is not None:
            said.add(loc, f"argument {name!r} {problem}", "write the value that the engine takes")
    return said


def _wrong_value(flag: Flag, value: Any, negated: bool, complete: bool) -> str | None:
    """What is wrong with a value. Seen in use only, an argument may take more than was seen."""
    if is_expression(value):
        return None if flag.takes in ("int", "float", "text", "list") else f"takes {flag.takes}, not a number"
    if not complete and (value is True or flag.takes != "int"):
        return None
    if flag.takes == "nothing" or negated:
        return None if value is True else "is a switch and takes no value: write true"
    if value is True:
        return f"takes a value ({flag.takes})"
    if flag.takes == "int" and not re.match(r"^-?\d+[kKmMgG]?\Z", str(value)):
        return f"takes a whole number, not {value!r}"
    if flag.takes == "json" and not isinstance(value, (dict, str)):
        return f"takes a mapping, not {value!r}"
    return None


def owned(context: Context) -> Iterable[Finding]:
    """No argument says what Isoline says itself: the topology, the model, the address."""
    said = Said(context, "owned", "error")
    engine = context.engine
    by_topology = owned_by_topology(context.recipe.engine)
    for loc, name, _ in _arguments(context):
        canonical = engine.canonical(name)
        if {name, canonical} & by_topology:
            said.add(
                loc,
                f"argument {name!r} says the topology a second time",
                "leave it out: topologies decides it",
            )
        elif {name, canonical} & set(engine.owned_args):
            said.add(loc, f"argument {name!r} is set by Isoline itself", "leave it out")
    return said


def kv_precision(context: Context) -> Iterable[Finding]:
    """precision.kv is what the server is told."""
    said = Said(context, "kv-precision", "error")
    dtype, wanted = context.engine.kv_dtype, context.recipe.precision.kv
    known = context.project.catalog.precisions
    if wanted not in known and "precision.kv" not in context.recipe.incomplete:
        said.add(
            ("precision", "kv"),
            f"precision.kv {wanted} is no exact precision",
            f"{nearest(wanted, known)}",
            severity="warning",
        )
        return said
    if dtype is None:
        return said
    for case, part in parts(context):
        loc: Place = ("precision", "kv")
        given: Any = None
        if dtype.where == "args":
            given = part.args.get(dtype.name)
            if given is not None:
                loc = value_loc(context, case, "args", dtype.name)
        else:
            given, loc = _in_files(context, case, part, dtype.name.split("."), loc)
        value = str(dtype.default if given is None else given)
        if value not in dtype.values:
            said.add(
                loc,
                f"what {dtype.name} {value} means is not known",
                nearest(value, dtype.values),
                severity="warning",
                key=value,
            )
            continue
        precision = dtype.values[value]
        if precision is None:
            precision = dtype.models.get(context.recipe.model)
        if precision is None:
            fits = context.model.checkpoints_at(context.recipe.precision.weights).values()
            own = {item.kv_precision for item in fits if context.recipe.checkpoint in (None, item.hub_id)}
            precision = next(iter(own)) if len(own) == 1 else None
        if precision is not None and precision != wanted:
            default = " (its default)" if given is None else ""
            said.add(
                loc,
                f"precision.kv is {wanted}, but the server gets {dtype.name} {value}{default}, "
                f"which is {precision}",
                f"write kv: {precision}, or set {dtype.name}",
                key=value,
            )
    return said


def _in_files(
    context: Context, case: Case, part: Resolved, path: list[str], default: Place
) -> tuple[Any, Place]:
    for file, content in part.config_files.items():
        node: Any = content
        for key in path:
            node = node.get(key) if isinstance(node, Mapping) else None
        if node is not None:
            return node, value_loc(context, case, "config_files", file, *path)
    return None, default


_FORCED_ENV = re.compile(r"^(SGLANG_SIMULATE_ACC_.*|TLLM_SPEC_DECODE_FORCE_.*|.*_SYNTHETIC_ACCEPT.*)\Z")
_FORCED_ARGS = frozenset(("spec-decode-acceptance-length", "spec-decode-acceptance-rate"))
_FORCED_KEYS = frozenset(
    ("synthetic_acceptance_length", "synthetic_acceptance_rate", "synthetic_acceptance_rates")
)


def acceptance(context: Context) -> Iterable[Finding]:
    """A forced acceptance is declared and looked up, never written as a literal."""
    said = Said(context, "acceptance", "error")
    mend = "leave it out and write speculative.acceptance: pinned; the length comes from the catalog's table"
    for loc, layer, _ in context.layers():
        for name in layer.env:
            if _FORCED_ENV.match(name):
                said.add((*loc, "env", name), f"{name} forces the acceptance of drafts", mend)
        for name, value in layer.args.items():
            if name in _FORCED_ARGS:
                said.add((*loc, "args", name), f"argument {name!r} forces the acceptance of drafts", mend)
            for key in _forced_keys(value):
                said.add((*loc, "args", name, *key), f"{key[-1]} forces the acceptance of drafts", mend)
        for name, content in layer.config_files.items():
            for key in _forced_keys(content):
                said.add(
                    (*loc, "config_files", name, *key), f"{key[-1]} forces the acceptance of drafts", mend
                )
    spec = context.recipe.speculative
    if spec.acceptance == "pinned":
        from isoline.recipes.acceptance import acceptance_flags, golden_length

        try:
            drafted = spec.draft_tokens or 0
            length = golden_length(context.recipe.model, spec.method, drafted, spec.draft_model)
            acceptance_flags(context.engine, length, drafted, spec.pinned_as)
        except InputError as error:
            what, _, mend = error.what.partition("; ")
            said.add(("speculative", "acceptance"), what, mend or "write acceptance: real")
    return said


def _forced_keys(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            return
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in _FORCED_KEYS or (key == "rejection_sample_method" and item == "synthetic"):
                yield (*path, key)
            else:
                yield from _forced_keys(item, (*path, key))


def drafting(context: Context, part: Resolved) -> tuple[bool, int | None]:
    """(whether the arguments turn drafting on, drafted tokens where they say so)."""
    family, args = FAMILIES.get(context.recipe.engine, ""), part.args
    if family == "vllm":
        config = args.get("speculative-config")
        config = json.loads(config) if isinstance(config, str) and config.startswith("{") else config
        return config is not None, _count(config, "num_speculative_tokens")
    if family == "sglang":
        if "speculative-algorithm" not in args:
            return False, None
        drafted, topk = args.get("speculative-num-draft-tokens"), args.get("speculative-eagle-topk", 1)
        if isinstance(drafted, int) and topk == 1:
            return True, drafted - 1  # it counts the verified token
        return True, None
    if family == "trtllm":
        for content in part.config_files.values():
            if (config := content.get("speculative_config")) is not None:
                tokens = _count(config, "max_draft_len")
                return True, tokens if tokens is not None else _count(config, "num_nextn_predict_layers")
        return False, None
    if family == "atom":
        return "method" in args, _count(args, "num-speculative-tokens")
    return "model-draft" in args, _count(args, "draft-max")


def _count(config: Any, key: str) -> int | None:
    value = config.get(key) if isinstance(config, Mapping) else None
    return value if isinstance(value, int) else None


def speculative(context: Context) -> Iterable[Finding]:
    """The arguments draft as much as ``speculative`` says; ``none`` where they do not."""
    said = Said(context, "speculative", "error")
    spec = context.recipe.speculative
    for case, part in parts(context):
        on, tokens = drafting(context, part)
        if on and spec.method == "none":
            said.add(
                ("speculative",),
                f"the arguments turn speculative decoding on, but the recipe says none ({case.label})",
                "say method and draft_tokens, or leave the arguments out",
            )
        elif not on and spec.method != "none" and case.role_name != "prefill":
            said.add(
                ("speculative", "method"),
                f"speculative is {spec.label()}, but no argument turns it on ({case.label})",
                "set the engine's arguments, or make a recipe of its own for what does not draft",
            )
        elif on and tokens is not None and tokens != spec.draft_tokens and case.role_name != "prefill":
            said.add(
                ("speculative", "draft_tokens"),
                f"draft_tokens is {spec.draft_tokens}, the arguments draft {tokens} ({case.label})",
                "say one number in both places",
            )
    return said


def offload(context: Context) -> Iterable[Finding]:
    """The arguments keep KV outside the device where ``kv_offload`` says so, and only there."""
    said = Said(context, "offload", "error")
    tier = context.recipe.kv_offload.tier
    for case, part in parts(context):
        sign = _offloads(context, part)
        if sign and tier == "none":
            said.add(
                ("kv_offload",),
                f"{sign} keeps KV outside the accelerator, but kv_offload says none ({case.label})",
                "say tier and backend, or leave the argument out",
            )
    return said


def slots(context: Context) -> Iterable[Finding]:
    """All requests of a concurrency are served at once; where they are not, some wait, on purpose or not."""
    said = Said(context, "slots", "warning")
    facts, spelling = context.engine.slots, context.engine.topology
    if facts is None:
        return said
    for case, part in parts(context):
        if case.role_name == "prefill":
            continue  # requests are handed on: fewer of them are there at once
        given = part.args.get(facts.name)
        loc: Place = ("scenarios", case.scenario.name)
        if facts.where == "file":
            found, loc = _in_files(context, case, part, facts.name.split("."), loc)
            given = given if found is None else found
        elif given is not None:
            loc = value_loc(context, case, "args", facts.name)
        value = facts.default if given is None else given
        if not isinstance(value, int):
            continue
        ranks = case.role.dp_attention if spelling and spelling.budgets == "attention_rank" else 1
        served = value * ranks * case.role.workers
        if case.concurrency > served:
            said.add(
                loc,
                f"{case.concurrency} requests are in flight, the server takes {served} at once: "
                f"{facts.name} {value} ({case.label})",
                "raise it, or list smaller concurrencies; where it is meant, the wait is part of the result",
                key=case.topology.label(),
            )
    return said


def _offloads(context: Context, part: Resolved) -> str | None:
    for name in ("enable-hierarchical-cache", "kv-offloading-size", "kv_offloading_size"):
        if part.args.get(name) not in (None, 0):
            return name
    if "OffloadConnector" in json.dumps(part.args.get("kv-transfer-config", ""), default=str):
        return "kv-transfer-config"
    for content in part.config_files.values():
        cache = content.get("kv_cache_config")
        if isinstance(cache, Mapping) and cache.get("host_cache_size"):
            return "kv_cache_config.host_cache_size"
    return None


RULES = (
    Rule("flags", "warning", "each argument is known for the engine's version and takes such a value", flags),
    Rule("owned", "error", "no argument says what the topology or the launcher says", owned),
    Rule("kv-precision", "error", "precision.kv is what the server is told", kv_precision),
    Rule("acceptance", "error", "forced acceptance is declared and looked up, never a literal", acceptance),
    Rule("speculative", "error", "the arguments draft as the field speculative says", speculative),
    Rule("slots", "warning", "the server takes as many requests at once as the concurrency asks", slots),
    Rule("offload", "error", "the arguments offload KV only where kv_offload says so", offload),
)
