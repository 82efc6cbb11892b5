"""Deployments: who answers, which placeholders there are, and renderings that are pure."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from isoline.catalog.pools import load_pool
from isoline.recipes.deployment import (
    PLACEHOLDERS,
    Command,
    Deployment,
    filled,
    placeholders_in,
)
from isoline.recipes.device_profiles import PROFILES
from isoline.recipes.placement import nodes_for
from isoline.recipes.renderers.container import OWNER_LABELS, container_argv
from isoline.recipes.renderers.text import line, plain, quoted


def command(name: str = "aggregated", **more: object) -> Command:
    fields = {"argv": ["serve", "{model_path}"], "env": {}, "role": "aggregated", "gpus": 8, **more}
    return Command(name=name, **fields)  # type: ignore[arg-type]


def of(*workers: Command, after: tuple[Command, ...] = ()) -> Deployment:
    return Deployment("repo/image:tag", (), workers, after)


def test_who_answers() -> None:
    """The entry sidecar answers requests; without one the first worker does."""
    worker = command()
    router = command("router", role=None, gpus=0, is_entry=True)
    store = command("store", role=None, gpus=0)
    assert of(worker, after=(store, router)).entry is router
    assert of(worker, after=(store,)).entry is worker
    assert [item.name for item in of(worker, after=(store, router)).commands] == [
        "aggregated",
        "store",
        "router",
    ]


def test_devices_of_a_deployment() -> None:
    """Workers' devices are counted, sidecars have none."""
    found = of(command(workers=3, gpus=4), command(workers=1, gpus=8), after=(command("router", gpus=0),))
    assert found.gpus == 20


def test_placeholders() -> None:
    """Known placeholders are found and filled; braces of JSON arguments are left alone."""
    words = ['{"a": {"b": 1}}', "--port={port}", "{port.router}:{host}", "{file.config.yaml}", "{}", "{X}"]
    assert placeholders_in(words) == {"port", "port.router", "host", "file.config.yaml"}
    text = '{"host": "{host}", "p": {port.router}, "n": {}}'
    assert filled(text, {"host": "h", "port.router": "1"}) == '{"host": "h", "p": 1, "n": {}}'
    assert filled("{unknown} {port}", {"port": "{host}", "host": "x"}) == "{unknown} {host}"
    assert len(set(PLACEHOLDERS)) == len(PLACEHOLDERS)


@pytest.mark.parametrize(
    "word", ["a b", "$(x)", "`x`", "a;b", "a&&b", "'", '"', "\\", "a\nb", "*{x}", "", "~x", "#x"]
)
def test_words_for_a_shell(word: str) -> None:
    """Whatever a word holds, a shell reads it back as that one word; a harmless one stays as it is."""
    assert shlex.split(quoted(word)) == [word]
    assert shlex.split(line(["x", word], {"A": word})) == [f"A={word}", "x", word]
    assert quoted("--port={port}") == "--port={port}"


@pytest.mark.parametrize(
    ("workers", "per_node", "nodes"),
    [
        ([(1, 8)], 8, 1),
        ([(1, 4)], 8, 1),
        ([(2, 4)], 8, 1),
        ([(3, 4)], 8, 2),
        ([(1, 16)], 8, 2),
        ([(2, 8), (1, 8)], 8, 3),
        ([(1, 16), (1, 4), (1, 4)], 8, 3),
        ([(1, 4), (1, 8), (1, 4)], 8, 3),
        ([(2, 8)], 4, 4),
        ([(1, 0)], 8, 1),
    ],
)
def test_nodes(workers: list[tuple[int, int]], per_node: int, nodes: int) -> None:
    """Workers share a node where they fit; none is spread over more nodes than it must be."""
    found = of(
        *(command(f"w{number}", workers=count, gpus=gpus) for number, (count, gpus) in enumerate(workers))
    )
    assert nodes_for(found, per_node) == nodes


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_containers_of_each_profile(project_root: Path, profile: str, runtime: str) -> None:
    """Never privileged by itself, weights read-only, every owner label, our program as the entry point."""
    pool = load_pool(project_root, "examples/h200-docker")
    assert pool.container is not None
    container = pool.container.model_copy(update={"device_profile": profile, "runtime": runtime})
    made = command(env={"A": "1"})
    argv = container_argv(of(made), made, container)
    assert argv[:2] == [runtime, "run"]
    assert "--privileged" not in argv
    for label in OWNER_LABELS:
        assert f"isoline.{label}={{owner.{label}}}" in argv
    assert f"{pool.container.model_cache}:/models:ro" in argv
    entry = argv.index("--entrypoint")
    assert argv[entry:] == ["--entrypoint", "serve", "repo/image:tag", "{model_path}"]
    assert argv[argv.index("A=1") - 1] == "--env"
    devices = [word for word in argv if word.startswith("/dev/")]
    assert ("/dev/kfd" in devices) is profile.startswith("amd")
    assert ("/dev/infiniband" in devices) is (profile not in ("cpu", "nvidia", "amd"))
    words = " ".join(argv)
    assert ("{devices}" in words) is (profile != "cpu")
    sidecar = command("router", role=None, gpus=0)
    assert "{devices}" not in " ".join(container_argv(of(made), sidecar, container))
    loud = container.model_copy(update={"privileged": True})
    assert "--privileged" in container_argv(of(made), made, loud)


def test_configuration_files_are_shown() -> None:
    """What is written beside the server is printed with it, in one order."""
    made = command(config_files={"b.yaml": {"z": 1, "a": None}, "a.json": {"k": [1]}})
    text = plain(of(made))
    assert text.index("# file a.json:") < text.index("# file b.yaml:")
    assert '#    "a": null,\n#    "z": 1\n' in text
