"""Images with what sidecars need are made while a pool is staged, of a real base by a real podman."""

from __future__ import annotations

import ensurepip
import functools
import http.server
import os
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.pools import Pool
from isoline.errors import InputError
from isoline.recipes.deployment import Command, Deployment
from isoline.recipes.derived import check_packages, is_pinned
from isoline.runners.staging.items import derived_item
from isoline.runners.staging.place import inventory
from isoline.runners.staging.pool import stage_pool
from isoline.settings import Settings

BASE = "vllm/vllm-openai:v1@sha256:" + "a" * 64
PACKAGE = "isoline-greeting==1.0"


def deployment(base: str = BASE, packages: tuple[str, ...] = (PACKAGE,)) -> Deployment:
    """A worker and a router that needs packages."""
    worker = Command("aggregated", ["serve"], {}, role="aggregated", gpus=1)
    router = Command("router", ["route"], {}, ports=("router",), packages=packages, is_entry=True)
    return Deployment(base, (), (worker,), (router,))


def pool(launcher: str = "container", kind: str = "pyxis", **container: Any) -> Pool:
    """A pool of that launcher."""
    parts = {"device_profile": "cpu", "model_cache": "/m", "scratch": "/s", **container}
    slurm = {"partition": "x", "container": kind, "image_cache": "/images"}
    fields = {"schema_version": 1, "name": "p", "launcher": launcher, "sku": "cpu", "container": parts}
    return Pool.model_validate({**fields, **({"slurm": slurm} if launcher == "slurm" else {})})


def test_a_name_says_what_an_image_is_made_of() -> None:
    """The same base and packages in any order give one name; another of either gives another; without
    packages it is the image itself."""
    two = deployment(packages=("b==1", "a==1"))
    assert two.used_image == deployment(packages=("a==1", "b==1")).used_image
    assert str(two.used_image).startswith("localhost/isoline-derived:")
    names = {two.used_image, deployment().used_image, deployment("x:1").used_image}
    assert len(names) == 3
    assert deployment(packages=()).used_image == BASE
    assert replace(two, image=None).used_image is None


@pytest.mark.parametrize(
    ("package", "is_one"),
    [
        ("ai-dynamo==1.3.1", True),
        ("ai-dynamo[vllm]==1.3.0.dev20260718", True),
        ("ai-dynamo @ git+https://github.com/ai-dynamo/dynamo@" + "5b" * 20, True),
        ("ai-dynamo", False),
        ("ai-dynamo>=1.3", False),
        ("ai-dynamo==1.*", False),
        ("ai-dynamo @ git+https://github.com/ai-dynamo/dynamo@main", False),
        ("--index-url=https://evil==1", False),
        ("a==1 --pre", False),
        ("a==1\nRUN x", False),
    ],
)
def test_what_is_one_version(package: str, is_one: bool) -> None:
    """A number or a commit is; a range, a branch and an option of pip are not."""
    assert is_pinned(package) is is_one


def test_pools_that_cannot_have_such_an_image_refuse_at_once() -> None:
    """Jobs without a container, and nodes that load no image, are one line before anything is allocated."""
    bare = pool("slurm", "none")
    with pytest.raises(InputError, match=r"need packages \(isoline-greeting==1.0\).* in no image"):
        check_packages(deployment(), bare, "r")
    check_packages(deployment(packages=()), bare, "r")
    loads = pool("slurm", "docker")
    check_packages(deployment(), loads, "r")
    assert loads.slurm is not None
    without = loads.model_copy(update={"slurm": loads.slurm.model_copy(update={"image_cache": None})})
    with pytest.raises(InputError, match=r"no folder for such an image; name a folder that all nodes see"):
        check_packages(deployment(), without, "r")


