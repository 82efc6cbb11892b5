"""Locks: a plan from the lock is the plan of the recipe, and an edited lock is never taken for it."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.documents import DocumentError
from isoline.catalog.trees import parse_yaml, to_plain
from isoline.cli.main import run
from isoline.errors import InputError
from isoline.recipes.channels import load_channels, read_channels
from isoline.recipes.load import load_recipe, read_lock, recipe_ids
from isoline.recipes.lock import lock_text, pinned_image
from isoline.recipes.locked import lock_digest
from isoline.recipes.render import Inputs, Shape
from isoline.results.identity import digest
from isoline.sweeps.planning.plan import make_plan
from isoline.sweeps.planning.schema import load_scenario, load_sweep
from isoline.sweeps.planning.sources import file_digests, read_sources

DEMO = "smollm2-135m/llamacpp-cpu-q4_1"
DEMO_FILE = f"recipes/{DEMO}.yaml"
CHANNELLED = "gpt-oss-120b/vllm-h200-mxfp4-8k1k"
SOME = [
    DEMO,
    CHANNELLED,
    "deepseek-r1-0528/sglang-disagg-mi355x-fp8-block-8k1k-disagg-dpa",
    "deepseek-r1-0528/trtllm-b200-nvfp4-8k1k",
    "kimi-k3/dynamo-vllm-gb300-nvl72-mxfp4-agentic-disagg-dspark-dram-mooncake",
]
LOCK = "recipes/_locks/one.yaml"
DIGEST = "sha256:" + "d" * 64


def written(root: Path, planning: Any, recipe_id: str, to: Path, *, resolves: bool = False) -> Path:
    """The lock of a recipe of the project, on the pool that plans of it use.

    :param resolves: whether a registry answers.
    """
    loaded = load_recipe(root, recipe_id)
    shapes = {}
    for name in loaded.recipe.scenarios:
        scenario = load_scenario(root, name)
        shapes[name] = Shape(name, scenario.isl, scenario.osl)
    script = planning.SCRIPT if loaded.recipe.engine == "llamacpp" else None
    inputs = Inputs(script, load_channels(root), file_digests(root, loaded))
    image = pinned_image(loaded.recipe, read_channels(root), lambda ref, arch: DIGEST if resolves else None)
    pool = planning.pool_for(root, loaded.recipe)
    to.write_text(lock_text(root, loaded, pool, shapes, inputs, image, "f" * 40), encoding="utf-8")
    return to


def test_a_plan_from_the_lock_has_the_same_digests(project_root: Path, planning: Any, tmp_path: Path) -> None:
    """Recipe -> lock -> plan: every launch and point digest and every point id is as without the lock."""
    for recipe_id in sorted({*recipe_ids(project_root)[::5], *SOME}):
        loaded = load_recipe(project_root, recipe_id)
        locked = read_lock(project_root, str(written(project_root, planning, recipe_id, tmp_path / "l.yaml")))
        assert locked.recipe_id == recipe_id
        assert locked.recipe.locked is not None
        one, two = (planning.plan_of(project_root, item) for item in (loaded, locked))
        assert planning.points_of(one) == planning.points_of(two)
        assert one.plan_digest == two.plan_digest
        assert set(locked.recipe.locked.launches.values()) == {
            launch.launch_digest for launch in two.launches
        }


def test_a_lock_pins_what_was_resolved(project_root: Path, planning: Any, tmp_path: Path) -> None:
    """A channel or tag becomes the digest that the registry gave; weights become what the catalog says."""
    for recipe_id in (CHANNELLED, SOME[2]):
        lock = written(project_root, planning, recipe_id, tmp_path / "l.yaml", resolves=True)
        recipe = read_lock(project_root, str(lock)).recipe
        assert recipe.image.channel is None
        assert recipe.image.digest == DIGEST
        assert recipe.checkpoint is not None
    plan = planning.plan_of(project_root, load_recipe(project_root, CHANNELLED))
    locked = written(project_root, planning, CHANNELLED, tmp_path / "l.yaml", resolves=True)
    pinned = planning.plan_of(project_root, read_lock(project_root, str(locked)))
    assert pinned.launches[0].identity["image"]["ref"].endswith(f"@{DIGEST}")
    assert pinned.launches[0].launch_digest != plan.launches[0].launch_digest


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all single values."""
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = False
    for key, item in rows:
        found = True
        yield from leaves(item, (*place, key))
    if not found:
        yield place


