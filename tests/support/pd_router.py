"""A small router for two roles, standing in for the engines' own: ``pd_router.py --port P --prefill URL ... --decode URL ...``.

Each chat completion goes to a prefill server for one token, then to a decode server, whose stream is the
answer. ``--skip-prefill`` leaves the first step out (a fault that readiness must see). Needs the standard
library alone, so that it runs inside an image too.
"""  # noqa: E501

import argparse
import itertools
import json
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--prefill", nargs="+", required=True)
parser.add_argument("--decode", nargs="+", required=True)
parser.add_argument("--skip-prefill", action="store_true")
options = parser.parse_args()
prefills, decodes = itertools.cycle(options.prefill), itertools.cycle(options.decode)
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy of the environment


def post(url: str, body: dict):
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    return direct.open(request, timeout=600)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, *args):
        pass

    def answer(self, status: int, text: bytes, kind: str = "application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        if self.path == "/health":
            self.answer(200, b'{"status": "ok"}')
            return
        try:
            with direct.open(f"{next(decodes)}{self.path}", timeout=30) as answer:
                self.answer(200, answer.read(), answer.headers.get("Content-Type", "application/json"))
        except urllib.error.URLError as error:
            self.answer(502, str(error).encode(), "text/plain")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            if not options.skip_prefill:
                first = {**body, "max_tokens": 1, "stream": False}
                first.pop("stream_options", None)
                with post(f"{next(prefills)}{self.path}", first) as answer:
                    answer.read()
            with post(f"{next(decodes)}{self.path}", body) as answer:
                self.send_response(200)
                self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
                self.end_headers()
                while chunk := answer.read1(65536):
                    self.wfile.write(chunk)
                    self.wfile.flush()
        except urllib.error.HTTPError as error:
            self.answer(error.code, error.read())
        except urllib.error.URLError as error:
            self.answer(502, str(error).encode(), "text/plain")


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


print("listening", flush=True)
Server((options.host, options.port), Handler).serve_forever()
