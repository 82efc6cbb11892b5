"""Files of a Hugging Face hub: listed, downloaded so that a cut one goes on, and verified.

Written against the hub's HTTP API, because the hub's own library checks no hash of what it got, and is
not on the nodes. A file is put in place only after its SHA-256 (large files) or git blob id agrees.
"""

from __future__ import annotations

import email.utils
import errno
import hashlib
import http.client
import json
import os
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHUNK = 1 << 20
SOCKET_S = 60.0
TRIES = 6
"""So many failures in a row without one new byte end a download."""

MAX_WAIT_S = 60.0
"""Between two tries; a longer wait that the hub itself asks for (Retry-After) is kept."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Say = Callable[[dict[str, Any]], None]


class StageError(Exception):
    """Staging failed. ``code`` is a reason code of Isoline's, or ``infra``."""

    def __init__(self, code: str, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.code, self.what, self.remedy = code, what, remedy


class RangeError(Exception):
    """The server has no such range (416): begin anew."""


class HubFile:
    """One file of a revision. ``sha256`` of large files, ``blob`` (git's id) of the others."""

    def __init__(self, path: str, size: int | None, sha256: str | None, blob: str | None) -> None:
        etag = sha256 or blob
        if not is_safe(path) or size is None or not etag or not re.match(r"^[0-9a-f]{40,64}\Z", etag):
            raise StageError("infra", f"the hub lists a file {path!r} of size {size!r} and hash {etag!r}")
        self.path, self.size, self.sha256 = path, size, sha256
        self.etag = etag  # the name of its blob in a hub cache

    def hasher(self) -> Any:
        """An empty hash of the right kind."""
        return hashlib.sha256() if self.sha256 else hashlib.sha1(b"blob %d\0" % self.size)


def is_safe(path: str) -> bool:
    """Whether a listed path stays inside its folder."""
    return "\0" not in path and not any(part in ("", ".", "..") for part in path.split("/"))


class _NoLeak(urllib.request.HTTPRedirectHandler):
    """Follows redirects to the storage without showing it the hub's token."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        # Python before 3.11 knows no 308; for a GET it is what 302 is.
        new = super().redirect_request(req, fp, 302 if code in (307, 308) else code, msg, headers, newurl)
        old_host, new_host = (urllib.parse.urlsplit(url).netloc for url in (req.full_url, newurl))
        if new is not None and old_host != new_host:
            new.headers.pop("Authorization", None)
        return new

    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302


class Hub:
    """A hub. All threads wait together when it asks for patience.

    :param say: told of waits.
    :param patience_s: seconds that waits for its rate limit may take in all.
    """

    def __init__(
        self, endpoint: str, token: str | None = None, say: Say | None = None, patience_s: float = 3600.0
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._headers = {"User-Agent": "isoline"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._say = say or (lambda event: None)
        self._patience_s = patience_s
        self._opener = urllib.request.build_opener(_NoLeak)
        self._lock = threading.Lock()
        self._not_before = 0.0

    def listing(self, kind: str, repo: str, revision: str) -> tuple[str, list[HubFile]]:
        """(commit, files) of a revision; ``kind``: model or dataset.

        :raises StageError: ``model_gated``, ``model_missing``, ``rate_limited``, ``infra``.
        """
        quoted = urllib.parse.quote(revision, safe="")
        url = f"{self.endpoint}/api/{kind}s/{repo}/revision/{quoted}?blobs=true"
        tries = 0
        while True:
            try:
                with self.open(url, repo) as answer:
                    found = json.loads(answer.read())
                commit, rows = str(found["sha"]), found["siblings"]
                break
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                tries += 1
                if tries >= TRIES:
                    raise StageError("infra", f"{repo}: the hub gives no listing: {error}") from None
                _pause(tries)
        if not re.match(r"^[0-9a-f]{40}\Z", commit):
            raise StageError("infra", f"{repo}: the hub names no commit")
        files = []
        for row in rows:
            lfs = row.get("lfs") or {}
            size = row.get("size", lfs.get("size"))
            files.append(HubFile(row["rfilename"], size, lfs.get("sha256"), row.get("blobId")))
        return commit, files

    def url_of(self, kind: str, repo: str, commit: str, path: str) -> str:
        """Where a file is downloaded from."""
        where = f"datasets/{repo}" if kind == "dataset" else repo
        return f"{self.endpoint}/{where}/resolve/{commit}/{urllib.parse.quote(path)}"

    def open(self, url: str, repo: str, headers: dict[str, str] | None = None) -> Any:
        """An answer of 200 or 206; waits as long as the hub asks for.

        :raises StageError: when it refuses for a reason that waiting does not mend.
        :raises OSError: for anything else, which may be tried again.
        """
        while True:
            self._wait_for_all()
            request = urllib.request.Request(url, headers={**self._headers, **(headers or {})})
            try:
                return self._opener.open(request, timeout=SOCKET_S)
            except urllib.error.HTTPError as error:
                with error:
                    self._refused(error, repo)

    def _refused(self, error: urllib.error.HTTPError, repo: str) -> None:
        """Wait after a 429; raise for all else."""
        page = f"{self.endpoint}/{repo}"
        if error.code == 429:
            self._limit(retry_after(error.headers), repo)
            return
        if error.code in (401, 403):
            why = error.headers.get("X-Error-Message") or "no access"
            raise StageError(
                "model_gated",
                f"{repo}: {error.code}, gated, private or not there: {why}",
                f"accept the conditions on {page}, set HF_TOKEN of that account",
            )
        if error.code == 404:
            why = error.headers.get("X-Error-Code") or "not found"
            raise StageError("model_missing", f"{repo}: {why} (404)", f"check id and revision on {page}")
        if error.code == 416:
            raise RangeError
        if error.code < 500 and error.code != 408:
            raise StageError("infra", f"{repo}: the hub answers {error.code}")
        raise OSError(f"the hub answers {error.code}")

    def _limit(self, seconds: float, repo: str) -> None:
        with self._lock:
            # Answers that threads get at the same moment are one wait, not several.
            until = max(self._not_before, time.monotonic() + seconds)
            more = until - max(self._not_before, time.monotonic())
            if more > self._patience_s:
                raise StageError(
                    "rate_limited",
                    f"{repo}: the hub asks to wait {seconds:.0f} s",
                    "set HF_TOKEN, which has a higher limit, or stage later; what is here is kept",
                )
            self._patience_s -= more
            self._not_before = until
        self._say({"event": "rate_limited", "wait_s": seconds})

    def _wait_for_all(self) -> None:
        while True:
            with self._lock:
                left = self._not_before - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 5.0))

    def download(
        self, url: str, repo: str, file: HubFile, part: Path, on_bytes: Callable[[int], None]
    ) -> None:
        """Make ``part`` the whole file, going on from what it holds; verified when this returns.

        :param on_bytes: told how many bytes came in, those that were there already too.
        :raises StageError: ``weights_digest_mismatch`` (``part`` is left), ``disk_full``, ``infra``, ...
        """
        hasher, have = hash_part(part, file)
        went_on = have > 0
        on_bytes(have)
        tries = 0
        while have < file.size:
            before = have
            try:
                have = self._more(url, repo, file, part, hasher, have, on_bytes)
                why = "the connection was cut"
            except RangeError:  # it cannot go on from there: from the begin
                on_bytes(-have)
                part.unlink()
                went_on, have, hasher = False, 0, file.hasher()
                why = "the server has no ranges"
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, OSError) and error.errno in FULL:
                    raise StageError("disk_full", f"{file.path}: {error.strerror}", "free space") from None
                have = part.stat().st_size if part.exists() else 0
                why = str(error)
            if have >= file.size:
                break
            tries = 0 if have > before else tries + 1
            if tries >= TRIES:
                what = f"{repo}/{file.path}: {why}, {have} of {file.size} bytes"
                raise StageError("infra", what, "run it again: it goes on where it was")
            _pause(tries)
        found = hasher.hexdigest()
        if have == file.size and found == file.etag:
            return
        if went_on:  # what an earlier try left may be what is wrong: once more, all of it
            on_bytes(-have)
            part.unlink()
            self.download(url, repo, file, part, on_bytes)
            return
        raise StageError(
            "weights_digest_mismatch",
            f"{repo}/{file.path}: its hash is {found}, the hub says {file.etag}",
            "it lies in quarantine; run it again, tell the hub if it stays",
        )

    def _more(
        self,
        url: str,
        repo: str,
        file: HubFile,
        part: Path,
        hasher: Any,
        have: int,
        on_bytes: Callable[[int], None],
    ) -> int:
        """One answer's worth of bytes; how many there are then."""
        headers = {"Range": f"bytes={have}-"} if have else {}
        with self.open(url, repo, headers) as answer:
            if have:
                place = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range") or "")
                if answer.status != 206 or place is None or int(place.group(1)) != have:
                    raise RangeError
            with part.open("ab") as out:
                while have < file.size:
                    piece = answer.read(min(CHUNK, file.size - have))
                    if not piece:
                        break
                    out.write(piece)
                    hasher.update(piece)
                    have += len(piece)
                    on_bytes(len(piece))
                out.flush()
                if have == file.size:
                    os.fsync(out.fileno())
        return have


def _pause(tries: int) -> None:
    time.sleep(min(0.5 * 2.0**tries, MAX_WAIT_S))


def hash_part(part: Path, file: HubFile) -> tuple[Any, int]:
    """(hash, bytes) of what an earlier try left; a part that is too long is removed."""
    hasher = file.hasher()
    if not part.exists():
        return hasher, 0
    if part.stat().st_size > file.size:
        part.unlink()
        return hasher, 0
    return hasher, hash_file(part, hasher)


def hash_file(path: Path, hasher: Any) -> int:
    """Feed a file to a hash; its bytes."""
    have = 0
    with path.open("rb") as content:
        for piece in iter(lambda: content.read(CHUNK), b""):
            hasher.update(piece)
            have += len(piece)
    return have


def retry_after(headers: Any) -> float:
    """Seconds to wait after a 429: a number or a date, or what its rate-limit header says; else 30."""
    text = (headers.get("Retry-After") or "").strip()
    if text.isdigit():
        return float(text)
    if text:
        try:
            return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
        except (TypeError, ValueError):
            return 30.0
    match = re.search(r"\bt=(\d+)", headers.get("RateLimit") or "")
    return float(match.group(1)) if match else 30.0
