"""What is staged from a hub is whole and verified, or it is not there; a cut or killed download goes on."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from isoline.runners.machine.hosts import Host, this_host
from isoline.runners.machine.nodes import NodeJobError, program, run_job

NODE = Path(__file__).parents[2] / "src/isoline/runners/machine/node"
DATA = random.Random(7)
WEIGHTS = DATA.randbytes(3_000_000)
MORE = DATA.randbytes(700_000)
CONFIG = b'{"architectures": ["X"]}\n'
FILES = {
    "config.json": CONFIG,
    "model-1.safetensors": WEIGHTS,
    "model-2.safetensors": MORE,
    "sub/empty.txt": b"",
    "original/consolidated.pth": b"not wanted",
}
LARGE = {"model-1.safetensors", "model-2.safetensors"}
ITEM = "model--org--m--abababababab"


@pytest.fixture
def hub(support: Callable[[str], ModuleType]) -> Iterator[Any]:
    """A hub with one model."""
    module = support("fake_hub")
    with module.serve() as served:
        served.repos["models/org/m"] = module.Repo(dict(FILES), set(LARGE))
        yield served


@pytest.fixture
def job(hub: Any, tmp_path: Path) -> dict[str, Any]:
    """The job to stage it."""
    cache = tmp_path / "cache"
    cache.mkdir()
    return {
        "job": "repo",
        "cache": str(cache),
        "item": ITEM,
        "kind": "model",
        "hub_kind": "model",
        "id": "org/m",
        "revision": "ab" * 20,
        "endpoint": hub.url,
        "token": None,
        "patience_s": 30.0,
        "allow": [],
        "ignore": ["original/*"],
        "cap_bytes": None,
        "keep": [],
        "dead": [],
        "link": "org--m/" + "ab" * 20,
    }


def stage(job: dict[str, Any], **changes: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    return run_job(this_host(), {**job, **changes}, lambda event: events.append(dict(event))), events


def refused(job: dict[str, Any], **changes: Any) -> NodeJobError:
    with pytest.raises(NodeJobError) as error:
        stage(job, **changes)
    return error.value


def content(job: dict[str, Any]) -> dict[str, bytes]:
    """The files that an engine finds under the plain path."""
    root = Path(job["cache"]) / job["link"]
    if not root.exists():
        return {}
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def whole() -> dict[str, bytes]:
    return {path: data for path, data in FILES.items() if not path.startswith("original/")}


def test_a_revision_is_staged_in_the_hubs_layout(job: dict[str, Any], hub: Any) -> None:
    """Files lie as the hub's own cache has them, under a plain path too; the record says what."""
    record, _ = stage(job)
    assert content(job) == whole()
    cache = Path(job["cache"])
    snapshot = cache / "hub/models--org--m/snapshots" / ("ab" * 20)
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    assert (snapshot / "model-1.safetensors").readlink() == Path(f"../../blobs/{digest}")
    assert not (cache / "hub/models--org--m/blobs" / digest).stat().st_mode & 0o222
    saved = json.loads((cache / f".isoline/{ITEM}.json").read_text())
    assert saved["bytes"] == sum(map(len, whole().values())) == record["downloaded"]
    assert saved["state"] == "staged" and saved["brought_by_us"] and not saved["pinned"]
    assert saved["commit"] == "ab" * 20 and saved["digest"].startswith("sha256:")
    assert not (cache / ".isoline/parts" / ITEM).exists()


def test_a_second_time_asks_nobody(job: dict[str, Any], hub: Any) -> None:
    """What is there whole is not asked for again; only its last use is written."""
    first, _ = stage(job)
    asked = len(hub.requests)
    second, _ = stage(job)
    assert len(hub.requests) == asked and second["downloaded"] == 0
    assert second["last_used"] > first["staged_at"]


def test_a_missing_file_is_brought_back(job: dict[str, Any], hub: Any) -> None:
    """A file that somebody removed is noticed and fetched, and only that one."""
    stage(job)
    blob = Path(job["cache"]) / "hub/models--org--m/blobs" / hashlib.sha256(MORE).hexdigest()
    blob.unlink()
    hub.sent.clear()
    record, _ = stage(job)
    assert content(job) == whole() and record["downloaded"] == len(MORE)
    assert set(hub.sent) == {"model-2.safetensors"}


def test_a_cut_connection_goes_on_where_it_was(job: dict[str, Any], hub: Any) -> None:
    """After each cut only the rest is asked for: all bytes cross the wire once."""
    del hub.repos["models/org/m"].files["model-2.safetensors"]
    hub.repos["models/org/m"].files.pop("config.json")
    hub.repos["models/org/m"].files.pop("sub/empty.txt")
    hub.cuts.extend([1_000_000, 500_000])
    stage(job)
    assert hub.asked("storage") == [None, "bytes=1000000-", "bytes=1500000-"]
    assert hub.sent["model-1.safetensors"] == len(WEIGHTS)
    assert content(job)["model-1.safetensors"] == WEIGHTS


