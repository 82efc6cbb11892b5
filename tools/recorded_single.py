"""Recorded single-node commands as recipes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import recorded_common as names
import recorded_fit as fitting

from isoline.catalog.facts import load_catalog
from isoline.recipes import canonical
from isoline.recipes.topology import Role, Topology

Row = dict[str, Any]


@dataclass
class Command:
    """One recorded command in the form of recipes. ``differences``: what a recipe cannot or will not say."""

    args: dict[str, Any]
    split: dict[str, Any]
    env: dict[str, Any]
    files: dict[str, dict[str, Any]]
    sidecars: list[dict[str, Any]]
    role: Role
    differences: dict[str, str] = field(default_factory=dict)


def engine_of(row: Row) -> str:
    return names.ENGINES.get(row["engine"], row["engine"])


def flags_of(row: Row) -> list[str]:
    """The words after the program's own."""
    words: list[str] = row["server_argv"]
    start = 0
    if "trtllm-serve" in words:
        start = words.index("trtllm-serve")
    elif "-m" in words:
        start = words.index("-m") + 2
    while start < len(words) and not words[start].startswith("-"):
        start += 1
    return words[start:]


def command_of(row: Row) -> Command:
    """A recorded command, canonical."""
    engine = engine_of(row)
    parsed = canonical.parse_words(flags_of(row), engine)
    differences: dict[str, str] = {}
    files = _files(row, parsed)
    split = canonical.topology_args(parsed, engine)
    in_file = {k: content.pop(k, None) for content in files.values() for k in ("enable_attention_dp",)}
    role = role_of(engine, {**parsed, **in_file})
    own = set(canonical.OWN)
    if parsed.get("tokenizer-path") in (row["model"], "<model>"):
        own.add("tokenizer-path")
    if "dist-init-addr" in parsed:
        differences["args.dist-init-addr"] = "a fixed port is the launcher's to choose"
    owned = canonical.owned_by_topology(engine)
    args = names.map_tree(canonical.without(parsed, own | set(owned)))
    if str(args.get("chat-template", "")).startswith("<workspace>"):
        del args["chat-template"]
        differences["args.chat-template"] = (
            "the reference has its own template file, whose text is not recorded; the checkpoint's is used"
        )
    env = {k: v for k, v in row["env"].items() if k not in names.HARNESS_ENV}
    if env.pop("TRITON_PTXAS_PATH", None):
        differences["env.TRITON_PTXAS_PATH"] = "found on the reference's node at start, a fact of the machine"
    if "MOONCAKE_CONFIG_PATH" in env:
        env["MOONCAKE_CONFIG_PATH"] = "{file.mooncake.json}"
    _setup(row, differences)
    sidecars = _sidecars(row, args, files, differences)
    _budget(row, args, env, files)
    return Command(args, split, env, files, sidecars, role, differences)


def _files(row: Row, parsed: Row) -> dict[str, dict[str, Any]]:
    files: dict[str, dict[str, Any]] = {}
    for name, content in row["config_files"].items():
        if name == "mooncake_config.json":
            files["mooncake.json"] = dict(content)
            continue
        files["config.yaml"] = names.map_tree(dict(content))
        for arg in ("config", "extra_llm_api_options"):
            if parsed.get(arg) == name:
                parsed[arg] = "{file.config.yaml}"
    return files


def role_of(engine: str, args: dict[str, Any], workers: int = 1) -> Role:
    """The topology that the arguments say, not the one that a matrix declares."""
    spelling = load_catalog().engines[engine].topology
    assert spelling is not None
    tp, pp, ep, dp, dcp = spelling.read(args)
    return Role(workers=workers, tp=tp, pp=pp, ep=ep, dp_attention=dp, dcp=dcp)


def _setup(row: Row, differences: dict[str, str]) -> None:
    for words in row["setup"]:
        if words[:1] == ["sed-inplace"]:
            what = f"setup.edit {words[1].rsplit('/', 1)[-1]}"
            differences[what] = (
                "the reference edits this file of the engine in the container; a recipe cannot"
            )
        elif words[0] == "bash":
            differences["setup.patches"] = (
                "the reference patches the container first; the patches are not recorded"
            )
        elif "--upgrade" in words:
            differences["setup.transformers"] = "the reference upgrades this package to whatever is newest"
        else:
            wanted = [w for w in words[2:] if not w.startswith("-") and "://" not in w]
            for item in wanted:
                if item not in names.CLIENT_PACKAGES and "==" not in item:
                    differences[f"setup.{item}"] = (
                        "the reference installs it without a version before the start"
                    )