ENROOT = """#!/bin/bash
echo "enroot $*" >>"$FAKE/calls"
case $1 in
create) cp "$4" "$FAKE/$3" ;;
start) while [[ $1 != isoline-* ]]; do [[ $1 != --rc ]] || rc=$2; shift; done
  cat "$rc" >>"$FAKE/rc"; name=$1; shift
  [[ -z $FAIL ]] || { echo "ERROR: No matching distribution found for x==1"; echo later; exit 1; }
  echo "$*" >>"$FAKE/$name" ;;
export) cp "$FAKE/$4" "$3" ;;
remove) rm -f "$FAKE/$3" ;;
esac
"""
APPTAINER = """#!/bin/bash
echo "apptainer ${*: 1:3}" >>"$FAKE/calls"; cp "$5" "$4"
"""

DOCKER = """#!/bin/bash
echo "docker $*" >>"$FAKE/calls"
case $1 in
build) cat >"$FAKE/made" ;;
save) cp "$FAKE/made" "$3" ;;
esac
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for enroot, apptainer and docker on PATH; the folder with their ``calls``."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, body in (("enroot", ENROOT), ("apptainer", APPTAINER), ("docker", DOCKER)):
        (folder / name).write_text(body)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE", str(folder))
    monkeypatch.setenv("FAIL", "")
    return folder


def of_images(folder: Path, kind: str, **container: Any) -> Pool:
    """A Slurm pool whose images, the base among them, lie in a folder."""
    made = pool(
        "slurm", kind, model_cache=str(folder / "models"), scratch=str(folder / "scratch"), **container
    )
    assert made.slurm is not None
    images = folder / "images"
    images.mkdir(exist_ok=True)
    for suffix in ("sqsh", "sif"):
        (images / f"{'a' * 64}.{suffix}").write_text("base\n")
    return made.model_copy(update={"slurm": made.slurm.model_copy(update={"image_cache": str(images)})})


def test_enroot_makes_one_file_of_the_base(
    settings: Settings, tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip runs in a copy of the base under a start script of ours, and the copy goes; a failure says pip's
    own line, leaves no file, and the next try starts anew."""
    where, item = (
        of_images(tmp_path, "pyxis", env={"PIP_INDEX_URL": "http://mirror"}),
        derived_item(deployment()),
    )
    monkeypatch.setenv("FAIL", "1")
    (row,) = stage_pool(settings, where, [item])
    assert row.state == "failed" and row.detail.endswith("ERROR: No matching distribution found for x==1")
    assert not list((tmp_path / "images").glob("*isoline-derived*"))
    monkeypatch.setenv("FAIL", "")
    assert [row.state for row in inventory(settings, where, [item])] == ["missing"]
    assert [row.state for row in stage_pool(settings, where, [item])] == ["staged"]
    (file,) = (tmp_path / "images").glob("*isoline-derived*")
    assert file.suffix == ".sqsh"
    said = "python3 -m pip install --no-cache-dir --disable-pip-version-check isoline-greeting==1.0"
    assert file.read_text() == f"base\n{said}\n"
    calls = (tools / "calls").read_text()
    assert "--env PIP_BREAK_SYSTEM_PACKAGES=1 --env PIP_INDEX_URL isoline-" in calls
    assert (tools / "rc").read_text().splitlines()[-1] == 'exec "$@"'
    assert not list(tools.glob("isoline-*"))
    assert [row.state for row in stage_pool(settings, where, [item])] == ["there"]


def test_apptainer_makes_one_file_of_the_base(settings: Settings, tmp_path: Path, tools: Path) -> None:
    """Its definition names the base's file and pip's words, each quoted for the shell that reads it."""
    commit = "x @ git+https://host/x@" + "5b" * 20
    where = of_images(tmp_path, "apptainer", env={"PIP_INDEX_URL": "http://mirror/a b", "OTHER": "1"})
    item = derived_item(deployment(packages=(PACKAGE, commit)))
    assert [row.state for row in stage_pool(settings, where, [item])] == ["staged"]
    (file,) = (tmp_path / "images").glob("*isoline-derived*.sif")
    text = file.read_text()
    assert f"From: {tmp_path}/images/{'a' * 64}.sif\n" in text
    assert "export PIP_INDEX_URL='http://mirror/a b'\n" in text and "OTHER" not in text
    assert text.endswith(f"--disable-pip-version-check {PACKAGE} '{commit}'\n")
    assert not list((tmp_path / "images").glob("*.def"))


