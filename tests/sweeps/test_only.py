"""``sweep run S --recipe R``: one recipe of a sweep instead of all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from isoline.errors import InputError
from isoline.settings import load_settings
from isoline.sweeps.planning.only import narrowed
from isoline.sweeps.planning.prepare import Wishes, prepare
from isoline.sweeps.planning.schema import Sweep, load_sweep

OWN = "smollm2-135m/llamacpp-cpu-q4_1"
CONTAINER = "smollm2-135m/llamacpp-cpu-q4_1-container"
OTHER = "gpt-oss-120b/vllm-h200-mxfp4-8k1k"


@pytest.fixture
def two(project: Any, project_root: Path) -> Any:
    """The copied project with a second recipe, of another SKU."""
    file = f"recipes/{OTHER}.yaml"
    (project.root / file).parent.mkdir(parents=True)
    shutil.copy(project_root / file, project.root / file)
    shutil.copy(project_root / "recipes/channels.yaml", project.root / "recipes/channels.yaml")
    return project


def sweep(project: Any, name: str) -> Sweep:
    return load_sweep(project.root, name)


def test_what_the_sweep_asks_of_the_recipe_stays(two: Any) -> None:
    """A sweep that selects the recipe keeps scenario, concurrencies and checks; other recipes go."""
    whole = sweep(two, "demo")
    found, pool = narrowed(two.root, whole, OWN, None)
    assert pool == "local"
    assert [item.recipes for item in found.select] == [[OWN]] * len(whole.select)
    assert [item.concurrency for item in found.select] == [item.concurrency for item in whole.select]


def test_a_try_out_takes_any_recipe(two: Any) -> None:
    """Smoke measures one point of the recipe's own first scenario, where the named pool is."""
    found, pool = narrowed(two.root, sweep(two, "smoke"), OTHER, "examples/h200-docker")
    assert pool == "examples/h200-docker" and found.pool == pool
    (selection,) = found.select
    assert (selection.recipes, selection.scenario, selection.concurrency) == ([OTHER], "8k1k", [128])


def test_an_official_sweep_does_not_take_any_recipe(two: Any) -> None:
    """What the sweep does not select is refused, with the way to try it."""
    with pytest.raises(InputError, match="the sweep does not select gpt-oss-120b"):
        narrowed(two.root, sweep(two, "demo"), OTHER, None)


def test_the_pool_is_the_only_one_that_fits(two: Any) -> None:
    """Without --pool the one pool of the project with that SKU is meant; none or two is a question."""
    with pytest.raises(InputError, match=r"no pool of runners/ has SKU h200.*examples/h200-docker"):
        narrowed(two.root, sweep(two, "smoke"), OTHER, None)
    text = (two.root / "runners/examples/h200-docker.yaml").read_text()
    two.write("runners/one.yaml", text.replace("name: h200-docker", "name: one"))
    assert narrowed(two.root, sweep(two, "smoke"), OTHER, None)[1] == "one"
    two.write("runners/two.yaml", text.replace("name: h200-docker", "name: two"))
    with pytest.raises(InputError, match="several pools have SKU h200: one, two"):
        narrowed(two.root, sweep(two, "smoke"), OTHER, None)


def test_a_recipe_of_containers_is_not_for_a_pool_of_processes(project: Any, project_root: Path) -> None:
    """The sweep's own pool has the SKU and starts packages; the one that starts containers is taken."""
    for file in (f"recipes/{CONTAINER}.yaml", "runners/local-podman.yaml"):
        project.write(file, (project_root / file).read_text(encoding="utf-8"))
    assert narrowed(project.root, sweep(project, "smoke"), CONTAINER, None)[1] == "local-podman"
    assert narrowed(project.root, sweep(project, "smoke"), OWN, None)[1] == "local"


def test_a_curve_of_two_recipes_is_only_a_part_with_one_of_them(project: Any) -> None:
    """Both are on one curve: alone neither is it, together nothing is missing; a try-out needs no mark."""
    settings = load_settings(project.root)
    whole = prepare(settings, "demo", Wishes(recipe=OWN, is_new=True)).plan
    assert whole.parts == []
    second = f"{OWN}-other"
    project.copy(f"recipes/{OWN}.yaml", f"recipes/{second}.yaml")
    project.edit(f"recipes/{second}.yaml", "threads-batch: 2", "threads-batch: 1")
    project.write(
        "sweeps/demo.yaml", (project.root / "sweeps/demo.yaml").read_text().replace(OWN, "smollm2-135m/*")
    )
    keys = sorted({point.curve_key for launch in whole.launches for point in launch.points})
    for recipe in (OWN, second):
        assert prepare(settings, "demo", Wishes(recipe=recipe, is_new=True)).plan.parts == keys
    assert prepare(settings, "demo", Wishes(is_new=True)).plan.parts == []
    assert prepare(settings, "smoke", Wishes(recipe=OWN, is_new=True)).plan.parts == []


def test_where_the_rest_of_a_sweep_is_broken_its_recipe_is_a_part(project: Any) -> None:
    """Nobody can tell what else is on the curve: the run is never taken for all of it."""
    second = f"{OWN}-other"
    project.copy(f"recipes/{OWN}.yaml", f"recipes/{second}.yaml")
    project.edit(f"recipes/{second}.yaml", "engine: llamacpp", "engine: llamacp")
    project.write(
        "sweeps/demo.yaml", (project.root / "sweeps/demo.yaml").read_text().replace(OWN, "smollm2-135m/*")
    )
    plan = prepare(load_settings(project.root), "demo", Wishes(recipe=OWN, is_new=True)).plan
    assert plan.parts == sorted({point.curve_key for launch in plan.launches for point in launch.points})
