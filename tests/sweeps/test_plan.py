"""Plans: deterministic, and changed by exactly what changes a point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from isoline.errors import InputError
from isoline.results.bundles.checks import check_plan
from isoline.results.bundles.records import Plan, PlanPoint
from isoline.sweeps.planning.assemble import assemble, check_limits
from isoline.sweeps.planning.estimates import point_s
from isoline.sweeps.planning.plan import make_plan, seed_for
from isoline.sweeps.planning.schema import load_scenario, load_sweep
from isoline.sweeps.planning.sources import read_sources

RECIPE_ID = "smollm2-135m/llamacpp-cpu-q4_1"
RECIPE = f"recipes/{RECIPE_ID}.yaml"
DEMO = "sweeps/demo.yaml"
SECOND_ID = "smollm2-135m/llamacpp-cpu-q4_1-other"
SECOND = f"recipes/{SECOND_ID}.yaml"

Planned = Callable[..., Plan]


def points(plan: Plan) -> dict[str, PlanPoint]:
    """point id -> point."""
    return {point.point_id: point for launch in plan.launches for point in launch.points}


def both(project: Any) -> None:
    """Let the demo select the second recipe too."""
    project.edit(DEMO, f"recipes: [{RECIPE_ID}]", f"recipes: [{RECIPE_ID}, {SECOND_ID}]")


def test_the_demo(planned: Planned) -> None:
    """The demo is one launch with seven points: four concurrencies, one repeated, and two of the trace."""
    plan = planned()
    (launch,) = plan.launches
    names = [(point.scenario, point.concurrency, point.repetition) for point in launch.points]
    short = [("demo-short", 1, 1), ("demo-short", 2, 1), ("demo-short", 4, 1), ("demo-short", 4, 2)]
    assert names == [*short, ("demo-short", 8, 1), ("demo-chat", 1, 1), ("demo-chat", 4, 1)]
    assert [point.accuracy for point in launch.points] == [[], [], ["arithmetic-mini"], [], [], [], []]
    assert len({point.point_id for point in launch.points}) == 7
    assert (launch.gpus, launch.pool, launch.recipe_id) == (1, "local", RECIPE_ID)
    assert check_plan(plan) == []


def test_the_same_bytes_each_time(planned: Planned) -> None:
    """A plan is the same to the byte whenever it is made."""
    assert planned().model_dump_json() == planned().model_dump_json()


def test_comments_and_order_change_nothing(project: Any, planned: Planned) -> None:
    """A comment, or lines in another order, in recipe, sweep, scenario, pool or dataset: the same plan."""
    before = planned()
    two = "    threads: 2\n    threads-batch: 2\n"
    project.edit(RECIPE, two, "    threads-batch: 2  # so\n    threads: 2\n")
    project.edit(RECIPE, "owner: isoline\n", "")
    project.edit(RECIPE, "schema_version: 1\n", "# a comment\nowner: isoline\nschema_version: 1\n")
    for file in (DEMO, "sweeps/scenarios/demo-short.yaml", "runners/local.yaml", "datasets/demo-chat.yaml"):
        project.edit(file, "schema_version: 1", "# a comment\nschema_version:   1  # one")
    assert planned().model_dump_json() == before.model_dump_json()


def test_an_annotation_changes_no_point(project: Any, planned: Planned) -> None:
    """Another owner is another recipe digest, for review, and the same plan and points."""
    before = planned()
    project.edit(RECIPE, "owner: isoline", "owner: someone")
    after = planned()
    assert after.plan_digest == before.plan_digest
    assert list(points(after)) == list(points(before))
    assert after.launches[0].recipe_digest != before.launches[0].recipe_digest


def test_one_server_argument_changes_exactly_that_launch(project: Any, planned: Planned) -> None:
    """Of two recipes, changing an argument of one makes its points new and leaves the other's."""
    project.copy(RECIPE, SECOND)
    project.edit(SECOND, "threads-batch: 2", "threads-batch: 1")
    both(project)
    before = planned()
    assert len(before.launches) == 2
    project.edit(SECOND, "threads-batch: 1", "threads-batch: 3")
    after = planned()
    (untouched,) = [launch for launch in before.launches if launch.recipe_id == RECIPE_ID]
    same = points(before).keys() & points(after).keys()
    assert same == {point.point_id for point in untouched.points}
    assert after.plan_digest != before.plan_digest


