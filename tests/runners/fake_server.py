"""A server with llama.cpp's interface and faults on demand: ``fake_server.py FAULT... --model M --port P``.

Faults: exit3, abort, killed, sleep (never listens), unhealthy, wrong_count, no_usage, no_text, busy (never
at rest), frozen (busy, counters still), keeps (slots keep tokens), moving (counters grow), stubborn (ignores
SIGTERM), child (starts one of its own that ignores SIGTERM), slots2 (reports two slots), taken (ends once
because its port is taken), always_taken. The file ``backwards`` in scratch makes a counter fall.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

begin = next(i for i, word in enumerate(sys.argv) if word.startswith("--"))
faults = set(sys.argv[1:begin])
flags = dict(zip(sys.argv[begin::2], sys.argv[begin + 1 :: 2], strict=True))
scratch = Path(os.environ["FAKE_SCRATCH"])
erased: set[str] = set()
clock = time.monotonic()
posts = 0

if "exit3" in faults:
    print("something is broken", flush=True)
    sys.exit(3)
if "abort" in faults:
    os.abort()
if "killed" in faults:
    os.kill(os.getpid(), signal.SIGKILL)
if "always_taken" in faults or ("taken" in faults and not (scratch / "tried").exists()):
    (scratch / "tried").touch()
    print("E srv start: couldn't bind HTTP server socket", flush=True)
    sys.exit(1)
if "stubborn" in faults:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "child" in faults:
    subprocess.Popen(
        [sys.executable, "-c", "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
    )
if "sleep" in faults:
    time.sleep(600)


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def answer(self, text, kind="application/json", status=200):
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path == "/health":
            ok = "unhealthy" not in faults
            self.answer(json.dumps({"status": "ok" if ok else "loading"}), status=200 if ok else 503)
        elif path == "/metrics":
            grown = int((time.monotonic() - clock) * 1000) if "moving" in faults else 7
            running = int("busy" in faults or "moving" in faults or "frozen" in faults)
            names = {
                "requests_processing": running, "requests_deferred": 0, "prompt_tokens_total": 5 + 5 * posts,
                "prompt_tokens_cached_total": 0, "tokens_predicted_total": grown, "n_decode_total": grown,
            }  # fmt: skip
            if (scratch / "backwards").exists():
                names["n_decode_total"] = 0
            self.answer("".join(f"# TYPE x\nllamacpp:{k} {v}\n" for k, v in names.items()), "text/plain")
        elif path == "/slots":
            self.answer(json.dumps([{"id": 0}, {"id": 1}]))
        elif path == "/props":
            self.answer(
                json.dumps(
                    {
                        "total_slots": 2 if "slots2" in faults else 1,
                        "default_generation_settings": {"n_ctx": 512, "params": {}},
                    }
                )
            )

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "/slots/" in self.path:
            first = self.path not in erased or "keeps" in faults
            erased.add(self.path)
            self.answer(json.dumps({"n_erased": 10 if first else 0}))
            return
        global posts
        posts += 1
        text = "" if "no_text" in faults else "a"
        chunks = [{"choices": [{"delta": {"content": text}}]}] * 5
        if "no_usage" not in faults:
            chunks.append(
                {"choices": [], "usage": {"completion_tokens": 4 if "wrong_count" in faults else 5}}
            )
        body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.answer(body, "text/event-stream")


class Server(ThreadingHTTPServer):
    daemon_threads = True


server = Server((flags["--host"], int(flags["--port"])), Handler)
args = {"model": flags["--model"], "host": flags["--host"], "port": int(flags["--port"]), "parallel": 1}
(scratch / "effective_args.json").write_text(json.dumps({"args": args}))
print("listening", flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
while True:
    time.sleep(60)
