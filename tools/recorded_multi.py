"""Recorded multi-node recipes (srt-slurm's form) as recipes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import recorded_common as names
import recorded_fit as fitting
from recorded_single import role_of, written

from isoline.recipes import canonical
from isoline.recipes.server import NULL
from isoline.recipes.topology import Role, Topology

Row = dict[str, Any]
SIDES = {"prefill": "prefill", "decode": "decode", "agg": "aggregated"}
BACKENDS = {"sglang": "sglang", "vllm": "vllm", "trtllm": "trtllm"}
FILE_TOPOLOGY = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "moe_expert_parallel_size",
    "enable_attention_dp",
)
MACHINE_ENV = re.compile(
    r"^(NCCL_IB_HCA|NCCL_SOCKET_IFNAME|GLOO_SOCKET_IFNAME|UCX_NET_DEVICES|NVSHMEM_HCA.*|MC_.*DEVICE.*NAME)$"
)
FRONTEND_HARNESS = frozenset(
    (
        "MODEL", "MODEL_PREFIX", "FRAMEWORK", "PRECISION", "CONC", "DURATION", "KV_OFFLOADING",
        "PIP_BREAK_SYSTEM_PACKAGES",
    )
)  # fmt: skip


@dataclass
class Side:
    """One role of a recorded object."""

    args: Row
    split: Row
    env: Row
    files: dict[str, Row]
    role: Role
    spec: Row = field(default_factory=dict)


@dataclass
class Object:
    """One recorded object in the form of recipes."""

    row: Row
    engine: str
    sides: dict[str, Side]
    frontend: Row | None
    differences: dict[str, str]

    @property
    def topology(self) -> Topology:
        return Topology(**{SIDES[name]: side.role for name, side in self.sides.items()})

    @property
    def spec(self) -> Row:
        return _drafting(self.sides)

    @property
    def levels(self) -> list[int]:
        found = self.row.get("matrix_concurrencies") or self.row.get("concurrencies") or []
        return sorted(set(found))


def _drafting(sides: dict[str, Side]) -> Row:
    """The drafting of the deployment: the decode role's where it drafts."""
    for name in ("decode", "agg", "prefill"):
        if name in sides and "method" in sides[name].spec:
            return sides[name].spec
    return {}


def engine_of(row: Row) -> str:
    kind = (row.get("frontend") or {}).get("type")
    backend = BACKENDS[row["backend_type"]]
    return f"dynamo-{backend}" if kind == "dynamo" else backend


def object_of(row: Row) -> Object:
    """A recorded object, canonical.

    :raises ValueError: for one that a recipe cannot say.
    """
    engine = engine_of(row)
    differences: dict[str, str] = {}
    common = (row["env"].get("common")) or {}
    sides = {}
    for name in SIDES:
        if row["args"].get(name) is None:
            continue
        env = _env({**common, **(row["env"].get(name) or {})}, prefix_of(name), differences)
        sides[name] = _side(row, name, engine, env, differences)
    frontend = _frontend(row, differences) if engine.startswith("dynamo") else None
    if engine.startswith("dynamo"):
        differences["infra.discovery"] = (
            "etcd and NATS are started by the reference's launcher; not recorded as commands"
        )
    elif (row.get("frontend") or {}).get("type"):
        differences["frontend.router"] = "the reference puts the engine's own router before the one worker"
    for name, value in (row.get("backend_options") or {}).items():
        if value not in (None, False):
            differences[f"backend_options.{name}"] = (
                "made into arguments by the reference's launcher; not recorded as such"
            )
    if row.get("setup_script"):
        differences[f"setup.{row['setup_script']}"] = (
            "a script of the reference's that runs first; a recipe has none"
        )
    _pinned(row, sides, differences)
    if len(sides) == 2 and not engine.endswith("sglang"):
        for name in sides:
            sides[name].args["disaggregation-mode"] = name
            differences[f"{name}.args.disaggregation-mode"] = (
                "set by srt-slurm, the reference's launcher; not in the recorded file"
            )
    return Object(row, engine, sides, frontend, differences)


