"""A server that says it is healthy and gives three tokens whatever it is asked for: ``--port P`` and more."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """``/health`` is fine; a chat completion is a stream of three tokens with their usage."""

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def _answer(self, text: str, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self) -> None:
        """Health."""
        self._answer(json.dumps({"status": "ok"}), "application/json")

    def do_POST(self) -> None:
        """Three tokens."""
        self.rfile.read(int(self.headers["Content-Length"]))
        chunks = [{"choices": [{"delta": {"content": word}}]} for word in ("one", " two", " three")]
        chunks.append({"choices": [], "usage": {"completion_tokens": 3}})
        text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self._answer(text, "text/event-stream")


port = int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
