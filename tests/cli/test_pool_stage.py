"""``isoline pool stage|pin|unpin`` through the command line, against a hub that is a real HTTP server."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from isoline.cli.main import run

REF = "vllm/vllm-openai:v0.27.1@sha256:" + "4f" * 32
POOL = """\
schema_version: 1
name: box
launcher: container
sku: h200
accelerators: 8
container: {{device_profile: nvidia, model_cache: "{cache}", scratch: "{cache}/scratch"}}
"""
SWEEP = """\
schema_version: 1
name: big
description: one model
pool: box
publish: false
select:
  - {recipes: [gpt-oss-120b/vllm-h200-mxfp4-8k1k], scenario: 8k1k, concurrency: [128]}
"""
STAGE = ["pool", "stage", "box", "--sweep", "big", "--image", f"vllm-release={REF}", "--format", "json"]


@pytest.fixture
def fleet(project: Any, project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one H200 pool, whose docker has every image; its model cache."""
    for file in ("recipes/gpt-oss-120b/vllm-h200-mxfp4-8k1k.yaml", "recipes/channels.yaml"):
        project.write(file, (project_root / file).read_text(encoding="utf-8"))
    cache = tmp_path / "models"
    project.write("runners/box.yaml", POOL.format(cache=cache))
    project.write("sweeps/big.yaml", SWEEP)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "docker").write_text("#!/bin/sh\necho 1000\n")
    (tools / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return cache


def test_dry_run_stage_pin(
    fleet: Path,
    support: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is missing (3), brought (0), there (0), pinned; the record on the machine says it."""
    module = support("fake_hub")
    with module.serve() as hub:
        hub.repos["models/openai/gpt-oss-120b"] = module.Repo(
            {"model.safetensors": b"w", "config.json": b"{}"}
        )
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        assert run([*STAGE, "--dry-run"]) == 3
        rows = {row["kind"]: row for row in json.loads(capsys.readouterr().out)}
        assert {kind: row["state"] for kind, row in rows.items()} == {
            "image": "there",
            "model": "missing",
            "tokenizer": "missing",
        }
        assert hub.requests == [] and not fleet.exists()
        assert run(STAGE) == 0
        assert {row["state"] for row in json.loads(capsys.readouterr().out)} == {"there", "staged"}
        assert run([*STAGE, "--dry-run"]) == 0
        capsys.readouterr()
    item = rows["model"]["item"]
    assert run(["pool", "pin", "box", item]) == 0
    assert "pinned on local" in capsys.readouterr().out
    assert json.loads((fleet / ".isoline" / f"{item}.json").read_text())["pinned"] is True
    assert run(["pool", "unpin", "box", item]) == 0
    assert run(["pool", "pin", "box", "model--none"]) == 1
    assert "there are:" in capsys.readouterr().err


def test_exit_codes_of_failures(
    fleet: Path,
    support: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A gated model is final (3), a hub that is down may be tried again (4); both are one line each."""
    module = support("fake_hub")
    with module.serve() as hub:
        hub.repos["models/openai/gpt-oss-120b"] = module.Repo({"model.safetensors": b"w"}, gated=True)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setenv("HF_HOME", str(fleet))
        assert run(STAGE) == 3
        rows = json.loads(capsys.readouterr().out)
        failed = [row for row in rows if row["state"] == "failed"]
        assert len(failed) == 2 and all("set HF_TOKEN" in row["detail"] for row in failed)
        hub.repos["models/openai/gpt-oss-120b"].gated = False
        hub.limits.extend(["7200"] * 4)
        assert run(STAGE) == 4
        assert "the hub asks to wait 7200 s" in capsys.readouterr().err


def test_a_try_out_is_staged_for_one_recipe(
    fleet: Path, project: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The smoke sweep names the CPU's recipe; with --recipe it is staged for another one, as it is run."""
    words = ["pool", "stage", "box", "--sweep", "smoke", "--dry-run", "--format", "json"]
    assert run(words) == 1
    assert "another recipe, --recipe" in capsys.readouterr().err
    assert run([*words, "--recipe", "gpt-oss-120b/vllm-h200-mxfp4-8k1k"]) == 3
    rows = {row["kind"]: row["id"] for row in json.loads(capsys.readouterr().out)}
    assert rows["model"] == "openai/gpt-oss-120b"
