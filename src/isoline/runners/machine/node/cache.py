"""The cache of a node: records of what lies in it, locks, room for more, and what is removed for that.

``<cache>/.isoline/<item>.json`` is the record of an item, ``locks/`` hold kernel locks (a holder that dies
frees them), ``parts/<item>/`` what is not whole yet, ``quarantine/`` what was refused, ``use/`` who uses
what.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from isoline.runners.machine.node.fetch import Say, StageError

KEEP_FREE = 2_000_000_000
"""Bytes of the disk that staging leaves free."""

STAGED, STAGING, EVICTING = "staged", "staging", "evicting"

Record = dict[str, Any]


def now() -> str:
    """UTC, ISO 8601, to the microsecond: the order of use must be known."""
    seconds = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1e6):06d}Z"


def own(cache: Path, *names: str) -> Path:
    """A place in the folder of ours."""
    return Path(cache, ".isoline", *names)


def write_atomic(path: Path, value: Any) -> None:
    """JSON into a file: whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    with part.open("w", encoding="utf-8") as out:
        json.dump(value, out, indent=1, sort_keys=True)
        out.flush()
        os.fsync(out.fileno())
    part.replace(path)


def read_json(path: Path) -> Any:
    """A file's content; None where it is not there or no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def locked(cache: Path, name: str, say: Say | None = None, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock of the cache. The kernel frees it when its holder dies.

    :raises BlockingIOError: when ``wait`` is false and somebody has it.
    """
    path = own(cache, "locks", f"{name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise
            lock.seek(0)
            if say is not None:
                say({"event": "waiting", "for": lock.read(200).strip()})
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(f"{os.uname().nodename} pid {os.getpid()} since {now()}")
        lock.flush()
        yield


def record_of(cache: Path, item: str) -> Record | None:
    """The record of an item, or None."""
    found = read_json(own(cache, f"{item}.json"))
    return found if isinstance(found, dict) and found.get("item") == item else None


def write_record(cache: Path, record: Record) -> None:
    """Write the record of an item."""
    write_atomic(own(cache, f"{record['item']}.json"), record)


def finish(cache: Path, record: Record) -> Record:
    """Write the record of an item that is whole now; what people and launches said meanwhile stays."""
    with locked(cache, "cache"):
        known = record_of(cache, record["item"]) or {}
        said: Record = {name: known[name] for name in ("pinned", "last_used") if name in known}
        record = {**record, **said, "state": STAGED}
        write_record(cache, record)
    return record


def drop_record(cache: Path, item: str) -> None:
    """Forget an item."""
    with contextlib.suppress(FileNotFoundError):
        own(cache, f"{item}.json").unlink()


def records(cache: Path) -> dict[str, Record]:
    """Every record, by item."""
    found = (record_of(cache, path.stem) for path in sorted(own(cache).glob("[!.]*.json")))
    return {record["item"]: record for record in found if record is not None}


def uses(cache: Path) -> dict[str, Record]:
    """Markers of launches that use items: name of the marker -> its content."""
    return {path.stem: read_json(path) or {} for path in sorted(own(cache, "use").glob("[!.]*.json"))}


def mark_use(cache: Path, items: Collection[str], name: str, marker: Record) -> None:
    """Say that a launch uses items from now on: they are never removed meanwhile."""
    with locked(cache, "cache"):
        write_atomic(own(cache, "use", f"{name}.json"), {**marker, "items": sorted(items), "since": now()})
        for item in items:
            record = record_of(cache, item)
            if record is not None:
                write_record(cache, {**record, "last_used": now()})


def end_use(cache: Path, name: str) -> None:
    """The launch uses nothing any more."""
    with contextlib.suppress(FileNotFoundError):
        own(cache, "use", f"{name}.json").unlink()


def to_evict(
    found: Collection[Record],
    need: int,
    cap: int | None,
    free: int,
    in_use: Collection[str],
    keep_free: int = KEEP_FREE,
) -> list[str]:
    """The items to remove so that ``need`` more bytes fit, least recently used first. Pure.

    Only what we brought; never what is pinned or in use.

    :param cap: of what we brought, bytes; None: no cap.
    :param free: of the disk, bytes; images of a container runtime lie elsewhere.
    :raises StageError: ``disk_full`` when that is not enough.
    """
    ours = [record for record in found if record["brought_by_us"]]
    used = sum(record["bytes"] for record in ours)
    chosen: list[str] = []

    def fits() -> bool:
        return (cap is None or used + need <= cap) and free - need >= keep_free

    for record in sorted(ours, key=lambda one: (one["last_used"] or one["staged_at"], one["item"])):
        if fits():
            break
        on_disk = record["kind"] != "image"
        over_cap = cap is not None and used + need > cap
        if record["pinned"] or record["item"] in in_use or not (on_disk or over_cap):
            continue
        chosen.append(record["item"])
        used -= record["bytes"]
        free += record["bytes"] if on_disk else 0
    if not fits():
        over = f"{need / 1e9:.3g} GB are needed, {free / 1e9:.3g} GB can be free"
        if cap is not None:
            over += f", {used / 1e9:.3g} GB of a cap of {cap / 1e9:.3g} GB are pinned or in use"
        raise StageError("disk_full", over, "raise cache_cap_gb, unpin something, or take a larger disk")
    return chosen


def make_room(job: Record, record: Record, need: int, say: Say) -> None:
    """Reserve the bytes of an item that is about to be staged, after removing what must go.

    :raises StageError: ``disk_full``.
    """
    cache = Path(job["cache"])
    with locked(cache, "cache"):
        clear(job, record["item"], need, say)
        write_record(cache, {**record, "state": STAGING})


def clear(job: Record, item: str, need: int, say: Say) -> None:
    """Remove what must go for ``need`` more bytes. The caller holds the lock ``cache``.

    ``job`` has the cap (``cap_bytes``), the items that must stay (``keep``) and the use markers whose
    launches are known to be over (``dead``); the item itself stays too.

    :raises StageError: ``disk_full``.
    """
    cache = Path(job["cache"])
    in_use = {*job["keep"], item}
    for name, marker in uses(cache).items():
        if name in job["dead"]:
            end_use(cache, name)
        else:
            in_use |= set(marker.get("items") or [])
    others = records(cache)
    if need:
        others.pop(item, None)  # its bytes are what is needed
    while True:
        free = shutil.disk_usage(cache).free
        keep_free = KEEP_FREE if need else 0
        chosen = to_evict(list(others.values()), need, job["cap_bytes"], free, in_use, keep_free)
        if not chosen:
            return
        for name in chosen:
            if evict(cache, others[name]):
                say({"event": "evicted", "which": name, "bytes": others.pop(name)["bytes"]})
            else:
                in_use.add(name)  # somebody holds it: others must do


def evict(cache: Path, record: Record) -> bool:
    """Remove an item that we brought. False where somebody holds it."""
    try:
        with locked(cache, record["item"], wait=False):
            write_record(cache, {**record, "state": EVICTING})  # from here on nobody takes it for whole
            if not remove_content(cache, record):
                write_record(cache, record)
                return False
            shutil.rmtree(own(cache, "parts", record["item"]), ignore_errors=True)
            drop_record(cache, record["item"])
            return True
    except BlockingIOError:
        return False


def remove_content(cache: Path, record: Record) -> bool:
    """Remove what a record stands for. False where a container runtime says no."""
    if record["kind"] == "image":
        words = [record["runtime"], "image", "rm", record["id"]]
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0
    for name in record.get("paths") or []:
        target = cache / name
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            with contextlib.suppress(FileNotFoundError):
                target.unlink()
    if record.get("repo_folder"):
        remove_blobs(cache / record["repo_folder"], record.get("blobs") or [])
    return True


def remove_blobs(repo_folder: Path, blobs: Collection[str]) -> None:
    """Remove blobs that no snapshot of the repository refers to any more."""
    links = (path for path in repo_folder.glob("snapshots/**/*") if path.is_symlink())
    used = {path.readlink().name for path in links}
    for blob in blobs:
        if blob not in used:
            with contextlib.suppress(FileNotFoundError):
                (repo_folder / "blobs" / blob).unlink()


def pin(cache: Path, item: str, is_pinned: bool) -> Record:
    """Keep an item whatever the cap says, or no longer.

    :raises StageError: when there is no such item.
    """
    with locked(cache, "cache"):
        record = record_of(cache, item)
        if record is None:
            known = ", ".join(records(cache)) or "none"
            raise StageError("no_item", f"no item {item!r} in {cache}", f"there are: {known}")
        record = {**record, "pinned": is_pinned}
        write_record(cache, record)
    return record