def test_a_server_without_ranges_begins_anew(job: dict[str, Any], hub: Any) -> None:
    """Where an answer is not the asked part it is thrown away, never appended."""
    hub.no_ranges = True
    hub.cuts.append(100_000)
    stage(job)
    assert content(job) == whole()


def test_rate_limits_are_honoured(job: dict[str, Any], hub: Any) -> None:
    """After a 429 nothing is asked before its time; then it goes on."""
    hub.limits.append("1")
    begun = time.monotonic()
    _, events = stage(job)
    assert time.monotonic() - begun >= 1.0
    assert {"event": "rate_limited", "wait_s": 1.0, "item": ITEM} in events
    assert content(job) == whole()


def test_a_limit_beyond_patience_is_told(job: dict[str, Any], hub: Any) -> None:
    """A hub that asks to wait an hour gives one line with what to do, at once."""
    hub.limits.append("3600")
    error = refused(job)
    assert error.code == "rate_limited" and "HF_TOKEN" in error.line()
    assert content(job) == {}


@pytest.mark.parametrize(("token", "number"), [(None, "401"), ("bad", "403")])
def test_a_gated_model_names_its_page(job: dict[str, Any], hub: Any, token: str | None, number: str) -> None:
    """No access is told with the page to visit and the token to set; nothing is left half there."""
    hub.repos["models/org/m"].gated = True
    error = refused(job, token=token)
    assert error.code == "model_gated" and number in error.line()
    assert f"accept the conditions on {hub.url}/org/m" in error.line()
    assert content(job) == {}


def test_the_token_stays_with_the_hub(job: dict[str, Any], hub: Any) -> None:
    """The storage that downloads are redirected to never sees the token; the command line neither."""
    hub.repos["models/org/m"].gated = True
    stage(job, token="good")
    seen = {path.startswith("/storage/"): token for path, token in hub.tokens}
    assert seen == {False: "Bearer good", True: None}
    assert "good" not in " ".join(this_host().words([sys.executable, "-"]))


@pytest.mark.parametrize(
    ("changes", "word"), [({"id": "org/none"}, "RepoNotFound"), ({"revision": "cd" * 20}, "RevisionNotFound")]
)
def test_what_the_hub_does_not_have(job: dict[str, Any], changes: dict[str, Any], word: str) -> None:
    """A wrong id or revision is one line."""
    error = refused(job, **changes)
    assert error.code == "model_missing" and word in error.line()


def test_a_wrong_hash_is_refused(job: dict[str, Any], hub: Any) -> None:
    """Bytes that are not the hub's are put into quarantine; the item is not there, until they are right."""
    hub.wrong.add("model-2.safetensors")
    error = refused(job)
    assert error.code == "weights_digest_mismatch" and "model-2.safetensors" in error.line()
    cache = Path(job["cache"])
    assert content(job) == {}
    digest = hashlib.sha256(MORE).hexdigest()
    assert not (cache / "hub/models--org--m/blobs" / digest).exists()
    assert (cache / ".isoline/quarantine" / digest).stat().st_size == len(MORE)
    assert not run_job(this_host(), {"job": "look", "cache": str(cache)})["records"][ITEM]["is_whole"]
    hub.wrong.clear()
    stage(job)
    assert content(job) == whole()


def test_a_wrong_small_file_is_refused_too(job: dict[str, Any], hub: Any) -> None:
    """Files that git keeps are verified by git's own id."""
    hub.wrong.add("config.json")
    assert refused(job).code == "weights_digest_mismatch"


def test_a_damaged_part_is_fetched_anew(job: dict[str, Any], hub: Any) -> None:
    """A part of an earlier try that is damaged does not spoil the file: it is fetched once more in full."""
    part = Path(job["cache"]) / ".isoline/parts" / ITEM / hashlib.sha256(WEIGHTS).hexdigest()
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" + WEIGHTS[1:1_000_000])
    stage(job)
    assert content(job) == whole()


def test_a_foreign_blob_is_believed_by_its_hash_only(job: dict[str, Any], hub: Any) -> None:
    """What others put into the cache is used if it is right, named if not, and never replaced or ours."""
    blobs = Path(job["cache"]) / "hub/models--org--m/blobs"
    blobs.mkdir(parents=True)
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    (blobs / digest).write_bytes(WEIGHTS[:-1])
    error = refused(job)
    assert error.code == "weights_digest_mismatch" and digest in error.line()
    assert (blobs / digest).read_bytes() == WEIGHTS[:-1]
    (blobs / digest).write_bytes(WEIGHTS)
    record, _ = stage(job)
    assert digest not in record["blobs"] and "model-1.safetensors" not in hub.sent


