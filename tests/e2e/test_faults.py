"""What goes wrong on a machine, with the real engine: each fault gets its verdict, the rest goes on."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from isoline.results.bundles.records import PointRecord

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

STALL_S = 8.0
"""Of the tiny scenarios."""


def told(records: list[PointRecord]) -> list[tuple[str, list[str]]]:
    """(verdict, reason codes) of each attempt."""
    return [(item.verdict.value, [note.code for note in item.reasons]) for item in records]


def longer(tiny: Any, *concurrencies: int) -> None:
    """A scenario whose load lasts long enough to be hit in its middle."""
    tiny.scenario("tiny-longer", requests={"minimum": 10, "per_concurrency": 5})
    tiny.recipe(scenarios={"tiny-longer": {"concurrency": list(concurrencies)}})


def sealed_at(tiny: Any, running: Any, concurrency: int) -> list[float]:
    """When attempts at a concurrency were sealed, monotonic seconds."""
    return [
        event["mono_s"]
        for event in tiny.events(running)
        if event["event"] == "sealed" and f".c{concurrency}.r" in event["point_id"]
    ]


def test_an_engine_that_aborts_or_hangs_spoils_its_point_alone(tiny: Any) -> None:
    """SIGABRT under load is server_died, SIGSTOP is stalled in time; the rest is measured; exit 3."""
    longer(tiny, 1, 2, 3)
    tiny.sweep("faults", {"scenario": "tiny-longer", "concurrency": [1, 2, 3]})
    running = tiny.start("sweep", "run", "faults")
    tiny.wait_requests(running, 1)
    os.kill(tiny.child("server"), signal.SIGABRT)
    tiny.wait_requests(running, 2)
    os.kill(tiny.child("server"), signal.SIGSTOP)
    stopped = time.monotonic()
    tiny.wait(running, lambda: bool(sealed_at(tiny, running, 2)), "the stalled point", 60)
    took_s = sealed_at(tiny, running, 2)[0] - stopped
    done = running.end()
    assert done.code == 3, running.text()
    run = tiny.the_run()
    assert told(tiny.at(run, 1)) == [("invalid", ["server_died"])]
    assert told(tiny.at(run, 2)) == [("invalid", ["stalled"])]
    assert told(tiny.at(run, 3)) == [("valid", [])]
    still = re.search(r"for ([\d.]+) s", tiny.at(run, 2)[0].reasons[0].detail)
    assert still and STALL_S <= float(still[1]) < STALL_S + 3
    assert took_s < STALL_S + 20, "AIPerf has 8 s to write what it has, then it is ended"
    launches = {record.launch_id for c in (1, 2, 3) for record in tiny.at(run, c)}
    assert len(launches) == 3
    assert tiny.processes() == {}
    # An invalid point is not measured again by itself, and the command still says so.
    again = tiny.sweep_run("faults", code=3)
    assert "nothing was due" in again.out


def test_what_the_machine_spoils_is_tried_again(tiny: Any) -> None:
    """A killed server, a killed load generator and a suspended Isoline are retried until valid; exit 0."""
    longer(tiny, 1, 2)
    tiny.sweep("retried", {"scenario": "tiny-longer", "concurrency": [1, 2]})
    running = tiny.start("sweep", "run", "retried")
    tiny.wait_requests(running, 1)
    os.kill(tiny.child("server"), signal.SIGKILL)
    tiny.wait_requests(running, 1, attempt=2)
    os.kill(tiny.child("client"), signal.SIGKILL)
    tiny.wait_phase(running, "load", 2)
    time.sleep(0.5)
    running.kill(signal.SIGSTOP)
    time.sleep(11.5)
    running.kill(signal.SIGCONT)
    done = running.end()
    assert done.code == 0, running.text()
    run = tiny.the_run()
    assert told(tiny.at(run, 1)) == [
        ("infra_error", ["server_killed"]),
        ("infra_error", ["client_died"]),
        ("valid", []),
    ]
    assert told(tiny.at(run, 2)) == [("infra_error", ["orchestrator_paused"]), ("valid", [])]
    assert tiny.processes() == {}
    assert tiny.run("results", "ingest").code == 0
    rows = tiny.query("select attempts, verdict from points order by attempts")
    assert rows == [{"attempts": 2, "verdict": "valid"}, {"attempts": 3, "verdict": "valid"}]


def test_a_taken_port_is_left_to_its_owner(tiny: Any) -> None:
    """Where somebody listens on the leased port the server is started on another, and the point is valid."""
    with socket.socket() as thief:
        port = next(item for item in range(29000, 29900) if not _is_taken(thief, item))
        thief.listen()
        program = (
            "import types, isoline.runners.machine.ports as p\n"
            f"p.random = types.SimpleNamespace(randrange=lambda first, last: {port})\n"
            "p.is_free = lambda host, port: True\n"
            "from isoline.cli.main import main\n"
            "raise SystemExit(main())"
        )
        tiny.sweep("port", {"concurrency": [1]})
        tiny.sweep_run("port", program=[sys.executable, "-c", program])
        thief.settimeout(0)
    run = tiny.the_run()
    assert told(tiny.at(run, 1)) == [("valid", [])]
    (row,) = _locks(tiny)
    assert row["port_tries"] == 2 and row["port"] == port + 1


def _is_taken(thief: socket.socket, port: int) -> bool:
    try:
        thief.bind(("127.0.0.1", port))
    except OSError:
        return True
    return False


def _locks(tiny: Any) -> list[dict[str, Any]]:
    import json

    return [json.loads(path.read_text())["resolved"] for path in tiny.the_run().glob("*/*/lock.json")]


def test_weights_with_a_flipped_byte_are_refused(tiny: Any) -> None:
    """One flipped byte in the weights: nothing is started, and the message has both digests."""
    from isoline.catalog.facts import load_catalog
    from isoline.results.bundles.bundle import file_sha256

    (tiny.state / "weights").unlink()
    entry = load_catalog().models["smollm2-135m-instruct"].weights[0]
    folder = tiny.state / "weights" / entry.sha256
    folder.mkdir(parents=True)
    (source,) = (tiny.real_state / "weights" / entry.sha256).glob("*.gguf")
    bad = folder / source.name
    shutil.copyfile(source, bad)
    with bad.open("r+b") as file:
        file.seek(entry.bytes // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    tiny.sweep("weights", {"concurrency": [1]})
    done = tiny.sweep_run("weights", code=3)
    assert entry.sha256 in done.err and file_sha256(bad) in done.err
    assert "weights_digest_mismatch" in done.err
    (launch,) = tiny.the_run().glob("_launch/*/launch.json")
    assert "weights_digest_mismatch" in launch.read_text()
    assert not list(tiny.the_run().glob("_launch/*/server.log"))


def test_garbage_at_full_speed_is_no_result(tiny: Any) -> None:
    """An argument that makes the real engine babble: throughput is fine, the canary says no."""
    tiny.recipe(repeat_penalty=0.1, repeat_last_n=64)
    tiny.sweep("garbage", {"concurrency": [2]})
    tiny.sweep_run("garbage", code=3)
    (record,) = tiny.at(tiny.the_run(), 2)
    assert record.verdict.value == "invalid"
    assert "canary_failed" in [note.code for note in record.reasons]
    values = {row.name: row.value for row in record.metrics if row.window == "full"}
    assert record.counts.failed == 0 and (values["output_tps_per_gpu"] or 0) > 1


def test_healthy_is_not_ready(tiny: Any, project_root: Path) -> None:
    """A server whose /health is fine and whose token count is wrong is never measured."""
    program = (
        "import pathlib\n"
        "from isoline.runners.engines.llamacpp import LlamaCpp\n"
        f"script = pathlib.Path({str(project_root / 'tests' / 'support' / 'short_server.py')!r})\n"
        "LlamaCpp.script = lambda self: script\n"
        "from isoline.cli.main import main\n"
        "raise SystemExit(main())"
    )
    tiny.sweep("short", {"concurrency": [1]})
    done = tiny.sweep_run("short", code=3, program=[sys.executable, "-c", program])
    assert "not_generating: 5 tokens were asked for, 3 came" in done.err
    run = tiny.the_run()
    assert tiny.at(run, 1) == []
    (launch,) = run.glob("_launch/*/launch.json")
    assert '"not_generating"' in launch.read_text()
    assert tiny.processes() == {}