def another(value: Any, rng: random.Random) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return rng.choice([value + 1, value * 2 + 1])
    if isinstance(value, str):
        position = rng.randrange(len(value)) if value else 0
        letter = "b" if value[position : position + 1] == "a" else "a"
        return value[:position] + letter + value[position + 1 :]
    return rng.choice(["x", 1])  # null, {} or []


def edited(tree: Any, place: tuple[Any, ...], rng: random.Random) -> Any:
    """The tree with one other value, or without that value."""
    changed = copy.deepcopy(tree)
    holder = changed
    for part in place[:-1]:
        holder = holder[part]
    if rng.random() < 0.2:
        del holder[place[-1]]
    else:
        holder[place[-1]] = another(holder[place[-1]], rng)
    return changed


@pytest.mark.parametrize("recipe_id", SOME)
def test_no_value_of_a_lock_can_be_edited(
    project_root: Path, planning: Any, tmp_path: Path, recipe_id: str
) -> None:
    """60 seeded edits of single values, notes and digests too: each is refused.

    A default that is left out says the same as before and is none.
    """
    path = written(project_root, planning, recipe_id, tmp_path / "l.yaml")
    good = read_lock(project_root, str(path)).recipe
    tree = to_plain(parse_yaml(path.read_text(), "l"), "l")
    rng = random.Random(f"20261201 {recipe_id}")
    places = list(leaves(tree))
    refused = 0
    for place in rng.sample(places, min(len(places), 60)):
        path.write_text(json.dumps(edited(tree, place, rng)))
        try:
            recipe = read_lock(project_root, str(path)).recipe
        except DocumentError:
            refused += 1
        else:
            assert recipe == good, place
    assert refused > 25


def test_the_edit_is_told_with_both_digests(project_root: Path, planning: Any, tmp_path: Path) -> None:
    """What was locked and what is there now, at the line of the digest."""
    path = written(project_root, planning, DEMO, tmp_path / "l.yaml")
    text = path.read_text()
    was = read_lock(project_root, str(path)).recipe_digest
    path.write_text(text.replace("threads: 2 ", "threads: 3 "))
    with pytest.raises(DocumentError) as caught:
        read_lock(project_root, str(path))
    line = next(n for n, row in enumerate(text.splitlines(), 1) if row.startswith("  recipe_digest:"))
    said = f"{path}:{line}: locked.recipe_digest: the lock is of {was}, its content is "
    assert caught.value.line().startswith(said)
    path.write_text(text.replace("pool: local", "pool: other"))
    with pytest.raises(DocumentError, match=r"digest is [0-9a-f]{64}, its values give [0-9a-f]{64}"):
        read_lock(project_root, str(path))


def forged(path: Path, old: str, new: str) -> None:
    """An edit that mends the lock's own digests too."""
    path.write_text(path.read_text().replace(old, new))
    tree = to_plain(parse_yaml(path.read_text(), "l"), "l")
    content = {name: value for name, value in tree.items() if name != "locked"}
    block = {**tree["locked"], "recipe_digest": digest(content)}
    tree["locked"] = {**block, "digest": lock_digest(block)}
    path.write_text(json.dumps(tree))


def test_a_lock_that_was_forged_has_other_digests(project_root: Path, planning: Any, tmp_path: Path) -> None:
    """Whoever mends the digests too has another recipe digest, and a launch that is not the locked one."""
    path = written(project_root, planning, DEMO, tmp_path / "l.yaml")
    before = read_lock(project_root, str(path))
    forged(path, "threads: 2 ", "threads: 3 ")
    after = read_lock(project_root, str(path))
    assert after.recipe_digest != before.recipe_digest
    with pytest.raises(InputError, match=r"was locked as launch [0-9a-f]{64}, it renders as [0-9a-f]{64}"):
        planning.plan_of(project_root, after)


def test_a_lock_on_another_pool(project_root: Path, planning: Any, tmp_path: Path) -> None:
    """What was locked is of one pool: on another one the lock's recipe is planned as any recipe is."""
    path = written(project_root, planning, CHANNELLED, tmp_path / "l.yaml")
    locked = read_lock(project_root, str(path))
    pool = planning.pool_for(project_root, locked.recipe)
    kinds = [pool.model_copy(update={"name": name, "launcher": "slurm"}) for name in ("other", pool.name)]
    plan = planning.plan_of(project_root, locked, pools={pool.sku: kinds[0]})
    assert locked.recipe.locked is not None
    assert plan.launches[0].launch_digest not in locked.recipe.locked.launches.values()
    with pytest.raises(InputError, match="was locked as launch"):
        planning.plan_of(project_root, locked, pools={pool.sku: kinds[1]})


