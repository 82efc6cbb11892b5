"""srt-slurm recipes (NVIDIA/srt-slurm, InferenceX's multi-node recipes) -> recipes. Pure.

They hold real engine arguments for each role. What belongs to their cluster (partitions, mounts, paths,
set-up scripts) is left out and reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from isoline.recipes.acceptance import golden_length
from isoline.recipes.imports.arguments import Side, read_side
from isoline.recipes.imports.common import (
    Draft,
    Imported,
    Line,
    UnknownName,
    engine_of,
    image_ref,
    sku_of,
    unique_id,
    weights_of,
)
from isoline.recipes.imports.inferencex_rows import scenario_name

_SIDES = {"prefill": "prefill", "decode": "decode", "agg": "aggregated"}
_BACKENDS = ("sglang", "vllm", "trtllm")
_NOT_SAID = {
    "setup_script": "a script that runs first; a recipe has none",
    "extra_mount": "mounts; a recipe has none",
    "srun_options": "of their cluster; a pool has such options",
    "sbatch_directives": "of their cluster; a pool has such options",
}


def import_recipes(
    files: Mapping[str, Mapping[str, Any]], *, revision: str | None = None, owner: str = "isoline"
) -> Imported:
    """Recipes of all files.

    :param files: name of the file -> its content.
    :param revision: commit of the files, for `upstream`.
    """
    done = Imported()
    for name, content in files.items():
        try:
            variants = list(unfolded(content))
        except ValueError as error:
            done.lines.append(Line("left_out", name, str(error)))
            continue
        for variant, tree in variants:
            source = f"{name} ({variant})" if variant else name
            try:
                _import_one(source, tree, done, revision, owner)
            except UnknownName as error:
                done.lines.append(Line("unknown_name", source, str(error), remedy=error.remedy))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
                done.lines.append(Line("left_out", source, what))
    return done


def unfolded(content: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(variant, content) of a file: itself, or its base with each override.

    In a `zip_override_…` the lists of one length count by position and everything else for all.

    :raises ValueError: when its lists have several lengths, or it is a sweep of placeholders.
    """
    if "sweep" in content:
        raise ValueError("a sweep of placeholders; write its combinations out")
    if "base" not in content:
        yield "", dict(content)
        return
    base = content["base"]
    found = False
    for key, over in content.items():
        if key.startswith("zip_override"):
            count = _zip_length(over, key)
            for index in range(count):
                found = True
                yield (
                    f"{key.removeprefix('zip_override_')}-{index + 1}",
                    _merged(base, _at(over, index, count)),
                )
        elif key.startswith("override"):
            found = True
            yield key.removeprefix("override_"), _merged(base, over)
    if not found:
        yield "", dict(base)


def _zip_length(over: Mapping[str, Any], key: str) -> int:
    if isinstance(over.get("name"), list):
        return len(over["name"])
    lengths = set(_lengths(over))
    if len(lengths) != 1:
        raise ValueError(
            f"{key}: lists of {sorted(lengths)} items; which of them belong together is not clear"
        )
    return lengths.pop()


def _lengths(value: Any) -> Iterator[int]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _lengths(item)
    elif isinstance(value, list):
        yield len(value)


def _at(value: Any, index: int, count: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _at(item, index, count) for key, item in value.items()}
    return value[index] if isinstance(value, list) and len(value) == count else value


