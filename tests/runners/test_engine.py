"""The real llama.cpp: start, ready, reset, counters, tokens, watch, stop."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from tokenizers import Tokenizer

from isoline.catalog.facts import load_catalog
from isoline.recipes.deployment import Command, Deployment
from isoline.runners.launchers.interface import Deadlines, LaunchSpec, PhaseFailedError, Server, Staged
from isoline.runners.launchers.parts import Part
from isoline.runners.launchers.process import ProcessLauncher
from isoline.runners.machine import proc
from isoline.runners.ownership import owners
from isoline.runners.staging.tokenizer import ensure_tokenizer
from isoline.settings import Settings

pytestmark = pytest.mark.engine

ALIAS = "smollm2-135m-instruct"
ARGS = ["--parallel", "4", "--ctx-size", "2048", "--threads", "2", "--threads-batch", "2", "--cache-ram", "0"]
TEXTS = [
    "Hello, world!",
    "In 1984 there were 12345 sheep;  they said: \n\n\tbaa... äöü 漢字 🙂",
    "<|im_start|>user\ndef f(x):\n    return x**2<|im_end|>\n",
    " leading blank, don't you'll we're  trailing  ",
]


def spec(folder: Path, state: Path, *more: str) -> LaunchSpec:
    catalog = load_catalog()
    process = catalog.engines["llamacpp"].process
    assert process
    return LaunchSpec(
        run_id="20260101T000000Z-test-abcdef",
        launch_id="test-1",
        engine="llamacpp",
        alias=ALIAS,
        deployment=Deployment(
            None, (), (Command("aggregated", [*process.command, *(more or ARGS)], {}, role="aggregated"),), ()
        ),
        weights=(catalog.models[ALIAS].weights[0],),
        packages=("xllamacpp==2026.10.11549",),
        scratch=state / "scratch" / folder.name,
        log=folder / "server.log",
        deadlines=Deadlines(ready_s=90.0, reset_s=30.0, stop_s=10.0),
    )


@pytest.fixture
def launcher(project_settings: Settings, settings: Settings) -> ProcessLauncher:
    """A launcher that stages from the project's state folder and keeps its records in a new one."""
    made = ProcessLauncher(project_settings)
    made.state = settings.state
    return made


@pytest.fixture
def staged(launcher: ProcessLauncher, tmp_path: Path) -> Staged:
    """The real engine environment and weights, made by `make setup`."""
    return launcher.stage(spec(tmp_path, launcher.state))


@pytest.fixture
def running(launcher: ProcessLauncher, staged: Staged, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """A starter of real servers, which are all stopped at the end."""
    servers: list[Server] = []

    def start(*more: str) -> Server:
        servers.append(launcher.start(spec(tmp_path, launcher.state, *more), staged))
        return servers[-1]

    yield start
    for server in servers:
        launcher.stop(server)


def ask(server: Server, text: str, **more: object) -> dict[str, object]:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "ignore_eos": True} | more
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60, trust_env=False)
    answer.raise_for_status()
    usage: dict[str, object] = answer.json()["usage"]
    return usage


def cached(usage: dict[str, object]) -> int:
    details = usage["prompt_tokens_details"]
    assert isinstance(details, dict)
    return int(details["cached_tokens"])


def test_ready_reset_counters_tokens_stop(
    launcher: ProcessLauncher, running: Callable[..., Server], project_settings: Settings
) -> None:
    """One real server: ready by a generation, cache seen and erased, counters true, tokenizer exact."""
    server = running()
    readiness = launcher.ready(server)
    assert readiness.tokens == 5 and readiness.text.strip()
    assert server.effective and server.effective["props"]["total_slots"] == 4

    before = server.adapter.counters(server.url, 2.0)
    long = "Tell me about the sea. " * 10
    first = ask(server, long)
    assert cached(ask(server, long)) > 50, "the second time the prompt comes out of the cache"
    after = server.adapter.counters(server.url, 2.0)
    assert after["output_tokens"] - before["output_tokens"] == 16
    grown = {name: after[name] - before[name] for name in ("input_tokens", "cached_tokens")}
    assert sum(grown.values()) == 2 * int(str(first["prompt_tokens"]))
    assert after["running"] == 0 and after["waiting"] == 0

    proof = launcher.reset(server)
    assert proof.slots == 4 and proof.tokens_erased and proof.tokens_erased > 50
    assert cached(ask(server, long)) == 0, "after a reset nothing comes out of the cache"

    tokenizer = Tokenizer.from_file(
        str(ensure_tokenizer(project_settings, server.staged.model_path, ALIAS).tokenizer_json)
    )
    for text in TEXTS:
        answer = httpx.post(
            f"{server.url}/tokenize",
            json={"content": text, "parse_special": True},
            timeout=10,
            trust_env=False,
        )
        assert tokenizer.encode(text).ids == answer.json()["tokens"], text

    began = time.monotonic()
    outcome = launcher.stop(server)
    assert time.monotonic() - began < 5 and not outcome.killed
    assert [item for item in proc.all_procs() if item.sid == server.pid and item.state != "Z"] == []
    assert owners.all_owners(launcher.state) == []


def test_watch_sees_a_real_death_and_the_next_start_works(
    launcher: ProcessLauncher, running: Callable[..., Server]
) -> None:
    """A server that aborts under load is seen dead within two seconds; a new one is ready after it."""
    server = running()
    launcher.ready(server)
    watch = launcher.watch(server)
    try:
        with watch.guard("load", 30.0):
            os.kill(server.pid, signal.SIGABRT)
            until = time.monotonic() + 2.0
            while watch.event() is None and time.monotonic() < until:
                time.sleep(0.01)
            event = watch.event()
    finally:
        watch.close()
    assert event and event.code == "server_died"
    launcher.stop(server)
    again = running()
    assert launcher.ready(again).tokens == 5


def test_taken_port_with_the_real_engine(
    launcher: ProcessLauncher, running: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the leased port is taken the real server fails to bind and is started on another."""
    with socket.socket() as thief:
        real = launcher.spawn

        def grab(server: Server, part: Part) -> None:
            if not thief.getsockname()[1]:
                thief.bind(("127.0.0.1", part.port))  # bound, not listening: only the server's bind can tell
            real(server, part)

        monkeypatch.setattr(launcher, "spawn", grab)
        server = running()
        assert launcher.ready(server).port_tries == 2
        assert server.port != thief.getsockname()[1]


def test_wrong_flag_and_wrong_model_fail_at_once(
    launcher: ProcessLauncher, running: Callable[..., Server]
) -> None:
    """An unknown flag ends the launch in a moment, with the script's line in the log's end."""
    with pytest.raises(PhaseFailedError) as failed:
        launcher.ready(running("--paralel", "4"))
    assert failed.value.code == "launch_failed" and "exit code 2" in failed.value.detail
    assert "unknown flag --paralel" in failed.value.log_tail
