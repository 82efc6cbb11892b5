"""What a node is asked to do: one job in, lines of JSON out (``event`` says what each is)."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from isoline.runners.machine.node import cache as store
from isoline.runners.machine.node.fetch import FULL, Say, StageError, hash_file
from isoline.runners.machine.node.repo import is_whole, size_of, stage_repo, touched

BEAT_S = 5.0
SAY_EVERY_S = 1.0


class Teller:
    """Prints events; one progress line a second at most. Ends the process where nobody listens any more."""

    def __init__(self, item: str) -> None:
        self._item = item
        self._lock = threading.Lock()
        self._said = 0.0
        self.done = self.total = 0

    def __call__(self, event: dict[str, Any]) -> None:
        line = json.dumps({**event, "item": self._item})
        try:
            with self._lock:
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
        except (OSError, ValueError):
            os._exit(5)  # whoever asked is gone: what is here is kept, the locks are freed

    def add(self, count: int) -> None:
        """So many bytes more."""
        with self._lock:
            self.done += count
            is_due = time.monotonic() - self._said > SAY_EVERY_S
            if is_due:
                self._said = time.monotonic()
        if is_due:
            self({"event": "progress", "done": self.done, "total": self.total})

    def beat(self) -> None:
        """Show for ever that this process lives."""
        while True:
            time.sleep(BEAT_S)
            self({"event": "alive"})


def plain_record(job: store.Record, **fields: Any) -> store.Record:
    """A record of something that is one file or one image."""
    known = store.record_of(Path(job["cache"]), job["item"]) or {}
    common = {
        "schema_version": 1,
        "item": job["item"],
        "kind": job["kind"],
        "id": job["id"],
        "revision": None,
        "commit": None,
        "digest": job["digest"],
        "bytes": job.get("bytes") or 0,
        "files": [],
        "staged_at": store.now(),
        "last_used": known.get("last_used"),
        "pinned": bool(known.get("pinned")),
        "brought_by_us": True,
        "path": None,
        "state": store.STAGED,
    }
    return {**common, **fields}


def die_with_parent() -> None:
    """Linux: a child of ours ends when we are killed (PR_SET_PDEATHSIG)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def make_file(job: store.Record, say: Teller) -> store.Record:
    """A file that a command makes, once: ``{out}`` in its words is where it writes. Renamed in when whole.

    :raises StageError: when the command fails (``command_failed``: with the end of what it said), or the
        file is not the one of ``sha256``.
    """
    cache, target = Path(job["cache"]), Path(job["target"])
    with store.locked(cache, job["item"], say):
        known = store.record_of(cache, job["item"])
        if known and known["state"] == store.STAGED and size_of(target) == known["bytes"] > 0:
            return touched(cache, known)
        if size_of(target):  # somebody put it there
            check_file(job, target)
            fields = {"bytes": size_of(target), "brought_by_us": False, "path": job["path"]}
            record = store.finish(cache, plain_record(job, **fields))
            return {**record, "downloaded": 0}
        target.parent.mkdir(parents=True, exist_ok=True)
        for stale in target.parent.glob(f".{target.name}.part-*"):  # of holders that died: we have the lock
            stale.unlink()
        record = plain_record(job)
        store.make_room(job, record, record["bytes"], say)
        part = target.with_name(f".{target.name}.part-{os.getpid()}")
        try:
            run_maker(job, part)
            check_file(job, part)
            with part.open("rb") as content:
                os.fsync(content.fileno())
            record.update(bytes=size_of(part), path=job["path"], paths=[job["path"]])
            part.replace(target)
        except BaseException:
            store.drop_record(cache, job["item"])
            raise
        finally:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()
        return {**store.finish(cache, record), "downloaded": record["bytes"]}


def check_file(job: store.Record, path: Path) -> None:
    """Refuse an empty file, and one of another hash where the hash is known."""
    if not size_of(path):
        raise StageError("infra", f"{job['argv'][0]} made no file")
    if job.get("sha256"):
        hasher = hashlib.sha256()
        hash_file(path, hasher)
        if hasher.hexdigest() != job["sha256"]:
            what = f"{path}: sha256 is {hasher.hexdigest()}, it should be {job['sha256']}"
            raise StageError("weights_digest_mismatch", what, "delete that file; it is made again")


def run_maker(job: store.Record, part: Path) -> None:
    """Run the command of :func:`make_file`."""
    words = [word.replace("{out}", str(part)) for word in job["argv"]]
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=job["timeout_s"],
            check=False,
            preexec_fn=die_with_parent,
        )
    except FileNotFoundError:
        raise StageError("tool_missing", f"{words[0]} is not on PATH", "install it there") from None
    except subprocess.TimeoutExpired:
        what = f"{words[0]} did not end within {job['timeout_s']} s"
        raise StageError("infra", what, "look at that machine") from None
    if done.returncode:
        text = done.stdout.decode("utf-8", "replace")[-20_000:].strip()
        raise StageError("command_failed", text or f"{words[0]}: exit code {done.returncode}")


def note_image(job: store.Record, say: Say) -> store.Record:
    """Record an image that the container runtime has now; what the cap leaves no room for goes."""
    cache = Path(job["cache"])
    record = plain_record(job, brought_by_us=job["brought_by_us"], runtime=job["runtime"])
    known = store.record_of(cache, job["item"])
    if known and known["state"] == store.STAGED:
        record.update({name: known[name] for name in ("staged_at", "brought_by_us")})
    done = store.finish(cache, {**record, "last_used": store.now()})
    with store.locked(cache, "cache"):
        store.clear(job, job["item"], 0, say)
    return {**done, "downloaded": 0}


def look(job: store.Record, say: Say) -> store.Record:
    """Every record, whether what it stands for is whole; who uses what; bytes of ``files`` by name."""
    cache = Path(job["cache"])
    found = store.records(cache)
    for record in found.values():
        record["is_whole"] = record["state"] == store.STAGED and is_whole(cache, record)
    files = {name: size_of(cache / name) for name in job.get("files") or []}
    return {"records": found, "uses": store.uses(cache), "files": files}


def pin(job: store.Record, say: Say) -> store.Record:
    """Keep an item, or no longer."""
    return store.pin(Path(job["cache"]), job["item"], job["pinned"])


def use(job: store.Record, say: Say) -> None:
    """A launch uses items from now on."""
    store.mark_use(Path(job["cache"]), job["items"], job["name"], job["marker"])


def end_use(job: store.Record, say: Say) -> None:
    """It does no longer."""
    store.end_use(Path(job["cache"]), job["name"])


JOBS: dict[str, Any] = {
    "repo": stage_repo,
    "file": make_file,
    "image": note_image,
    "look": look,
    "pin": pin,
    "use": use,
    "end_use": end_use,
}


def main(job: store.Record) -> int:
    """Do one job; the last line is ``done`` or ``error``. Exit code 0 or 3."""
    say = Teller(job.get("item", ""))
    threading.Thread(target=say.beat, daemon=True).start()
    try:
        result = JOBS[job["job"]](job, say)
    except StageError as error:
        say({"event": "error", "code": error.code, "what": error.what, "remedy": error.remedy})
        return 3
    except OSError as error:
        code = "disk_full" if error.errno in FULL else "infra"
        where = f" ({error.filename})" if error.filename else ""
        say({"event": "error", "code": code, "what": f"{error.strerror or error}{where}", "remedy": ""})
        return 3
    say({"event": "done", "result": result})
    return 0
