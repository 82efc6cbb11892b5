"""Points that a run leaves out: inputs that are not staged, a budget that is used up. Each goes on later."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from isoline.results.bundles.bundle import BundleWriter, write_record
from isoline.results.bundles.records import LaunchRecord, PlanLaunch, ReasonNote
from isoline.results.identity import launch_id
from isoline.results.judging.reasons import Verdict

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]


def left_out(run: Path) -> dict[str, str]:
    """point id -> cause, of the run's newest record of what it left out."""
    newest = max((run / "_skipped").iterdir(), key=lambda path: int(path.name))
    return {
        item["point_id"]: item["cause"]
        for item in json.loads((newest / "skipped.json").read_text())["points"]
    }


def test_nothing_is_fetched_for_a_launch(tiny: Any, podman: Any, container_image: Any) -> None:
    """Weights that the pool's machine lacks: the launch is skipped as not staged, nothing was brought and
    nothing started; status says what to do, and once that is done the same command measures."""
    path = tiny.project / f"recipes/{tiny.recipe('container')}.yaml"
    recipe = json.loads(path.read_text().partition("\n")[2])
    tiny.yaml(str(path.relative_to(tiny.project)), {**recipe, "image": {"ref": container_image.ref}})
    container = {
        "runtime": "podman", "device_profile": "cpu", "model_cache": "{state}/models",
        "scratch": "{state}/scratch", "shm_gb": 1, "env": podman.env,
    }  # fmt: skip
    common = {"schema_version": 1, "name": "box", "launcher": "container", "sku": "cpu"}
    tiny.yaml("runners/box.yaml", {**common, "client_profile": "shared-cpu", "container": container})
    tiny.sweep(
        "boxed", {"recipes": ["smollm2-135m/llamacpp-cpu-q4_1-container"], "concurrency": [1]}, pool="box"
    )
    done = tiny.sweep_run("boxed", code=3)
    assert "1 without an attempt (1 not_staged)" in done.out
    run = tiny.the_run()
    assert list(left_out(run).values()) == ["not_staged"]
    models = tiny.state / "models"
    assert [path for path in models.rglob("*") if path.is_file() and ".isoline" not in path.parts] == []
    assert podman.containers() == {}
    (row,) = tiny.run("sweep", "status", "boxed", "--format", "json").json()
    assert row["reasons"] == "skipped: not_staged"
    (journal,) = tiny.journals()
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    (failed,) = (event for event in events if event["event"] == "launch_failed")
    assert "pool stage" in failed["next"] and "is not staged on" in failed["cause"]

    staged = tiny.run("pool", "stage", "box", "--sweep", "boxed")
    assert staged.code == 0, staged.err
    again = tiny.start("sweep", "run", "boxed")
    tiny.wait_phase(again, "ready")  # what comes after it is tests/e2e/test_container.py's
    again.kill(signal.SIGINT)
    assert again.end(60).code == 130 and tiny.the_run() == run
    assert podman.containers() == {}


def test_a_budget_that_is_used_up_leaves_out_the_rest(tiny: Any) -> None:
    """An earlier start that hung cost more than was planned: what does not fit any more is left out with
    its cause, and nothing of it started. With a larger budget the same command goes on in the same run."""
    recipes = [tiny.recipe(f"v{number}", parallel=3 + number) for number in range(2)]
    chosen = {"recipes": recipes, "concurrency": [1]}
    tiny.sweep("dear", chosen)
    first = tiny.start("sweep", "run", "dear")
    tiny.wait(first, lambda: any(event["event"] == "launch" for event in tiny.events(first)), "a launch")
    first.kill(signal.SIGINT)
    assert first.end(60).code == 130
    run = tiny.the_run()
    plan = tiny.plan(run)
    hung(run, plan.launches[0])
    starts = {path.name for path in (run / "_launch").iterdir()}

    tiny.sweep("dear", chosen, budget={"gpu_minutes": plan.budget["gpu_minutes"]})
    done = tiny.sweep_run("dear", code=3)
    assert "2 without an attempt (2 budget)" in done.out
    assert tiny.the_run() == run and {path.name for path in (run / "_launch").iterdir()} == starts
    assert set(left_out(run).values()) == {"budget"} and len(left_out(run)) == 2

    tiny.sweep("dear", chosen, budget={"gpu_minutes": 61 + plan.budget["gpu_minutes"]})
    again = tiny.start("sweep", "run", "dear")
    tiny.wait_phase(again, "ready")
    again.kill(signal.SIGINT)
    assert again.end(60).code == 130 and tiny.the_run() == run
    assert tiny.processes() == {}


def hung(run: Path, launch: PlanLaunch) -> None:
    """A start of a launch that the machine let hang for an hour, as a run seals it."""
    name = launch_id(launch.launch_digest, 7)
    writer = BundleWriter(run, "launch", f"_launch/{name}", name)
    record = LaunchRecord(
        run_id=run.name,
        launch_id=name,
        launch_digest=launch.launch_digest,
        recipe_id=launch.recipe_id,
        started_at="2026-01-01T00:00:00Z",
        ended_at="2026-01-01T01:00:00Z",
        verdict=Verdict.INFRA_ERROR,
        reasons=[ReasonNote(code="tool_missing", detail="no answer")],
        phases=[],
        exit_code=None,
        signal=None,
        points=[],
    )
    write_record(writer.path / "launch.json", record)
    writer.seal()
