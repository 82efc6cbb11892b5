"""Room in a node's cache: only what we brought goes, the oldest use first, never what is pinned or used."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isoline.runners.machine.hosts import this_host
from isoline.runners.machine.node.cache import to_evict
from isoline.runners.machine.node.fetch import StageError
from isoline.runners.machine.nodes import NodeJobError, program, run_job
from isoline.runners.ownership.orchestrators import this_orchestrator

SIZE = 400_000
KB = 1000


def record(item: str, size: int, used: str, **changes: Any) -> dict[str, Any]:
    fields = {
        "kind": "model",
        "brought_by_us": True,
        "pinned": False,
        "staged_at": "2026-01-01",
        "bytes": size,
    }
    return {**fields, "item": item, "last_used": used, **changes}


def test_the_least_recently_used_goes_first() -> None:
    """Under a cap just as much goes as is needed, oldest use first."""
    found = [record("new", 10, "2026-03-01"), record("old", 10, "2026-02-01"), record("never", 10, None)]  # type: ignore[arg-type]
    assert to_evict(found, 5, 35, 10**12, (), 0) == []
    assert to_evict(found, 10, 30, 10**12, (), 0) == ["never"]
    assert to_evict(found, 20, 30, 10**12, (), 0) == ["never", "old"]


def test_what_is_pinned_used_or_foreign_stays() -> None:
    """Nothing else fits: then it is an error that says what holds the room."""
    found = [
        record("pinned", 10, "a", pinned=True),
        record("used", 10, "b"),
        record("foreign", 10, "c", brought_by_us=False),
        record("free", 10, "d"),
    ]
    assert to_evict(found, 10, 30, 10**12, {"used"}, 0) == ["free"]
    with pytest.raises(StageError, match="pinned or in use") as error:
        to_evict(found, 20, 30, 10**12, {"used"}, 0)
    assert error.value.code == "disk_full"


def test_a_small_disk_is_cleared_of_files_not_images() -> None:
    """Without a cap the disk decides, on which images of a container runtime do not lie."""
    found = [record("image", 50, "a", kind="image"), record("model", 50, "b")]
    assert to_evict(found, 30, None, 10, (), 0) == ["model"]


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 9)),
        max_size=9,
    ),
    st.integers(0, 120),
    st.integers(0, 200) | st.none(),
    st.integers(0, 200),
)
def test_eviction_is_enough_and_not_too_much(
    rows: list[tuple[int, bool, bool, bool, int]], need: int, cap: int | None, free: int
) -> None:
    """What is chosen makes room, holds nothing forbidden, and without its last one there is no room."""
    found = [
        record(f"i{n}", size, f"{used}", pinned=pinned, brought_by_us=ours)
        for n, (size, pinned, ours, _, used) in enumerate(rows)
    ]
    in_use = {f"i{n}" for n, row in enumerate(rows) if row[3]}

    def fits(gone: list[str]) -> bool:
        sizes = {one["item"]: one["bytes"] for one in found}
        used = sum(one["bytes"] for one in found if one["brought_by_us"] and one["item"] not in gone)
        return (cap is None or used + need <= cap) and free + sum(sizes[name] for name in gone) >= need

    may_go = [one["item"] for one in found if one["brought_by_us"] and not one["pinned"]]
    may_go = [item for item in may_go if item not in in_use]
    try:
        chosen = to_evict(found, need, cap, free, in_use, 0)
    except StageError:
        assert not fits(may_go)
        return
    assert set(chosen) <= set(may_go) and fits(chosen)
    assert not chosen or not fits(chosen[:-1])


# --- on a real folder --------------------------------------------------------------------------------


@pytest.fixture
def hub(support: Callable[[str], ModuleType]) -> Iterator[Any]:
    """A hub with four models of 400 kB each; two share a file."""
    module = support("fake_hub")
    with module.serve() as served:
        made = random.Random(3)
        for name in "abcd":
            files = {"model.safetensors": made.randbytes(SIZE - 10), "config.json": name.encode() * 10}
            served.repos[f"models/org/{name}"] = module.Repo(files, {"model.safetensors"}, commit=name * 40)
        yield served


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """An empty cache."""
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def stage(cache: Path, hub: Any, name: str, **changes: Any) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    job = {
        "job": "repo", "cache": str(cache), "item": f"m-{name}", "kind": "model", "hub_kind": "model",
        "id": f"org/{name}", "revision": name * 40, "endpoint": hub.url, "token": None, "patience_s": 9,
        "allow": [], "ignore": [], "cap_bytes": None, "keep": [], "dead": [], "link": f"org--{name}/main",
    }  # fmt: skip
    run_job(this_host(), {**job, **changes}, lambda event: events.append(dict(event)))
    return events


def staged(cache: Path) -> set[str]:
    found = run_job(this_host(), {"job": "look", "cache": str(cache)})["records"]
    return {name for name, one in found.items() if one["is_whole"]}


def ask(cache: Path, job: str, **fields: Any) -> Any:
    return run_job(this_host(), {"job": job, "cache": str(cache), **fields})


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def test_the_cap_holds_on_disk(cache: Path, hub: Any) -> None:
    """With room for two, the third drives out the one that was used longest ago, with every byte of it."""
    cap = 2 * SIZE + 100 * KB
    stage(cache, hub, "a", cap_bytes=cap)
    stage(cache, hub, "b", cap_bytes=cap)
    stage(cache, hub, "a", cap_bytes=cap)  # used again: now b is the oldest
    events = stage(cache, hub, "c", cap_bytes=cap)
    assert [event["which"] for event in events if event["event"] == "evicted"] == ["m-b"]
    assert staged(cache) == {"m-a", "m-c"}
    assert not (cache / "org--b/main").is_symlink()
    assert bytes_in(cache / "hub") <= cap


def test_pins_uses_and_wishes_hold(cache: Path, hub: Any) -> None:
    """A pinned item, one in use and one of the same sweep stay; where nothing may go it is one line."""
    cap = 3 * SIZE + 100 * KB
    for name in "abc":
        stage(cache, hub, name, cap_bytes=cap)
    ask(cache, "pin", item="m-a", pinned=True)
    marker = {"orchestrator": asdict(this_orchestrator())}
    ask(cache, "use", items=["m-b"], name="l-1", marker=marker)
    with pytest.raises(NodeJobError, match="raise cache_cap_gb, unpin something") as error:
        stage(cache, hub, "d", cap_bytes=cap, keep=["m-c"])
    assert error.value.code == "disk_full"
    assert staged(cache) == {"m-a", "m-b", "m-c"}
    stage(cache, hub, "d", cap_bytes=cap, keep=["m-c"], dead=["l-1"])
    assert staged(cache) == {"m-a", "m-c", "m-d"}
    ask(cache, "pin", item="m-a", pinned=False)
    ask(cache, "end_use", name="l-1")


def test_an_unknown_item_cannot_be_pinned(cache: Path, hub: Any) -> None:
    """The message lists the items that there are."""
    stage(cache, hub, "a")
    with pytest.raises(NodeJobError, match="there are: m-a"):
        ask(cache, "pin", item="m-x", pinned=True)


def test_blobs_of_others_are_never_removed(cache: Path, hub: Any) -> None:
    """A file that somebody else put into the cache, outlives an eviction."""
    repo = hub.repos["models/org/a"]
    blobs = cache / "hub/models--org--a/blobs"
    blobs.mkdir(parents=True)
    digest = __import__("hashlib").sha256(repo.files["model.safetensors"]).hexdigest()
    (blobs / digest).write_bytes(repo.files["model.safetensors"])
    stage(cache, hub, "a")
    stage(cache, hub, "b", cap_bytes=SIZE + 100)
    stage(cache, hub, "c", cap_bytes=SIZE + 100)
    assert staged(cache) == {"m-c"}
    assert (blobs / digest).read_bytes() == repo.files["model.safetensors"]
    assert [path.name for path in blobs.iterdir()] == [digest]


def test_an_eviction_that_was_killed_is_not_taken_for_whole(cache: Path, hub: Any) -> None:
    """A record whose removal began counts as missing, and staging makes it whole again."""
    stage(cache, hub, "a")
    path = cache / ".isoline/m-a.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "state": "evicting"}))
    next((cache / "hub/models--org--a/blobs").iterdir()).unlink()
    assert staged(cache) == set()
    stage(cache, hub, "a")
    assert staged(cache) == {"m-a"}


def test_a_damaged_record_is_no_record(cache: Path, hub: Any) -> None:
    """Half a file where a record should be hides nothing: the item is verified and recorded again."""
    stage(cache, hub, "a")
    (cache / ".isoline/m-a.json").write_text('{"item": "m-')
    hub.sent.clear()
    stage(cache, hub, "a")
    assert staged(cache) == {"m-a"} and not hub.sent


def test_images_go_through_their_runtime(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image over the cap is removed by the runtime's own command; one that a container holds stays."""
    tools = tmp_path / "bin"
    tools.mkdir()
    docker = tools / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\ncase "$3" in held) exit 1;; esac\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    common = {"kind": "image", "digest": None, "brought_by_us": True, "runtime": "docker"}
    room = {"cap_bytes": 250, "keep": [], "dead": []}
    ask(cache, "image", item="i-held", id="held", bytes=100, **common, **room)
    ask(cache, "image", item="i-old", id="old", bytes=100, **common, **room)
    ask(cache, "image", item="i-new", id="new", bytes=100, **common, **room)
    assert (tmp_path / "calls").read_text().splitlines() == ["image rm held", "image rm old"]
    assert staged(cache) == {"i-held", "i-new"}


