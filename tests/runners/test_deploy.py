"""Deployments of several programs: order, addresses, readiness through every role, and one that dies."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from isoline.errors import InfraError
from isoline.recipes.deployment import Command, Deployment
from isoline.runners.engines.llamacpp import LlamaCpp
from isoline.runners.launchers.interface import (
    LaunchSpec,
    PhaseFailedError,
    ResetProof,
    Server,
    ShouldStop,
)
from isoline.runners.launchers.parts import Part, fill_words
from isoline.runners.launchers.process import ProcessLauncher
from isoline.runners.ownership import owners

SpecOf = Callable[..., LaunchSpec]
ROUTER = Path(__file__).parents[1] / "support" / "pd_router.py"


def two_roles(
    spec: LaunchSpec, *router: str, before: tuple[Command, ...] = (), decoders: int = 1
) -> LaunchSpec:
    """Two fake servers behind a router, in the place of the one fake server."""
    worker = spec.main
    words = [sys.executable, str(ROUTER), "--port", "{port.router}", *router]
    words += ["--prefill", "{url.prefill}", "--decode", "{url.decode}"]
    entry = Command("router", words, {}, ports=("router",), ready="/health", is_entry=True)
    prefill = replace(worker, name="prefill", role="prefill")
    decode = replace(worker, name="decode", role="decode", workers=decoders)
    return replace(spec, deployment=Deployment(None, before, (prefill, decode), (entry,)))


def test_two_roles_behind_a_router(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf, tmp_path: Path
) -> None:
    """Each program has its own process, port, log and folder; the router answers; a stop leaves nothing."""
    server = start(two_roles(spec_of(), decoders=2))
    assert launcher.ready(server).tokens == 5
    assert [part.name for part in server.parts] == ["prefill.0", "decode.0", "decode.1", "router.0"]
    assert server.url == server.parts[-1].url and len({part.port for part in server.parts}) == 4
    assert set(server.effective or {}) == {"prefill.0", "decode.0", "decode.1"}
    assert launcher.reset(server).slots == 6
    lock = launcher.collect(server, tmp_path / "bundle")
    assert [item["role"] for item in lock["parts"]] == ["prefill", "decode", "decode", None]
    logs = {path.name for path in (tmp_path / "bundle").iterdir()}
    assert logs >= {"server-prefill.0.log", "server-decode.1.log", "server-router.0.log"}
    pids = server.pids()
    launcher.stop(server)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert owners.all_owners(launcher.state) == [] and not server.spec.scratch.exists()


def test_an_answer_that_a_role_took_no_part_in_is_not_ready(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf
) -> None:
    """A router that leaves the prefill server out answers, and the launch fails all the same."""
    server = start(two_roles(spec_of(), "--skip-prefill"))
    with pytest.raises(PhaseFailedError) as failed:
        launcher.ready(server)
    assert failed.value.code == "not_generating"
    assert failed.value.detail == "an answer came without prefill"


def test_what_comes_before_is_up_before_the_workers_start(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf, tmp_path: Path
) -> None:
    """A store that is slow holds the workers back; they are told its port."""
    note = tmp_path / "store"
    program = (
        "import http.server, pathlib, sys, time; time.sleep(0.5); "
        "pathlib.Path(sys.argv[2]).write_text(str(time.time())); "
        "handler = http.server.SimpleHTTPRequestHandler; "
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), handler).serve_forever()"
    )
    store = Command("store", [sys.executable, "-c", program, "{port.store}", str(note)], {}, ports=("store",))
    spec = two_roles(spec_of(), before=(store,))
    told = replace(spec.deployment.workers[0], env={**spec.main.env, "STORE": "tcp://{port.store}"})
    server = start(
        replace(spec, deployment=replace(spec.deployment, workers=(told, spec.deployment.workers[1])))
    )
    assert [part.name for part in server.parts] == ["store.0"]
    launcher.ready(server)
    first, worker = server.parts[0], server.workers[0]
    assert worker.env["STORE"] == f"tcp://{first.ports['store']}"
    assert worker.started_at > first.started_at and note.exists()


def test_the_part_that_dies_is_named(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf, eventually: Callable[..., None]
) -> None:
    """When one role dies under load the watch says which."""
    server = start(two_roles(spec_of()))
    launcher.ready(server)
    watch = launcher.watch(server)
    try:
        with watch.guard("load", 30.0):
            os.kill(server.parts[1].pid, signal.SIGSEGV)
            eventually(watch.event, 3.0)
    finally:
        watch.close()
    event = watch.event()
    assert event and (event.code, event.detail) == (
        "server_died",
        "decode.0 ended by signal 11 (SIGSEGV)",
    )


def test_a_part_that_fails_to_start_brings_its_own_log(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf
) -> None:
    """Of several programs the one that ended is named, and its log is shown, not another's."""
    spec = two_roles(spec_of())
    decode = replace(spec.deployment.workers[1], argv=[sys.executable, "-c", "print('no memory'); exit(3)"])
    server = start(replace(spec, deployment=replace(spec.deployment, workers=(spec.main, decode))))
    with pytest.raises(PhaseFailedError) as failed:
        launcher.ready(server)
    assert failed.value.code == "launch_failed"
    assert failed.value.detail == "decode.0 was ended by exit code 3 before it was ready"
    assert failed.value.log_tail == "no memory"


