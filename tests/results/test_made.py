"""Runs that helpers read: the same rows as one process reads, and cheap checks that miss nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isoline.results.bundles.folder import _MAY_BE_ODD, odd_number
from isoline.results.metrics.derive import PERCENTILES, _percentiles, percentile_n
from isoline.results.warehouse import helpers
from isoline.results.warehouse import ingest as module
from isoline.results.warehouse.ingest import ingest
from isoline.results.warehouse.schema import TABLES
from isoline.settings import Settings


def test_helpers_give_the_same_rows(
    bundles: Any, settings: Settings, ask: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Several processes, several transactions: the same tables and refusals, whichever way."""
    plan = bundles.make_plan([(bundles.LaunchDef(), [bundles.PointDef(1), bundles.PointDef(4)])])
    for day in range(1, 6):
        run = bundles.make_run(settings.store, plan, f"202612{day:02d}T020000Z-demo-aaaaa{day}")
    next(run.glob("*.c4.*/1/lock.json")).write_text("{}")
    alone = ingest(settings)
    wanted = {table.name: ask(f'SELECT * FROM "{table.name}" ORDER BY ALL') for table in TABLES}
    settings.warehouse.unlink()
    monkeypatch.setattr(module, "MANY", 1)
    monkeypatch.setattr(module, "AT_ONCE", 2)
    monkeypatch.setattr(helpers, "cores", lambda: 2)
    together = ingest(settings)
    assert {table.name: ask(f'SELECT * FROM "{table.name}" ORDER BY ALL') for table in TABLES} == wanted
    assert (together.ingested, together.runs) == (alone.ingested, alone.runs)
    assert together.quarantined == alone.quarantined and len(alone.quarantined) == 1


@pytest.mark.parametrize(
    "text",
    ["NaN", "-Infinity", "1e999", "1E+400", "9223372036854775808", "-9223372036854775809", "1" * 400 + ".0"],
)
def test_the_quick_look_sees_every_odd_number(text: str) -> None:
    """Whatever no table can hold is looked at closely, at any depth."""
    data = f'{{"a": [1, {{"b": {text}}}]}}'.encode()
    assert odd_number(json.loads(data))
    assert _MAY_BE_ODD.search(data)


@pytest.mark.parametrize("size", [0, 1, 3, 9, 10, 19, 20, 99, 100, 1001])
def test_percentiles_are_those_of_numpy(size: int) -> None:
    """The same bits; none where there are too few values, with that word."""
    values = np.random.default_rng(size).lognormal(size=size)
    for percentile, (value, why) in zip(PERCENTILES, _percentiles(values), strict=True):
        if size < percentile_n(percentile):
            assert (value, why) == (None, f"n<{percentile_n(percentile)}")
        else:
            assert (value, why) == (float(np.percentile(values, percentile)), "")