def _merged(base: Any, over: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return {**base, **{key: _merged(base.get(key), item) for key, item in over.items()}}
    return over


def _import_one(
    source: str, tree: Mapping[str, Any], done: Imported, revision: str | None, owner: str
) -> None:
    identity, model = tree.get("identity") or {}, tree["model"]
    named = (identity.get("model") or {}).get("repo") or str(model["path"]).removeprefix("hf:")
    if str(named).startswith("/"):
        named = str(named).rstrip("/").rsplit("/", 1)[-1]
    weights = weights_of(str(named), model.get("precision"))
    engine, backend = _engine(tree)
    sku = sku_of(str(tree["resources"]["gpu_type"]))
    image = image_ref(str((identity.get("container") or {}).get("image") or model["container"]))
    if image.startswith("/") or ":" not in image:
        raise ValueError(
            f"image {image!r} is a name or file of their machines; identity.container.image is missing"
        )
    sides = _sides(tree, engine, backend)
    spec, lines = _speculative(sides, weights.model, source)
    scenario, levels = _load(tree["benchmark"])
    roles = {_SIDES[name]: side for name, side in sides.items()}
    kv = {side.kv for side in sides.values() if side.kv is not None}
    if len(kv) > 1:
        raise ValueError(f"the roles have KV caches of {', '.join(sorted(kv))}")
    made: dict[str, Any] = {"schema_version": 1, "model": weights.model}
    if weights.checkpoint is not None:
        made["checkpoint"] = weights.checkpoint
        revision_of = (identity.get("model") or {}).get("revision")
        if revision_of:
            made["revision"] = str(revision_of)
    made |= {
        "engine": engine,
        "sku": sku,
        "precision": {"weights": weights.precision, "kv": next(iter(kv), "unknown")},
        "image": {"ref": image},
        "topologies": [{name: side.role for name, side in roles.items()}],
    }
    common = {str(k): str(v) for k, v in (tree.get("environment") or {}).items()}
    if common:
        made["server"] = {"env": common}
    made["roles"] = {name: parts for name, side in roles.items() if (parts := side.parts())}
    if spec:
        made["speculative"] = spec
    if any(side.offload for side in sides.values()):
        backends = {side.offload for side in sides.values() if side.offload}
        made["kv_offload"] = {"tier": "dram", "backend": sorted(backends)[0]}
    if "prefill" in roles:
        connectors = {side.connector for side in sides.values() if side.connector}
        if len(connectors) != 1:
            raise ValueError("how KV goes from prefill to decode is not said by one connector")
        made["kv_transfer"] = {"connector": connectors.pop()}
    made["scenarios"] = {scenario: {"concurrency": levels}}
    if not kv:
        made["incomplete"] = ["precision.kv"]
    upstream = f"srt-slurm{f' @{revision}' if revision else ''} {source}"
    made |= {"status": "unverified", "owner": owner, "upstream": upstream}
    base = f"{weights.model}/{engine}-{sku}-{weights.precision}-{_slug(str(tree.get('name') or source))}"
    lines += _left_behind(tree, sides, source)
    head = [f"Imported from {source}."] + [
        f"Not here: {line.what}." for line in lines if line.kind == "not_said"
    ]
    before = len(done.drafts)
    done.add(
        Draft(unique_id(base, (draft.recipe_id for draft in done.drafts)), made, tuple(head)),
        source,
        len(levels),
    )
    if len(done.drafts) > before:
        done.lines += lines


def _engine(tree: Mapping[str, Any]) -> tuple[str, str]:
    """(our engine, name of its section). A file without a backend type has SGLang's section."""
    backend = tree.get("backend") or {}
    kind = str(backend.get("type") or next((name for name in _BACKENDS if f"{name}_config" in backend), ""))
    if kind not in _BACKENDS:
        raise ValueError(f"backend type {kind!r} is none of {', '.join(_BACKENDS)}")
    front = str((tree.get("frontend") or {}).get("type") or "dynamo")
    return engine_of(f"dynamo-{kind}" if front == "dynamo" else kind), kind


def _sides(tree: Mapping[str, Any], engine: str, kind: str) -> dict[str, Side]:
    backend, resources = tree["backend"], tree["resources"]
    config = backend.get(f"{kind}_config") or {}
    sides = {}
    for name, ours in _SIDES.items():
        workers = resources.get(f"{name}_workers") or 0
        section = config.get(name) if name in config else config.get(ours)
        if not workers or section is None:
            continue
        env = backend.get(f"{name}_environment") or backend.get(f"{ours}_environment") or {}
        side = read_side(engine, int(workers), section, env)
        declared = resources.get(f"gpus_per_{name}")
        nodes = resources.get(f"{name}_nodes")
        if declared is None and nodes:
            declared = int(nodes) * int(resources["gpus_per_node"]) // int(workers)
        used = side.role["tp"] * side.role.get("pp", 1)
        if declared is not None and int(declared) != used:
            raise ValueError(f"{name}: the arguments use {used} devices a worker, {declared} are declared")
        sides[name] = side
    if set(sides) not in ({"agg"}, {"prefill", "decode"}):
        raise ValueError(f"roles with workers and a section: {', '.join(sides) or 'none'}")
    return sides


def _speculative(sides: Mapping[str, Side], model: str, source: str) -> tuple[dict[str, Any], list[Line]]:
    """Drafting, as the role that decodes says it; and whether its pinned length is the golden one."""
    side = sides.get("decode") or sides["agg"]
    spec, lines = dict(side.speculative), []
    if not spec:
        return {}, []
    if "draft_tokens" not in spec:
        raise ValueError(f"drafting by {spec['method']} without a number of tokens")
    if side.pinned_length is not None:
        spec["acceptance"] = "pinned"
        try:
            golden = golden_length(model, spec["method"], spec["draft_tokens"], spec.get("draft_model"))
        except Exception:
            raise UnknownName(
                "acceptance",
                f"{model} {spec['method']} {spec['draft_tokens']}",
                f"acceptance is pinned to {side.pinned_length:g}, and the golden table has no length for "
                f"{model}, {spec['method']}, {spec['draft_tokens']} draft tokens",
                "add it to the catalog's acceptance table with its source",
            ) from None
        if golden != side.pinned_length:
            what = f"acceptance is pinned to {side.pinned_length:g}; here the golden {golden:g} counts"
            lines.append(Line("differs", source, what))
    return spec, lines


def _load(benchmark: Mapping[str, Any]) -> tuple[str, list[int]]:
    """(scenario, concurrencies)."""
    given = benchmark.get("concurrencies")
    words = re.findall(r"\d+", given) if isinstance(given, str) else [] if given is None else given
    levels = sorted({int(item) for item in (words if isinstance(words, list) else [words])})
    if not levels:
        raise ValueError("benchmark.concurrencies is missing")
    if benchmark.get("isl") and benchmark.get("osl"):
        return scenario_name(int(benchmark["isl"]), int(benchmark["osl"])), levels
    env = benchmark.get("env") or {}
    if (
        benchmark.get("type") == "agentic"
        or "KV_OFFLOADING" in env
        or "agentic" in str(benchmark.get("command"))
    ):
        return "agentic", levels
    raise ValueError(
        f"benchmark type {benchmark.get('type')!r} says neither isl and osl nor that it is agentic"
    )


def _left_behind(tree: Mapping[str, Any], sides: Mapping[str, Side], source: str) -> list[Line]:
    found = [f"{key}: {why}" for key, why in _NOT_SAID.items() if tree.get(key)]
    front, dynamo = tree.get("frontend") or {}, tree.get("dynamo") or {}
    if front.get("args") or front.get("env"):
        found.append("arguments of the front end; write it as a sidecar")
    version = dynamo.get("version") or dynamo.get("wheel") or dynamo.get("hash")
    if version:
        found.append(f"dynamo {version}, which is installed at the start")
    options = {"mooncake_kv_store", "kv_events_config"} & set(tree.get("backend") or {})
    found += [f"backend.{name}: started by their launcher; write it as a sidecar" for name in sorted(options)]
    for side in sides.values():
        found += [item for item in side.dropped if item not in found]
    return [Line("not_said", source, what) for what in found]


def _slug(name: str) -> str:
    stem = re.sub(r"\.ya?ml$", "", name)
    return re.sub(r"[^a-z0-9.]+", "-", stem.lower()).strip("-.")