def test_servers_that_fail_for_a_moment(job: dict[str, Any], hub: Any) -> None:
    """Answers of 500 and 503 are tried again."""
    hub.errors.extend([503, 500])
    stage(job)
    assert content(job) == whole()


def test_two_stagers_at_once(job: dict[str, Any], hub: Any) -> None:
    """One downloads, the other waits for it and downloads nothing."""
    hub.slow_s = 0.005
    results: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    threads = [threading.Thread(target=lambda: results.append(stage(job))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(record["downloaded"] > 0 for record, _ in results) == [False, True]
    assert any(event["event"] == "waiting" and "pid" in event["for"] for _, seen in results for event in seen)
    assert hub.sent["model-1.safetensors"] == len(WEIGHTS)


def test_a_killed_stager_leaves_nothing_half_and_goes_on(
    job: dict[str, Any],
    hub: Any,
    spawn: Callable[..., subprocess.Popen[bytes]],
    eventually: Callable[..., None],
) -> None:
    """SIGKILL in the middle: no lock stays, no half file is in place, and the next one asks for the rest."""
    hub.slow_s = 0.02
    process = spawn([sys.executable, "-"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(program(job).encode())
    process.stdin.close()
    eventually(lambda: hub.sent.get("model-1.safetensors", 0) > 1_000_000, 30, "a download")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert content(job) == {}
    hub.slow_s = 0.0
    sent = hub.sent["model-1.safetensors"]
    stage(job)
    assert content(job) == whole()
    again = [asked for asked in hub.asked("storage/models/org/m/model-1") if asked]
    assert len(again) == 1 and int(again[0].removeprefix("bytes=").rstrip("-")) > 500_000
    assert hub.sent["model-1.safetensors"] - sent < len(WEIGHTS)


@pytest.mark.soak
def test_thirty_kills_at_any_moment(
    job: dict[str, Any], hub: Any, spawn: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """SIGKILL thirty times at drawn moments: what counts as staged is whole each time, and so is the end."""
    hub.slow_s = 0.002
    draw = random.Random(11)
    robbed = False
    for _ in range(30):
        process = spawn([sys.executable, "-"], stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(program(job).encode())
        process.stdin.close()
        time.sleep(draw.uniform(0.05, 0.6))
        process.kill()
        process.wait()
        record = run_job(this_host(), {"job": "look", "cache": job["cache"]})["records"].get(ITEM)
        if record and record["is_whole"]:
            assert content(job) == whole()
        assert robbed or content(job) in ({}, whole())
        if draw.random() < 0.3:  # somebody throws files out meanwhile
            robbed = True
            for blob in (Path(job["cache"]) / "hub/models--org--m/blobs").glob("*"):
                blob.unlink()
    hub.slow_s = 0.0
    stage(job)
    assert content(job) == whole()


def test_a_stager_whose_caller_dies_ends(
    job: dict[str, Any], hub: Any, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """When nobody listens any more the download ends by itself: no process is left behind."""
    hub.slow_s = 0.2
    read, write = os.pipe()
    process = subprocess.Popen([sys.executable, "-"], stdin=subprocess.PIPE, stdout=write)
    os.close(write)
    assert process.stdin is not None
    process.stdin.write(program(job).encode())
    process.stdin.close()
    eventually(lambda: hub.sent, 30, "a download")
    os.close(read)
    assert process.wait(30) == 5


def test_a_listed_path_that_leaves_its_folder_is_refused(job: dict[str, Any], hub: Any) -> None:
    """A hub that lists ../../x gets nothing written."""
    hub.repos["models/org/m"].files["../../evil"] = b"x"
    assert "evil" in refused(job).line()
    assert not list(Path(job["cache"]).parent.rglob("evil"))


def test_over_ssh_it_is_the_same_program(
    job: dict[str, Any], hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine nothing is installed: its python3 is sent the program through ssh's input."""
    tools = tmp_path / "bin"
    tools.mkdir()
    ssh = tools / "ssh"
    ssh.write_text('#!/bin/sh\nfor word; do last=$word; done\necho "Welcome to n1"\nexec sh -c "$last"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    events: list[Any] = []
    record = run_job(Host("n1", "n1"), job, events.append)
    assert record["state"] == "staged" and content(job) == whole()


def test_the_nodes_program_needs_nothing_but_python() -> None:
    """Its modules import the standard library and each other, in a grammar that Python 3.9 reads."""
    for path in NODE.glob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 9))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                is_own = name.startswith("isoline.runners.machine.node")
                assert is_own or name.partition(".")[0] in sys.stdlib_module_names, f"{path.name}: {name}"
