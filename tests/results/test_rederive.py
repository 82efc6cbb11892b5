"""Stored metrics can be derived again from the request table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isoline.errors import IncompleteError
from isoline.results.metrics.rederive import differences, rederive


@pytest.fixture
def attempt(bundles: Any, tmp_path: Path) -> Path:
    """A sealed attempt at concurrency 4 on 2 GPUs."""
    plan = bundles.make_plan([(bundles.LaunchDef(gpus=2, topology="tp2"), [bundles.PointDef(4)])])
    return next(bundles.make_run(tmp_path, plan).glob("*.c4.*/1"))


def test_derived_again_is_equal(attempt: Path) -> None:
    """Every metric, null and note of point.json comes out of requests.parquet and lock.json again."""
    assert differences(attempt) == []
    assert rederive(attempt).value("total_tps_per_gpu") is not None


def test_a_changed_number_is_found(bundles: Any, attempt: Path) -> None:
    """A number that its requests do not give is named with both values."""

    def change(content: dict[str, Any]) -> None:
        row = next(item for item in content["metrics"] if item["name"] == "ttft_p50_ms")
        row["value"] *= 1.001
        content["metrics"] = [item for item in content["metrics"] if item["name"] != "e2el_p50_ms"]
        content["counts"]["completed"] -= 1

    bundles.edit(attempt, "point.json", change)
    lines = differences(attempt)
    assert [line.split(":")[0] for line in lines] == [
        "e2el_p50_ms (full)",
        "e2el_p50_ms (steady)",
        "ttft_p50_ms (full)",
        "counts",
    ]


def test_changed_requests_are_refused(attempt: Path) -> None:
    """Nothing is derived from a file that is not the sealed one."""
    (attempt / "requests.parquet").write_bytes(b"")
    with pytest.raises(IncompleteError, match=r"requests\.parquet: sha256"):
        rederive(attempt)


def test_lock_that_does_not_say_how_is_one_line(bundles: Any, attempt: Path) -> None:
    """Without GPU count there is no number per GPU, and no guess."""
    bundles.edit(attempt, "lock.json", lambda content: content["launch"].pop("gpus"))
    with pytest.raises(IncompleteError, match="gpus"):
        rederive(attempt)