def test_an_added_concurrency_keeps_the_other_ids(project: Any, planned: Planned) -> None:
    """A new concurrency adds its point; every id that was there stays."""
    project.edit(DEMO, "concurrency: [1, 2, 4, 8]", "concurrency: [1, 2, 4]")
    before = planned()
    project.edit(DEMO, "concurrency: [1, 2, 4]", "concurrency: [1, 2, 4, 8]")
    after = planned()
    added = points(after).keys() - points(before).keys()
    assert points(before).keys() <= points(after).keys()
    assert {points(after)[name].concurrency for name in added} == {8}


def test_a_scenario_s_numbers_are_in_the_point(project: Any, planned: Planned) -> None:
    """Another output length makes that scenario's points new, and no other's; another deadline none."""
    before = planned()
    project.edit("sweeps/scenarios/demo-short.yaml", "request_s: 90", "request_s: 91")
    assert planned().plan_digest == before.plan_digest
    project.edit("sweeps/scenarios/demo-short.yaml", "osl: 48", "osl: 49")
    same = points(before).keys() & points(planned()).keys()
    assert {points(before)[name].scenario for name in same} == {"demo-chat"}
    assert len(same) == 2


def test_the_client_profile_is_in_the_point_and_on_the_curve(project: Any, planned: Planned) -> None:
    """The same server measured by another kind of client is another point of another curve."""
    before = planned()
    project.edit("runners/local.yaml", "client_profile: shared-cpu", "client_profile: gpu-host")
    after = planned()
    assert not points(before).keys() & points(after).keys()
    assert after.launches[0].launch_digest == before.launches[0].launch_digest
    curves = [{point.curve_key for point in points(plan).values()} for plan in (before, after)]
    assert curves[0].isdisjoint(curves[1])


def test_other_questions_are_no_other_point(project: Any, planned: Planned) -> None:
    """The canary decides the verdict, never a number: another one measures nothing again."""
    before = planned()
    project.edit(RECIPE, "canary: canary-smollm2", "canary: arithmetic-mini")
    assert planned().plan_digest == before.plan_digest


def test_two_recipes_of_one_launch(project: Any, planned: Planned) -> None:
    """Two recipes that render to the same command are measured once; the second is excluded, with why."""
    alone = planned()
    project.copy(RECIPE, SECOND)
    both(project)
    plan = planned()
    assert points(plan).keys() == points(alone).keys()
    (left_out,) = [item for item in plan.excluded if SECOND_ID in item.what]
    assert left_out.why == f"the same launch as {RECIPE_ID}, which is planned"
    assert check_plan(plan) == []


def test_a_selection_may_name_a_point_twice(project: Any, planned: Planned) -> None:
    """Overlapping selections give each point once, with the larger repetitions and all checks."""
    text = (project.root / DEMO).read_text()
    again = (
        "  - recipes: ['*']\n    scenario: demo-short\n    concurrency: [4, 8]\n    repetitions: 3\n"
        "    accuracy: {canary-smollm2: [4]}\nreuse:"
    )
    project.write(DEMO, text.replace("reuse:", again, 1))
    plan = planned()
    fours = [p for p in points(plan).values() if (p.scenario, p.concurrency) == ("demo-short", 4)]
    assert [p.repetition for p in fours] == [1, 2, 3]
    assert fours[0].accuracy == ["arithmetic-mini", "canary-smollm2"]
    assert len([p for p in points(plan).values() if (p.scenario, p.concurrency) == ("demo-short", 8)]) == 3


def test_concurrencies_that_only_some_recipes_have(project: Any, planned: Planned) -> None:
    """A recipe that is not meant for a concurrency or scenario is left out there, with the reason."""
    project.copy(RECIPE, SECOND)
    project.edit(SECOND, "threads-batch: 2", "threads-batch: 1")
    project.edit(SECOND, "demo-short: {concurrency: [1, 2, 4, 8]}", "demo-short: {concurrency: [1, 2, 4]}")
    project.edit(SECOND, "  demo-chat: {concurrency: [1, 4]}\n", "")
    text = (project.root / DEMO).read_text()
    project.write(DEMO, text.replace(RECIPE_ID, "smollm2-135m/*"))
    excluded = {item.what: item.why for item in planned().excluded}
    assert excluded == {
        f"{SECOND_ID} × demo-short c8": "the recipe is not meant for this concurrency",
        f"{SECOND_ID} × demo-chat": "the recipe is not meant for this scenario",
    }


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[1, 2, 4, 8]", "[1, 2, 4, 16]", "concurrency 16, which is not among 1, 2, 4, 8"),
        ("arithmetic-mini: [4]", "arithmetic-mini: [16]", "accuracy is asked for at concurrency 16"),
        ("[1, 2, 4, 8]", "[1, 2, 8]", "concurrency 4, which is not among 1, 2, 8"),
        ("{4: 2}", "{16: 2}", "repetitions are given for concurrency 16"),
        ("{arithmetic-mini: [4]}", "{demo-chat: [4]}", "dataset 'demo-chat' holds no questions"),
    ],
)
def test_contradictions_are_refused(project: Any, planned: Planned, old: str, new: str, words: str) -> None:
    """What a sweep asks for and cannot get is an error, never silently left out."""
    project.edit(DEMO, old, new)
    with pytest.raises(InputError, match=words):
        planned()


