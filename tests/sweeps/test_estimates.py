"""What a plan costs: by pool, with the list that was used, null where a price is not known, in no digest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.pools import Pool
from isoline.catalog.prices import Rates
from isoline.errors import InputError
from isoline.recipes.load import load_recipe
from isoline.sweeps.planning.assemble import check_limits
from isoline.sweeps.planning.estimates import Terms, budget_of
from isoline.sweeps.planning.plan import make_plan

RATES = Rates("2026-07", "2026-07-01", "big", {"b200": 3.0, "h200": 1.2})


def launches(bundles: Any, *skus: str) -> list[Any]:
    """One launch of 65 s on 8 GPUs for each SKU, on a pool of its name."""
    made = [
        (bundles.LaunchDef(sku=sku, pool=f"pool-{sku}", gpus=8), [bundles.PointDef(c) for c in range(6)])
        for sku in skus
    ]
    return [launch.model_copy(update={"estimate_s": 65.0}) for launch in bundles.make_plan(made).launches]


def test_each_pool_and_the_sum(bundles: Any) -> None:
    """Two pools and their sum, with list and tier; dollars are rounded once, at the end."""
    budget = budget_of(launches(bundles, "b200", "h200"), Terms(RATES))
    assert budget["pools"][0] == {
        "pool": "pool-b200",
        "sku": "b200",
        "gpu_minutes": 8.7,
        "usd": 0.43,
        "wall_minutes": 1.1,
    }
    exact = 65 * 8 / 3600 * (3.0 + 1.2)
    assert (budget["usd"], budget["gpu_minutes"], budget["note"]) == (round(exact, 2), 17.3, "")
    assert budget["prices"] == {"list": "2026-07", "dated": "2026-07-01", "tier": "big"}
    assert budget_of([], Terms(RATES))["usd"] == 0.0


def test_launches_side_by_side_take_less_time_and_the_same_devices(bundles: Any) -> None:
    """Five launches of 65 s on two lanes end after three rounds; one lane is one after the other."""
    five = launches(bundles, *["b200"] * 5)
    one = budget_of(five, Terms(RATES))
    two = budget_of(five, Terms(RATES, {"pool-b200": 2, "pool-h200": 9}))
    assert [row["wall_minutes"] for row in (*one["pools"], *two["pools"])] == [5.4, 3.2]
    assert one["gpu_minutes"] == two["gpu_minutes"] == 43.3 and one["usd"] == two["usd"]


@pytest.mark.parametrize(
    ("said", "lanes"),
    [
        ({}, 1),
        ({"max_parallel": 4}, 1),
        ({"max_parallel": 4, "share_node": True}, 4),
        ({"max_parallel": 40, "share_node": True}, 8),
        ({"max_parallel": 4, "hosts": ["a", "b", "c"]}, 3),
        ({"max_parallel": 4, "launcher": "slurm", "slurm": {"partition": "p", "container": "docker"}}, 4),
    ],
)
def test_lanes_of_a_pool(said: dict[str, Any], lanes: int) -> None:
    """No more launches at once than machines, devices where they share them, or what the pool allows."""
    box = {"device_profile": "nvidia", "model_cache": "/m", "scratch": "/s"}
    pool = {"schema_version": 1, "name": "p", "launcher": "container", "sku": "h200", "accelerators": 8}
    assert Pool.model_validate({**pool, "container": box, **said}).lanes == lanes


def test_what_is_not_known_is_null(bundles: Any) -> None:
    """One SKU without a price makes the sum null, with a note; the other pool keeps its own."""
    budget = budget_of(launches(bundles, "b200", "cpu"), Terms(RATES))
    assert (budget["usd"], budget["note"]) == (None, "no price for cpu")
    assert [row["usd"] for row in budget["pools"]] == [0.43, None]
    nothing = budget_of(launches(bundles, "b200"), Terms())
    assert (nothing["usd"], nothing["prices"], nothing["note"]) == (None, None, "no price list")


def test_a_limit_in_dollars(project_root: Path, planning: Any) -> None:
    """A plan above it is refused with both sums, as is one of unknown cost. Prices change no digest."""
    recipe = load_recipe(project_root, "gpt-oss-120b/vllm-h200-mxfp4-8k1k")
    plain = planning.sources_for(project_root, recipe)
    priced = replace(plain, rates=RATES)
    plan, without = make_plan(priced, {}), make_plan(plain, {})
    assert without.budget["usd"] is None and plan.budget["usd"] > 0.1
    assert plan.model_copy(update={"budget": {}}) == without.model_copy(update={"budget": {}})
    dearer = make_plan(replace(plain, rates=replace(RATES, usd_per_gpu_hour={"h200": 99.0})), {})
    assert dearer.plan_digest == plan.plan_digest and dearer.budget["usd"] > plan.budget["usd"]
    assert json.loads(plan.model_dump_json())["budget"] == plan.budget

    def limited(usd: float) -> Any:
        return type(plain.sweep).model_validate({**plain.sweep.model_dump(), "budget": {"usd": usd}})

    cost = plan.budget["usd"]
    check_limits(limited(cost), plan)
    with pytest.raises(InputError, match=rf"costs about \${cost:.2f}, the budget is \${cost - 0.01:g}"):
        check_limits(limited(cost - 0.01), plan)
    with pytest.raises(InputError, match=r"the cost is not known: no price list"):
        check_limits(limited(cost), without)