def prefix_of(side: str) -> str:
    """How paths of a side begin in ``differences``."""
    return "" if side == "agg" else f"{side}."


def forced(role: str, row: Row) -> str:
    """The path of what forces acceptance in a role."""
    prefix = "" if role == "aggregated" else f"{role}."
    what = {"sglang": "env.SGLANG_SIMULATE_ACC*", "vllm": "args.speculative-config"}
    return prefix + what.get(row["backend_type"], "env.TLLM_SPEC_DECODE_FORCE*")


def _pinned(row: Row, sides: dict[str, Side], differences: dict[str, str]) -> None:
    """Acceptance that the golden table does not have, or that not every role is told, is a difference."""
    model = names.MODELS[row["model_repo"]][0]
    for name, side in sides.items():
        if side.spec.get("acceptance") != "pinned":
            continue
        spec = _drafting(sides)
        wanted = names.golden(model, spec["method"], spec["draft_tokens"])
        length = side.spec["_length"]
        if wanted is None:
            del side.spec["acceptance"]
            differences[forced(SIDES[name], row)] = (
                f"the reference forces {length:g} tokens a step; the golden table has no such draft length"
            )
        elif wanted != length:
            differences[forced(SIDES[name], row)] = (
                f"the reference forces {length:g} tokens a step here; the golden table has {wanted:g}"
            )
    told = {side.spec.get("acceptance") for side in sides.values()}
    if len(told) > 1:
        for name, side in sides.items():
            if side.spec.get("acceptance") != "pinned" and "pinned" in told:
                differences[forced(SIDES[name], row)] = (
                    "the reference forces the acceptance of the other role only"
                )


def _env(env: Row, role: str, differences: dict[str, str]) -> Row:
    kept: Row = {}
    for name, value in env.items():
        if name in names.HARNESS_ENV:
            continue
        if MACHINE_ENV.match(name) or re.search(r"<[a-z-]+>", str(value)):
            differences[f"{role}env.{name}"] = "names a device or path of the reference's nodes"
        elif name.startswith("ISOLINE_") or name in ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"):
            differences[f"{role}env.{name}"] = "a recipe does not set search paths"
        else:
            kept[name] = str(value)
    return kept


def _side(row: Row, name: str, engine: str, env: Row, differences: dict[str, str]) -> Side:
    given = row["args"][name]
    if engine.endswith("trtllm"):
        return _file_side(given, env, row[name]["workers"])
    parsed = canonical.canonical_args(given, engine)
    split = canonical.topology_args(parsed, engine)
    own = set(canonical.OWN)
    if (
        engine.endswith("sglang")
        and split.get("data-parallel-size", 1) > 1
        and "enable-dp-attention" not in split
    ):
        raise ValueError("data parallel without DP attention: whole replicas")
    role = role_of(engine, parsed, row[name]["workers"])
    if row[name]["gpus_per_worker"] not in (None, role.gpus_per_worker):
        raise ValueError(
            f"{role.gpus_per_worker} devices by the arguments, {row[name]['gpus_per_worker']} declared"
        )
    args = names.map_tree(canonical.without(parsed, own | set(canonical.owned_by_topology(engine))))
    for key in [
        key for key, value in args.items() if re.search(r"<[a-z-]+>", str(value)) and "speculative" not in key
    ]:
        del args[key]
        differences[f"{prefix_of(name)}args.{key}"] = "names a file of the reference's that is not recorded"
    if args.pop("kv-events-config", None) is not None:
        differences[f"{prefix_of(name)}args.kv-events-config"] = (
            "a fixed port of every worker; whoever launches leases it"
        )
    side = Side(args, split, env, {}, role)
    _take_speculation(side, engine)
    return side


