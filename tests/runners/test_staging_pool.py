"""What a launch needs is brought to the machines of its pool before it starts, and asked for when it does."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from isoline.catalog.facts import catalog_of
from isoline.catalog.models import WeightFile
from isoline.catalog.pools import Pool
from isoline.datasets.schema import Dataset
from isoline.errors import InputError
from isoline.recipes.load import load_recipe
from isoline.results.bundles.records import PlanLaunch
from isoline.runners.launchers.compile_cache import cache_key, compile_cache, mark_warm
from isoline.runners.machine.hosts import Host, ToolUnavailableError
from isoline.runners.machine.nodes import run_job
from isoline.runners.staging.items import Item, items_of_launch, items_of_plan
from isoline.runners.staging.place import inventory, look_at, missing_inputs, spots_of
from isoline.runners.staging.pool import inputs_in_use, set_pin, stage_pool
from isoline.settings import Settings

DIGEST = "4f" * 32
REF = f"vllm/vllm-openai:v0.27.1@sha256:{DIGEST}"
HUB_ID = "openai/gpt-oss-120b"

DOCKER = """#!/bin/sh
# docker, as far as staging asks it: images are files of a folder.
echo "$@" >> {folder}/calls
case "$1 $2" in
"image inspect")
  name=$(echo "$5" | tr '/:@' '---')
  if [ -e "{folder}/$name" ]; then echo 1000; else
    echo "[]"; echo "Error response from daemon: No such image: $5" >&2; exit 1; fi;;
pull*)
  name=$(echo "$2" | tr '/:@' '---')
  echo "Digest: $2"; touch "{folder}/$name";;
