"""Only what changed since a revision, and another image for one run."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from isoline.errors import InputError
from isoline.results.bundles.records import Plan
from isoline.settings import load_settings
from isoline.sweeps.planning.prepare import Wishes, prepare

RECIPE_ID = "smollm2-135m/llamacpp-cpu-q4_1"
RECIPE = f"recipes/{RECIPE_ID}.yaml"
CHANNELLED = "gpt-oss-120b/vllm-h200-mxfp4-8k1k"


def git(root: Path, *args: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    done = subprocess.run(["git", "-C", str(root), *who, *args], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(project: Any) -> Any:
    """The copied project as a repository with one commit, tagged ``before``."""
    git(project.root, "init", "-q")
    git(project.root, "add", "-A")
    git(project.root, "commit", "-qm", "one")
    git(project.root, "tag", "before")
    return project


def planned(root: Path, sweep: str = "demo", **wishes: Any) -> Plan:
    """The plan as the command line makes it."""
    return prepare(load_settings(root), sweep, Wishes(**wishes)).plan


def concurrencies(plan: Plan) -> list[tuple[str, int]]:
    return [(point.scenario, point.concurrency) for launch in plan.launches for point in launch.points]


def test_nothing_changed(repository: Any) -> None:
    """Without a change every point is left out, each with the reason; an annotation is no change."""
    for edit in (("owner: isoline", "owner: someone"), ("status: verified", "status: unverified")):
        repository.edit(RECIPE, *edit)
        plan = planned(repository.root, changed_since="before")
        assert plan.launches == []
        assert {item.why for item in plan.excluded} == {"not changed"}
        assert len(plan.excluded) == 7


def test_an_added_concurrency_plans_the_new_point_alone(repository: Any) -> None:
    """One more concurrency in recipe and sweep: that point, on the launch as it was."""
    whole = planned(repository.root)
    repository.edit(RECIPE, "[1, 2, 4, 8]", "[1, 2, 4, 6, 8]")
    repository.edit("sweeps/demo.yaml", "[1, 2, 4, 8]", "[1, 2, 4, 6, 8]")
    plan = planned(repository.root, changed_since="before")
    assert concurrencies(plan) == [("demo-short", 6)]
    assert plan.launches[0].launch_digest == whole.launches[0].launch_digest
    start_s = whole.launches[0].estimate_s - sum(point.estimate_s for point in whole.launches[0].points)
    (point,) = plan.launches[0].points
    assert plan.launches[0].estimate_s == pytest.approx(start_s + point.estimate_s, abs=0.2)


def test_what_is_only_a_part_of_its_curve_is_said(repository: Any) -> None:
    """The plan names the curves that it left points out of, and no others; all that is new is whole."""
    repository.edit(RECIPE, "[1, 2, 4, 8]", "[1, 2, 4, 6, 8]")
    repository.edit("sweeps/demo.yaml", "[1, 2, 4, 8]", "[1, 2, 4, 6, 8]")
    plan = planned(repository.root, changed_since="before")
    assert plan.parts == [plan.launches[0].points[0].curve_key]
    assert planned(repository.root).parts == []
    repository.edit("sweeps/scenarios/demo-short.yaml", "osl: 48", "osl: 49")
    assert planned(repository.root, changed_since="before").parts == []


def test_another_argument_plans_all_of_the_recipe(repository: Any) -> None:
    """A changed argument makes all points of that recipe new, and of no other one."""
    second = f"{RECIPE_ID}-other"
    repository.copy(RECIPE, f"recipes/{second}.yaml")
    repository.edit(f"recipes/{second}.yaml", "threads-batch: 2", "threads-batch: 1")
    text = (repository.root / "sweeps/demo.yaml").read_text().replace(RECIPE_ID, "smollm2-135m/*")
    repository.write("sweeps/demo.yaml", text)
    git(repository.root, "add", "-A")
    git(repository.root, "commit", "-qm", "two")
    repository.edit(f"recipes/{second}.yaml", "threads: 2", "threads: 1")
    plan = planned(repository.root, changed_since="HEAD")
    assert {launch.recipe_id for launch in plan.launches} == {second}
    assert len(concurrencies(plan)) == 7
    assert len(concurrencies(planned(repository.root, changed_since="before"))) == 7


def test_a_scenario_s_change_is_a_change(repository: Any) -> None:
    """What a point is covers its scenario: only that scenario's points are new."""
    repository.edit("sweeps/scenarios/demo-short.yaml", "osl: 48", "osl: 49")
    plan = planned(repository.root, changed_since="before")
    assert {scenario for scenario, _ in concurrencies(plan)} == {"demo-short"}


