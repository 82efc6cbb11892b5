"""Engines that the catalog describes, over HTTP: health, counters, resets with proof, effective arguments."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.facts import load_catalog
from isoline.runners.engines import EngineCallError, engine_adapter
from isoline.runners.engines.served import agree, asked_of, flat, parse_prometheus
from isoline.runners.launchers.interface import PhaseFailedError


class Fake:
    """A server with a prefix cache and the pages of one engine. Faults: no_flush, no_cached, busy."""

    def __init__(self, engine: str, *faults: str) -> None:
        self.facts = load_catalog().engines[engine]
        self.faults = faults
        self.cache: set[str] = set()
        self.counts = {"prompt_tokens": 0, "generation_tokens": 0, "cached_tokens": 0}
        self.flushes = 0
        self.info: dict[str, Any] = {"server_args": {"tp_size": 8, "max_running_requests": 64, "log": True}}

    def metrics(self) -> str:
        facts = self.facts.metrics
        assert facts
        rows = [f'{facts.running}{{rank="0"}} {int("busy" in self.faults)}', f"{facts.waiting} 0.0"]
        for name, value in self.counts.items():
            if name != "cached_tokens" or "no_cached" not in self.faults:
                rows.append(f'{getattr(facts, name)}{{model_name="m, \\"x\\"",rank="0"}} {value}')
        return "# HELP x y\n" + "\n".join(rows) + "\n"

    def chat(self, body: dict[str, Any]) -> str:
        prompt = body["messages"][0]["content"]
        tokens = len(prompt.split())
        if prompt in self.cache:
            self.counts["cached_tokens"] += tokens
        self.cache.add(prompt)
        self.counts["prompt_tokens"] += tokens
        self.counts["generation_tokens"] += body["max_tokens"]
        chunks = [{"choices": [{"delta": {"content": "a"}}]}] * body["max_tokens"]
        chunks.append({"choices": [], "usage": {"completion_tokens": body["max_tokens"]}})
        return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"

    def flush(self) -> None:
        self.flushes += 1
        if "no_flush" not in self.faults:
            self.cache.clear()


@pytest.fixture
def serve() -> Iterator[Callable[[Fake], str]]:
    """A starter of such servers; gives the address."""
    running: list[ThreadingHTTPServer] = []

    def start(fake: Fake) -> str:
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

            def answer(self, text: str, status: int = 200) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def do_GET(self) -> None:
                facts = fake.facts
                if self.path == facts.health:
                    self.answer("")
                elif facts.metrics and self.path == facts.metrics.path:
                    self.answer(fake.metrics())
                elif self.path == "/v1/models":
                    self.answer(json.dumps({"data": [{"id": "m"}]}))
                elif facts.effective_args and self.path == facts.effective_args.path:
                    self.answer(json.dumps(fake.info))
                else:
                    self.answer("no such page", 404)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.path == "/v1/chat/completions":
                    self.answer(fake.chat(json.loads(body)))
                elif fake.facts.cache_reset and self.path == fake.facts.cache_reset.path:
                    fake.flush()
                    self.answer("ok")
                else:
                    self.answer("no such page", 404)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        running.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("engine", ["vllm", "sglang", "dynamo-vllm", "dynamo-sglang"])
def test_a_reset_is_called_and_proven(engine: str, serve: Callable[[Fake], str]) -> None:
    """A known prompt is sent, the cache emptied by the engine's own call, and the prompt is unknown then."""
    fake = Fake(engine)
    url, adapter = serve(fake), engine_adapter(engine)
    assert adapter.healthy(url) and adapter.generate(url, "m", 3, 5.0) == (3, "aaa")
    adapter.reset(url, 5.0)
    assert fake.flushes == 2 and fake.cache == set()
    counters = adapter.counters(url, 5.0)
    assert (counters["running"], counters["output_tokens"]) == (0.0, 5.0)


@pytest.mark.parametrize(
    ("engine", "faults", "why"),
    [
        ("vllm", ("no_flush",), "540 tokens were still cached after /reset_prefix_cache"),
        ("sglang", ("no_cached",), "does not count cached tokens, so no reset can be proven"),
        ("vllm", ("busy",), "not at rest after 0 s: 1 running, 0 waiting"),
        ("trtllm", (), "engine trtllm has no call that empties its cache"),
    ],
)
def test_a_reset_without_proof_fails(
    engine: str, faults: tuple[str, ...], why: str, serve: Callable[[Fake], str]
) -> None:
    """A cache that stays, a counter that is missing, work that goes on: the server has to start anew."""
    url = serve(Fake(engine, *faults))
    with pytest.raises(PhaseFailedError) as failed:
        engine_adapter(engine).reset(url, 0.3)
    assert failed.value.code == "reset_failed" and why in failed.value.detail


def test_every_engine_can_be_asked() -> None:
    """Each engine of the catalog has an adapter; without a metrics page it says so."""
    for name, engine in load_catalog().engines.items():
        adapter = engine_adapter(name)
        if engine.metrics is None and name != "llamacpp":
            with pytest.raises(EngineCallError, match="no metrics page is known"):
                adapter.counters("http://127.0.0.1:9", 0.1)


def test_effective_arguments_are_compared(serve: Callable[[Fake], str]) -> None:
    """What the page shows as another number or switch is named; what it does not show proves nothing."""
    adapter = engine_adapter("sglang")
    effective = adapter.effective_args(serve(Fake("sglang")), Path())
    argv = (
        "python3",
        "-m",
        "sglang",
        "--tp",
        "4",
        "--max-running-requests=64",
        "--mem-fraction-static",
        "0.8",
    )
    assert adapter.differences(argv, effective) == ["--tensor-parallel-size: asked 4, effective 8"]


def test_metrics_are_read_whatever_their_labels() -> None:
    """Values are summed over labels; comments, time stamps and broken lines do no harm."""
    text = 'a{x="1"} 2\na{x="}"} 3 1700000000\n# TYPE a counter\nb NaN\nbroken\nc{ 1\nd 1e3'
    found = parse_prometheus(text)
    assert (found["a"], found["d"]) == (5.0, 1000.0) and "broken" not in found


def test_words_of_a_command_line() -> None:
    """Arguments come with a blank, with an equals sign, or alone."""
    facts = load_catalog().engines["vllm"]
    argv = ("vllm", "serve", "m", "--tp", "8", "--max-num-seqs=64", "--enable-expert-parallel")
    wanted = {"tensor-parallel-size": "8", "max-num-seqs": "64", "enable-expert-parallel": True}
    assert asked_of(argv, facts) == wanted


@pytest.mark.parametrize(
    ("asked", "shown", "same"),
    [
        ("8", 8, True),
        ("8", 4, False),
        ("0.90", 0.9, True),
        (True, True, True),
        (True, False, False),
        ("auto", 8, True),
        ("fp8", "fp8_e4m3", True),
        ('{"a": 1}', 3, True),
    ],
)
def test_only_numbers_and_switches_disagree(asked: Any, shown: Any, same: bool) -> None:
    """A text may be resolved to anything by the engine; a number or a switch may not."""
    assert agree(asked, shown) is same


def test_a_key_with_two_values_says_nothing() -> None:
    """Nested answers are read by their last key; one that stands for two values is left out."""
    assert flat({"a": {"x": 1, "y": 2}, "b": [{"x": 1}, {"y": 3}], "z": None}) == {"x": 1, "z": None}
