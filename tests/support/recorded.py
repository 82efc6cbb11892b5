"""What the recorded files say of a recipe, and what the recipe renders to, in one form."""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Container, Pool
from isoline.recipes import canonical
from isoline.recipes.deployment import Command, Deployment
from isoline.recipes.load import LoadedRecipe
from isoline.recipes.render import Inputs, Shape, render
from isoline.recipes.resolve import fill_in
from isoline.recipes.topology import Topology
from isoline.recipes.worker import engine_words

LENGTHS = {"8k1k": (8192, 1024), "1k1k": (1024, 1024)}
UPSTREAM = re.compile(r"InferenceX @843c6254 (benchmarks/\S.*?) \(Apache-2\.0\)")


def tools(root: Path) -> Any:
    """The modules of the conversion, which read the recorded files."""
    if str(root / "tools") not in sys.path:
        sys.path.insert(0, str(root / "tools"))
    import recorded_multi
    import recorded_single

    return recorded_single, recorded_multi


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def paths_of(upstream: str) -> list[str]:
    """The recorded files that a recipe names: ``a/b.yaml``, ``a/{b, c}.yaml``."""
    match = UPSTREAM.search(upstream)
    if not match:
        return []
    folder, _, rest = match[1].partition("{")
    if not rest:
        return [match[1]]
    inside, _, tail = rest.partition("}")
    return [f"{folder}{name.strip()}{tail}" for name in inside.split(",")]


def pool_for(loaded: LoadedRecipe, dram_gb: int | None, gpus: int) -> Pool:
    """A pool whose nodes give a launch on ``gpus`` devices exactly ``dram_gb``."""
    recipe = loaded.recipe
    devices = load_catalog().skus[recipe.sku].devices_per_node or 8
    share = recipe.kv_offload.utilization
    memory = None
    if dram_gb and share:
        memory = (dram_gb + 0.5) / share * devices / min(gpus, devices)
    return Pool(
        schema_version=1,
        name="recorded",
        launcher="container",
        sku=recipe.sku,
        accelerators=devices,
        nodes=200,
        node_memory_gb=memory,
        container=Container(device_profile="nvidia", model_cache="/models", scratch="/scratch"),
    )


def rendered(
    loaded: LoadedRecipe, topology: Topology, scenario: str, concurrency: int, dram_gb: int | None = None
) -> tuple[Deployment, Pool]:
    """What the recipe renders to at one point."""
    worker = next(iter(topology.roles.values()))
    pool = pool_for(loaded, dram_gb, worker.gpus_per_worker)
    isl, osl = LENGTHS.get(scenario, (None, None))
    images = {loaded.recipe.image.channel or "": "example.org/image:1"}
    launch = render(loaded, topology, pool, Shape(scenario, isl, osl), concurrency, Inputs(images=images))
    return launch.deployment, pool


def said(loaded: LoadedRecipe, command: Command, pool: Pool) -> dict[str, Any]:
    """A rendered worker: arguments, environment, files. What tells its nodes of each other is left out, as
    the reference's launcher adds that itself, unless the recipe says it."""
    engine = loaded.recipe.engine
    facts = load_catalog().engines[engine]
    base = engine_words(facts, pool)
    if command.mpi and facts.multi_node is not None and facts.multi_node.command is not None:
        base = facts.multi_node.command
    args = canonical.parse_words(command.argv[len(base) :], engine)
    return {
        "args": normal({k: v for k, v in args.items() if k not in launcher_args(loaded, command)}, engine),
        "env": dict(command.env),
        "config": command.config_files,
    }


def launcher_args(loaded: LoadedRecipe, command: Command) -> set[str]:
    """The arguments of a worker that spans nodes which its recipe does not say itself."""
    facts = load_catalog().engines[loaded.recipe.engine]
    if command.nodes == 1 or facts.multi_node is None:
        return set()
    told = facts.multi_node
    parts = [part for part in (told.plain, told.inside, told.across) if part is not None]
    added = {name for part in parts for name in (*part.every, *part.first, *part.others)}
    recipe = loaded.recipe
    layers = [recipe.server, *recipe.server.when, *recipe.roles.values()]
    layers += [item for role in recipe.roles.values() for item in role.when]
    return added - {facts.canonical(name) for layer in layers for name in layer.args}


def normal(args: dict[str, Any], engine: str) -> dict[str, Any]:
    """Arguments without topology arguments that say the default, 1, or what another one implies."""
    owned = canonical.owned_by_topology(engine)
    found = {k: v for k, v in args.items() if k not in owned} | canonical.topology_args(args, engine)
    spelling = load_catalog().engines[engine].topology
    if spelling is not None and spelling.ep_implied_by in args and spelling.ep is not None:
        found.pop(spelling.ep, None)
    return found