def _file_side(given: Row, env: Row, workers: int) -> Side:
    content = names.map_tree(dict(given))
    tp = content.get("tensor_parallel_size", 1)
    ep, pp = content.get("moe_expert_parallel_size", 1), content.get("pipeline_parallel_size", 1)
    dp = bool(content.get("enable_attention_dp"))
    if dp and tp == 1:
        raise ValueError("attention DP on one device")
    split = {key: content.pop(key) for key in FILE_TOPOLOGY if key in content}
    content = {key: NULL if value is None else value for key, value in content.items()}
    role = Role(workers=workers, tp=tp, ep=ep, pp=pp, dp_attention=tp if dp else 1)
    split = {
        key: value for key, value in split.items() if value not in (1, False) or key == "tensor_parallel_size"
    }
    side = Side({}, split, env, {"config.yaml": content}, role)
    _take_speculation(side, "trtllm")
    return side


def _take_speculation(side: Side, engine: str) -> None:
    args, env = side.args, side.env
    pinned: float | None = None
    if engine.endswith("vllm") and isinstance(args.get("speculative-config"), dict):
        config = args["speculative-config"]
        pinned = config.pop("synthetic_acceptance_length", None)
        if config.get("rejection_sample_method") == "synthetic":
            del config["rejection_sample_method"]
        side.spec = {
            "method": names.MTP_AS[config["method"]],
            "draft_tokens": config["num_speculative_tokens"],
        }
        if "model" in config:
            config["model"] = re.sub(
                r"^<path>/(.+)$", lambda m: names.DRAFTS.get(m[1], m[0]), config["model"]
            )
            side.spec["draft_model"] = config["model"]
    elif engine.endswith("sglang") and "speculative-algorithm" in args:
        side.spec = {"method": "mtp", "draft_tokens": args["speculative-num-steps"]}
    elif engine.endswith("trtllm"):
        config = side.files["config.yaml"].get("speculative_config")
        if config:
            method = {"MTP": "mtp", "Eagle3": "eagle", "Eagle": "eagle"}[config["decoding_type"]]
            drafted = config.get("max_draft_len", config.get("num_nextn_predict_layers"))
            side.spec = {"method": method, "draft_tokens": drafted}
            if "speculative_model" in config:
                side.spec["draft_model"] = config["speculative_model"]
    if (text := env.pop("SGLANG_SIMULATE_ACC_LEN", None)) is not None:
        pinned = float(text)
        env.pop("SGLANG_SIMULATE_ACC_METHOD", None)
        env.pop("SGLANG_SIMULATE_ACC_TOKEN_MODE", None)
    if (text := env.pop("TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS", None)) is not None:
        pinned = float(text) + 1
    if pinned is not None:
        side.spec["acceptance"] = "pinned"
        side.spec["_length"] = round(pinned, 6)


def _frontend(row: Row, differences: dict[str, str]) -> Row:
    given = row.get("frontend") or {}
    dynamo = row.get("dynamo") or {}
    command = ["python3", "-m", "dynamo.frontend", "--http-port", "{port.frontend}"]
    for name, value in (given.get("args") or {}).items():
        if value is False or value is None:
            continue
        command += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    made: Row = {
        "name": "frontend",
        "command": command,
        "ports": ["frontend"],
        "order": "after",
        "is_entry": True,
    }
    env = {k: str(v) for k, v in ((row["env"].get("frontend")) or {}).items() if k not in FRONTEND_HARNESS}
    env = {k: v for k, v in env.items() if "<" not in v}
    if env:
        made["env"] = dict(sorted(env.items()))
    version = dynamo.get("version") or dynamo.get("wheel")
    if dynamo.get("hash"):
        made["packages"] = [f"ai-dynamo @ git+https://github.com/ai-dynamo/dynamo@{dynamo['hash']}"]
    elif version:
        made["packages"] = [f"ai-dynamo=={version}"]
    if given.get("enable_multiple_frontends"):
        more = given.get("num_additional_frontends")
        words = (
            "nginx before several front ends" if more is None else f"nginx before {more} further front ends"
        )
        differences["frontend.replicas"] = f"the reference has {words}; one is rendered"
    if given.get("nginx_session_affinity"):
        differences["frontend.session_affinity"] = (
            "nginx keeps a session on one front end; with one there is no choice"
        )
    return made


