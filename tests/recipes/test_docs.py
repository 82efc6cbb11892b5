"""The examples in the guides are true: they load, pass the lint and render."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.documents import validate_text
from isoline.catalog.pools import Pool, load_pool
from isoline.cli.main import run
from isoline.recipes.device_profiles import PROFILES
from isoline.recipes.expressions import NAMES
from isoline.recipes.load import load_recipe
from isoline.recipes.schema import Recipe
from isoline.recipes.sidecars import Sidecar
from isoline.sweeps.planning.schema import Sweep

NAME = "deepseek-r1-0528/sglang-disagg-mi355x-fp8-block-guide"


def examples(root: Path, page: str) -> list[str]:
    """The YAML blocks of a page, in order."""
    return re.findall(r"^```yaml\n(.*?)^```", (root / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)


def test_the_examples_load(project_root: Path) -> None:
    """Each block of the guides is what it says it is."""
    small, large, sweep = examples(project_root, "recipes.md")
    pool, parallel = examples(project_root, "pools.md")
    assert validate_text(small, Recipe, "small").status == "verified"
    assert validate_text(large, Recipe, "large").roles.keys() == {"prefill", "decode"}
    assert validate_text(sweep, Sweep, "sweep").name == "mine"
    assert validate_text(pool, Pool, "pool").launcher == "container"
    named = {line.partition(":")[0] for line in parallel.splitlines() if not line.startswith(" ")}
    assert validate_text(f"{without(pool, named)}{parallel}", Pool, "pool").max_parallel == 4


def without(text: str, names: set[str]) -> str:
    """A block without the lines of some keys."""
    rows = [row for row in text.splitlines() if row.partition(":")[0] not in names]
    return "".join(f"{row}\n" for row in rows)


def test_the_large_example_is_good(
    project: Any, project_root: Path, planning: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """It passes the lint without a warning, and its launches are the ones that the comment promises."""
    project.write(f"recipes/{NAME}.yaml", examples(project_root, "recipes.md")[1])
    project.write("recipes/channels.yaml", (project_root / "recipes/channels.yaml").read_text())
    assert run(["recipe", "check", NAME]) == 0
    seen = capsys.readouterr()
    assert "1 of 1 recipe(s) are fine\n" in seen.out
    assert [line for line in seen.err.splitlines() if ": note: " not in line] == []
    loaded = load_recipe(project.root, NAME)
    pool = load_pool(project_root, "examples/mi355x-slurm-docker")
    plan = planning.plan_of(project.root, loaded, pools={"mi355x": pool})
    assert [[point.concurrency for point in launch.points] for launch in plan.launches] == [
        [64],
        [256, 512],
        [1, 16, 64],
    ]


def test_the_guide_names_what_there_is(project_root: Path) -> None:
    """Every field of recipe and sidecar, name of an expression and device profile is in the guides."""
    text = (project_root / "docs/recipes.md").read_text()
    missing = [name for name in Recipe.model_fields if not re.search(rf"\b{name}\b", text)]
    missing += [name for name in Sidecar.model_fields if not re.search(rf"\b{name}\b", text)]
    missing += [name for name in NAMES if name not in text]
    assert missing == []
    pools = (project_root / "docs/pools.md").read_text()
    assert [name for name in PROFILES if f"`{name}`" not in pools] == []
    launchers = ("process", "container", "slurm", "endpoint", "simulated")
    assert [name for name in launchers if f"| `{name}` |" not in pools] == []
