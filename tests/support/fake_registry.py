"""A small real image registry over HTTP with one tiny image, for pulls by digest.

It speaks what ``podman pull`` and ``skopeo copy`` ask of a registry: /v2/, manifests and blobs.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass
class Registry:
    """``address`` is host:port; ``asked`` the paths that were asked for."""

    address: str
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifest: bytes = b""
    asked: list[str] = field(default_factory=list)

    @property
    def ref(self) -> str:
        """The image by its digest."""
        return f"{self.address}/org/engine@{digest_of(self.manifest)}"


def _fill(registry: Registry) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        info = tarfile.TarInfo("hello.txt")
        info.size = 6
        tar.addfile(info, io.BytesIO(b"hello\n"))
    layer = gzip.compress(raw.getvalue(), mtime=0)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(raw.getvalue())]},
            "history": [{"created_by": "a test"}],
        }
    ).encode()
    registry.blobs = {digest_of(data): data for data in (layer, config)}
    registry.manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest_of(config),
                "size": len(config),
            },
            "layers": [
                {
                    "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                    "digest": digest_of(layer),
                    "size": len(layer),
                }
            ],
        }
    ).encode()


@contextmanager
def serve() -> Iterator[Registry]:
    """A registry that serves until the block ends."""
    registry = Registry("")
    _fill(registry)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def answer(self, code: int, body: bytes = b"", kind: str = "application/json") -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            if kind == MANIFEST:
                self.send_header("Docker-Content-Digest", digest_of(body))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self) -> None:
            registry.asked.append(self.path)
            if self.path in ("/v2/", "/v2"):
                self.answer(200, b"{}")
            elif self.path == f"/v2/org/engine/manifests/{digest_of(registry.manifest)}":
                self.answer(200, registry.manifest, MANIFEST)
            elif self.path.startswith("/v2/org/engine/blobs/"):
                blob = registry.blobs.get(self.path.rpartition("/")[2])
                self.answer(200 if blob else 404, blob or b"", "application/octet-stream")
            else:
                errors = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
                self.answer(404, json.dumps(errors).encode())

        do_HEAD = do_GET  # noqa: N815 (the name that the library asks for)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry.address = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
