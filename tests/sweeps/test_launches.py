"""Launches of a plan: bands and conditions decide who shares a server; twins; several pools."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isoline.catalog.pools import load_pool
from isoline.errors import InputError
from isoline.recipes.load import LoadedRecipe, load_recipe
from isoline.recipes.schema import Recipe
from isoline.results.bundles.checks import check_plan
from isoline.results.bundles.records import Plan
from isoline.results.identity import slug
from isoline.sweeps.planning.assemble import check_limits
from isoline.sweeps.planning.estimates import Past
from isoline.sweeps.planning.plan import make_plan

BANDED = "deepseek-r1-0528/sglang-disagg-mi355x-fp8-block-8k1k-disagg-dpa"
PINNED = "minimax-m3/vllm-mi355x-mxfp4-agentic-eagle"
PLAIN = "gpt-oss-120b/vllm-h200-mxfp4-8k1k"
LEVELS = [1, 4, 16, 64, 128]
QUESTIONS = "arithmetic-mini"


def changed(root: Path, recipe_id: str, **fields: Any) -> LoadedRecipe:
    """A real recipe with other fields."""
    content = json.loads(json.dumps(load_recipe(root, recipe_id).content))
    return LoadedRecipe(recipe_id, Recipe.model_validate({**content, **fields}))


def sized(root: Path, **fields: Any) -> LoadedRecipe:
    """A recipe whose server is sized for its concurrency, meant for LEVELS."""
    server = {"args": {"max-num-seqs": {"expr": "concurrency"}}}
    return changed(root, PLAIN, scenarios={"8k1k": {"concurrency": LEVELS}}, **{"server": server, **fields})


def groups(plan: Plan) -> list[list[int]]:
    """The concurrencies of each launch."""
    return [[point.concurrency for point in launch.points] for launch in plan.launches]


def test_without_bands_each_size_is_its_own_server(project_root: Path, planning: Any) -> None:
    """The default: a server that is sized for one concurrency is measured at no other."""
    assert groups(planning.plan_of(project_root, sized(project_root))) == [[level] for level in LEVELS]


@pytest.mark.parametrize(
    ("bands", "shared"),
    [
        (["max"], [LEVELS]),
        ([16, "max"], [[1, 4, 16], [64, 128]]),
        ([4, 64], [[1, 4], [16, 64], [128]]),
        ([1, 2, 4, 8, 16, 32, 64, 128], [[level] for level in LEVELS]),
    ],
)
def test_a_band_shares_a_server(project_root: Path, planning: Any, bands: Any, shared: Any) -> None:
    """The points of one band share the server that is sized for its top."""
    plan = planning.plan_of(project_root, sized(project_root, launch_bands=bands))
    assert groups(plan) == shared
    tops = [launch.argv[launch.argv.index("--max-num-seqs") + 1] for launch in plan.launches]
    assert tops == [str(levels[-1]) for levels in shared]
    assert check_plan(plan) == []


def test_a_server_that_does_not_depend_on_the_load_is_shared(project_root: Path, planning: Any) -> None:
    """Where nothing depends on the concurrency one server has all points, with or without bands."""
    server = {"args": {"max-num-seqs": 512}}
    for bands in ([], [16, "max"]):
        plan = planning.plan_of(project_root, sized(project_root, server=server, launch_bands=bands))
        assert groups(plan) == [LEVELS]


def test_a_condition_splits(project_root: Path, planning: Any) -> None:
    """A condition on the concurrency divides the points at its ends, and nowhere else."""
    when = [{"if": {"concurrency": {"from": 4, "to": 64}}, "args": {"stream-interval": 10}}]
    plan = planning.plan_of(project_root, sized(project_root, server={"args": {}, "when": when}))
    assert groups(plan) == [[1, 128], [4, 16, 64]]


def test_a_sidecar_s_condition_splits(project_root: Path, planning: Any) -> None:
    """A sidecar that is there for some concurrencies only divides the points too."""
    sidecar = {"name": "store", "command": ["x"], "when": {"concurrency": {"from": 64}}}
    plan = planning.plan_of(project_root, sized(project_root, server={"args": {}}, sidecars=[sidecar]))
    assert groups(plan) == [[1, 4, 16], [64, 128]]


def test_scenarios_share_a_server_that_is_the_same(project_root: Path, planning: Any) -> None:
    """Points of two scenarios share a launch unless the server depends on the scenario or its lengths."""
    both = {"8k1k": {"concurrency": [4]}, "1k1k": {"concurrency": [4]}}
    for server, launches in (
        ({"args": {"max-num-seqs": {"expr": "concurrency"}}}, 1),
        ({"args": {"max-model-len": {"expr": "isl + osl"}}}, 2),
        ({"args": {}, "when": [{"if": {"scenario": ["1k1k"]}, "args": {"stream-interval": 1}}]}, 2),
    ):
        made = changed(project_root, PLAIN, scenarios=both, server=server)
        plan = planning.plan_of(project_root, made)
        assert len(plan.launches) == launches
        assert sum(len(launch.points) for launch in plan.launches) == 2


def test_a_topology_has_its_own_concurrencies(project_root: Path, planning: Any) -> None:
    """Concurrencies that are named for one topology are planned on that one only."""
    topologies = [{"aggregated": {"tp": 4}}, {"aggregated": {"tp": 8}}]
    scenarios = {"8k1k": {"concurrency": {"tp4": [1, 4], "tp8": [4, 16]}}}
    plan = planning.plan_of(
        project_root, changed(project_root, PLAIN, topologies=topologies, scenarios=scenarios)
    )
    found = {launch.topology: [point.concurrency for point in launch.points] for launch in plan.launches}
    assert found == {"tp4": [1, 4], "tp8": [4, 16]}
    assert {launch.topology: launch.gpus for launch in plan.launches} == {"tp4": 4, "tp8": 8}


def test_pinned_acceptance_has_a_twin(project_root: Path, planning: Any) -> None:
    """Accuracy is never asked of text that is garbage by design: a twin answers, at its concurrency."""
    loaded = load_recipe(project_root, PINNED)
    plan = planning.plan_of(project_root, loaded, accuracy=QUESTIONS)
    timed = {launch.launch_digest: launch for launch in plan.launches if launch.twin_of is None}
    twins = [launch for launch in plan.launches if launch.twin_of is not None]
    assert [point.accuracy for launch in timed.values() for point in launch.points if point.accuracy] == []
    assert twins
    for twin in twins:
        of = timed[twin.twin_of or ""]
        assert twin.launch_digest != of.launch_digest
        words = set(of.argv) ^ set(twin.argv)
        assert all("speculative" in word or "synthetic" in word or "{" in word for word in words)
        assert all(point.accuracy == [QUESTIONS] for point in twin.points)
        assert twin.identity["speculative_detail"]["acceptance"] == "real"
        levels = {point.concurrency for point in twin.points}
        assert levels <= {point.concurrency for point in of.points}
        curves = {point.curve_key for point in twin.points} & {point.curve_key for point in of.points}
        assert curves == set()
    assert check_plan(plan) == []


def test_no_twin_where_nothing_is_asked(project_root: Path, planning: Any) -> None:
    """Without accuracy there is no twin, and with real acceptance the timed launch answers itself."""
    pinned = load_recipe(project_root, PINNED)
    assert all(launch.twin_of is None for launch in planning.plan_of(project_root, pinned).launches)
    content: Any = pinned.content["speculative"]
    real = changed(project_root, PINNED, speculative={**content, "acceptance": "real"})
    plan = planning.plan_of(project_root, real, accuracy=QUESTIONS)
    assert all(launch.twin_of is None for launch in plan.launches)
    assert all(point.accuracy == [QUESTIONS] for launch in plan.launches for point in launch.points)


def test_each_recipe_is_planned_on_the_pool_of_its_sku(project_root: Path, planning: Any) -> None:
    """With several pools each recipe has the one of its SKU; one without a pool is left out with why."""
    one, two, three = (load_recipe(project_root, name) for name in (PLAIN, PINNED, BANDED))
    pools = {
        name.split("-")[0]: load_pool(project_root, f"examples/{name}") for name in ("h200-slurm-pyxis",)
    }
    pools["mi355x"] = load_pool(project_root, "examples/mi355x-slurm-docker")
    plan = planning.plan_of(project_root, one, two, three, pools=pools)
    assert {launch.recipe_id: launch.pool for launch in plan.launches} == {
        PLAIN: "h200-slurm-pyxis",
        PINNED: "mi355x-slurm-docker",
        BANDED: "mi355x-slurm-docker",
    }
    del pools["h200"]
    pools["b200"] = load_pool(project_root, "examples/b200-slurm")
    plan = planning.plan_of(project_root, one, two, pools=pools)
    assert {launch.recipe_id for launch in plan.launches} == {PINNED}
    assert [(item.what, item.why) for item in plan.excluded] == [(PLAIN, "no pool of the sweep has SKU h200")]


def test_the_launcher_is_in_the_launch(project_root: Path, planning: Any) -> None:
    """The same recipe on a pool with another launcher is another launch; another pool of one kind is none."""
    loaded = load_recipe(project_root, PLAIN)
    docker, slurm = (load_pool(project_root, f"examples/h200-{kind}") for kind in ("docker", "slurm-pyxis"))
    found = [
        planning.plan_of(project_root, loaded, pools={"h200": pool}).launches[0].launch_digest
        for pool in (docker, slurm, docker.model_copy(update={"name": "other", "nodes": 4}))
    ]
    assert found[0] != found[1]
    assert found[0] == found[2]


def test_past_durations_win_over_assumptions(project_root: Path, planning: Any) -> None:
    """A plan expects what was measured: points by id, starts by launch; no digest changes."""
    sources = planning.sources_for(project_root, sized(project_root, launch_bands=["max"]))
    first = make_plan(sources, {})
    (launch,) = first.launches
    past = Past({launch.points[0].point_id: 7.5}, {launch.launch_digest: 1000.0})
    object.__setattr__(sources, "past", past)
    again = make_plan(sources, {})
    assert again.launches[0].points[0].estimate_s == 7.5
    others = sum(point.estimate_s for point in launch.points[1:])
    assert again.launches[0].estimate_s == round(1000 + 7.5 + others, 1)
    assert again.plan_digest == first.plan_digest


def test_the_window(project_root: Path, planning: Any) -> None:
    """A plan longer than the window on one pool is refused with both figures; pools count apart."""
    sources = planning.sources_for(
        project_root, load_recipe(project_root, PLAIN), load_recipe(project_root, PINNED)
    )
    walls: dict[str, float] = {}
    for launch in make_plan(sources, {}).launches:
        walls[launch.pool] = walls.get(launch.pool, 0) + launch.estimate_s
    longest = max(walls, key=lambda name: walls[name])
    assert len(walls) == 2

    def within(hours: float) -> Plan:
        sweep = type(sources.sweep).model_validate({**sources.sweep.model_dump(), "window": {"hours": hours}})
        plan = make_plan(sources, {})
        check_limits(sweep, plan)
        return plan

    within(walls[longest] / 3600 + 0.001)
    hours = sum(walls.values()) / 3600 / 2  # between the shorter one and the longer one
    with pytest.raises(InputError, match=rf"h on pool '{longest}', its window is {hours:g} h"):
        within(hours)


def topology(tp: int, workers: int, is_spread: bool) -> dict[str, Any]:
    return {"aggregated": {"tp": tp, "workers": workers, "ep": tp if is_spread else 1}}


@st.composite
def contents(draw: Any) -> dict[str, Any]:
    """Fields of a random recipe: topologies, bands, conditions, concurrencies, two scenarios."""
    level = st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128, 256])
    levels = st.lists(level, min_size=1, max_size=5, unique=True).map(sorted)
    rows = st.builds(topology, st.sampled_from([1, 2, 4, 8]), st.integers(1, 2), st.booleans())
    found = draw(
        st.lists(rows, min_size=1, max_size=4, unique_by=lambda row: json.dumps(row)).filter(
            lambda rows: all(row["aggregated"]["tp"] * row["aggregated"]["workers"] <= 8 for row in rows)
        )
    )
    value = st.sampled_from([8, {"expr": "concurrency"}, {"expr": "min(concurrency, 16)"}, {"expr": "isl"}])
    names = st.sampled_from(["max-num-seqs", "stream-interval", "max-num-batched-tokens"])
    condition = st.one_of(
        st.builds(
            lambda low, more: {"concurrency": {"from": low, "to": low + more}}, level, st.integers(0, 99)
        ),
        st.just({"scenario": ["1k1k"]}),
    )
    when = st.fixed_dictionaries({"if": condition, "args": st.dictionaries(names, value, min_size=1)})
    bands = draw(st.lists(level, max_size=3, unique=True).map(sorted))
    return {
        "topologies": found,
        "launch_bands": [*bands, *draw(st.sampled_from([[], ["max"]]))],
        "server": {"args": draw(st.dictionaries(names, value)), "when": draw(st.lists(when, max_size=3))},
        "scenarios": {"8k1k": {"concurrency": draw(levels)}, "1k1k": {"concurrency": draw(levels)}},
    }


@settings(max_examples=60)
@given(contents())
def test_no_identity_is_there_twice(project_root: Path, planning: Any, fields: dict[str, Any]) -> None:
    """Whatever a recipe says, its plan has each point once, and no digest, id or launch twice."""
    loaded = changed(project_root, PLAIN, **fields)
    plan = planning.plan_of(project_root, loaded)
    points = [(launch, point) for launch in plan.launches for point in launch.points]
    for values in (
        [point.point_digest for _, point in points],
        [point.point_id for _, point in points],
        [launch.launch_digest for launch in plan.launches],
    ):
        assert max(Counter(values).values()) == 1
    wanted = {
        (item.label(), name, level)
        for item in loaded.recipe.topologies
        for name, use in loaded.recipe.scenarios.items()
        for level in use.at(item.label())
    }
    assert {(launch.topology, point.scenario, point.concurrency) for launch, point in points} == wanted
    assert len(points) == len(wanted)
    assert check_plan(plan) == []
    assert plan.model_dump_json() == planning.plan_of(project_root, loaded).model_dump_json()


def test_what_only_the_second_of_two_equal_recipes_asks_for(project_root: Path, planning: Any) -> None:
    """Two recipes of one launch: the union of their points and checks, under the first one's id."""
    server = {"args": {"max-num-seqs": 512}}
    one = changed(project_root, PLAIN, server=server, scenarios={"8k1k": {"concurrency": [1, 4]}})
    two = changed(project_root, PLAIN, server=server, scenarios={"8k1k": {"concurrency": [4, 16]}})
    two = LoadedRecipe(f"{PLAIN}-again", two.recipe)
    plan = planning.plan_of(project_root, one, two, accuracy=QUESTIONS)
    (launch,) = plan.launches
    assert [point.concurrency for point in launch.points] == [1, 4, 16]
    assert all(point.point_id.startswith(f"{slug(PLAIN)}.tp4.") for point in launch.points)
    assert [(item.what, item.why) for item in plan.excluded] == [
        (
            f"{PLAIN}-again tp4",
            f"the same launch as {PLAIN}, which is planned; 8k1k c16 of it is measured there",
        )
    ]
    assert check_plan(plan) == []
    alone = planning.plan_of(project_root, one, accuracy=QUESTIONS).launches[0]
    assert launch.estimate_s > alone.estimate_s


def test_a_twin_is_never_timed(project_root: Path, planning: Any) -> None:
    """A recipe that is the twin of another one is left out with that reason, in either order."""
    pinned = load_recipe(project_root, PINNED)
    content: Any = pinned.content["speculative"]
    real = changed(project_root, PINNED, speculative={**content, "acceptance": "real"})
    real = LoadedRecipe(f"{PINNED}-real", real.recipe)
    for order, whose in (((pinned, real), "the twin of "), ((real, pinned), "")):
        plan = planning.plan_of(project_root, *order, accuracy=QUESTIONS)
        assert check_plan(plan) == []
        assert plan.excluded
        for item in plan.excluded:
            assert item.why == f"the same launch as {whose}{order[0].recipe_id}, which is planned"
