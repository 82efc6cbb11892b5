"""Golden files: what is executed on each kind of pool, and each engine's own words for a topology."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Pool, load_pool
from isoline.errors import InputError
from isoline.recipes.deployment import Deployment
from isoline.recipes.engine_flags import topology_flags
from isoline.recipes.load import load_recipe
from isoline.recipes.render import Inputs, Shape, render
from isoline.recipes.renderers.slurm import slurm_script
from isoline.recipes.renderers.text import containers, plain, ranks
from isoline.recipes.resolve import Resolved
from isoline.recipes.topology import Role
from isoline.recipes.words import flags
from isoline.recipes.worker import worker_command
from isoline.sweeps.planning.schema import load_scenario

ROOT = Path(__file__).resolve().parents[2]
Golden = Callable[[str, str], None]
LLAMA = "llama-3.3-70b-instruct/vllm-h100-fp8-8k1k"
KIMI = "kimi-k3/dynamo-vllm-gb300-nvl72-mxfp4-agentic-disagg-dspark-dram-mooncake"
GLM = "glm-5.2/dynamo-trtllm-gb300-nvl72-nvfp4-agentic-disagg-mtp-dram-native"
DEEPSEEK = "deepseek-r1-0528/sglang-disagg-mi355x-fp8-block-8k1k-disagg-dpa"
QWEN = "qwen3.5-397b-a17b/sglang-{}-8k1k"
GPT_OSS = "gpt-oss-120b/vllm-h200-mxfp4-8k1k"
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "h100-docker": (LLAMA, "h100-docker", {}),
    "b200-docker": (QWEN.format("b200-fp8-block"), "b200-docker", {}),
    "mi300x-docker": (QWEN.format("mi300x-fp8-block"), "mi300x-docker", {}),
    "mi355x-docker": (QWEN.format("mi355x-mxfp4"), "mi355x-docker", {}),
    "rtx-pro-6000-podman": (QWEN.format("rtx-pro-6000-nvfp4"), "rtx-pro-6000-podman", {}),
    "h200-slurm-pyxis": (GPT_OSS, "h200-slurm-pyxis", {}),
    "gb300-slurm-pyxis": (KIMI, "gb300-slurm-pyxis", {}),
    "mi355x-slurm-docker": (DEEPSEEK, "mi355x-slurm-docker", {}),
    "mi300x-slurm-nohome": (QWEN.format("mi300x-fp8-block"), "mi300x-slurm-nohome", {}),
    "slurm-apptainer": (GPT_OSS, "h200-slurm-pyxis", {"container": "apptainer"}),
    "slurm-none": (
        GPT_OSS,
        "h200-slurm-pyxis",
        {"container": "none", "account": "bench", "qos": "low", "extra": ["--comment=a b"]},
    ),
    "slurm-mpi": (GLM, "gb300-slurm-pyxis", {}),
    "process": ("smollm2-135m/llamacpp-cpu-q4_1", "", {}),
    "plain": ("deepseek-r1-0528/trtllm-b200-nvfp4-8k1k", "b200-slurm", {}),
}


def deployment_of(root: Path, recipe_id: str, pool: Pool) -> Deployment:
    """The first topology, in the first scenario, at its highest concurrency."""
    loaded = load_recipe(root, recipe_id)
    topology = loaded.recipe.topologies[0]
    name, use = next(iter(loaded.recipe.scenarios.items()))
    scenario = load_scenario(root, name)
    shape = Shape(name, scenario.isl, scenario.osl)
    images = {"vllm-release": "vllm/vllm-openai:v1@sha256:" + "a" * 64}
    return render(
        loaded, topology, pool, shape, use.at(topology.label())[-1], Inputs("0" * 64, images)
    ).deployment


@pytest.mark.parametrize("name", CASES)
def test_what_is_executed(project_root: Path, golden: Golden, name: str) -> None:
    """Each kind of pool executes exactly these words for a real recipe."""
    recipe_id, where, slurm = CASES[name]
    pool = load_pool(project_root, f"examples/{where}" if where else "local")
    if slurm:
        assert pool.slurm is not None
        pool = pool.model_copy(update={"slurm": pool.slurm.model_copy(update=slurm)})
    deployment = deployment_of(project_root, recipe_id, pool)
    if name not in ("plain", "process") and pool.slurm is not None:
        text = slurm_script(deployment, pool, health="/health")
    elif name not in ("plain", "process"):
        text = containers(deployment, pool)
    else:
        text = plain(deployment)
    golden(name, text)


ROLES: list[dict[str, int]] = [
    {"tp": 1},
    {"tp": 8},
    {"tp": 4, "pp": 2},
    {"tp": 8, "ep": 8},
    {"tp": 8, "dp_attention": 8},
    {"tp": 8, "dp_attention": 2},
    {"tp": 8, "ep": 8, "dp_attention": 8},
    {"tp": 8, "ep": 2, "dp_attention": 8},
    {"tp": 8, "dcp": 8},
    {"tp": 16, "ep": 16, "dp_attention": 16},
    {"workers": 3, "tp": 4, "ep": 4},
]


@pytest.mark.parametrize("engine", sorted(load_catalog().engines))
def test_topologies_in_the_engine_s_words(golden: Golden, engine: str) -> None:
    """How each engine is told each split of a worker's devices, or why it cannot do it."""
    rows = []
    for fields in ROLES:
        role = Role.model_validate(fields)
        try:
            found = topology_flags(engine, role)
        except InputError as error:
            said = f"refused: {error.what}"
        else:
            config = "".join(f" [{key}: {value}]" for key, value in sorted(found.config.items()))
            said = (" ".join(flags(found.args)) + config).strip() or "nothing: it is the default"
        rows.append(f"{role.label()} ({role.gpus_per_worker} a worker): {said}")
    golden(f"topology/{engine}", "\n".join(rows) + "\n")


SPREAD: list[dict[str, int]] = [
    {"tp": 16},
    {"tp": 8, "pp": 2},
    {"tp": 16, "ep": 16, "dp_attention": 16},
    {"tp": 16, "dp_attention": 2},
    {"tp": 32, "dp_attention": 2},
]


@pytest.mark.parametrize("engine", sorted(load_catalog().engines))
def test_workers_that_span_nodes_in_the_engine_s_words(golden: Golden, engine: str) -> None:
    """What each node of a worker is told on nodes of eight devices, or why this engine cannot span them."""
    facts = load_catalog().engines[engine]
    pool = load_pool(ROOT, "examples/b200-slurm")
    rows = []
    for fields in SPREAD:
        role = Role.model_validate(fields)
        try:
            split = topology_flags(engine, role)
            part = Resolved(split.args, {}, {"config.yaml": split.config} if split.config else {})
            made = worker_command(facts, pool, "aggregated", role, part, [])
        except InputError as error:
            rows.append(f"{role.label()}: refused: {error.what}")
            continue
        start = "one task a device: " if made.mpi else ""
        rows += [
            f"{role.label()} {rank}: {start}{' '.join(item.argv)}" for rank, item in enumerate(ranks(made))
        ]
    golden(f"nodes/{engine}", "\n".join(rows) + "\n")


def test_every_golden_file_is_compared(project_root: Path) -> None:
    """No file of another day lies there as if it were true."""
    folder = project_root / "tests/recipes/golden"
    found = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.txt")}
    engines = load_catalog().engines
    assert found == {*CASES, *(f"{kind}/{name}" for kind in ("topology", "nodes") for name in engines)}