def test_a_port_taken_by_somebody_else_moves_all(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf
) -> None:
    """When one server finds its port taken everything starts again, and the router learns the new address."""
    spec = two_roles(spec_of())
    taken = spec_of("taken").main
    decode = replace(taken, name="decode", role="decode")
    server = start(replace(spec, deployment=replace(spec.deployment, workers=(spec.main, decode))))
    assert launcher.ready(server).port_tries == 2
    assert server.parts[-1].argv[-1] == server.parts[1].url


def test_one_word_for_each_worker() -> None:
    """A word that is a list of addresses becomes so many words; inside another word it is the first."""
    urls = {"url": ["http://a", "http://b"], "url.decode": ["http://b"]}
    filled = fill_words(["--urls", "{url}", "--one={url.decode}", "{url.decode}"], {}, urls)
    assert filled == ("--urls", "http://a", "http://b", "--one=http://b", "http://b")


def test_own_files_are_written_where_the_words_say(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf, tmp_path: Path
) -> None:
    """Configuration files and the recipe's own lie in the folder of the program that reads them."""
    template = tmp_path / "chat.jinja"
    template.write_text("{{ x }}")
    spec = spec_of()
    worker = replace(
        spec.main,
        env={**spec.main.env, "CONFIG": "{file.config.yaml}", "TEMPLATE": "{file.chat.jinja}"},
        config_files={"config.yaml": {"a": [1]}},
    )
    deployment = replace(spec.deployment, workers=(worker,))
    server = start(replace(spec, deployment=deployment, files={"chat.jinja": template}))
    launcher.ready(server)
    assert Path(server.env["CONFIG"]).read_text() == '{\n "a": [\n  1\n ]\n}\n'
    assert Path(server.env["TEMPLATE"]).read_text() == "{{ x }}"


class NoReset(LlamaCpp):
    """An engine that has no call to empty its cache."""

    isolation = "restart"

    def reset(self, url: str, deadline_s: float, should_stop: ShouldStop | None = None) -> ResetProof:
        """There is none."""
        raise PhaseFailedError("reset_failed", "no call that empties its cache")


def test_an_engine_without_a_reset_serves_one_point(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf
) -> None:
    """A fresh server counts as reset once it is at rest; a second point on it does not."""
    server = start(spec_of())
    server.adapter = NoReset()
    launcher.ready(server)
    assert launcher.reset(server).tokens_erased is None
    with pytest.raises(PhaseFailedError, match="no call that empties its cache"):
        launcher.reset(server)


def test_a_start_that_fails_half_way_leaves_nothing(
    launcher: ProcessLauncher, start: Callable[..., Server], spec_of: SpecOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the second of two workers cannot be started, the first is ended with it, now and not by a later
    run; also where a later group of programs fails."""
    real, begun = launcher.spawn, []

    def one_only(server: Server, part: Part) -> None:
        if begun:
            raise InfraError("cannot start a process: no")
        real(server, part)
        begun.append(part.pid)

    monkeypatch.setattr(launcher, "spawn", one_only)
    with pytest.raises(InfraError, match="cannot start"):
        start(two_roles(spec_of()))
    assert begun and not Path(f"/proc/{begun[0]}").exists()
    assert owners.all_owners(launcher.state) == []

    begun.clear()
    store = Command("store", [sys.executable, "-c", "import time; time.sleep(600)"], {})
    server = start(two_roles(spec_of(name="l-2"), before=(store,)))
    with pytest.raises(InfraError, match="cannot start"):
        launcher.ready(server)
    launcher.stop(server)
    assert not Path(f"/proc/{begun[0]}").exists() and owners.all_owners(launcher.state) == []
