"""The catalog that ships with the package."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path

import pytest

from isoline.catalog.facts import load_catalog
from isoline.results.bundles.bundle import file_sha256
from isoline.runners.staging.gguf import _Reader, read_metadata


def test_every_fact_has_source_and_date() -> None:
    """Models and engines say where each figure is from, and when it was looked up."""
    catalog = load_catalog()
    assert {"llamacpp"} <= set(catalog.engines)
    assert {"cpu", "h200", "b200", "mi355x", "gb300-nvl72"} <= set(catalog.skus)
    for item in [*catalog.models.values(), *catalog.engines.values()]:
        assert len(item.source) > 10
        assert date(2024, 1, 1) < date.fromisoformat(item.dated) < date(2100, 1, 1)


def test_weights_are_named_once() -> None:
    """No two weight files of a model have one precision: the recipe's precision decides the file."""
    for model in load_catalog().models.values():
        precisions = [item.precision for item in model.weights]
        assert len(set(precisions)) == len(precisions)
        # What this project itself downloads, it knows the terms of.
        assert model.license or not model.weights


def tensor_elements(path: Path) -> int:
    """The number of parameters in a GGUF file: the product of dimensions, summed over its tensors."""
    total = 0
    with path.open("rb") as file:
        reader = _Reader(file, path)
        reader.take(4)
        reader.number("<I")
        tensors, values = reader.count(), reader.count()
        for _ in range(values):
            reader.text()
            reader.value(int(reader.number("<I")))
        for _ in range(tensors):
            reader.text()
            dimensions = [reader.count() for _ in range(int(reader.number("<I")))]
            reader.number("<I")
            reader.number("<Q")
            total += math.prod(dimensions)
    return total


@pytest.mark.engine
def test_the_model_is_what_its_file_says(project_root: Path) -> None:
    """Size, digest, context and number of parameters of SmolLM2 are those of the file itself."""
    model = load_catalog().models["smollm2-135m-instruct"]
    (weights,) = model.weights
    found = sorted((project_root / ".isoline" / "weights").rglob(f"*{weights.file}"))
    assert found, "`make setup` fetches the weights"
    path = found[0]
    assert path.stat().st_size == weights.bytes
    assert file_sha256(path) == weights.sha256
    values = read_metadata(path).values
    assert values["llama.context_length"] == model.context
    assert tensor_elements(path) == model.parameters_total
    assert model.revision == f"gguf-{weights.sha256[:12]}"
