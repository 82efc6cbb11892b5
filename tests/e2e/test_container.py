"""A sweep whose servers are containers of a real podman: measured, killed in the middle, finished, clean."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from isoline.results.judging.reasons import Verdict

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]


@pytest.fixture
def contained(tiny: Any, podman: Any, container_image: Any) -> Any:
    """The small project with its recipe in a container and a pool of podman on this machine."""
    path = tiny.project / f"recipes/{tiny.recipe('container')}.yaml"
    recipe = json.loads(path.read_text().partition("\n")[2])
    tiny.yaml(
        str(path.relative_to(tiny.project)),
        {**recipe, "image": {"ref": f"{container_image.ref}"}, "status": "verified"},
    )
    container = {
        "runtime": "podman",
        "device_profile": "cpu",
        "model_cache": "{state}/weights",
        "scratch": "{state}/scratch",
        "shm_gb": 1,
        "env": podman.env,
    }
    tiny.yaml(
        "runners/podman.yaml",
        {
            "schema_version": 1,
            "name": "podman",
            "launcher": "container",
            "sku": "cpu",
            "client_profile": "shared-cpu",
            "container": container,
        },
    )
    return tiny


def test_a_sweep_in_containers_survives_a_kill(contained: Any, podman: Any) -> None:
    """Two points on one server; the orchestrator is killed under load and the container lives on; the same
    command removes that container, leaves a stranger's, and finishes: all is valid, nothing is left."""
    tiny = contained
    recipe = "smollm2-135m/llamacpp-cpu-q4_1-container"
    tiny.sweep("boxed", {"recipes": [recipe], "concurrency": [1, 2]}, pool="podman")
    image = tiny.run("recipe", "render", recipe, "--pool", "podman", "--format", "json").json()[0]["image"]
    podman.run("run", "--detach", "--name", "stranger", "--entrypoint", "sleep", image, "600")
    first = tiny.start("sweep", "run", "boxed")
    tiny.wait_requests(first, 1)
    first.kill(signal.SIGKILL)
    first.process.wait()
    ours = [name for name in podman.containers() if name != "stranger"]
    assert len(ours) == 1
    done = tiny.sweep_run("boxed")
    assert f"container {ours[0]}" in done.err
    run = tiny.the_run()
    for attempts in tiny.attempts(run).values():
        assert attempts[-1].verdict is Verdict.VALID, attempts[-1].reasons
    (lock,) = {
        json.loads(path.read_text())["resolved"]["image_id"]
        for path in Path(run).glob("*.c2.r1.*/1/lock.json")
    }
    assert lock
    assert set(podman.containers()) == {"stranger"}
    podman.run("rm", "--force", "--time", "0", "stranger")
    assert tiny.processes() == {}
    assert list((tiny.state / "owners").glob("*")) == [] and list((tiny.state / "scratch").glob("*")) == []
    assert tiny.run("results", "ingest").code == 0
    rows = tiny.query("select verdict, official from points order by point_id")
    assert [row["verdict"] for row in rows] == ["valid", "valid"]
