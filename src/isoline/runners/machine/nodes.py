"""Jobs on the machines of a pool: :mod:`isoline.runners.machine.node` is sent there and told what to do.

The job, a token in it too, goes through standard input: nothing of it stands in a command line.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from isoline.errors import InfraError
from isoline.runners.machine.hosts import SSH_FAILED, Host, ToolUnavailableError, kill_session

MODULES = ("fetch", "cache", "repo", "main")
"""Modules of the node's program, those that others import first."""

SILENCE_S = 120.0
"""A job shows every few seconds that it lives; after so long without a word its machine counts as gone."""

LAUNCHER = """
import sys, types
def _module(name, source=None):
    module = sys.modules[name] = types.ModuleType(name)
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)
    if source is not None:
        exec(compile(source, name, "exec"), module.__dict__)
    else:
        module.__path__ = []
"""

OnEvent = Callable[[Mapping[str, Any]], None]


class NodeJobError(InfraError):
    """A job on a machine failed. ``code``: a reason code, ``infra`` or ``command_failed``."""

    def __init__(self, code: str, what: str, *, where: str, remedy: str = "") -> None:
        self.code = code
        super().__init__(what, where=where, remedy=remedy)


@lru_cache(maxsize=1)
def _sources() -> str:
    folder = Path(__file__).parent / "node"
    package = "isoline.runners.machine.node"
    above = ("isoline", "isoline.runners", "isoline.runners.machine")
    rows = [f"_module({name!r})" for name in (*above, package)]
    for name in MODULES:
        source = (folder / f"{name}.py").read_text(encoding="utf-8")
        rows.append(f"_module({f'{package}.{name}'!r}, {source!r})")
    return LAUNCHER + "\n".join(rows)


def program(job: Mapping[str, Any]) -> str:
    """The whole program for ``python3 -``: the modules and the call with its job."""
    call = "import isoline.runners.machine.node.main as _main, json"
    return f"{_sources()}\n{call}\nsys.exit(_main.main(json.loads({json.dumps(job)!r})))\n"


def run_job(
    host: Host,
    job: Mapping[str, Any],
    on_event: OnEvent = lambda event: None,
    *,
    silence_s: float = SILENCE_S,
    should_stop: Callable[[], str | None] = lambda: None,
) -> Any:
    """Do a job on a machine and return its result.

    :param on_event: told of progress, waits and removals, as they happen.
    :raises NodeJobError: when the job failed.
    :raises ToolUnavailableError: when the machine or its Python gives no answer.
    """
    python = sys.executable if host.is_local else "python3"
    words = [python, "-"]
    pipe = subprocess.PIPE
    try:
        process = host.popen(words, stdin=pipe, stdout=pipe, stderr=pipe)
    except OSError as error:
        program = host.words(words)[0]
        raise ToolUnavailableError(f"{program}: {error.strerror}", where=host.name) from error
    try:
        return _talk(host, process, job, on_event, silence_s, should_stop)
    finally:
        kill_session(process)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def _talk(
    host: Host,
    process: subprocess.Popen[bytes],
    job: Mapping[str, Any],
    on_event: OnEvent,
    silence_s: float,
    should_stop: Callable[[], str | None],
) -> Any:
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    lines: queue.Queue[bytes | None] = queue.Queue()
    errors: list[bytes] = []

    def read_lines(stream: Any) -> None:
        for line in iter(stream.readline, b""):
            lines.put(line)
        lines.put(None)

    readers = [
        threading.Thread(target=read_lines, args=(process.stdout,), daemon=True),
        threading.Thread(target=lambda: errors.append(process.stderr.read()), daemon=True),  # type: ignore[union-attr]
    ]
    for reader in readers:
        reader.start()
    with suppress(BrokenPipeError):  # it ended already: its words say why
        process.stdin.write(program(job).encode())
        process.stdin.close()
    heard = time.monotonic()
    while True:
        if why := should_stop():
            raise NodeJobError("interrupted", f"stopped: {why}", where=host.name)
        try:
            line = lines.get(timeout=0.2)
        except queue.Empty:
            if time.monotonic() - heard > silence_s:
                raise ToolUnavailableError(
                    f"no word from the staging job for {silence_s:.0f} s",
                    where=host.name,
                    remedy="look at that machine; what was staged so far is kept",
                ) from None
            continue
        if line is None:
            break
        heard = time.monotonic()
        event = _event(line)
        if event is None or event.get("event") == "alive":
            continue
        if event["event"] == "done":
            return event["result"]
        if event["event"] == "error":
            raise NodeJobError(event["code"], event["what"], where=host.name, remedy=event["remedy"])
        on_event(event)
    code = process.wait()
    readers[1].join(2.0)
    said = b"".join(errors).decode(errors="replace").strip().splitlines()
    last = said[-1][:300] if said else f"exit code {code}"
    if not host.is_local and code == SSH_FAILED:
        raise ToolUnavailableError(f"ssh: {last}", where=host.name, remedy="look at that machine")
    raise ToolUnavailableError(f"python3 there ended early: {last}", where=host.name)


def _event(line: bytes) -> dict[str, Any] | None:
    """An event; None for a line of somebody else (a login banner)."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "event" in found else None