def packages_of(row: Row) -> list[str]:
    """Pinned packages that the reference installs before the start."""
    return sorted(
        w for words in row["setup"] if "install" in words for w in words if re.match(r"^[A-Za-z0-9_.-]+==", w)
    )


def _budget(row: Row, args: Row, env: Row, files: Row) -> None:
    """Host memory as an expression where it is exactly the launch's share, per rank or whole."""
    dram = row["total_cpu_dram_gb"]
    if not dram:
        return
    extra = args.get("kv-transfer-config", {})
    extra = extra.get("kv_connector_extra_config", {}) if isinstance(extra, dict) else {}
    ways = {
        "1000000000 * dram_gb / tp": dram * 10**9 // row["tp"],
        "1073741824 * dram_gb": dram * 2**30,
    }
    for name in ("cpu_bytes_to_use_per_rank", "cpu_bytes_to_use"):
        for text, value in ways.items():
            if extra.get(name) == value:
                extra[name] = {"expr": text}
    store = files.get("mooncake.json", {})
    if store.get("global_segment_size") == f"{dram // row['tp']}GB":
        store["global_segment_size"] = {"expr": "dram_gb / tp", "suffix": "GB"}
    size = env.get("LMCACHE_MAX_LOCAL_CPU_SIZE")
    for text, value in {"dram_gb": dram, "dram_gb / tp": dram // row["tp"]}.items():
        if size == str(value):
            env["LMCACHE_MAX_LOCAL_CPU_SIZE"] = {"expr": text}


def _sidecars(row: Row, args: Row, files: Row, differences: dict[str, str]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    pinned = packages_of(row)
    for index, words in enumerate(row["sidecars"]):
        if "launch_router" in " ".join(words) or words[0] == "vllm-router":
            made.append(_router(words, [p for p in pinned if p.startswith("vllm-router")]))
        elif words[0] == "mooncake_master":
            packages = [p for p in pinned if p.startswith("mooncake")]
            made.append(_plain("mooncake", words, {"20888": "mooncake"}, packages))
        else:
            ports = {
                words[words.index("--port") + 1]: f"kv_{index}",
                words[words.index("--http-port") + 1]: f"http_{index}",
            }
            made.append(_plain(f"lmcache_{index}", words, ports, pinned if not index else []))
    if "mooncake.json" in files:
        content = files["mooncake.json"]
        content["master_server_address"] = "127.0.0.1:{port.mooncake}"
        if content["device_name"] == "<rdma-device-found-at-run-time>":
            content["device_name"] = ""
            differences["config.mooncake.json.device_name"] = (
                "found on the reference's node at start, a fact of the machine"
            )
    connector = args.get("kv-transfer-config")
    if isinstance(connector, dict) and connector.get("kv_connector") == "LMCacheMPConnector":
        urls = ",".join(f"tcp://127.0.0.1:{{port.kv_{index}}}" for index in range(len(row["sidecars"])))
        connector["kv_connector_extra_config"]["lmcache.mp.server_urls"] = urls
    return made


def _plain(name: str, words: list[str], ports: dict[str, str], packages: list[str]) -> dict[str, Any]:
    command = [f"{{port.{ports[w]}}}" if w in ports else w for w in words]
    made: dict[str, Any] = {"name": name, "command": command, "ports": list(ports.values())}
    if packages:
        made["packages"] = packages
    return made


def _router(words: list[str], packages: list[str]) -> dict[str, Any]:
    ports = {"8888": "router", "18888": "router_metrics"}
    command = [
        "{url}" if w == "http://localhost:8889" else f"{{port.{ports[w]}}}" if w in ports else w
        for w in words
    ]
    made: dict[str, Any] = {"name": "router", "command": command, "ports": list(ports.values())}
    made |= {"order": "after", "is_entry": True}
    if packages:
        made["packages"] = packages
    return made


def speculative_of(row: Row, command: Command) -> dict[str, Any]:
    """The speculative part; what pins acceptance is taken out of arguments and environment."""
    args, env = command.args, command.env
    engine = engine_of(row)
    config = args.get("speculative-config") if engine == "vllm" else None
    pinned = False
    made: dict[str, Any] = {}
    if isinstance(config, dict):
        pinned = config.pop("synthetic_acceptance_length", None) is not None
        if config.get("rejection_sample_method") == "synthetic":
            del config["rejection_sample_method"]
        made = {"method": names.MTP_AS[config["method"]], "draft_tokens": config["num_speculative_tokens"]}
        if "model" in config:
            made["draft_model"] = config["model"]
    elif engine == "sglang" and "speculative-algorithm" in args:
        made = {"method": "mtp", "draft_tokens": args["speculative-num-steps"]}
        pinned = env.pop("SGLANG_SIMULATE_ACC_LEN", None) is not None
        env.pop("SGLANG_SIMULATE_ACC_METHOD", None)
        env.pop("SGLANG_SIMULATE_ACC_TOKEN_MODE", None)
    elif engine == "atom" and "method" in args:
        made = {"method": names.MTP_AS[args["method"]], "draft_tokens": args.get("num-speculative-tokens")}
        if "draft-model" in args:
            made["draft_model"] = args["draft-model"]
        pinned = args.pop("spec-decode-acceptance-length", None) is not None
        if args.pop("spec-decode-acceptance-rate", None) is not None:
            pinned, made["pinned_as"] = True, "rate"  # this image takes nothing else
    elif engine == "trtllm":
        config = next(
            (f["speculative_config"] for f in command.files.values() if "speculative_config" in f), None
        )
        pinned = env.pop("TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS", None) is not None
        if config:
            method = {"MTP": "mtp", "Eagle3": "eagle"}[config["decoding_type"]]
            made = {
                "method": method,
                "draft_tokens": config.get("max_draft_len", config.get("num_nextn_predict_layers")),
            }
            if "speculative_model" in config:
                made["draft_model"] = config["speculative_model"]
    if made and pinned:
        made |= {"acceptance": "pinned", **{key: made.pop(key) for key in ("pinned_as",) if key in made}}
    return made


def point_of(row: Row, command: Command, label: str) -> fitting.Point:
    role = command.role
    values = {
        "concurrency": row["concurrency"],
        "isl": row["isl"],
        "osl": row["osl"],
        "tp": role.tp,
        "dp": role.dp_attention,
        "gpus": role.gpus_per_worker,
        "dram_gb": row["total_cpu_dram_gb"] or None,
    }
    return fitting.Point(label, row["concurrency"], tuple(values.items()))


def tree_of(command: Command) -> dict[tuple[str, ...], Any]:
    """args, env and files as one value a path; expressions stay whole."""
    tree: dict[tuple[str, ...], Any] = {}
    for part, content in (("args", command.args), ("env", command.env), ("config_files", command.files)):
        for path, value in canonical.leaves(content).items() if content else []:
            tree[(part, *path)] = value
    return tree


def lengths(
    rows: Iterable[Row], probes: dict[tuple[Any, ...], Row], base: dict[tuple[str, ...], Any]
) -> None:
    """Arguments that follow isl and osl, as the runs at 1024/1024 show, become expressions."""
    seen: dict[str, set[str]] = {}
    total = 0
    for row in rows:
        probe = probes.get((row["script"], row["tp"], row["ep"], row["dp_attention"], row["concurrency"]))
        if probe is None:
            continue
        total += 1
        for what, (_, short) in probe["isl_8192_vs_1024"].items():
            if what.startswith("arg "):
                seen.setdefault(what[4:].replace("_", "-"), set()).add(str(short))
    for path, value in base.items():
        short = seen.get(path[1].replace("_", "-"), set()) if path[0] == "args" and len(path) == 2 else set()
        if len(short) != 1 or not isinstance(value, int):
            continue
        found = canonical.value_of(next(iter(short)))
        for text, long, brief in (
            ("isl + osl", 9216, 2048),
            ("2 * isl", 16384, 2048),
            (f"isl + osl + {value - 9216}", max(value, 9217), 2048 + value - 9216),
            (f"isl + {value - 8192}", max(value, 8193), 1024 + value - 8192),
        ):
            if (value, found) == (long, brief):
                base[path] = {"expr": text}
                break


def topology_of(role: Role) -> tuple[str, dict[str, Any]]:
    """(label, the topology as a recipe writes it: what is 1 is left out)."""
    topology = Topology(aggregated=role)
    return topology.label(), {"aggregated": written(role)}


def written(role: Role) -> dict[str, Any]:
    data = role.model_dump()
    return {name: value for name, value in data.items() if value != 1 or name == "tp"}
