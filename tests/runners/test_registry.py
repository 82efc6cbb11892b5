"""Asking a registry: by what is on PATH, and None whenever it cannot say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isoline.runners.staging.registry import registry_digest

DIGEST = "sha256:" + "c" * 64


def tool(folder: Path, name: str, text: str, code: int = 0) -> None:
    """A stand-in that writes down its words and answers."""
    (folder / f"{name}.answer").write_text(text)
    script = (
        f'#!/bin/sh\necho "$@" > "{folder}/{name}.asked"\n/bin/cat "{folder}/{name}.answer"\nexit {code}\n'
    )
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_without_a_tool_nothing_is_known(path: Path) -> None:
    """No tool here: the image is unresolved, and that is no error."""
    assert registry_digest("vllm/x:v1", "amd64") is None


def test_skopeo_is_asked_for_the_architecture(path: Path) -> None:
    """The digest of that architecture's image."""
    tool(path, "skopeo", json.dumps({"Digest": DIGEST}))
    assert registry_digest("vllm/x:v1", "arm64") == DIGEST
    words = (path / "skopeo.asked").read_text()
    assert "--override-arch arm64" in words
    assert "docker://vllm/x:v1" in words


def test_docker_is_asked_where_skopeo_is_not(path: Path) -> None:
    """The entry of the architecture in the manifest list; others are not taken for it."""
    rows = [
        {
            "Descriptor": {
                "digest": "sha256:" + "d" * 64,
                "platform": {"architecture": "amd64", "os": "linux"},
            }
        },
        {"Descriptor": {"digest": DIGEST, "platform": {"architecture": "arm64", "os": "linux"}}},
    ]
    tool(path, "docker", json.dumps(rows))
    assert registry_digest("vllm/x:v1", "arm64") == DIGEST
    assert registry_digest("vllm/x:v1", "s390x") is None


@pytest.mark.parametrize("answer", ["", "{", "[]", '{"Digest": "latest"}', '{"Digest": 3}', "null"])
def test_an_odd_answer_is_none(path: Path, answer: str) -> None:
    """Nothing that is no digest is taken for one."""
    tool(path, "skopeo", answer)
    assert registry_digest("vllm/x:v1", "amd64") is None


def test_a_tool_that_fails_is_none(path: Path) -> None:
    """A registry that does not answer leaves the image unresolved."""
    tool(path, "skopeo", json.dumps({"Digest": DIGEST}), code=1)
    assert registry_digest("vllm/x:v1", "amd64") is None
