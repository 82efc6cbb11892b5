"""Rows of the warehouse's ``points`` table for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from isoline.results.warehouse.schema import BY_NAME

CURVE = {
    "curve_key": "k1",
    "model": "m",
    "sku": "cpu",
    "engine": "llamacpp",
    "weight_precision": "q4_1",
    "scenario": "short",
    "scenario_version": 1,
    "scenario_kind": "fixed_length",
    "kind": "measured",
    "source": "own",
    "run_id": "20260101T000000Z-demo-000000",
    "window": "full",
    "recipe_id": "m/llamacpp-cpu-q4_1",
    "topology": "tp1",
    "gpus": 1,
    "verdict": "valid",
    "accuracy_state": "not_run",
    "official": True,
}


@pytest.fixture
def frame() -> Callable[..., pd.DataFrame]:
    """Makes a frame with every column of ``points`` from partial rows; needs c (concurrency), x, y."""

    def make(*rows: dict[str, Any]) -> pd.DataFrame:
        full = []
        for number, row in enumerate(rows):
            given = dict(row)
            concurrency = given.pop("c", 1)
            repetition = given.setdefault("repetition", 1)
            values = {
                **dict.fromkeys(BY_NAME["points"].names),
                **CURVE,
                "reasons": [],
                "marks": [],
                "concurrency": concurrency,
                "interactivity_p50_tps": given.pop("x", None),
                "total_tps_per_gpu": given.pop("y", None),
                "point_id": f"p{number}.r{repetition}",
                "bundle_path": f"bundle{number}",
                **given,
            }
            values.setdefault("point_digest", None)
            key = f"d{concurrency}.{values['topology']}.{values['recipe_id']}.{values['curve_key']}"
            values["point_digest"] = values["point_digest"] or key
            full.append(values)
        return pd.DataFrame(full, columns=BY_NAME["points"].names)

    return make
