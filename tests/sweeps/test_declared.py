"""Endpoints: what is declared of a server that somebody else runs, and the plan made of it."""

from __future__ import annotations

from typing import Any

import pytest

from isoline.errors import InputError
from isoline.results.bundles.checks import check_plan
from isoline.results.bundles.records import Plan
from isoline.settings import load_settings
from isoline.sweeps.planning.declared import endpoint_pool
from isoline.sweeps.planning.prepare import Wishes, prepare


@pytest.mark.parametrize(
    ("url", "topology", "sku", "why"),
    [
        ("host:8000", "tp8", "h200", "no address of a server"),
        ("ftp://h", "tp8", "h200", "no address of a server"),
        ("http://me:secret@h", "tp8", "h200", "a password would end up in files"),
        ("http://h", None, "h200", "declared with --url, --topology and --sku"),
        ("http://h", "tp 8", "h200", "no label of a topology"),
        ("http://h", "tp8", "h20", "unknown SKU 'h20'"),
    ],
)
def test_a_declaration_that_says_too_little(
    url: str, topology: str | None, sku: str | None, why: str
) -> None:
    """What is missing or wrong is one line that names the option."""
    with pytest.raises(InputError, match=why):
        endpoint_pool(url, topology, sku)


def test_a_plan_of_an_endpoint_is_never_of_our_curves(project: Any) -> None:
    """Its points have a source of their own, in the launch's identity too; a plan that says otherwise is
    refused, and the address stands in no identity."""
    pool = endpoint_pool("http://10.0.0.9:8000/", "tp1", "cpu")
    plan = prepare(load_settings(project.root), "demo", Wishes(pool=pool)).plan
    points = [point for launch in plan.launches for point in launch.points]
    assert points and {point.curve["source"] for point in points} == {"endpoint"}
    assert {launch.identity["launcher"] for launch in plan.launches} == {"endpoint"}
    assert "10.0.0.9" not in plan.model_dump_json() and check_plan(plan) == []
    forged = plan.model_dump(mode="json")
    forged["launches"][0]["points"][0]["curve"]["source"] = "own"
    assert any("source of its curve" in line for line in check_plan(Plan.model_validate(forged)))


def test_only_the_declared_topology_is_planned(project: Any) -> None:
    """A topology that no recipe of the sweep has is refused with those that there are."""
    pool = endpoint_pool("http://10.0.0.9:8000", "tp4", "cpu")
    with pytest.raises(InputError, match=r"no recipe of the sweep has topology tp4.*there are: tp1"):
        prepare(load_settings(project.root), "demo", Wishes(pool=pool))