def test_a_sweep_that_was_not_there(repository: Any) -> None:
    """A sweep that is newer than the revision is new as a whole."""
    text = (repository.root / "sweeps/demo.yaml").read_text().replace("name: demo\n", "name: fresh\n")
    repository.write("sweeps/fresh.yaml", text)
    assert len(concurrencies(planned(repository.root, "fresh", changed_since="before"))) == 7


@pytest.mark.parametrize("revision", ["nothing", "--all", "", "before:recipes"])
def test_a_revision_that_is_none(repository: Any, revision: str) -> None:
    """An unknown revision is one line; an option is no revision."""
    with pytest.raises(InputError, match="no such revision"):
        planned(repository.root, changed_since=revision)


def test_files_that_were_wrong_then(repository: Any) -> None:
    """A revision whose files cannot be planned is told, with what to do."""
    repository.edit(RECIPE, "engine: llamacpp", "engine: llamacp")
    git(repository.root, "commit", "-qam", "broken")
    repository.edit(RECIPE, "engine: llamacp\n", "engine: llamacpp\n")
    with pytest.raises(InputError, match="cannot be planned there") as caught:
        planned(repository.root, changed_since="HEAD")
    assert "llamacp" in caught.value.line()


@pytest.fixture
def channelled(project: Any, project_root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A sweep over a recipe whose image is a channel; the registry is a function that counts its calls."""
    for name in (f"recipes/{CHANNELLED}.yaml", "recipes/channels.yaml"):
        project.write(name, (project_root / name).read_text())
    project.write(
        "sweeps/ch.yaml",
        f"schema_version: 1\nname: ch\npool: examples/h200-docker\nselect:\n"
        f"  - {{recipes: [{CHANNELLED}], scenario: 8k1k}}\n",
    )
    asked: list[tuple[str, str]] = []

    def registry(ref: str, arch: str) -> str:
        asked.append((ref, arch))
        return "sha256:" + "d" * 64

    monkeypatch.setattr("isoline.sweeps.planning.sources.registry_digest", registry)
    return project, asked


def test_another_image_for_one_run(channelled: Any) -> None:
    """``--image`` puts another image under a channel: its points are new, and the plan says which it is."""
    project, asked = channelled
    before = planned(project.root, "ch")
    ref = "vllm/vllm-openai:pull-request-7"
    after = planned(project.root, "ch", images={"vllm-release": ref})
    assert (ref, "amd64") in asked
    assert after.channels == {"vllm-release amd64": f"{ref}@sha256:" + "d" * 64}
    assert after.launches[0].identity["image"] == {"ref": f"{ref}@sha256:" + "d" * 64}
    assert before.launches[0].launch_digest != after.launches[0].launch_digest
    digests = [
        {point.point_digest for launch in plan.launches for point in launch.points}
        for plan in (before, after)
    ]
    assert digests[0].isdisjoint(digests[1])
    assert before.plan_digest != after.plan_digest


def test_an_image_with_a_digest_is_not_asked_for(channelled: Any) -> None:
    """A reference with a digest is taken as it is."""
    project, asked = channelled
    ref = "vllm/vllm-openai@sha256:" + "e" * 64
    plan = planned(project.root, "ch", images={"vllm-release": ref})
    assert plan.channels == {"vllm-release amd64": ref}
    assert asked == []


def test_an_image_of_a_channel_that_nobody_uses(channelled: Any) -> None:
    """A misspelt channel is an error, never silently the usual image."""
    project, _ = channelled
    with pytest.raises(InputError, match="no selected recipe uses channel 'vllm-relaese'"):
        planned(project.root, "ch", images={"vllm-relaese": "a/b:c"})
