"""Mistakes in the files that people edit, from the command line's side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Change = Callable[[str], str]


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        (lambda text: text.replace('"sku"', '"skuu"'), "q4_1.yaml:", "did you mean 'sku'"),
        (lambda text: text.replace('"sku": "cpu"', '"sku": "cpuu"'), "q4_1.yaml:", "did you mean 'cpu'"),
        (
            lambda text: text.replace('"sku": "cpu"', '"sku": "cpu",\n "sku": "cpu"'),
            "q4_1.yaml:",
            "duplicate",
        ),
    ],
    ids=["unknown key", "unknown SKU", "duplicate key"],
)
def test_a_mistake_is_one_line_with_its_place(tiny: Any, change: Change, where: str, what: str) -> None:
    """File, line and the nearest known name on one line, exit code 1, and nothing is created."""
    path = tiny.project / "recipes" / "smollm2-135m" / "llamacpp-cpu-q4_1.yaml"
    path.write_text(change(path.read_text()))
    tiny.sweep("wrong", {"concurrency": [1]})
    done = tiny.sweep_run("wrong", code=1)
    (line,) = done.err.strip().splitlines()
    assert where in line and what in line
    assert tiny.runs() == []