def test_docker_makes_the_file_that_nodes_load(settings: Settings, tmp_path: Path, tools: Path) -> None:
    """Built of the base that it pulls itself, saved under its name; the machine that made it keeps none. The
    value of a package index stands in no command line."""
    where = of_images(tmp_path, "docker", env={"PIP_INDEX_URL": "http://user:secret@mirror"})
    item = derived_item(deployment())
    assert [row.state for row in stage_pool(settings, where, [item])] == ["staged"]
    (file,) = (tmp_path / "images").glob("*isoline-derived*.tar")
    assert file.read_text().splitlines() == [
        f"FROM vllm/vllm-openai@sha256:{'a' * 64}",
        "ARG PIP_BREAK_SYSTEM_PACKAGES=1",
        "ARG PIP_INDEX_URL",
        'RUN ["python3", "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check", '
        '"isoline-greeting==1.0"]',
    ]
    calls = (tools / "calls").read_text()
    assert f"--tag {item.id} --build-arg PIP_INDEX_URL -" in calls and "secret" not in calls
    assert calls.splitlines()[-1] == f"docker image rm {item.id}"


# --- real -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A package index on the loopback device with one small wheel."""
    root = tmp_path_factory.mktemp("index")
    folder = root / "simple" / "isoline-greeting"
    folder.mkdir(parents=True)
    wheel = "isoline_greeting-1.0-py3-none-any.whl"
    info = "isoline_greeting-1.0.dist-info"
    with zipfile.ZipFile(folder / wheel, "w") as file:
        file.writestr("isoline_greeting.py", "WORD = 'hello'\n")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: isoline-greeting\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(
            f"{info}/RECORD", f"isoline_greeting.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
    (folder / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def base(podman: Any, container_image: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The engine's image with a pip in its Python, as real images have one."""
    folder = tmp_path_factory.mktemp("base")
    (wheel,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder / "packages")
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    where = podman.run("run", "--rm", "--entrypoint", "python3", container_image.ref, "-c", ask)
    (folder / "Containerfile").write_text(f"FROM {container_image.ref}\nCOPY packages {where}\n")
    podman.run("build", "--quiet", "--layers=false", "--tag", "localhost/with-pip:1", folder, timeout_s=180)
    return "localhost/with-pip:1"


@pytest.mark.engine
def test_a_real_podman_makes_the_image(
    settings: Settings, podman: Any, base: str, index: str, tmp_path: Path
) -> None:
    """Missing, made with the pool's own package index, there; programs in it import the package; nothing
    of the index stays in it. A package that nobody has is one line with pip's own word."""
    env = {**podman.env, "PIP_INDEX_URL": index}
    where = pool(runtime="podman", model_cache=str(tmp_path / "m"), scratch=str(tmp_path / "s"), env=env)
    item = derived_item(deployment(base))
    assert [row.state for row in inventory(settings, where, [item])] == ["missing"]
    (row,) = stage_pool(settings, where, [item])
    assert row.state == "staged" and row.bytes, row
    assert [row.state for row in stage_pool(settings, where, [item])] == ["there"]
    say = "import isoline_greeting, os; print(isoline_greeting.WORD, os.environ.get('PIP_INDEX_URL'))"
    assert podman.run("run", "--rm", "--entrypoint", "python3", item.id, "-c", say) == "hello None"
    wrong = derived_item(deployment(base, ("isoline-greeting==2.0",)))
    (row,) = stage_pool(settings, where, [wrong])
    assert row.state == "failed" and "No matching distribution found for isoline-greeting==2.0" in row.detail
    assert "<none>" not in podman.run("images"), "no step of it is left"
    podman.run("image", "rm", "--force", item.id)
