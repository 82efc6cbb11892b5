"""A sweep on a real Slurm cluster, podman started by srun: killed in the middle, finished, clean."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime
from typing import Any

import pytest

from isoline.results.judging.reasons import Verdict
from isoline.runners.ownership import quarantine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(500)]

RECIPE = "smollm2-135m/llamacpp-cpu-q4_1-container"


@pytest.fixture
def batch(tiny: Any, slurm: Any, podman: Any, container_image: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The small project with its recipe in a container and a pool of the cluster's two nodes."""
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    path = tiny.project / f"recipes/{tiny.recipe('container')}.yaml"
    recipe = json.loads(path.read_text().partition("\n")[2])
    tiny.yaml(
        str(path.relative_to(tiny.project)),
        {**recipe, "image": {"ref": container_image.ref}, "readiness": {"ready_s": 60, "stop_s": 5}},
    )
    tiny.yaml(
        "runners/batch.yaml",
        {
            "schema_version": 1,
            "name": "batch",
            "launcher": "slurm",
            "sku": "cpu",
            "nodes": 1,
            "client_profile": "shared-cpu",
            "container": {
                "runtime": "podman",
                "device_profile": "cpu",
                "model_cache": "{state}/weights",
                "scratch": "{state}/scratch",
                "shm_gb": 1,
                "env": podman.env,
            },
            "slurm": {"partition": "cpu", "container": "podman", "exclusive": False, "time_limit_min": 10},
        },
    )
    return tiny


def test_a_sweep_under_slurm_survives_a_kill(batch: Any, slurm: Any, podman: Any) -> None:
    """The orchestrator is killed under load and its job lives on; the same command ends that job, leaves a
    stranger's, and finishes: the point is valid, the lock names the job's node and clears it of an error
    that was noted before, nothing is left."""
    tiny = batch
    tiny.sweep("queued", {"recipes": [RECIPE], "concurrency": [1]}, pool="batch")
    stranger = int(
        slurm.run("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 600", "--job-name=other")
    )
    at = quarantine.stamp(datetime.now(UTC))
    for node in slurm.nodes:
        error = quarantine.NodeError(at, "batch", "r", "l-1", "node_failed", "before")
        quarantine.note_error(tiny.state, node, error)
    first = tiny.start("sweep", "run", "queued")
    tiny.wait_requests(first, 1)
    first.kill(signal.SIGKILL)
    first.process.wait()
    (ours,) = set(slurm.jobs()) - {stranger}
    done = tiny.sweep_run("queued")
    assert f"job {ours}" in done.err
    run = tiny.the_run()
    (attempts,) = tiny.attempts(run).values()
    assert attempts[-1].verdict is Verdict.VALID, attempts[-1].reasons
    (path,) = run.glob(f"*.c1.r1.*/{len(attempts)}/lock.json")
    lock = json.loads(path.read_text())["resolved"]
    assert lock["launcher"] == "slurm" and lock["job"]["id"] != ours
    (used,) = lock["job"]["nodes"]
    others = set(slurm.nodes) - {used}
    assert {item.node for item in quarantine.all_nodes(tiny.state)} == others and len(others) == 1
    scripts = [path.read_text() for path in run.glob("_launch/*/job.sh")]
    assert scripts and all("podman run" in text for text in scripts)
    assert set(slurm.jobs()) == {stranger} and podman.containers() == {}
    slurm.run("scancel", str(stranger))
    assert tiny.processes() == {}
    assert list((tiny.state / "owners").glob("*")) == [] and list((tiny.state / "scratch").glob("*")) == []
