"""Pools: the machines of one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.documents import DocumentError
from isoline.catalog.pools import load_pool, pools_of


def test_the_local_pool(project: Any) -> None:
    """The pool of the demo is this machine's CPU, shared with the load generator."""
    pool = load_pool(project.root, "local")
    assert (pool.launcher, pool.sku, pool.accelerators) == ("process", "cpu", 1)
    assert (pool.host, pool.client_profile) == ("127.0.0.1", "shared-cpu")


def test_wrong_pools_are_told(project: Any) -> None:
    """An unknown name, SKU, launcher and number of accelerators are each told with their line."""
    with pytest.raises(DocumentError, match=r"no such pool; did you mean 'local'\?"):
        load_pool(project.root, "lokal")
    for old, new, words in (
        ("sku: cpu", "sku: h20", "unknown SKU 'h20'; did you mean 'h200'"),
        (
            "launcher: process",
            "launcher: docker",
            "launcher: input should be 'process', 'container', 'slurm', 'endpoint' or 'simulated'",
        ),
        ("accelerators: 1", "accelerators: 0", "accelerators: input should be greater than or equal to 1"),
    ):
        line = project.edit("runners/local.yaml", old, new)
        with pytest.raises(DocumentError) as caught:
            load_pool(project.root, "local")
        assert caught.value.line().startswith(f"runners/local.yaml:{line}: ")
        assert words in caught.value.line()
        project.edit("runners/local.yaml", new, old)


CONTAINER = "container: {device_profile: nvidia, model_cache: /m, scratch: /s}\n"
SLURM = "slurm: {partition: gpu, container: %s}\n"
ENDPOINT = "endpoint: {url: 'http://127.0.0.1:8000', topology: tp8}\n"


@pytest.mark.parametrize(
    ("launcher", "parts", "said"),
    [
        ("process", "", None),
        ("simulated", "", None),
        ("container", CONTAINER, None),
        ("container", "", "launcher container needs the part container"),
        ("slurm", CONTAINER + SLURM % "pyxis", None),
        ("slurm", SLURM % "none", None),
        ("slurm", CONTAINER, "launcher slurm needs the part slurm"),
        ("slurm", SLURM % "pyxis", "containers under slurm need the part container"),
        ("slurm", SLURM % "apptainer", "containers under slurm need the part container"),
        ("endpoint", ENDPOINT, None),
        ("endpoint", "", "launcher endpoint needs the part endpoint"),
        (
            "container",
            CONTAINER.replace("nvidia", "nvidea"),
            "device_profile: input should be 'cpu', 'nvidia'",
        ),
        ("container", CONTAINER.replace("}", ", runtime: containerd}"), "'docker' or 'podman'"),
        ("container", CONTAINER.replace(", scratch: /s", ""), "'container.scratch' is missing"),
        ("slurm", SLURM % "singularity", "slurm.container: input should be 'pyxis', 'docker'"),
        ("slurm", SLURM % "none, extra: [nice=5]", "is no sbatch option: begin with --"),
        ("slurm", SLURM % 'none, extra: ["--a\\nrm -rf x"]', "extra: a line break or control character"),
        ("slurm", SLURM % 'none, qos: "a\\nrm -rf x"', "qos: a line break or control character"),
        ("container", CONTAINER.replace("/m,", '"/m\\nx",'), "model_cache: a line break"),
        ("container", CONTAINER.replace("/m,", "'/m:/etc',"), "a path without ':' and ','"),
        ("container", CONTAINER.replace("/m,", "models,"), "is not a whole path"),
        ("container", CONTAINER + "hosts: [-oProxyCommand=x]\n", "should match pattern"),
        ("process", 'exclude: [{node: "a\\nrm -rf x", reason: x}]\n', "should match pattern"),
        ("slurm", SLURM % "none, time_limit_min: 0", "greater than or equal to 1"),
    ],
)
def test_each_launcher_needs_its_part(project: Any, launcher: str, parts: str, said: str | None) -> None:
    """A pool says how servers are started on it, in full; a wrong part is told."""
    text = f"schema_version: 1\nname: p\nlauncher: {launcher}\nsku: h200\naccelerators: 8\n{parts}"
    project.write("runners/p.yaml", text)
    if said is None:
        assert load_pool(project.root, "p").launcher == launcher
        return
    with pytest.raises(DocumentError) as caught:
        load_pool(project.root, "p")
    assert said in caught.value.line()


@pytest.mark.parametrize(
    ("memory", "gpus", "share", "gb"),
    [
        (2000.0, 8, 1.0, 2000),
        (2000.0, 8, 0.5, 1000),
        (2000.0, 4, 0.5, 500),  # half of the node's devices have half of the budget
        (2000.0, 1, 0.9, 225),
        (2000.0, 16, 0.5, 1000),  # over two nodes each has its own: no node is asked for more than it has
        (1999.9, 1, 1.0, 249),  # rounded down
        (None, 8, 0.5, None),
    ],
)
def test_the_offload_budget(
    project: Any, memory: float | None, gpus: int, share: float, gb: int | None
) -> None:
    """A launch has the share of its node's memory that belongs to its devices; unknown stays unknown."""
    pool = load_pool(project.root, "examples/h200-docker").model_copy(update={"node_memory_gb": memory})
    assert pool.offload_gb(gpus, share) == gb


def test_the_examples_are_good(project_root: Path) -> None:
    """Every example is a pool of its file's name, is found by it, and there is one for each kind of fleet."""
    every = pools_of(project_root)
    assert [pool.name for pool in every if pool.launcher == "process"] == ["local"]
    examples = sorted(path.stem for path in (project_root / "runners/examples").glob("*.yaml"))
    assert len(examples) > 8
    for name in examples:
        pool = load_pool(project_root, f"examples/{name}")
        assert pool.name == name
        assert pool in every
        assert pool.total_accelerators == pool.accelerators * pool.nodes
    assert {pool.launcher for pool in every} >= {"process", "container", "slurm"}
    with pytest.raises(DocumentError, match="no such pool"):
        load_pool(project_root, "examples/local")


def test_no_example_is_privileged(project_root: Path) -> None:
    """No pool that is copied from here gives containers more than their device profile."""
    assert [
        pool.name for pool in pools_of(project_root) if pool.container and pool.container.privileged
    ] == []
