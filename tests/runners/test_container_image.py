"""The rendered line of the container recipe, run by the real podman on the real image."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from isoline.recipes.deployment import filled
from isoline.runners.engines import engine_adapter

RECIPE = "smollm2-135m/llamacpp-cpu-q4_1-container"


def rendered_line(project_root: Path) -> str:
    """What ``isoline recipe render`` prints for one request in flight, comments left out."""
    done = subprocess.run(
        [
            Path(sys.executable).with_name("isoline"),
            *("recipe", "render", RECIPE, "--pool", "local-podman", "--concurrency", "1"),
        ],
        cwd=project_root,
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = (row for row in done.stdout.splitlines() if row.startswith("podman run"))
    return line


@pytest.mark.engine
def test_the_rendered_line_serves(
    podman: Any, container_image: Any, project_root: Path, tmp_path: Path
) -> None:
    """With its placeholders filled in, the line becomes a healthy server that generates and can be ended."""
    state = project_root / ".isoline"
    (weights,) = (state / "weights").glob("*/SmolLM2-135M-Instruct.Q4_1.gguf")
    port = "18431"
    values = {
        "state": str(state),
        "scratch": str(tmp_path),
        "container_name": "isoline-rendered",
        "model_path": f"/models/{weights.relative_to(state / 'weights')}",
        "model_alias": "smollm2",
        "host": "127.0.0.1",
        "port": port,
    }
    words = shlex.split(filled(rendered_line(project_root), values))
    owner = {"run": "r", "launch": "l", "host": "h", "pid": "1", "start": "2"}
    for name, value in owner.items():
        words = [word.replace(f"{{owner.{name}}}", value) for word in words]
    assert not [word for word in words if "{" in word]
    assert container_image.ref in words
    adapter = engine_adapter("llamacpp")
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(words, env=os.environ | podman.env, cwd=tmp_path)
    try:
        until = time.monotonic() + 60
        while not adapter.healthy(url):
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.1)
        tokens, text = adapter.generate(url, "smollm2", 5, 60.0)
        assert tokens == 5 and text.strip()
        assert podman.containers("label=isoline.launch=l") == {"isoline-rendered": "running"}
        assert (tmp_path / "effective_args.json").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (143, 128 + 15, -15)
        assert podman.containers() == {}
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        podman.run("rm", "--force", "--time", "0", "isoline-rendered", check=False)


def test_the_image_is_the_same_twice(
    podman: Any,
    container_image: Any,
    support: Callable[[str], ModuleType],
    project_root: Path,
    tmp_path: Path,
) -> None:
    """Made again elsewhere from the same content, the image has the same digest, and podman says so too."""
    said = podman.run("image", "inspect", container_image.ref, "--format", "{{.Digest}}")
    assert said == container_image.digest
    (tmp_path / "envs").symlink_to(project_root / ".isoline" / "envs")
    again = support("podman").image_tool().make(tmp_path)
    assert again.path.parent == tmp_path / "images"
    assert again.pinned == container_image.pinned
