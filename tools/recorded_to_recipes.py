"""Recipes from the recorded command lines: ``python tools/recorded_to_recipes.py RECORDED OUT``.

This is how the recipes that say "values as in InferenceX @843c6254" came to be, so that they can be made
again when the recorded files grow. RECORDED is the folder with ``server_commands.jsonl`` and
``multi_node.jsonl``, OUT a project's ``recipes``. The reference's master files lie beside RECORDED
(``../inferencex``): the share of a node's memory for KV offload is read from them.

A recipe is one script x drafting x KV offload x image. Arguments that follow the concurrency become an
expression where it gives every recorded value exactly, else conditions made of recorded concurrencies.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import recorded_common as names
import recorded_emit
import recorded_fit as fitting
import recorded_multi
import recorded_single as single
import recorded_tables

CAP_MIB = 2_861_022


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def utilizations(folder: Path) -> dict[str, list[float]]:
    """Config key -> the shares of node memory that its agentic blocks name."""
    found: dict[str, list[float]] = {}
    for path in sorted(folder.glob("*-master.yaml")):
        key = ""
        for line in path.read_text().splitlines():
            if match := re.match(r"^([A-Za-z0-9._-]+):", line):
                key = match[1]
            elif match := re.match(r"^\s*(?:- )?dram-utilization: ([0-9.]+)", line):
                found.setdefault(key, []).append(float(match[1]))
    return found


def variant_of(row: dict[str, Any], spec: dict[str, Any]) -> str:
    words = ["agentic" if row["scenario"] == "agentic" else "8k1k"]
    if spec:
        words.append({"mtp": "mtp", "eagle": "eagle", "draft": "dspark"}[spec["method"]])
    if row["kv_offloading"] not in (None, "none"):
        words.append(f"dram-{row['kv_offload_backend']}")
    return "-".join(words)


def groups(
    rows: list[dict[str, Any]],
) -> dict[str, list[tuple[dict[str, Any], single.Command, dict[str, Any]]]]:
    """Recipe path -> its recorded commands."""
    found: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        command = single.command_of(row)
        spec = single.speculative_of(row, command)
        key = (
            row["script"],
            json.dumps(spec, sort_keys=True),
            row["kv_offloading"] or "none",
            row["kv_offload_backend"],
            row["image"],
        )
        found.setdefault(key, []).append((row, command, spec))
    named: dict[str, list[Any]] = {}
    for members in found.values():
        row, command, spec = members[0]
        if row["model"] not in names.MODELS or (spec and not spec.get("draft_tokens")):
            continue
        model, precision = names.MODELS[row["model"]]
        sku = names.SKUS.get(row["sku"], row["sku"])
        stem = f"{model}/{single.engine_of(row)}-{sku}-{precision}-{variant_of(row, spec)}"
        if sum(1 for other in found.values() if _stem(other) == _stem(members)) > 1:
            stem += _suffix(row, spec, stem in named)
        while stem in named:
            stem += "-b"
        named[stem] = members
    return named


def _stem(members: list[Any]) -> tuple[Any, ...]:
    row, _, spec = members[0]
    return (names.MODELS.get(row["model"]), row["engine"], row["sku"], variant_of(row, spec))


def _suffix(row: dict[str, Any], spec: dict[str, Any], taken: bool) -> str:
    if "nightly" in row["image"] and row["scenario"] == "agentic" and row["engine"] == "sglang":
        return "-nightly"
    return f"-{spec['draft_tokens']}" if spec and row["engine"] in ("trt", "atom") else ""


def recipe_of(
    members: list[tuple[dict[str, Any], single.Command, dict[str, Any]]],
    probes: dict[tuple[Any, ...], dict[str, Any]],
    shares: dict[str, list[float]],
) -> tuple[dict[str, Any], list[str]]:
    """(the recipe, its comment lines)."""
    row, first, spec = members[0]
    model, precision = names.MODELS[row["model"]]
    topologies: dict[str, dict[str, Any]] = {}
    levels: dict[str, list[int]] = {}
    rows = []
    differences: dict[str, str] = {}
    sidecars: dict[str, dict[str, Any]] = {}
    users: dict[str, set[str]] = {}
    for item, command, _ in members:
        label, written = single.topology_of(command.role)
        topologies[label] = written
        levels.setdefault(label, []).append(item["concurrency"])
        rows.append((single.point_of(item, command, label), single.tree_of(command)))
        differences |= command.differences
        for sidecar in command.sidecars:
            text = json.dumps(sidecar, sort_keys=True)
            sidecars[text] = sidecar
            users.setdefault(text, set()).add(label)
    base, rules = fitting.fit_tree(rows)
    if row["scenario"] == "fixed":
        single.lengths([m[0] for m in members], probes, base)
    tree: dict[str, Any] = {"schema_version": 1, "model": model}
    if names.own_checkpoint(row["model"]):
        tree["checkpoint"] = row["model"]
    tree |= {
        "engine": single.engine_of(row),
        "sku": names.SKUS.get(row["sku"], row["sku"]),
        "precision": {
            "weights": precision,
            "kv": names.kv_precision(single.engine_of(row), row["model"], first.args, first.files),
        },
        "image": {"ref": names.image_of(row["image"])},
        "topologies": list(topologies.values()),
    }
    server = fitting.nested(base)
    whens = [_when(condition, paths, len(topologies)) for condition, paths in rules]
    tree["server"] = {**{k: server[k] for k in ("args", "env", "config_files") if k in server}}
    if whens:
        tree["server"]["when"] = whens
    _sort(tree["server"])
    if sidecars:
        tree["sidecars"] = _sidecars(sidecars, users, set(topologies))
    if spec:
        tree["speculative"] = spec
    comments = _comments(row, tree)
    if row["kv_offloading"] not in (None, "none"):
        tree["kv_offload"] = {"tier": "dram", "backend": row["kv_offload_backend"]}
        share = share_of(row, shares)
        if share is not None:
            tree["kv_offload"]["utilization"] = share
    if tree["engine"] in ("sglang",) and "enable-two-batch-overlap" in str(server):
        tree["features"] = {"two_batch_overlap": True}
    if "enable-eplb" in server.get("args", {}):
        tree["features"] = {"expert_balancing": "eplb"}
    ready = max([3600, *(int(m[1].env.get("VLLM_ENGINE_READY_TIMEOUT_S", 0)) for m in members)])
    tree["readiness"] = {"ready_s": ready, "stop_s": 120}
    scenario = names.scenario_of(model, row["scenario"])
    levels = {label: sorted(set(items)) for label, items in levels.items()}
    one = next(iter(levels.values()))
    tree["scenarios"] = {scenario: {"concurrency": one if len(levels) == 1 else levels}}
    tree["status"] = "unverified"
    tree["owner"] = "isoline"
    tree["upstream"] = names.UPSTREAM.format(path=row["script"], kind="script")
    if differences:
        tree["differences"] = [{"what": what, "why": why} for what, why in sorted(differences.items())]
    return tree, comments


def share_of(row: dict[str, Any], shares: dict[str, list[float]]) -> float | None:
    """The share of node memory that gives the recorded budget exactly, as the master file names it."""
    for share in sorted(set(shares.get(row["config_key"] or "", []))):
        for mib in (CAP_MIB, *NODE_MIB.get(row["sku"], ())):
            if int(min(mib, CAP_MIB) * 2**20 * share * row["tp"] / 8 / 1e9) == row["total_cpu_dram_gb"]:
                return share
    return None


NODE_MIB: dict[str, tuple[int, ...]] = {}


def read_nodes(path: Path) -> None:
    """available-cpu-dram-mib by SKU, from the runners file."""
    label = ""
    for line in path.read_text().splitlines():
        if match := re.match(r"^  ([A-Za-z0-9:_-]+):\s*$", line):
            label = match[1].removeprefix("cluster:")
        elif match := re.match(r"^\s+available-cpu-dram-mib: ([\d_]+)", line):
            sku = label.split("-")[0]
            NODE_MIB[sku] = (*NODE_MIB.get(sku, ()), int(match[1]))


def _when(condition: Any, paths: dict[tuple[str, ...], Any], count: int) -> dict[str, Any]:
    labels, span = condition
    made: dict[str, Any] = {}
    if labels is not None and len(labels) < count:
        made["topology"] = list(labels)
    if span is not None:
        made["concurrency"] = {"from": span[0], "to": span[1]}
    return {"if": made, **fitting.nested(paths)}


def _sort(server: dict[str, Any]) -> None:
    for part in ("args", "env"):
        if part in server:
            server[part] = dict(sorted(server[part].items()))
    for item in server.get("when", []):
        _sort(item)


def _sidecars(found: dict[str, Any], users: dict[str, set[str]], labels: set[str]) -> list[dict[str, Any]]:
    made = []
    for text, sidecar in found.items():
        item = copy.deepcopy(sidecar)
        if users[text] != labels:
            item["when"] = {"topology": sorted(users[text])}
        if sum(other["name"] == item["name"] for other in found.values()) > 1:
            item["name"] = f"{item['name']}_{len(made)}"
        made.append(item)
    return made


def _comments(row: dict[str, Any], tree: dict[str, Any]) -> list[str]:
    title = names.TITLES[tree["model"]]
    lines = [
        f"{title} on {tree['engine']}, {tree['sku']}. "
        "Made by tools/recorded_to_recipes.py; nobody has run it here."
    ]
    if row["kv_offload_backend"] == "hicache":
        lines.append("The host cache's size is the reference's literal, not computed from the pool's memory.")
    if row["kv_offload_backend"] == "mooncake" and "dram_gb" not in str(tree["server"]):
        lines.append("global_segment_size is the reference's literal, not computed from the pool's memory.")
    if row["kv_offload_backend"] == "lmcache" and row["sidecars"]:
        lines.append(f"--l1-size-gb is the reference's: {row['total_cpu_dram_gb']} GB of its nodes / tp.")
    if row["kv_offload_backend"] == "native":
        lines.append("host_cache_size is the reference's literal, not computed from the pool's memory.")
    return lines


def main(recorded: Path, out: Path) -> None:
    rows = read_lines(recorded / "server_commands.jsonl")
    shares = utilizations(recorded.parent / "inferencex")
    read_nodes(recorded.parent / "inferencex" / "runners.yaml")
    probes = {
        (p["script"], p["tp"], p["ep"], p["dp_attention"], p["concurrency"]): p
        for p in read_lines(recorded / "isl_probe.jsonl")
    }
    for stem, members in groups(rows).items():
        if stem.startswith(SKIPPED):
            continue
        write(out, stem, *recipe_of(members, probes, shares))
    for stem, tree, comments in recorded_multi.recipes(read_lines(recorded / "multi_node.jsonl"), shares):
        write(out, stem, tree, comments)
    for stem, tree, comments in recorded_tables.recipes(read_lines(recorded / "multi_node_other.jsonl")):
        write(out, stem, tree, comments)


SKIPPED = (
    # Much the same as another recipe of the model, or of a model that stands here for its other deployments.
    "deepseek-r1-0528/atom-mi355x-fp8-block",
    "deepseek-r1-0528/sglang-b200-fp8-block",
    "deepseek-r1-0528/sglang-b200-nvfp4-8k1k-mtp",
    "deepseek-r1-0528/sglang-b300",
    "deepseek-r1-0528/sglang-h200-fp8-block-8k1k-mtp",
    "deepseek-r1-0528/sglang-mi300x",
    "deepseek-r1-0528/sglang-mi325x",
    "deepseek-r1-0528/sglang-mi355x-mxfp4",
    "deepseek-r1-0528/trtllm-b200-fp8-block",
    "deepseek-r1-0528/trtllm-b200-nvfp4-8k1k-mtp",
    "deepseek-r1-0528/trtllm-h200",
    # The reference calls these fp8 and its other rows of the same checkpoint fp4: which, it does not say.
    "deepseek-v4-pro/sglang-h200",
    "deepseek-v4-pro/vllm-h200",
    "deepseek-v4-pro/vllm-mi300x",
    "deepseek-v4-pro/vllm-mi325x",
    "deepseek-v4-pro/sglang-b300-mxfp4-8k1k-mtp",
    "deepseek-v4-pro/trtllm-b300-mxfp4-8k1k-mtp",
    "qwen3.5-397b-a17b/sglang-b300-fp8-block-8k1k-mtp",
    "qwen3.5-397b-a17b/sglang-b200-fp8-block-8k1k-mtp",
    "qwen3.5-397b-a17b/sglang-b200-fp8-block-agentic-mtp-dram-hicache",
    "qwen3.5-397b-a17b/sglang-b300-fp8-block-agentic-mtp-dram-hicache",
)


def write(out: Path, stem: str, tree: dict[str, Any], comments: list[str]) -> None:
    path = out / f"{stem}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(recorded_emit.recipe_text(tree, comments))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
