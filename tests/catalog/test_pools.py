"""Pools: the machines of one file."""

from __future__ import annotations

from typing import Any

import pytest

from isoline.catalog.documents import DocumentError
from isoline.catalog.pools import load_pool


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