def key_of(item: Object) -> tuple[Any, ...]:
    """What makes objects one recipe: they may differ in topology and what follows from it only."""
    row = item.row
    offload = next(
        (
            (m.get("kv_offloading"), (m.get("kv_offload_backend") or {}).get("name"))
            for m in row.get("matrix_rows") or []
        ),
        (None, None),
    )
    spec = {k: v for k, v in item.spec.items() if not k.startswith("_")}
    return (
        row["model_repo"],
        item.engine,
        row["gpu_type"],
        row["scenario"],
        json.dumps(spec, sort_keys=True),
        offload if offload[0] == "dram" else (None, None),
        row.get("image"),
        item.topology.is_disaggregated,
        json.dumps(item.frontend and item.frontend.get("packages")),
        (row.get("isl"), row.get("osl")),
        _connector(row),
    )


def _connector(row: Row) -> str | None:
    found = {m.get("kv_p2p_transfer") for m in row.get("matrix_rows") or []} - {None}
    if found:
        return str(sorted(found)[0])
    for side in ("prefill", "decode"):
        args = (row["args"] or {}).get(side) or {}
        if "disaggregation-transfer-backend" in args:
            return str(args["disaggregation-transfer-backend"])
        if "NixlConnector" in str(args.get("kv-transfer-config")) or "NIXL" in str(
            args.get("cache_transceiver_config")
        ):
            return "nixl"
    return None


def grouped(rows: list[Row]) -> dict[tuple[Any, ...], list[Object]]:
    """Objects that one recipe can hold; those that none can hold are left out."""
    found: dict[tuple[Any, ...], list[Object]] = {}
    for row in rows:
        if row.get("model_repo") not in names.MODELS or not row.get("image"):
            continue
        try:
            item = object_of(row)
        except (ValueError, KeyError):
            continue
        if not item.levels or (item.spec and not item.spec.get("draft_tokens")):
            continue
        found.setdefault(key_of(item), []).append(item)
    return found


def tree_of(item: Object) -> dict[tuple[str, ...], Any]:
    """Every role's args, env and files as one value a path."""
    tree: dict[tuple[str, ...], Any] = {}
    for name, side in item.sides.items():
        for part, content in (("args", side.args), ("env", side.env), ("config_files", side.files)):
            for path, value in canonical.leaves(content).items() if content else []:
                tree[(SIDES[name], part, *path)] = value
    return tree


