"""Parts: what the placeholders of a deployment's programs stand for."""

from __future__ import annotations

from pathlib import Path

from isoline.recipes.deployment import Command
from isoline.runners.launchers.parts import Part, fill_words, urls_of, values_of
from isoline.runners.ownership.owners import Owner


def part(command: Command, worker: int, host: str, **ports: int) -> Part:
    owner = object.__new__(Owner)  # nothing here asks who started it
    return Part(command.name, command, worker, owner, host, ports, Path("log"), Path("scratch"))


def test_programs_are_told_of_each_other() -> None:
    """A router names one worker, all of a role, or a store's node; a worker knows its port and number."""
    store = part(Command("store", [], {}, ports=("kv",)), 0, "10.0.0.1", main=1, kv=9000)
    workers = [
        part(Command(role, [], {}, role=role, workers=2), number, f"10.0.0.{number + 2}", main=8000 + number)  # type: ignore[arg-type]
        for role in ("prefill", "decode")
        for number in (0, 1)
    ]
    router = part(Command("router", [], {}, ports=("http",)), 0, "10.0.0.1", main=2, http=30000)
    parts = [store, *workers, router]
    words = ["{url.decode}", "x={url.decode.1}", "{url.prefill.0}"]
    words += ["{host.store}:{port.kv}", "{host.decode}", "{url.x.0}"]
    assert fill_words(words, values_of(router, parts, {}), urls_of(parts)) == (
        "http://10.0.0.2:8000",
        "http://10.0.0.3:8001",
        "x=http://10.0.0.3:8001",
        "http://10.0.0.2:8000",
        "10.0.0.1:9000",
        "10.0.0.2",
        "{url.x.0}",
    )
    own = fill_words(["{port}", "{role}", "{worker}"], values_of(workers[3], parts, {}), {})
    assert own == ("8001", "decode", "1")
