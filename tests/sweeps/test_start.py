"""Before a run starts: a recipe that is not said in full, or is dangerous, is planned and never started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isoline.errors import InputError
from isoline.settings import load_settings
from isoline.sweeps.execution.hold import Wanted, planned
from isoline.sweeps.execution.start import run_sweep
from isoline.sweeps.planning.prepare import prepare

RECIPE = "recipes/smollm2-135m/llamacpp-cpu-q4_1.yaml"


def test_an_incomplete_recipe_is_planned_and_not_started(
    project: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The plan is there; the run is refused with what is missing, before anything is looked for or locked."""
    text = (project.root / RECIPE).read_text()
    begin, end = text.index("server:\n"), text.index("readiness:")
    text = text[:begin] + text[end:]
    text = text.replace("status: verified", "incomplete: [server.args, precision.kv]\nstatus: unverified")
    (project.root / RECIPE).write_text(text.replace("kv: f16", "kv: unknown"))
    monkeypatch.setenv("ISOLINE_PROJECT", str(project.root))
    settings = load_settings(project.root, store=tmp_path / "store", state=tmp_path / "state")
    prepared = prepare(settings, "smoke")
    assert prepared.plan.launches
    with pytest.raises(InputError, match=r"server\.args, precision\.kv of it is not known"):
        run_sweep(settings, prepared)
    assert not (tmp_path / "store").exists()


def test_a_dangerous_recipe_is_planned_and_not_started(project: Any, tmp_path: Path) -> None:
    """What `recipe check` calls dangerous is refused by a run and by a held launch, with file and line."""
    text = (project.root / RECIPE).read_text()
    assert "\nserver:\n  env:" not in text
    text = text.replace("server:\n", "server:\n  env: {BASH_ENV: /app/run}\n", 1)
    (project.root / RECIPE).write_text(text)
    line = 1 + text[: text.index("BASH_ENV")].count("\n")
    settings = load_settings(project.root, store=tmp_path / "store", state=tmp_path / "state")
    prepared = prepare(settings, "smoke")
    assert prepared.plan.launches
    with pytest.raises(InputError, match="BASH_ENV decides which code runs") as error:
        run_sweep(settings, prepared)
    assert error.value.where == f"{RECIPE}:{line}"
    with pytest.raises(InputError, match="BASH_ENV decides which code runs"):
        planned(settings, Wanted(RECIPE.removeprefix("recipes/").removesuffix(".yaml"), 1))
    assert not (tmp_path / "store").exists()


def test_a_plan_leaves_nothing_but_the_cache(project: Any, tmp_path: Path) -> None:
    """Planning writes no run and no bundle; documents that were read are kept by content."""
    settings = load_settings(project.root, store=tmp_path / "store", state=tmp_path / "state")
    first = prepare(settings, "smoke").plan
    assert sorted(path.name for path in (tmp_path / "state").rglob("*") if path.is_file()) == [
        "documents.json",
        "plans.json",
    ]
    assert prepare(settings, "smoke").plan.model_dump_json() == first.model_dump_json()
    assert not (tmp_path / "store").exists()