SELECTED = (
    "sglang/deepseek-v4/8k1k/disagg-b300-1p2d-dep4-dep8-mtp",
    "sglang/deepseek-v4/8k1k/disagg-gb300-10p1d-dep4-dep32-18-c2500",
    "sglang/deepseek-v4/8k1k/disagg-mid-curve-1p1d-dep4-dep16-mtp",
    "sglang/deepseek-v4/8k1k/disagg-gb200-1p1d-dep8-dep16-6-c512",
    "sglang/deepseek-v4/agentic/agg-gb300-tp4-mtp-kvoffload",
    "sglang/deepseek-v4/agentic/disagg-gb300-2p4d-dep8-dep16-c256-mtp-kvoffload",
    "sglang/dsr1/b200-fp4/8k1k/disagg/mtp/8k1k_mtp_lowlat_0",
    "sglang/glm5.2/agentic/disagg-h200-2p2d-pcp8-tp8-dp8-mtp",
    "sglang/glm5.2/gb200-fp4/agentic/disagg-gb200-1p4d-dep8-tp4-c48-mtp",
    "sglang/glm5.2/gb300-fp4/agentic/glm5.2-agentx",
    "sglang/glm5.2/gb300-fp4/agentic/glm5.2-agentx-agg",
    "sglang/qwen3.5/gb200-fp4/agentic/agg-gb200-tp2ep2-mtp",
    "sglang/qwen3.5/gb300-fp4/8k1k/disagg/stp/8k1k_stp_maxtpt_0",
    "sglang/qwen3.5/gb300-fp4/agentic/agg-gb300-tp2-c24-mtp-hicache-jid2530012",
    "sglang/qwen3.5/gb300-fp4/agentic/disagg-gb300-1p1d-tp4-tp4-c16-mtp-hicache-session-jid2530027",
    "sglang/qwen3.5/gb300-fp8/8k1k/4p1d-dep4-dep16",
    "trtllm/deepseek-v4/agentx-gb300-20260811/dynamo-disagg-gb300-1p1d-dep8-dep32-c388-b4-mtp",
    "trtllm/glm5.2/gb300-fp4/agentic/dynamo-disagg-gb300-1p1d-tep8-c20-b5-mtp5",
    "trtllm/glm5.2/gb300-fp4/agentic/dynamo-disagg-gb300-8p1d-dep16-c259-b16-mtp3",
    "trtllm/qwen3.5/gb300-fp4/disagg/8k1k/mtp/ctx4dep2_gen1dep16_mtp3_c384",
    "vllm/deepseek-v4/8k1k/disagg-b200-1p1d-dep8-dep8-mtp",
    "vllm/deepseek-v4/8k1k/disagg-b300-low-latency",
    "vllm/deepseek-v4/8k1k/disagg-gb200-mid-curve-megamoe",
    "vllm/deepseek-v4/8k1k/disagg-gb300-7p2d-dep4-dep16",
    "vllm/deepseek-v4/agentic/agg-gb200-dep8-mtp-agentic",
    "vllm/deepseek-v4/agentic/disagg-gb200-1p1d-dep8-dep8-mtp-agentic",
    "vllm/kimi-k2.6/b200-fp4/8k1k/disagg-b200-1p1d-dep8-dep8-c2048",
    "vllm/kimi-k3/agentic/agg-b200-tp8pp2-agentic",
    "vllm/kimi-k3/agentic/agg-gb200-dep16-throughput-agentic",
    "vllm/kimi-k3/agentic/agg-gb300-dcp8-nospec-mooncake-agentic",
    "vllm/kimi-k3/agentic/agg-h200-tp16dp2ep32-latency-agentic",
    "vllm/kimi-k3/agentic/disagg-gb300-1p1d-dcp8-dcp8-dspark4-mooncake-agentic",
    "vllm/minimax-m3-gb300-fp8/8k1k/mtp/1p1d-dep2-dep8-eagle3-c64-8k1k",
    "vllm/minimax-m3/agentic/gb300-fp4/1p3d-dep4-tp4-c24-agentic",
    "vllm/minimax-m3/gb200-fp4/agentic/agg-dep4-agentic",
    "vllm/minimax-m3/gb200-fp4/agentic/agg-dep4-vllm-simple-agentic",
    "vllm/minimax-m3/gb200-fp4/agentic/disagg-1p1d-dep8-dep4-agentic",
)
"""One object of each recipe that is made; the others of its group come along."""

ROOT = "benchmarks/multi_node/srt-slurm-recipes/"


def stem_of(item: Object) -> str:
    """Path of the recipe under ``recipes/``."""
    row, spec = item.row, item.spec
    model, precision = names.MODELS[row["model_repo"]]
    sku = names.SKUS.get(row["gpu_type"], row["gpu_type"])
    words = ["agentic" if row["scenario"] == "agentic" else "8k1k"]
    words.append("disagg" if item.topology.is_disaggregated else "multinode")
    if spec:
        words.append({"mtp": "mtp", "eagle": "eagle", "draft": "dspark"}[spec["method"]])
    if (offload := key_of(item)[5])[0]:
        words.append(f"dram-{offload[1]}")
    return f"{model}/{item.engine}-{sku}-{precision}-{'-'.join(words)}"