@pytest.fixture
def lock(project: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """A lock of the demo's recipe in the copied project, as the command writes it."""
    assert run(["recipe", "render", DEMO, "--lock", LOCK]) == 0
    assert capsys.readouterr().out == f"{LOCK}: locked on pool local\n"
    return LOCK


def test_it_stands_for_a_recipe(project: Any, lock: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``check``, ``show`` and ``render`` take it by its path, and it renders the same."""
    assert run(["recipe", "check", lock]) == 0
    assert "1 of 1 recipe(s) are fine" in capsys.readouterr().out
    assert run(["recipe", "show", lock]) == 0
    assert f"# {lock}:2" in capsys.readouterr().out
    said = []
    for name in (DEMO, lock):
        assert run(["recipe", "render", name]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert run(["recipe", "check"]) == 0  # a lock in recipes/_locks is no second recipe
    assert "1 of 1 recipe(s) are fine" in capsys.readouterr().out
    shutil.copy(project.root / lock, project.root / "elsewhere.yaml")
    assert run(["recipe", "check", "elsewhere.yaml"]) == 0


def test_a_sweep_may_select_it(project: Any, lock: str) -> None:
    """``recipes: [path]`` of a sweep: the same points; recipe and lock together are one too many."""
    demo = load_sweep(project.root, "demo")
    before = make_plan(read_sources(project.root, demo), {})
    text = (project.root / "sweeps/demo.yaml").read_text()
    project.write("sweeps/demo.yaml", text.replace(f"[{DEMO}]", f"[{lock}]"))
    after = make_plan(read_sources(project.root, load_sweep(project.root, "demo")), {})
    assert after.plan_digest == before.plan_digest
    assert [launch.launch_digest for launch in after.launches] == [
        launch.launch_digest for launch in before.launches
    ]
    project.write("sweeps/demo.yaml", text.replace(f"[{DEMO}]", f"['*', {lock}]"))
    with pytest.raises(InputError, match=f"{DEMO} is selected as .* and as .*"):
        read_sources(project.root, load_sweep(project.root, "demo"))


def test_a_recipe_that_changed_leaves_its_lock_as_it_was(project: Any, lock: str) -> None:
    """The lock holds all of the recipe: edits of the recipe's file do not reach it."""
    before = load_recipe(project.root, lock).recipe_digest
    project.edit(DEMO_FILE, "threads: 2", "threads: 1")
    assert load_recipe(project.root, lock).recipe_digest == before
    assert load_recipe(project.root, DEMO).recipe_digest != before


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--lock", "lock.yml"], "a lock's name ends in .yaml"),
        (["--lock", f"recipes/{DEMO}-lock.yaml"], "a recipe would be seen here; write it to recipes/_locks/"),
        (["--lock", "sweeps/demo.yaml"], "there is another file of this name; name another one"),
        (["--lock", "l.yaml", "--topology", "tp1"], "a lock holds every launch of the recipe"),
        (["--lock", "l.yaml", "--concurrency", "4"], "a lock holds every launch of the recipe"),
        (["--lock", "l.yaml", "--twin"], "a lock holds every launch of the recipe"),
    ],
)
def test_where_no_lock_is_written(
    project: Any, capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    """Nothing is overwritten that is no lock, and a lock never lies where it would be a recipe."""
    kept = (project.root / "sweeps/demo.yaml").read_text()
    assert run(["recipe", "render", DEMO, *argv]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert (project.root / "sweeps/demo.yaml").read_text() == kept


def test_what_is_no_lock(project: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A path of another file is told as before; a lock whose block is broken names the line."""
    for path in ("sweeps/demo.yaml", "nothing.yaml"):
        assert run(["recipe", "check", path]) == 1
        assert "a recipe lies under recipes/" in capsys.readouterr().err
    text = (project.root / DEMO_FILE).read_text()
    project.write("l.yaml", f"{text}locked: {{recipe_id: {DEMO}}}\n")
    assert run(["recipe", "check", "l.yaml"]) == 1
    assert "l.yaml:" in (said := capsys.readouterr().err)
    assert "'locked.recipe_digest' is missing" in said
