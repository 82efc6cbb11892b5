"""A small real HTTP server that behaves as a model hub does, with faults that a test asks for.

It answers ``/api/<kind>s/<id>/revision/<rev>?blobs=true`` and ``/<id>/resolve/<rev>/<file>`` (``/datasets/…``
likewise): large files are redirected to a "storage" path with range requests, as the hub does.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

COMMIT = "ab" * 20


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def git_blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Repo:
    """One repository: files by path; those in ``large`` are LFS files."""

    files: dict[str, bytes]
    large: set[str] = field(default_factory=set)
    commit: str = COMMIT
    gated: bool = False


@dataclass
class FakeHub:
    """What the hub has, what it is told to do wrong, and what it was asked.

    ``cuts``: after so many bytes the next answers of a file break off, one each. ``limits``: so many next
    requests get 429 with this Retry-After. ``wrong``: paths whose storage serves other bytes.
    ``slow_s``: pause between pieces of 64 KiB.
    """

    url: str
    repos: dict[str, Repo] = field(default_factory=dict)
    cuts: deque[int] = field(default_factory=deque)
    limits: deque[str] = field(default_factory=deque)
    errors: deque[int] = field(default_factory=deque)
    wrong: set[str] = field(default_factory=set)
    no_ranges: bool = False
    slow_s: float = 0.0
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    tokens: list[tuple[str, str | None]] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)

    def asked(self, word: str) -> list[str | None]:
        """The Range headers of the requests whose path holds a word."""
        return [ranges for path, ranges in self.requests if word in path]


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def answer(self, code: int, body: bytes = b"", **headers: str) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            split = urlsplit(self.path)
            hub.requests.append((split.path, self.headers.get("Range")))
            hub.tokens.append((split.path, self.headers.get("Authorization")))
            if hub.limits:
                self.answer(429, Retry_After=hub.limits.popleft())
                return
            if hub.errors:
                self.answer(hub.errors.popleft())
                return
            if split.path.startswith("/storage/"):
                self.storage(split.path[len("/storage/") :])
                return
            parts = split.path.strip("/").split("/")
            if parts[0] == "api":
                kind, repo_id, rev = parts[1], "/".join(parts[2:4]), parts[5]
                self.listing(kind, repo_id, rev, parse_qs(split.query))
                return
            kind = "models"
            if parts[0] == "datasets":
                kind, parts = "datasets", parts[1:]
            self.resolve(kind, "/".join(parts[:2]), "/".join(parts[4:]))

        def repo(self, kind: str, repo_id: str) -> Repo | None:
            repo = hub.repos.get(f"{kind}/{repo_id}")
            if repo is None:
                self.answer(404, X_Error_Code="RepoNotFound")
                return None
            if repo.gated and self.headers.get("Authorization") != "Bearer good":
                code = 403 if self.headers.get("Authorization") else 401
                self.answer(code, X_Error_Code="GatedRepo", X_Error_Message="Access is restricted")
                return None
            return repo

        def listing(self, kind: str, repo_id: str, rev: str, query: dict[str, list[str]]) -> None:
            repo = self.repo(kind, repo_id)
            if repo is None:
                return
            if rev not in ("main", repo.commit):
                self.answer(404, X_Error_Code="RevisionNotFound")
                return
            rows = []
            for path, data in repo.files.items():
                row: dict[str, Any] = {"rfilename": path}
                if "blobs" in query:
                    row |= {"size": len(data), "blobId": git_blob(data)}
                    if path in repo.large:
                        row["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 134}
                rows.append(row)
            body = json.dumps({"id": repo_id, "sha": repo.commit, "siblings": rows}).encode()
            self.answer(200, body, Content_Type="application/json")

        def resolve(self, kind: str, repo_id: str, path: str) -> None:
            repo = self.repo(kind, repo_id)
            if repo is None:
                return
            if path not in repo.files:
                self.answer(404, X_Error_Code="EntryNotFound")
                return
            data = repo.files[path]
            if path in repo.large:
                other = hub.url.replace("127.0.0.1", "localhost")  # another host, as the hub's storage is
                self.answer(
                    302,
                    Location=f"{other}/storage/{kind}/{repo_id}/{path}",
                    X_Linked_Etag=f'"{sha256(data)}"',
                    X_Linked_Size=str(len(data)),
                    X_Repo_Commit=repo.commit,
                )
                return
            self.content(path, data)

        def storage(self, place: str) -> None:
            kind, owner, name, path = place.split("/", 3)
            self.content(path, hub.repos[f"{kind}/{owner}/{name}"].files[path])

        def content(self, path: str, data: bytes) -> None:
            if path in hub.wrong:
                data = data[:-1] + bytes([data[-1] ^ 1])
            begin = 0
            asked = self.headers.get("Range")
            if asked and not hub.no_ranges:
                begin = int(asked.removeprefix("bytes=").partition("-")[0])
                if begin >= len(data):
                    self.answer(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
            else:
                self.send_response(200)
            body = data[begin:]
            self.send_header("ETag", f'"{sha256(data)}"')
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            cut = hub.cuts.popleft() if hub.cuts else None
            for start in range(0, len(body), 65536):
                piece = body[start : start + 65536]
                if cut is not None and start + len(piece) > cut:
                    piece = piece[: max(0, cut - start)]
                try:
                    self.wfile.write(piece)
                    hub.sent[path] = hub.sent.get(path, 0) + len(piece)
                except OSError:
                    return
                if cut is not None and start + 65536 > cut:
                    self.close_connection = True
                    self.connection.close()
                    return
                time.sleep(hub.slow_s)

    return Handler


@contextmanager
def serve() -> Iterator[FakeHub]:
    """A hub that serves until the block ends."""
    hub = FakeHub("")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