# --- files that a command makes ------------------------------------------------------------------------


def make(cache: Path, script: str, **changes: Any) -> dict[str, Any]:
    return {
        "job": "file", "cache": str(cache), "item": "image--1", "kind": "image_file", "id": "x",
        "digest": None, "target": str(cache / "x.sqsh"), "path": "x.sqsh", "timeout_s": 30,
        "argv": ["sh", "-c", script, "{out}"],
        "cap_bytes": None, "keep": [], "dead": [], **changes,
    }  # fmt: skip


def test_two_importers_make_one_file(cache: Path) -> None:
    """Of two at once one runs the import, the other waits and finds the file."""
    job = make(cache, f'echo x >> {cache}/runs; sleep 0.7; echo image > "$0"')
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(run_job(this_host(), job))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (cache / "runs").read_text() == "x\n"
    assert (cache / "x.sqsh").read_text() == "image\n"
    assert sorted(bool(one["downloaded"]) for one in results) == [False, True]


def test_a_killed_importer_leaves_no_lock_and_no_half_file(
    cache: Path, spawn: Callable[..., subprocess.Popen[bytes]], eventually: Callable[..., None]
) -> None:
    """After SIGKILL its command is gone too, nothing stands at the file's place; the next makes it."""
    process = spawn([sys.executable, "-"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    slow = make(cache, f'echo half > "$0"; echo $$ > {cache}/pid; sleep 60; echo whole > "$0"')
    process.stdin.write(program(slow).encode())
    process.stdin.close()
    eventually(lambda: (cache / "pid").exists() and (cache / "pid").read_text().strip(), 20, "the import")
    maker = int((cache / "pid").read_text())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    eventually(lambda: not Path(f"/proc/{maker}/cwd").exists(), 10, "the end of the import's command")
    assert not (cache / "x.sqsh").exists() and list(cache.glob(".x.sqsh.part-*"))
    run_job(this_host(), make(cache, 'echo whole > "$0"'))
    assert (cache / "x.sqsh").read_text() == "whole\n" and not list(cache.glob(".x.sqsh.part-*"))


def test_a_failed_import_says_what_the_command_said(cache: Path) -> None:
    """Its words come back; there is no file and no record."""
    with pytest.raises(NodeJobError, match="manifest unknown") as error:
        run_job(this_host(), make(cache, "echo manifest unknown; exit 3"))
    assert error.value.code == "command_failed"
    assert staged(cache) == set() and not list(cache.glob("*.sqsh"))


def test_a_command_that_makes_nothing_or_something_else(cache: Path) -> None:
    """An empty file, one of another hash, a missing tool and a hang are refused."""
    codes = []
    for changes in (
        {"argv": ["true"]},
        {"argv": ["sh", "-c", 'echo x > "$0"', "{out}"], "sha256": "0" * 64},
        {"argv": ["no-such-tool-here"]},
        {"argv": ["sleep", "60"], "timeout_s": 0.3},
    ):
        with pytest.raises(NodeJobError) as error:
            run_job(this_host(), make(cache, "", **changes))
        codes.append(error.value.code)
        assert not (cache / "x.sqsh").exists()
    assert codes == ["infra", "weights_digest_mismatch", "tool_missing", "infra"]
