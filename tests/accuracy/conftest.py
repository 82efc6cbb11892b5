"""A small HTTP server whose answers a test decides."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Asked:
    """A server on the loopback. ``answer(n, body)`` gives (status, bytes) for the n-th request, from 0."""

    def __init__(self, answer: Callable[[int, dict[str, Any]], tuple[int, bytes]], delay_s: float) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.in_flight = 0
        self.most = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer._lock:
                    number = len(outer.bodies)
                    outer.bodies.append({"path": self.path, **body})
                    outer.in_flight += 1
                    outer.most = max(outer.most, outer.in_flight)
                time.sleep(delay_s)
                status, data = answer(number, body)
                with outer._lock:
                    outer.in_flight -= 1
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_: object) -> None:
                pass  # a client that went away is what some tests are about

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def completion(text: Any, **usage: Any) -> bytes:
    """The bytes of a chat completion."""
    return json.dumps({"choices": [{"message": {"content": text}}], "usage": usage}).encode()


@pytest.fixture
def serve() -> Iterator[Callable[..., Asked]]:
    """``serve(answer, delay_s=0)`` starts a server; ``answer`` may be a text for every request."""
    started: list[Asked] = []

    def start(answer: Any, delay_s: float = 0.0) -> Asked:
        if isinstance(answer, str):
            data = completion(answer, completion_tokens=3, prompt_tokens_details={"cached_tokens": 2})
            server = Asked(lambda _n, _body: (200, data), delay_s)
        else:
            server = Asked(answer, delay_s)
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()


@pytest.fixture(name="completion")
def completion_fixture() -> Callable[..., bytes]:
    """Makes the bytes of a chat completion."""
    return completion
