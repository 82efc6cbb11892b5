"""The rate of a pool that nobody measured comes from its own launches that got ready."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isoline.catalog.facts import load_catalog
from isoline.runners.launchers.deadlines import weights_bytes
from isoline.sweeps.execution.loads import past_loads


def test_the_launches_of_a_pool_that_got_ready(measured: Any, tmp_path: Path) -> None:
    """Their bytes by the catalog and the time of their phase ready; of another pool there are none."""
    store = tmp_path / "store"
    folder, _ = measured(store)
    (path,) = folder.glob("_launch/*/launch.json")
    record = json.loads(path.read_text())
    ready = [row["duration_s"] for row in record["phases"] if row["name"] == "ready"]
    (load,) = past_loads(store, "local")
    size = load_catalog().models["smollm2-135m-instruct"].weights[0].bytes
    assert (load.weights_bytes, load.ready_s) == (size, ready[-1])
    assert past_loads(store, "other") == []
    path.write_text(path.read_text().replace('"verdict": "valid"', '"verdict": "invalid"'))
    assert past_loads(store, "local") == []


def test_bytes_of_weights() -> None:
    """A file of the catalog, a checkpoint of the hub; what the catalog does not know is unknown, never 0."""
    models = load_catalog().models
    key, checkpoint = next(
        (name, one)
        for name, model in models.items()
        for one in model.checkpoints.values()
        if one.bytes or one.size_gb
    )
    known = weights_bytes({"model": key, "weights": [{"hub_id": checkpoint.hub_id, "revision": None}]})
    assert known == (checkpoint.bytes or int((checkpoint.size_gb or 0) * 1e9))
    assert weights_bytes({"model": key, "weights": [{"hub_id": "org/none", "revision": None}]}) is None
    assert weights_bytes({"model": "none", "weights": []}) is None
