"""Recipes from recorded tables: AMD's disaggregation flags, and llm-d's documents.

The tables say which flags a model gets with and without DP attention; which keys become which flags is
the reference's launcher (amd_utils/server_sglang.sh, read, not run). What it takes from the machine or
from its client is left out and listed in ``differences``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import recorded_common as names

from isoline.recipes import canonical

Row = dict[str, Any]
TABLE = "benchmarks/multi_node/amd_utils/models.yaml"
SAID = {
    "args.ep-dispatch-algorithm": "the reference spreads tokens over experts evenly, not as routed, in timed "
    "runs and takes that off for evaluations: what is timed would not be what answers",
    "setup.keys": "which flag a key becomes is the reference's launcher, read at another commit, not run",
    "env.SGLANG_*, MORI_*": "the launcher's environment (amd_utils/env.sh) is not recorded here; left out",
    "args.disaggregation-ib-device": "names RDMA devices of the reference's nodes",
    "sidecars.router": "words as the reference's launcher has them, read at another commit, not run; its "
    "circuit-breaker and retry settings are left out",
}
ROUTER: Row = {
    "name": "router",
    "command": [
        *("python3", "-m", "sglang_router.launch_router", "--pd-disaggregation", "--host", "{host}"),
        *("--port", "{port.router}", "--policy", "random", "--prefill-policy", "random"),
        *("--decode-policy", "random"),
        {"each": "prefill", "words": ["--prefill", "{url}"]},
        {"each": "decode", "words": ["--decode", "{url}"]},
    ],
    "ports": ["router"],
    "order": "after",
    "is_entry": True,
    "ready": "/readiness",
}


def _role(table: Row, side: str, *, dp: bool, ep: bool) -> Row:
    """Arguments of one role, as the launcher makes them of the table."""
    part = table[side]
    rows = part["dp"] if dp else part["ep_only"] if ep and "ep_only" in part else part["no_dp"]
    args: Row = {"disaggregation-mode": side, "mem-fraction-static": part["mem_fraction_static"]}
    if dp and ep:
        # The largest concurrency of the run, as the launcher has it: launch_bands is [max].
        args["max-running-requests"] = {"expr": "concurrency"}
    else:
        args["max-running-requests"] = rows["max_running_requests"]
    if side == "prefill":
        if part.get("disable_radix_cache"):
            args["disable-radix-cache"] = True
        if part.get("disable_cuda_graph"):
            args["disable-cuda-graph"] = True
        if isinstance(rows.get("chunked_prefill_size"), int):
            args["chunked-prefill-size"] = rows["chunked_prefill_size"]
        for key in ("context_length", "max_total_tokens"):
            if key in rows:
                args[key.replace("_", "-")] = rows[key]
    elif part.get("prefill_round_robin_balance"):
        args["prefill-round-robin-balance"] = True
    if side == "decode" and "context_length" in table["prefill"]["dp" if dp else "no_dp"]:
        # Both roles admit the same lengths.
        args["context-length"] = rows.get(
            "context_length", table["prefill"]["dp" if dp else "no_dp"]["context_length"]
        )
    if not part.get("disable_cuda_graph"):
        if "cuda_graph_bs" in rows:
            args["cuda-graph-bs"] = [int(item) for item in rows["cuda_graph_bs"].split()]
        elif "cuda_graph_bs_range" in rows:
            first, last = (int(item) for item in rows["cuda_graph_bs_range"].split("-"))
            args["cuda-graph-bs"] = list(range(first, last + 1))
    return args


def _flags(text: str) -> Row:
    return canonical.parse_words(shlex.split(text.replace('\\"', '"')), "sglang")


def _amd(
    table: Row,
    key: str,
    model: str,
    precision: str,
    image: str,
    topologies: dict[str, tuple[Row, Row, list[int]]],
    extra: dict[str, str],
    *,
    drafted: int = 0,
) -> Row:
    """One recipe of a table. ``topologies``: label -> (prefill, decode, concurrencies)."""
    first = next(iter(topologies.values()))
    dp, ep = first[0].get("dp_attention", 1) > 1, first[0].get("ep", 1) > 1
    base = _flags(table["base_flags"])
    if dp:
        base |= _flags(table["dp_flags"])
    if ep:
        base |= _flags(table["ep_flags"])
    for name in ("enable-dp-attention", "ep-dispatch-algorithm"):
        base.pop(name, None)
    roles = {
        side: {"args": dict(sorted(_role(table, side, dp=dp, ep=ep).items()))}
        for side in ("prefill", "decode")
    }
    if drafted:
        added = _flags(table["mtp_flags"]) | {
            "speculative-num-steps": drafted,
            "speculative-num-draft-tokens": drafted + 1,
        }
        roles["decode"]["args"] = dict(sorted({**roles["decode"]["args"], **added}.items()))
    hub = {
        "deepseek-r1-0528": "deepseek-ai/DeepSeek-R1-0528",
        "deepseek-v4-pro": "deepseek-ai/DeepSeek-V4-Pro",
    }[model]
    tree: Row = {"schema_version": 1, "model": model}
    if names.own_checkpoint(hub):
        tree["checkpoint"] = hub
    tree |= {
        "engine": "sglang-disagg",
        "sku": "mi355x",
        "precision": {"weights": precision, "kv": "fp8"},
        "image": {"ref": image},
        "topologies": [{"prefill": p, "decode": d} for p, d, _ in topologies.values()],
        "server": {"args": dict(sorted(base.items()))},
        "roles": roles,
        "sidecars": [ROUTER],
    }
    if drafted:
        tree["speculative"] = {"method": "mtp", "draft_tokens": drafted}
    tree["kv_transfer"] = {"connector": "mori"}
    if dp and ep:
        tree["launch_bands"] = ["max"]
    tree["readiness"] = {"ready_s": 3600, "stop_s": 120}
    tree["scenarios"] = {
        "8k1k": {"concurrency": {label: levels for label, (_, _, levels) in topologies.items()}}
    }
    said = dict(SAID) | extra
    if not ep:
        del said["args.ep-dispatch-algorithm"]
    if dp and isinstance(table["prefill"]["dp"].get("chunked_prefill_size"), str):
        said["prefill.args.chunked-prefill-size"] = (
            "a product with MoRI's dispatch budget, which is not recorded here"
        )
    tree |= {
        "status": "unverified",
        "owner": "isoline",
        "upstream": names.UPSTREAM.format(path=f"{TABLE} ({key})", kind="table")
        + "; which flag a key becomes: amd_utils/server_sglang.sh @00bc6154; topologies: amd-master.yaml",
        "differences": [{"what": what, "why": why} for what, why in sorted(said.items())],
    }
    return tree


def _llm_d(documents: list[Row]) -> Row:
    """DeepSeek-V4-Pro on GB200 by llm-d: two documents, one topology each."""
    topologies, levels = [], {}
    parts: dict[str, dict[str, Row]] = {}
    chosen = {"low-latency": [1], "mid-curve": [256, 512, 1024]}
    for document in documents:
        values = document["values"]
        wide = {"tp": 8, "ep": 8, "dp_attention": 8}
        decode = {"tp": 8} if values["decode"]["tp"] == 8 else wide
        topologies.append({"prefill": wide, "decode": decode})
        label = "ptp8-ep8-dpa8_d" + ("tp8" if decode == {"tp": 8} else "tp8-ep8-dpa8")
        levels[label] = next(found for key, found in chosen.items() if key in document["path"])
        for side in ("prefill", "decode"):
            args = canonical.parse_words(shlex.split(_json_quoted(values[side]["extra-args"])), "vllm")
            env = {k: str(v) for k, v in values[side]["env"].items() if k != "NVSHMEM_HCA_PE_MAPPING"}
            parts.setdefault(side, {})[label] = {"args": args, "env": env}
    connector = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
    both = list(levels)
    roles: Row = {}
    for side, found in parts.items():
        one, two = found[both[0]], found[both[1]]
        role: Row = {}
        for part in ("args", "env"):
            role[part] = {k: v for k, v in sorted(one[part].items()) if two[part].get(k) == v}
        role["when"] = []
        for label in both:
            rest = {
                part: {k: v for k, v in sorted(found[label][part].items()) if k not in role[part]}
                for part in ("args", "env")
            }
            if any(rest.values()):
                role["when"].append({"if": {"topology": [label]}, **{k: v for k, v in rest.items() if v}})
        roles[side] = role
    picker = dict(documents[0]["values"])
    said = {
        "args.kv-transfer-config": "put in by the reference's launcher; its master file says nixl",
        "env.NVSHMEM_HCA_PE_MAPPING": "names RDMA devices of the reference's nodes",
        "sidecars.picker": "llm-d's endpoint picker and Envoy stand in front; commands not recorded: "
        + ", ".join(sorted(item["type"] for item in picker["plugins"])),
    }
    return {
        "schema_version": 1,
        "model": "deepseek-v4-pro",
        "checkpoint": "deepseek-ai/DeepSeek-V4-Pro",
        "engine": "llm-d",
        "sku": "gb200-nvl72",
        "precision": {"weights": "mxfp4", "kv": "fp8"},
        "image": {
            "ref": "quay.io/rh-ee-imarkov/llm-d-nokube-vllm:vllm0.26@sha256:"
            "a9095d4c835935c4070be2040de0a5ef3b44098f603092ab66d743b0e731b7b4"
        },
        "topologies": topologies,
        "server": {"args": {"kv-transfer-config": connector}},
        "roles": roles,
        "kv_transfer": {"connector": "nixl"},
        "readiness": {"ready_s": 3600, "stop_s": 120},
        "scenarios": {"8k1k": {"concurrency": levels}},
        "status": "unverified",
        "owner": "isoline",
        "upstream": names.UPSTREAM.format(
            path="benchmarks/multi_node/llm-d-recipes/dsv4-fp4-gb200-{low-latency,mid-curve-megamoe}.yaml",
            kind="documents",
        ).replace("that documents", "these documents"),
        "differences": [{"what": what, "why": why} for what, why in sorted(said.items())],
    }


def _json_quoted(text: str) -> str:
    """JSON in a line of flags keeps its quotes when the line is split."""
    return " ".join(f"'{word}'" if word.startswith("{") else word for word in text.split(" "))


TP = {"tp": 8}
DEP = {"tp": 8, "ep": 8, "dp_attention": 8}


def recipes(rows: list[Row]) -> Iterator[tuple[str, Row, list[str]]]:
    """(path, recipe, comment lines)."""
    tables = {row["key"]: row["values"] for row in rows if row.get("path") == TABLE}
    note = "Made by tools/recorded_to_recipes.py; nobody has run it here."
    r1, key = tables["DeepSeek-R1-0528"], "DeepSeek-R1-0528"
    image = "rocm/sgl-dev:sglang-0.5.9-rocm720-mi35x-mori-0227-2"
    yield (
        "deepseek-r1-0528/sglang-disagg-mi355x-fp8-block-8k1k-disagg",
        _amd(r1, key, "deepseek-r1-0528", "fp8-block", image, {
            "ptp8_d2xtp8": (TP, {"workers": 2, **TP}, [4, 8, 16, 32, 64, 128, 256]),
            "ptp4_dtp8": ({"tp": 4}, TP, [1, 2, 4, 8, 16, 32, 64]),
        }, {}),
        [f"DeepSeek-R1-0528 on MI355X, prefill and decode apart (MoRI), without DP attention. {note}",
         "Beside its twin with DP attention: the pair on which accuracy is compared at 32, 64 and 128."],
    )  # fmt: skip
    yield (
        "deepseek-r1-0528/sglang-disagg-mi355x-fp8-block-8k1k-disagg-dpa",
        _amd(r1, key, "deepseek-r1-0528", "fp8-block", image, {
            "p2xtp8-ep8-dpa8_dtp8-ep8-dpa8": ({"workers": 2, **DEP}, DEP, [32, 64, 128, 1024, 2048]),
        }, {"scenarios.8k1k": "the reference times this topology at 1024 and 2048; 32, 64 and 128 are ours, "
            "for accuracy beside the recipe without DP attention"}),
        [f"DeepSeek-R1-0528 on MI355X, prefill and decode apart (MoRI), with DP attention. {note}"],
    )  # fmt: skip
    v4, key = tables["DeepSeek-V4-Pro-DI"], "DeepSeek-V4-Pro-DI"
    yield (
        "deepseek-v4-pro/sglang-disagg-mi355x-mxfp4-8k1k-disagg",
        _amd(v4, key, "deepseek-v4-pro", "mxfp4", "lmsysorg/sglang-rocm:v0.5.14-rocm720-mi35x-20260701", {
            "ptp8_dtp8": (TP, TP, [1, 2, 4, 8, 16, 32, 64, 128]),
        }, {}),
        [f"DeepSeek-V4-Pro on MI355X, prefill and decode apart (MoRI). {note}"],
    )  # fmt: skip
    yield (
        "deepseek-v4-pro/sglang-disagg-mi355x-mxfp4-8k1k-disagg-dpa",
        _amd(v4, key, "deepseek-v4-pro", "mxfp4", "lmsysorg/sglang-rocm:v0.5.14-rocm720-mi35x-20260701", {
            "ptp8-ep8-dpa8_dtp8-ep8-dpa8": (DEP, DEP, [256, 512]),
        }, {}),
        [f"DeepSeek-V4-Pro on MI355X, prefill and decode apart (MoRI), with DP attention. {note}"],
    )  # fmt: skip
    documents = [row for row in rows if row["kind"] == "llm_d_document"]
    yield (
        "deepseek-v4-pro/llm-d-gb200-nvl72-mxfp4-8k1k-disagg",
        _llm_d(documents),
        [f"DeepSeek-V4-Pro on GB200 by llm-d, prefill and decode apart. {note}"],
    )
