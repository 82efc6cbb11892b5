"""Reading what a plan is made of: a name that is not known is told where it is written."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.documents import DocumentError
from isoline.sweeps.planning.schema import load_sweep
from isoline.sweeps.planning.sources import git_state, read_sources

RECIPE_ID = "smollm2-135m/llamacpp-cpu-q4_1"
RECIPE = f"recipes/{RECIPE_ID}.yaml"
SHORT = "sweeps/scenarios/demo-short.yaml"


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("sweeps/demo.yaml", "pool: local", "pool: lokal", "unknown pool 'lokal'; did you mean 'local'?"),
        ("sweeps/demo.yaml", "[smollm2-135m/llamacpp-cpu-q4_1]", "[smollm-135m/*]",
         f"select.0.recipes.0: unknown recipe 'smollm-135m/*'; did you mean '{RECIPE_ID}'?"),
        ("sweeps/demo.yaml", "scenario: demo-chat", "scenario: demo-caht",
         "select.1.scenario: unknown scenario 'demo-caht'; did you mean 'demo-chat'"),
        ("sweeps/demo.yaml", "{arithmetic-mini: [4]}", "{arithmetic-min: [4]}",
         "select.0.accuracy.arithmetic-min: unknown dataset 'arithmetic-min'; did you mean"),
        (SHORT, "dataset: synthetic-text", "dataset: synthetic-txt",
         "dataset: unknown dataset 'synthetic-txt'; did you mean 'synthetic-text'?"),
        (SHORT, "dataset: synthetic-text", "dataset: demo-chat",
         "a fixed_length scenario cannot use dataset 'demo-chat' of kind multi_turn"),
        (RECIPE, "canary: canary-smollm2", "canary: canary-smollm",
         "canary: unknown dataset 'canary-smollm'; did you mean 'canary-smollm2'?"),
        (RECIPE, "engine: llamacpp", "engine: vlm", "engine: unknown engine 'vlm'; did you mean 'vllm'?"),
        (RECIPE, "sku: cpu", "sku: cpuu", "sku: unknown SKU 'cpuu'; did you mean 'cpu'?"),
    ],
)  # fmt: skip
def test_an_unknown_name_has_a_line(project: Any, file: str, old: str, new: str, words: str) -> None:
    """Whatever a sweep, scenario or recipe names and nobody knows is told at its own line."""
    line = project.edit(file, old, new)
    with pytest.raises(DocumentError) as caught:
        read_sources(project.root, load_sweep(project.root, "demo"))
    assert caught.value.line().startswith(f"{file}:{line}: ")
    assert words in caught.value.line()


def test_another_pool(project: Any) -> None:
    """A pool given on the command line takes the place of the sweep's own, which may be missing then."""
    text = (project.root / "runners" / "local.yaml").read_text()
    project.write("runners/other.yaml", text.replace("name: local", "name: other"))
    (project.root / "runners" / "local.yaml").unlink()
    sweep = load_sweep(project.root, "demo")
    assert read_sources(project.root, sweep, pool="other").pool.name == "other"
    with pytest.raises(DocumentError, match=r"runners/x.yaml: no such pool; known: local-podman, other"):
        read_sources(project.root, sweep, pool="x")


def test_only_what_is_selected_is_read(project: Any) -> None:
    """A broken recipe that the sweep does not select does not stand in the way."""
    project.write("recipes/other/llamacpp-cpu-q4_1.yaml", "broken")
    assert list(read_sources(project.root, load_sweep(project.root, "demo")).recipes) == [RECIPE_ID]


def test_the_state_of_the_checkout(tmp_path: Path) -> None:
    """Revision and whether something is changed; nulls outside a checkout, never a guess."""
    assert git_state(tmp_path) == {"rev": None, "dirty": None}
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@localhost"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    clean = git_state(tmp_path)
    assert len(str(clean["rev"])) == 40
    assert clean["dirty"] is False
    (tmp_path / "new").write_text("x")
    assert git_state(tmp_path) == {"rev": clean["rev"], "dirty": True}
