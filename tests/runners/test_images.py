"""Images come to machines by digest, by the runtime's own command; what it says is understood."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from isoline.catalog.pools import Pool
from isoline.errors import InputError
from isoline.runners.machine.hosts import Host, ToolUnavailableError
from isoline.runners.machine.nodes import NodeJobError
from isoline.runners.staging.images import (
    by_digest,
    explained,
    find_image,
    image_file,
    import_words,
    pull_image,
)

HEX = "4f" * 32
REF = f"vllm/vllm-openai:v0.27.1@sha256:{HEX}"


def slurm_pool(container: str, **slurm: Any) -> Pool:
    return Pool.model_validate(
        {
            "schema_version": 1, "name": "s", "launcher": "slurm", "sku": "h200",
            "container": {"device_profile": "nvidia", "model_cache": "/m", "scratch": "/s"},
            "slurm": {"partition": "gpu", "container": container, "image_cache": "/images", **slurm},
        }
    )  # fmt: skip


def test_a_reference_by_digest_alone() -> None:
    """Tools that take no tag beside a digest get none; a port is no tag."""
    assert by_digest(REF) == f"vllm/vllm-openai@sha256:{HEX}"
    assert by_digest("reg:5000/a/b:1@sha256:00") == "reg:5000/a/b@sha256:00"
    assert by_digest("reg:5000/a/b:1") == "reg:5000/a/b:1"


@pytest.mark.parametrize(
    ("container", "ref", "file", "words"),
    [
        ("pyxis", REF, f"/images/{HEX}.sqsh", f"enroot import --output {{out}} docker://vllm/vllm-openai@sha256:{HEX}"),
        (
            "pyxis", f"nvcr.io/nvidia/x:1@sha256:{HEX}", f"/images/{HEX}.sqsh",
            f"enroot import --output {{out}} docker://nvcr.io#nvidia/x@sha256:{HEX}",
        ),
        ("apptainer", REF, f"/images/{HEX}.sif", f"apptainer pull --force {{out}} docker://vllm/vllm-openai@sha256:{HEX}"),
        (
            "podman", REF, f"/images/{HEX}.tar",
            f"skopeo copy docker://vllm/vllm-openai@sha256:{HEX} docker-archive:{{out}}:vllm/vllm-openai:v0.27.1",  # noqa: E501
        ),
    ],
)  # fmt: skip
def test_slurm_pools_import_once_to_one_file(container: str, ref: str, file: str, words: str) -> None:
    """The file is named by the digest, whoever starts containers there; the command makes just it."""
    pool = slurm_pool(container)
    assert image_file(pool, ref) == file
    assert " ".join(import_words(pool, ref)) == words


def test_a_slurm_pool_without_a_folder_is_told() -> None:
    """Otherwise nodes would pull on allocated devices."""
    with pytest.raises(InputError, match="image_cache is not set"):
        image_file(slurm_pool("pyxis", image_cache=None), REF)
    assert image_file(slurm_pool("none", image_cache=None), REF) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Error response from daemon: manifest for a/b:1 not found: manifest unknown", "image_missing"),
        ("toomanyrequests: You have reached your unauthenticated pull rate limit.", "rate_limited"),
        ("write /var/lib/docker/tmp/GetImageBlob1: no space left on device", "disk_full"),
        ("dial tcp: lookup registry-1.docker.io: no such host", "infra"),
        ("", "infra"),
    ],
)  # fmt: skip
def test_what_a_pull_said_becomes_a_cause(text: str, code: str) -> None:
    """A registry's words give the reason; what nobody knows stays infrastructure."""
    error = explained(text, "docker pull a/b", "n1")
    assert error.code == code and error.line().startswith("n1: docker pull a/b: ")


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A stand-in for docker: a shell script."""
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

    def write(script: str) -> None:
        path = tools / "docker"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write


def test_silence_is_not_absence(docker: Callable[[str], None]) -> None:
    """Only the runtime's own words say that an image is not there; a daemon that is down says nothing."""
    host = Host("here")
    docker('echo "Error response from daemon: No such image: a/b:1" >&2; exit 1')
    assert find_image(host, "docker", "a/b:1") is None
    docker("echo 21474836480")
    found = find_image(host, "docker", "a/b:1")
    assert found is not None and found.bytes == 21474836480
    docker('echo "Cannot connect to the Docker daemon at unix:///var/run/docker.sock." >&2; exit 1')
    with pytest.raises(ToolUnavailableError, match="Cannot connect"):
        find_image(host, "docker", "a/b:1")


def test_an_image_that_is_made_here_is_not_pulled(docker: Callable[[str], None]) -> None:
    """No registry is asked for what no registry has."""
    docker("exit 1")
    with pytest.raises(NodeJobError, match="make or load it") as error:
        pull_image(Host("here"), "docker", "localhost/engine:1")
    assert error.value.code == "image_missing"


@pytest.fixture
def podman(support: Callable[[str], ModuleType]) -> Iterator[Any]:
    """A real podman with storage of its own."""
    module = support("podman")
    if why := module.missing():
        pytest.skip(why)
    own = module.Podman()
    yield own
    own.close()


def test_a_real_podman_pulls_by_digest(
    podman: Any, support: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    """From a real registry: absent, pulled, there; a digest that is not there is told as such."""
    with support("fake_registry").serve() as registry:
        conf = tmp_path / "registries.conf"
        conf.write_text(f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n')
        host = Host("here", env={**podman.env, "CONTAINERS_REGISTRIES_CONF": str(conf)})
        assert find_image(host, "podman", registry.ref) is None
        pull_image(host, "podman", registry.ref)
        found = find_image(host, "podman", registry.ref)
        assert found is not None and found.bytes > 0
        with pytest.raises(NodeJobError) as error:
            pull_image(host, "podman", f"{registry.address}/org/engine@sha256:{HEX}")
        assert error.value.code == "image_missing"