def test_nothing_selected(project: Any, planned: Planned) -> None:
    """A sweep of which nothing is left is an error."""
    project.edit(RECIPE, "  demo-short: {concurrency: [1, 2, 4, 8]}\n", "")
    with pytest.raises(InputError, match="nothing is selected"):
        planned("smoke")


def test_the_budget(project: Any, planned: Planned) -> None:
    """A plan above the sweep's budget is refused with both numbers; at it it is made."""
    minutes = planned().budget["gpu_minutes"]
    assert 1 < minutes < 20
    project.edit(DEMO, "reuse:", f"budget: {{gpu_minutes: {minutes}}}\nreuse:")
    check_limits(load_sweep(project.root, "demo"), planned())
    project.edit(DEMO, f"gpu_minutes: {minutes}", f"gpu_minutes: {minutes - 0.1:.1f}")
    with pytest.raises(InputError, match=rf"about {minutes:g} GPU-minutes, the budget is {minutes - 0.1:g}"):
        check_limits(load_sweep(project.root, "demo"), planned())


def test_the_digest_does_not_see_where_a_point_was_measured(planned: Planned, project: Any) -> None:
    """Reused points are expected points: the plan's digest stays, so the run is found again."""
    from isoline.results.bundles.records import Reused

    plan = planned()
    (launch,) = plan.launches
    chat = [point for point in launch.points if point.scenario == "demo-chat"]
    rest = [point for point in launch.points if point.scenario != "demo-chat"]
    reused = [Reused(point_id=p.point_id, run_id="r", attempt=1, accuracy=p.accuracy) for p in rest]
    again = assemble(
        load_sweep(project.root, "demo"),
        [launch.model_copy(update={"points": chat})],
        reused=reused,
        excluded=[],
        created_from={"rev": "x", "dirty": True},
    )
    assert again.plan_digest == plan.plan_digest


def test_accuracy_is_part_of_what_is_expected(project: Any, planned: Planned) -> None:
    """One more check is another plan, though no point has another id."""
    before = planned()
    project.edit(DEMO, "arithmetic-mini: [4]", "arithmetic-mini: [4, 8]")
    after = planned()
    assert points(after).keys() == points(before).keys()
    assert after.plan_digest != before.plan_digest


def test_seeds(project: Any, planned: Planned) -> None:
    """Each repetition and concurrency has its own prompts; engines share them; another dataset does not."""
    plan = planned()
    (launch,) = plan.launches
    assert len({point.seed for point in launch.points}) == len(launch.points)
    project.edit(RECIPE, "threads-batch: 2", "threads-batch: 1")
    other = planned()
    assert [p.seed for p in other.launches[0].points] == [p.seed for p in launch.points]
    assert all(0 <= point.seed < 2**31 for point in launch.points)
    scenario = load_scenario(project.root, "demo-short")
    assert seed_for("a" * 64, scenario, 1, 1) != seed_for("b" * 64, scenario, 1, 1)


def test_estimates_grow_with_the_work(project: Any) -> None:
    """More requests take longer; a trace takes what its turns take."""
    sources = read_sources(project.root, load_sweep(project.root, "demo"))
    short = sources.scenarios["demo-short"]
    text = sources.datasets["synthetic-text"]
    assert point_s(short, text, 8, "cpu") > point_s(short, text, 1, "cpu") > 18
    chat = sources.scenarios["demo-chat"]
    assert point_s(chat, sources.datasets["demo-chat"], 1, "cpu") > 18


def test_plans_are_pure(project: Any) -> None:
    """What a plan is made from is not changed by making it."""
    sources = read_sources(project.root, load_sweep(project.root, "demo"))
    first = make_plan(sources, {}).model_dump_json()
    assert make_plan(sources, {}).model_dump_json() == first