*) exit 1;;
esac
"""


@pytest.fixture
def hub(support: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A hub with the model, a draft and a dataset."""
    module, made = support("fake_hub"), random.Random(5)
    with module.serve() as served:
        files = {
            "model.safetensors": made.randbytes(200_000),
            "config.json": b"{}",
            "tokenizer.json": b'{"t": 1}',
            "original/model.pth": b"x" * 1000,
        }
        served.repos[f"models/{HUB_ID}"] = module.Repo(files, {"model.safetensors"})
        served.repos["models/org/draft"] = module.Repo({"model.safetensors": b"draft"}, set())
        served.repos["datasets/org/traces"] = module.Repo({"traces.jsonl": b"{}\n"}, set())
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setenv("HF_TOKEN", "good")
        yield served


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for docker on PATH; its folder holds ``calls`` and the images."""
    tools = tmp_path / "docker"
    tools.mkdir()
    (tools / "docker").write_text(DOCKER.format(folder=tools))
    (tools / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return tools


def container_pool(tmp_path: Path, **changes: Any) -> Pool:
    cache = tmp_path / "models"
    return Pool.model_validate(
        {
            "schema_version": 1, "name": "box", "launcher": "container", "sku": "h200", "accelerators": 8,
            "container": {
                "device_profile": "nvidia", "model_cache": str(cache), "scratch": str(tmp_path / "scratch"),
            },
            **changes,
        }
    )  # fmt: skip


@pytest.fixture
def launch(project_root: Path, planning: Any, tmp_path: Path) -> PlanLaunch:
    """The launch of gpt-oss-120b on H200, with its image resolved."""
    pool = container_pool(tmp_path)
    with catalog_of(project_root):
        plan = planning.plan_of(
            project_root, load_recipe(project_root, "gpt-oss-120b/vllm-h200-mxfp4-8k1k"),
            pools={"h200": pool}, images={"vllm-release": REF},
        )  # fmt: skip
    found: PlanLaunch = plan.launches[0]
    return found


def with_draft(launch: PlanLaunch) -> PlanLaunch:
    detail = {**launch.identity["speculative_detail"], "method": "draft", "draft_model": "org/draft"}
    return launch.model_copy(update={"identity": {**launch.identity, "speculative_detail": detail}})


def traces(name: str) -> Dataset:
    return Dataset.model_validate(
        {
            "schema_version": 1, "name": name, "kind": "trace", "description": "d", "license": "l",
            "made_by": "m", "hub_id": "org/traces", "form": "weka_trace",
        }
    )  # fmt: skip


def dataset_name(launch: PlanLaunch) -> str:
    return str(launch.points[0].identity["scenario"]["dataset"])


def test_the_items_of_a_launch(launch: PlanLaunch, tmp_path: Path) -> None:
    """Image, weights, tokenizer, draft and dataset; each with the place where it is used."""
    pool = container_pool(tmp_path)
    name = dataset_name(launch)
    found = items_of_launch(pool, with_draft(launch), {name: traces(name)})
    assert [(item.kind, item.id, item.place) for item in found] == [
        ("image", REF, "pool"),
        ("model", HUB_ID, "pool"),
        ("tokenizer", HUB_ID, "client"),
        ("draft", "org/draft", "pool"),
        ("dataset", "org/traces", "client"),
    ]
    assert found[0].name == f"image--{DIGEST[:12]}"
    assert len({item.name for item in found}) == 5
    assert items_of_launch(pool.model_copy(update={"launcher": "simulated"}), launch) == ()
    assert items_of_plan(pool, [launch, launch], {}) == items_of_launch(pool, launch)
    other = launch.model_copy(update={"pool": "other"})
    assert items_of_plan(pool, [other], {}) == ()


def test_an_unresolved_channel_cannot_be_staged(launch: PlanLaunch, tmp_path: Path) -> None:
    """A channel that nobody resolved names no image."""
    identity = {**launch.identity, "image": {"ref": "channel:vllm-release"}}
    with pytest.raises(InputError, match="not resolved"):
        items_of_launch(container_pool(tmp_path), launch.model_copy(update={"identity": identity}))


def test_stage_then_nothing_is_missing(
    settings: Settings, launch: PlanLaunch, tmp_path: Path, hub: Any, docker: Path
) -> None:
    """Before: each input is named. Staged: none is, and a launch asks neither hub nor registry."""
    pool, launch = container_pool(tmp_path), with_draft(launch)
    name = dataset_name(launch)
    data = {name: traces(name)}
    missing = missing_inputs(settings, pool, launch, data)
    assert missing == [
        f"image {REF} is not staged on local",
        f"model {HUB_ID} is not staged on local",
        "draft org/draft is not staged on local",
        f"tokenizer {HUB_ID} is not staged on here",
        "dataset org/traces is not staged on here",
    ]
    said: list[str] = []
    rows = stage_pool(settings, pool, items_of_launch(pool, launch, data), said.append)
    assert {row.state for row in rows} == {"staged"}, [row.detail for row in rows]
    asked = len(hub.requests)
    assert missing_inputs(settings, pool, launch, data) == []
    assert len(hub.requests) == asked
    assert f"pull vllm/vllm-openai@sha256:{DIGEST}" in (docker / "calls").read_text()
    assert any("docker pull" in line for line in said)


def test_the_files_lie_where_engines_look(
    settings: Settings, launch: PlanLaunch, tmp_path: Path, hub: Any, docker: Path
) -> None:
    """Under the plain path that commands name, without other formats; the hub's library finds them too."""
    pool = container_pool(tmp_path)
    stage_pool(settings, pool, items_of_launch(pool, launch))
    cache = tmp_path / "models"
    plain = cache / "openai--gpt-oss-120b/main"
    names = sorted(path.name for path in plain.rglob("*") if path.is_file())
    assert names == ["config.json", "model.safetensors", "tokenizer.json"]
    code = f"import huggingface_hub as h; print(h.hf_hub_download('{HUB_ID}', 'model.safetensors'))"
    env = {**os.environ, "HF_HOME": str(cache), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = Path(done.stdout.strip())
    assert found.read_bytes() == hub.repos[f"models/{HUB_ID}"].files["model.safetensors"]
    client = settings.state / "hf/hub/models--openai--gpt-oss-120b"
    assert {path.name for path in client.glob("snapshots/*/*")} == {"config.json", "tokenizer.json"}


def test_one_failed_item_does_not_keep_the_others(
    settings: Settings, launch: PlanLaunch, tmp_path: Path, hub: Any, docker: Path
) -> None:
    """A gated draft is one failed row with its remedy; everything else is staged."""
    hub.repos["models/org/draft"].gated = True
    os.environ["HF_TOKEN"] = "bad"
    pool = container_pool(tmp_path)
    rows = stage_pool(settings, pool, items_of_launch(pool, with_draft(launch)))
    states = {row.item.kind: row for row in rows}
    assert states["draft"].state == "failed" and states["draft"].code == "model_gated"
    assert "accept the conditions" in states["draft"].detail
    assert {row.state for row in rows if row.item.kind != "draft"} == {"staged"}


def test_each_machine_of_a_pool_is_staged(
    settings: Settings, launch: PlanLaunch, tmp_path: Path, hub: Any, docker: Path
) -> None:
    """Over ssh on every host; a machine that cannot be reached is its own failed rows, never "missing"."""
    (docker / "ssh").write_text(
        "#!/bin/sh\nfor word; do last=$word; done\n"
        'case "$*" in *n9*) echo "ssh: connect to n9: timed out" >&2; exit 255;; esac\n'
        'exec sh -c "$last"\n'
    )
    (docker / "ssh").chmod(0o755)
    pool = container_pool(tmp_path, hosts=["n1", "n9"])
    rows = stage_pool(
        settings, pool, [item for item in items_of_launch(pool, launch) if item.place == "pool"]
    )
    assert {(row.node, row.state) for row in rows} == {("n1", "staged"), ("n9", "failed")}
    assert all("timed out" in row.detail for row in rows if row.node == "n9")
    with pytest.raises(ToolUnavailableError, match="timed out"):
        missing_inputs(settings, pool, launch)


def test_a_single_file_of_weights(settings: Settings, tmp_path: Path, docker: Path) -> None:
    """It goes to this machine's model cache, and through ssh to another's; what arrives is hashed."""
    data = b"weights " * 1000
    digest = hashlib.sha256(data).hexdigest()
    file = WeightFile(file="m.gguf", precision="q4_1", sha256=digest, bytes=len(data))
    source = settings.state / "weights" / digest / "m.gguf"
    source.parent.mkdir(parents=True)
    source.write_bytes(data)
    item = Item("weights--m", "weights", "m.gguf", "pool", None, len(data), file)
    (docker / "ssh").write_text('#!/bin/sh\nfor word; do last=$word; done\nexec sh -c "$last"\n')
    (docker / "ssh").chmod(0o755)
    for hosts in ([], ["n1"]):
        here = tmp_path / f"machine-{len(hosts)}"
        pool = container_pool(here, hosts=hosts)
        assert [row.state for row in inventory(settings, pool, [item])] == ["missing"]
        rows = stage_pool(settings, pool, [item])
        assert [row.state for row in rows] == ["staged"], rows
        assert (here / "models" / digest / "m.gguf").read_bytes() == data
        assert [row.state for row in stage_pool(settings, pool, [item])] == ["there"]
        (here / "models" / digest / "m.gguf").unlink()
        assert [row.state for row in inventory(settings, pool, [item])] == ["missing"]
    (docker / "dd").write_text('#!/bin/sh\ncase "$1" in of=*) echo damaged > "${1#of=}";; esac\n')
    (docker / "dd").chmod(0o755)
    (row,) = stage_pool(settings, pool, [item])
    assert row.code == "weights_digest_mismatch"
    assert not (here / "models" / digest / "m.gguf").exists()


def test_a_launch_whose_sidecars_need_packages(
    settings: Settings, launch: PlanLaunch, tmp_path: Path, hub: Any, docker: Path
) -> None:
    """Base and the image with them are staged in this order, and without either the launch is not staged;
    nodes under Slurm that load a file need the one with packages alone."""
    router = {**launch.identity["commands"][0], "name": "router", "packages": ["a==1"], "gpus": 0}
    identity = {**launch.identity, "commands": [*launch.identity["commands"], router]}
    launch = launch.model_copy(update={"identity": identity})
    pool = container_pool(tmp_path)
    items = [item for item in items_of_plan(pool, [launch], {}) if item.kind in ("image", "derived")]
    assert [item.kind for item in items] == ["image", "derived"]
    stage_pool(settings, pool, [item for item in items_of_launch(pool, launch) if item.kind != "derived"])
    (missing,) = missing_inputs(settings, pool, launch)
    assert missing == f"image {items[1].id} ({REF} with a==1) is not staged on local"
    (docker / "docker").write_text(
        (docker / "docker")
        .read_text()
        .replace(
            "*) exit 1",
            f'build*) cat >{docker}/made; touch "{docker}/$(echo "$6" | tr "/:@" "---")";;\n*) exit 1',
        )
    )
    assert [row.state for row in stage_pool(settings, pool, items)] == ["there", "staged"]
    assert f"FROM vllm/vllm-openai@sha256:{DIGEST}\n" in (docker / "made").read_text()
    assert missing_inputs(settings, pool, launch) == []
    slurm = {"partition": "gpu", "container": "docker", "image_cache": "/images"}
    loads = container_pool(tmp_path, launcher="slurm", slurm=slurm)
    assert next(item.kind for item in items_of_launch(loads, launch)) == "derived"


def test_a_slurm_pool_imports_its_image_once(
    settings: Settings, launch: PlanLaunch, tmp_path: Path, hub: Any, docker: Path
) -> None:
    """One file by digest in the shared folder; the second time no command runs; a failure says why."""
    (docker / "enroot").write_text(
        f'#!/bin/sh\necho "$@" >> {docker}/calls\n'
        f'if [ -e {docker}/limit ]; then echo "toomanyrequests: You have reached it"; exit 1; fi\n'
        'echo squashfs > "$3"\n'
    )
    (docker / "enroot").chmod(0o755)
    images = tmp_path / "images"
    slurm = {"partition": "gpu", "container": "pyxis", "image_cache": str(images)}
    pool = container_pool(tmp_path, launcher="slurm", slurm=slurm)
    image = [item for item in items_of_launch(pool, launch) if item.kind == "image"]
    (docker / "limit").touch()
    failed = stage_pool(settings, pool, image)
    assert failed[0].code == "rate_limited" and not list(images.glob("*.sqsh"))
    (docker / "limit").unlink()
    assert [row.state for row in inventory(settings, pool, image)] == ["missing"]
    assert [row.state for row in stage_pool(settings, pool, image)] == ["staged"]
    assert (images / f"{DIGEST}.sqsh").read_text() == "squashfs\n"
    assert [row.state for row in stage_pool(settings, pool, image)] == ["there"]
    assert len((docker / "calls").read_text().splitlines()) == 2
    (images / f"{DIGEST}.sqsh").unlink()
    assert [row.state for row in inventory(settings, pool, image)] == ["missing"]


def test_what_a_launch_uses_stays(
    settings: Settings, launch: PlanLaunch, tmp_path: Path, hub: Any, docker: Path
) -> None:
    """While a launch runs its model outlives any staging; afterwards it may go; a pin holds it again."""
    pool = container_pool(tmp_path, cache_cap_gb=0.0002100)
    items = [item for item in items_of_launch(pool, launch) if item.kind == "model"]
    draft = [item for item in items_of_launch(pool, with_draft(launch)) if item.kind == "draft"]
    hub.repos["models/org/draft"].files["model.safetensors"] = b"d" * 100_000
    stage_pool(settings, pool, items)
    with inputs_in_use(settings, pool, launch, "l-1"):
        assert stage_pool(settings, pool, draft)[0].code == "disk_full"
    assert set_pin(settings, pool, items[0].name, True) == ["local"]
    assert stage_pool(settings, pool, draft)[0].code == "disk_full"
    set_pin(settings, pool, items[0].name, False)
    assert stage_pool(settings, pool, draft)[0].state == "staged"
    assert [row.state for row in inventory(settings, pool, items)] == ["missing"]
    with pytest.raises(InputError, match="no item"):
        set_pin(settings, pool, "model--x", True)


def test_a_dead_launch_holds_nothing(
    settings: Settings, launch: PlanLaunch, tmp_path: Path, hub: Any, docker: Path
) -> None:
    """A marker whose orchestrator was killed is known to be dead; another machine's is believed."""
    pool = container_pool(tmp_path)
    spot = spots_of(settings, pool, "pool")[0]
    (tmp_path / "models").mkdir()
    code = (
        "import json; from dataclasses import asdict; "
        "from isoline.runners.ownership.orchestrators import this_orchestrator as t; "
        "print(json.dumps(asdict(t())))"
    )
    dead = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    for name, who in (("dead", dead), ("far", {**dead, "host": "elsewhere"}), ("odd", {})):
        job = {
            "job": "use",
            "cache": spot.cache,
            "items": ["m"],
            "name": name,
            "marker": {"orchestrator": who},
        }
        run_job(spot.host, job)
    assert look_at(spot).dead == ["dead", "odd"]


def test_compile_caches_by_image_sku_and_driver(tmp_path: Path) -> None:
    """Another driver or image has another folder; it is cold until a server got ready with it."""
    pool, host = container_pool(tmp_path), Host("here")
    first = compile_cache(host, pool, REF, "h200", "580.65", state=tmp_path)
    assert first.cold and Path(first.path).is_dir()
    assert compile_cache(host, pool, REF, "h200", "580.65", state=tmp_path).cold
    mark_warm(host, first)
    again = compile_cache(host, pool, REF.replace("v0.27.1", "other-tag"), "h200", "580.65", state=tmp_path)
    assert again.path == first.path and not again.cold
    assert again.record() == {"key": first.key, "cold": False}
    keys = {
        cache_key(*key)
        for key in ((REF, "h200", "1"), (REF, "b200", "1"), (REF, "h200", None), ("a:1", "h200", "1"))
    }
    assert len(keys) == 4
