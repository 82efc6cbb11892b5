"""vllm-project/perf-eval workloads -> recipes: one vLLM command line and its bench configurations. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from isoline.catalog.facts import load_catalog
from isoline.recipes import canonical
from isoline.recipes.imports.arguments import read_side
from isoline.recipes.imports.common import (
    Draft,
    Imported,
    Line,
    UnknownName,
    image_ref,
    sku_of,
    unique_id,
    weights_of,
)
from isoline.recipes.imports.inferencex_rows import scenario_name

CHANNELS = {"NVIDIA": "vllm-nightly", "AMD": "vllm-nightly-rocm"}
"""The image of a workload that names none is the pipeline's: the nightly build of that vendor."""

DATASETS = ("random", None)
"""Datasets of fixed lengths; the others measure something else than a fixed-length scenario does."""


def import_workloads(
    files: Mapping[str, Mapping[str, Any]], *, revision: str | None = None, owner: str = "isoline"
) -> Imported:
    """Recipes of all workloads.

    :param files: name of the file -> its content.
    :param revision: commit of the files, for `upstream`.
    """
    done = Imported()
    for name, content in files.items():
        try:
            _import_one(name, content, done, revision, owner)
        except UnknownName as error:
            done.lines.append(Line("unknown_name", name, str(error), remedy=error.remedy))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            done.lines.append(Line("left_out", name, what))
    return done


def words_of(text: str) -> list[str]:
    """The words of `serve_args`. Quotes around a word go, those inside JSON stay.

    :raises ValueError: for a quote that is not closed.
    """
    words = shlex.split(text, posix=False)
    return [
        word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word for word in words
    ]


def _import_one(
    source: str, content: Mapping[str, Any], done: Imported, revision: str | None, owner: str
) -> None:
    vllm = content["vllm"]
    sku = sku_of(str(content["gpu"]))
    weights = weights_of(str(vllm["model"]), _precision(content))
    words = words_of(str(vllm.get("serve_args") or ""))
    side = read_side("vllm", 1, canonical.parse_words(words, "vllm"), vllm.get("env") or {})
    used = side.role["tp"] * side.role.get("pp", 1)
    if content.get("num_gpus") not in (None, used):
        raise ValueError(f"the arguments use {used} devices, num_gpus is {content['num_gpus']}")
    scenarios, lines = _scenarios(content, source)
    if not scenarios:
        done.lines += [line for line in lines if line.kind != "left_out"]
        whys = "; ".join(line.what for line in lines if line.kind == "left_out")
        raise ValueError(f"no bench configuration of fixed lengths{f': {whys}' if whys else ''}")
    made: dict[str, Any] = {"schema_version": 1, "model": weights.model}
    if weights.checkpoint is not None:
        made["checkpoint"] = weights.checkpoint
    image: dict[str, str]
    if vllm.get("image"):
        image = {"ref": image_ref(str(vllm["image"]))}
    else:
        image = {"channel": CHANNELS[load_catalog().skus[sku].vendor]}
    made |= {
        "engine": "vllm",
        "sku": sku,
        "precision": {"weights": weights.precision, "kv": side.kv or "unknown"},
        "image": image,
        "topologies": [{"aggregated": side.role}],
    }
    server = {name: part for name, part in side.parts().items() if name != "config_files"}
    if server:
        made["server"] = server
    if side.speculative:
        if "draft_tokens" not in side.speculative:
            raise ValueError("drafting without a number of tokens")
        made["speculative"] = side.speculative
    if side.offload:
        made["kv_offload"] = {"tier": "dram", "backend": side.offload}
    made["scenarios"] = {name: {"concurrency": levels} for name, levels in scenarios.items()}
    if side.kv is None:
        made["incomplete"] = ["precision.kv"]
    upstream = f"perf-eval{f' @{revision}' if revision else ''} {source}"
    made |= {"status": "unverified", "owner": owner, "upstream": upstream}
    name = re.sub(r"[^a-z0-9]+", "-", str(content.get("name") or source).lower()).strip("-")
    base = f"{weights.model}/vllm-{sku}-{weights.precision}-perf-eval"
    taken = {draft.recipe_id for draft in done.drafts}
    recipe_id = base if base not in taken else unique_id(f"{base}-{name}", taken)
    lines += [Line("not_said", source, what) for what in side.dropped]
    points = sum(len(levels) for levels in scenarios.values())
    done.add(Draft(recipe_id, made, (f"Imported from {source} of vllm-project/perf-eval.",)), source, points)
    done.lines += lines


def _precision(content: Mapping[str, Any]) -> str | None:
    """What the workload calls its precision; it may not."""
    found = ((content.get("vllm_bench") or {}).get("metadata") or {}).get("precision")
    return str(found) if found else None


def _scenarios(content: Mapping[str, Any], source: str) -> tuple[dict[str, list[int]], list[Line]]:
    """Scenario -> concurrencies; and what of the benches is not one."""
    found: dict[str, set[int]] = {}
    lines = []
    for config in (content.get("vllm_bench") or {}).get("configs") or []:
        name = f"bench {config.get('name', 'without a name')}"
        if config.get("dataset") not in DATASETS:
            lines.append(
                Line("left_out", source, f"{name}: dataset {config['dataset']} is no fixed-length scenario")
            )
            continue
        if "input_len" not in config or "output_len" not in config or "max_concurrency" not in config:
            lines.append(
                Line("left_out", source, f"{name}: input_len, output_len or max_concurrency is missing")
            )
            continue
        given = config["max_concurrency"]
        levels = {int(item) for item in (given if isinstance(given, list) else [given])}
        found.setdefault(scenario_name(int(config["input_len"]), int(config["output_len"])), set()).update(
            levels
        )
    for key in ("lm_eval", "bfcl"):
        if content.get(key):
            lines.append(
                Line("not_said", source, f"{key}: accuracy is asked for by a sweep, not by a recipe")
            )
    return {name: sorted(levels) for name, levels in found.items()}, lines