def recipes(rows: list[Row], shares: dict[str, list[float]]) -> Iterator[tuple[str, Row, list[str]]]:
    """(path, recipe, comment lines) of the selected groups."""
    taken: set[str] = set()
    for members in grouped(rows).values():
        paths = {item.row["path"].removeprefix(ROOT).removesuffix(".yaml") for item in members}
        if not paths & set(SELECTED):
            continue
        stem = stem_of(members[0])
        if stem in taken:
            stem += f"-{members[0].spec['draft_tokens']}"
        taken.add(stem)
        yield stem, *recipe_of(members, shares)


def recipe_of(members: list[Object], shares: dict[str, list[float]]) -> tuple[Row, list[str]]:
    """(the recipe, its comment lines)."""
    row, first = members[0].row, members[0]
    model, precision = names.MODELS[row["model_repo"]]
    topologies: dict[str, Row] = {}
    levels: dict[str, list[int]] = {}
    points: list[tuple[fitting.Point, Any]] = []
    differences: dict[str, str] = {}
    fronts: dict[str, Row] = {}
    users: dict[str, set[str]] = {}
    for item in members:
        label = item.topology.label()
        fresh = [level for level in item.levels if level not in levels.get(label, [])]
        if not fresh:
            continue
        topologies[label] = {SIDES[name]: written(side.role) for name, side in item.sides.items()}
        levels.setdefault(label, []).extend(fresh)
        for level in fresh:
            points.append((fitting.Point(label, level, ()), tree_of(item)))
        differences |= item.differences
        if item.frontend:
            text = json.dumps(item.frontend, sort_keys=True)
            fronts[text] = item.frontend
            users.setdefault(text, set()).add(label)
    base, rules = fitting.fit_tree(points, follows_concurrency=False)
    roles = [SIDES[name] for name in first.sides]
    tree: Row = {"schema_version": 1, "model": model}
    if names.own_checkpoint(row["model_repo"]):
        tree["checkpoint"] = row["model_repo"]
    last = first.sides.get("decode") or first.sides["agg"]
    tree |= {
        "engine": first.engine,
        "sku": names.SKUS.get(row["gpu_type"], row["gpu_type"]),
        "precision": {
            "weights": precision,
            "kv": names.kv_precision(first.engine, row["model_repo"], last.args, last.files),
        },
        "image": {"ref": names.image_of(row["image"])},
        "topologies": list(topologies.values()),
    }
    _place(tree, base, rules, roles, len(topologies))
    if fronts:
        tree["sidecars"] = _fronts(fronts, users, set(topologies))
    spec = {k: v for k, v in first.spec.items() if not k.startswith("_")}
    if spec:
        tree["speculative"] = spec
    offload = key_of(first)[5]
    if offload[0]:
        tree["kv_offload"] = {"tier": "dram", "backend": offload[1]}
        keys = {m["config_key"] for item in members for m in item.row.get("matrix_rows") or []}
        found = {share for key in keys for share in shares.get(key, [])}
        if len(found) == 1:
            tree["kv_offload"]["utilization"] = found.pop()
    if first.topology.is_disaggregated:
        tree["kv_transfer"] = {"connector": _connector(row)}
    flat = json.dumps([base and [list(k) for k in base]])
    features: Row = {}
    if "enable-eplb" in flat or "eplb" in flat:
        features["expert_balancing"] = "eplb"
    if "enable-two-batch-overlap" in flat or "enable-dbo" in flat:
        features["two_batch_overlap"] = True
    if features:
        tree["features"] = features
    checks = [item.row.get("health_check") or {} for item in members]
    waits = [c.get("max_attempts", 0) * c.get("interval_seconds", 10) for c in checks]
    tree["readiness"] = {"ready_s": min(max([3600, *waits]), 14400), "stop_s": 120}
    sorted_levels = {label: sorted(items) for label, items in levels.items()}
    one = next(iter(sorted_levels.values()))
    tree["scenarios"] = {
        names.scenario_of(model, row["scenario"]): {
            "concurrency": one if len(sorted_levels) == 1 else sorted_levels
        }
    }
    tree |= {"status": "unverified", "owner": "isoline", "upstream": _upstream(members)}
    if differences:
        tree["differences"] = [{"what": what, "why": why} for what, why in sorted(differences.items())]
    title = f"{names.TITLES[model]} on {first.engine}, {tree['sku']}, "
    title += "prefill and decode apart" if first.topology.is_disaggregated else "several nodes"
    return tree, [f"{title}. Made by tools/recorded_to_recipes.py; nobody has run it here."]


