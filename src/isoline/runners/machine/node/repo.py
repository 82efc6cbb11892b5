"""A revision of a model or dataset in a node's cache, in the layout of the hub's own cache."""

from __future__ import annotations

import concurrent.futures
import fnmatch
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from isoline.runners.machine.node import cache as store
from isoline.runners.machine.node.fetch import Hub, HubFile, StageError, hash_file

WORKERS = 4
ENDED = "ended with the others"


def stage_repo(job: store.Record, say: Any) -> store.Record:
    """Every wanted file of a revision in place, each verified; its record, with ``downloaded`` bytes.

    :raises StageError: nothing half is in place then; what came in is kept for the next try.
    """
    cache, item, repo = Path(job["cache"]), job["item"], job["id"]
    with store.locked(cache, item, say):
        known = store.record_of(cache, item)
        if known and known["commit"] == job["revision"] and is_whole(cache, known):
            return touched(cache, known)  # a commit never changes: the hub need not be asked
        hub = Hub(job["endpoint"], job.get("token"), say, job["patience_s"])
        commit, listed = hub.listing(job["hub_kind"], repo, job["revision"])
        files = [file for file in listed if is_wanted(file.path, job["allow"], job["ignore"])]
        if not files:
            raise StageError("model_missing", f"{repo} has no file that is wanted")
        if known and known["commit"] == commit and is_whole(cache, known):
            return touched(cache, known)
        folder = f"hub/{job['hub_kind']}s--{repo.replace('/', '--')}"
        record = {
            "schema_version": 1,
            "item": item,
            "kind": job["kind"],
            "id": repo,
            "revision": job["revision"],
            "commit": commit,
            "digest": digest_of(files),
            "bytes": sum({file.etag: file.size for file in files}.values()),
            "files": [[file.path, file.size] for file in files],
            "staged_at": store.now(),
            "last_used": (known or {}).get("last_used"),
            "pinned": bool((known or {}).get("pinned")),
            "repo_folder": folder,
            "path": f"{folder}/snapshots/{commit}",
        }
        return _bring(job, hub, files, record, known or {}, say)


def is_wanted(path: str, allow: Collection[str], ignore: Collection[str]) -> bool:
    """Whether a file of a repository is staged. ``allow`` empty: all."""
    if allow and not any(fnmatch.fnmatch(path, pattern) for pattern in allow):
        return False
    return not any(fnmatch.fnmatch(path, pattern) for pattern in ignore)


def _bring(
    job: store.Record, hub: Hub, files: Sequence[HubFile], record: store.Record, known: store.Record, say: Any
) -> store.Record:
    """Download what is missing, put it in place, write the record."""
    cache = Path(job["cache"])
    parts = store.own(cache, "parts", record["item"])
    blobs, snapshot = cache / record["repo_folder"] / "blobs", cache / record["path"]
    for folder in (parts, blobs, snapshot):
        folder.mkdir(parents=True, exist_ok=True)
    ours = set(known.get("blobs") or [])
    missing = []
    by_etag = {file.etag: file for file in files}
    say.total = record["bytes"]
    for etag, file in by_etag.items():
        place = blobs / etag
        if place.exists():  # somebody else's, or of a try that never ended: believed only by its hash
            check_blob(place, file, record["id"])
            say.add(file.size)
        else:
            missing.append(file)
    ours |= {file.etag for file in missing}
    record["blobs"] = sorted(ours)
    record["brought_by_us"] = bool(ours)
    record["paths"] = [record["path"]] if ours else []
    need = sum(file.size - size_of(parts / file.etag) for file in missing)
    store.make_room(job, record, need, say)
    _fetch_all(job, hub, missing, parts, blobs, record, say)
    for file in files:
        link(snapshot / file.path, blobs / file.etag)
    if job.get("link"):
        link(cache / job["link"], snapshot)
        record["paths"] += [job["link"]] if ours else []
    if job["revision"] != record["commit"]:
        ref = cache / record["repo_folder"] / "refs" / job["revision"]
        ref.parent.mkdir(parents=True, exist_ok=True)
        part = ref.with_name(f".{ref.name}.part")
        part.write_text(record["commit"], encoding="utf-8")
        part.replace(ref)
    done = store.finish(cache, {**record, "staged_at": store.now()})
    shutil.rmtree(parts, ignore_errors=True)
    return {**done, "downloaded": need}


def _fetch_all(
    job: store.Record,
    hub: Hub,
    missing: Sequence[HubFile],
    parts: Path,
    blobs: Path,
    record: store.Record,
    say: Any,
) -> None:
    """Download files, some at a time; the first that fails ends the rest."""
    stop = threading.Event()

    def count(number: int) -> None:
        if stop.is_set():
            raise StageError("infra", ENDED)
        say.add(number)

    def one(file: HubFile) -> None:
        part = parts / file.etag
        url = hub.url_of(job["hub_kind"], record["id"], record["commit"], file.path)
        try:
            part.touch()  # a file without bytes is one too
            hub.download(url, record["id"], file, part, count)
        except StageError as error:
            stop.set()
            if error.code == "weights_digest_mismatch":
                place = store.own(Path(job["cache"]), "quarantine", file.etag)
                place.parent.mkdir(parents=True, exist_ok=True)
                part.replace(place)
            raise
        part.chmod(0o444)
        part.replace(blobs / file.etag)

    with concurrent.futures.ThreadPoolExecutor(job.get("workers") or WORKERS) as pool:
        tasks = [pool.submit(one, file) for file in sorted(missing, key=lambda file: -file.size)]
        concurrent.futures.wait(tasks, return_when=concurrent.futures.FIRST_EXCEPTION)
        for task in tasks:
            task.cancel()
    errors = [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
    if errors:
        raise min(errors, key=lambda error: str(error) == ENDED)


def check_blob(place: Path, file: HubFile, repo: str) -> None:
    """Believe a blob that lies here already only by its hash; a wrong one is named, never replaced."""
    hasher = file.hasher()
    if hash_file(place, hasher) != file.size or hasher.hexdigest() != file.etag:
        raise StageError(
            "weights_digest_mismatch",
            f"{place}: it has hash {hasher.hexdigest()} and is not {repo}/{file.path}",
            "delete that file; it is fetched again",
        )


def link(place: Path, target: Path) -> None:
    """A relative symbolic link, in one step; a real file or folder that is there is not touched."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists() and not place.is_symlink():
        raise StageError("infra", f"{place} is there and is not ours", "move it away")
    part = place.with_name(f".{place.name}.part-{os.getpid()}")
    part.unlink(missing_ok=True)
    part.symlink_to(os.path.relpath(target, place.parent))
    part.replace(place)


def size_of(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


def digest_of(files: Sequence[HubFile]) -> str:
    """SHA-256 over the sorted (path, size, hash) of all files."""
    rows = sorted([file.path, file.size, file.etag] for file in files)
    return "sha256:" + hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def is_whole(cache: Path, record: store.Record) -> bool:
    """Whether what a record says is staged lies there, each file with its size. Images are not looked at."""
    if record["state"] != store.STAGED:
        return False
    if record["kind"] == "image":
        return True
    folder = cache / record["path"]
    if not record["files"]:
        return bool(size_of(folder) == record["bytes"])
    return all((folder / path).exists() and size_of(folder / path) == size for path, size in record["files"])


def touched(cache: Path, record: store.Record) -> store.Record:
    """The record of an item that is asked for again."""
    with store.locked(cache, "cache"):
        record = {**(store.record_of(cache, record["item"]) or record), "last_used": store.now()}
        store.write_record(cache, record)
    return {**record, "downloaded": 0}