@dataclass
class Wanted:
    """What the recorded files say of one point: by role, and the sidecars' commands."""

    roles: dict[str, dict[str, Any]]
    sidecars: list[list[str]]


def wanted_single(single: Any, row: dict[str, Any], harness: frozenset[str]) -> Wanted:
    """The recorded command of one run; only what the launcher owns is left out."""
    engine = single.engine_of(row)
    command = single.command_of(row)
    numbers = {"dram_gb": row["total_cpu_dram_gb"], "tp": row["tp"]}
    plain = canonical.parse_words(single.flags_of(row), engine)
    own = set(canonical.OWN) - {"dist-init-addr"}
    if plain.get("tokenizer-path") in (row["model"], "<model>"):
        own.add("tokenizer-path")
    kept = canonical.without(plain, own)
    # The conversion maps names of files, ports and drafts; every other value is as recorded.
    args = {name: command.args.get(name, value) for name, value in kept.items()}
    args = normal(args, engine)
    env = {k: v for k, v in row["env"].items() if k not in harness}
    env = {k: command.env.get(k, v) for k, v in env.items()}
    files = {name: dict(content) for name, content in command.files.items()}
    if engine == "trtllm":
        files["config.yaml"]["enable_attention_dp"] = command.role.dp_attention > 1
    if "mooncake.json" in files:
        files["mooncake.json"]["device_name"] = row["config_files"]["mooncake_config.json"]["device_name"]
    filled = fill_in({"args": args, "env": env, "config": files}, numbers)
    filled["env"] = {name: str(value) for name, value in filled["env"].items()}
    return Wanted({"aggregated": filled}, [item["command"] for item in command.sidecars])


def wanted_multi(multi: Any, row: dict[str, Any], harness: frozenset[str]) -> dict[str, dict[str, Any]]:
    """The recorded arguments, variables and files of every role."""
    engine = multi.engine_of(row)
    found = {}
    for side, role in multi.SIDES.items():
        given = row["args"].get(side)
        if given is None:
            continue
        env = {**(row["env"].get("common") or {}), **(row["env"].get(side) or {})}
        env = {k: str(v) for k, v in env.items() if k not in harness}
        if engine.endswith("trtllm"):
            content = dict(multi.names.map_tree(given))
            for name in multi.FILE_TOPOLOGY:
                if (
                    content.get(name) in (1, None)
                    and name.endswith("_size")
                    and not name.startswith("tensor")
                ):
                    content.pop(name, None)
            content["enable_attention_dp"] = bool(content.get("enable_attention_dp"))
            found[role] = {"args": {}, "env": env, "config": {"config.yaml": content}}
            continue
        args = multi.names.map_tree(canonical.canonical_args(given, engine))
        args = canonical.without(normal(args, engine), canonical.OWN)
        found[role] = {"args": args, "env": env, "config": {}}
    return found


def differing(actual: dict[str, Any], expected: dict[str, Any], prefix: str) -> set[str]:
    """Paths at which a rendered worker differs, as ``differences`` writes them."""
    pair = [{part: tree for part, tree in item.items() if tree} for item in (actual, expected)]
    return {f"{prefix}{path}" for path in canonical.differing(*pair)}


def covers(what: str, path: str) -> bool:
    """Whether a declared difference is about a path: itself, what lies below it, or any end for ``*``."""
    what, path = what.replace("_", "-"), path.replace("_", "-")
    return path == what or path.startswith(what.removesuffix("*") if what.endswith("*") else what + ".")


def words(text: str) -> dict[str, Any]:
    """A line of flags as arguments; JSON keeps its quotes."""
    quoted = " ".join(f"'{word}'" if word.startswith("{") else word for word in text.split(" "))
    return canonical.parse_words(shlex.split(quoted), "vllm" if "gpu-memory" in text else "sglang")


def wanted_document(side: dict[str, Any]) -> dict[str, Any]:
    """One role of an llm-d document; where it spreads experts, ranks are spread by the launcher."""
    args = words(side["extra-args"])
    if side["enable-expert-parallel"]:
        args |= {"enable-expert-parallel": True, "data-parallel-size": 8}
    else:
        args |= {"tensor-parallel-size": side["tp"]}
    return {"args": args, "env": {k: str(v) for k, v in side["env"].items()}, "config": {}}