def _upstream(members: list[Object]) -> str:
    folder = members[0].row["path"].rsplit("/", 1)[0]
    files = dict.fromkeys(item.row["path"].rsplit("/", 1)[1].removesuffix(".yaml") for item in members)
    names_ = ", ".join(files)
    path = f"{folder}/{names_}.yaml" if len(files) == 1 else f"{folder}/{{{names_}}}.yaml"
    return names.UPSTREAM.format(path=path, kind="file" if len(files) == 1 else "files").replace(
        "that files", "these files"
    )


def _place(tree: Row, base: Row, rules: list[Any], roles: list[str], count: int) -> None:
    """Values that every role has go under ``server``, the others under their role."""
    server: Row = {}
    own: dict[str, Row] = {name: {} for name in roles}
    shared, apart = _split(base, roles)
    server.update(fitting.nested(shared))
    for name, paths in apart.items():
        own[name].update(fitting.nested(paths))
    for (labels, span), paths in rules:
        made: Row = {}
        if labels is not None and len(labels) < count:
            made["topology"] = list(labels)
        if span is not None:
            made["concurrency"] = {"from": span[0], "to": span[1]}
        shared, apart = _split(paths, roles)
        if shared:
            server.setdefault("when", []).append({"if": made, **fitting.nested(shared)})
        for name, item in apart.items():
            own[name].setdefault("when", []).append({"if": made, **fitting.nested(item)})
    tree["server"] = _ordered(server)
    if any(own.values()):
        tree["roles"] = {name: _ordered(part) for name, part in own.items() if part}


def _split(paths: Row, roles: list[str]) -> tuple[Row, dict[str, Row]]:
    shared: Row = {}
    apart: dict[str, Row] = {}
    for (role, *rest), value in paths.items():
        others = [paths.get((name, *rest), fitting.MISSING) for name in roles]
        if all(fitting.key(other) == fitting.key(value) for other in others):
            shared[tuple(rest)] = value
        else:
            apart.setdefault(role, {})[tuple(rest)] = value
    return shared, apart


def _ordered(part: Row) -> Row:
    made = {key: part[key] for key in ("args", "env", "config_files", "when") if key in part}
    for key in ("args", "env"):
        if key in made:
            made[key] = dict(sorted(made[key].items()))
    for item in made.get("when", []):
        for key in ("args", "env"):
            if key in item:
                item[key] = dict(sorted(item[key].items()))
    return made


def _fronts(found: dict[str, Row], users: dict[str, set[str]], labels: set[str]) -> list[Row]:
    made: list[Row] = []
    for text, sidecar in found.items():
        item = dict(sidecar)
        if users[text] != labels:
            item["when"] = {"topology": sorted(users[text])}
        if len(found) > 1:
            item["name"] = f"{item['name']}_{len(made)}"
        made.append(item)
    return made
