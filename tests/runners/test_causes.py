"""A log's lines prove a cause, the first one in causal order; what only looks alike proves nothing."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from isoline.results.judging.reasons import REASONS, Verdict
from isoline.runners.causes import (
    LINE_CHARS,
    LogEnds,
    explain,
    explain_file,
    explain_logs,
    log_sizes,
    read_ends,
    server_logs,
    signatures,
)

LINES: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "cause_lines.yaml").read_text())
PROOFS = [(name, item["line"], item.get("engine")) for name, rows in LINES["proofs"].items() for item in rows]
UP = "INFO:     Application startup complete."
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
NCCL = "[rank1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1) ran for 600060 milliseconds"


@pytest.mark.parametrize(("name", "line", "engine"), PROOFS)
def test_a_real_line_proves_its_cause(name: str, line: str, engine: str | None) -> None:
    """Each recorded line gives its cause, alone and between other lines, with its number and text."""
    cause = explain(f"INFO starting\n{line}\nINFO bye", engine)
    assert cause is not None and cause.name == name
    assert cause.lines[0][0] == 2
    assert cause.lines[0][1] == " ".join(line.split())[:300]
    alone = explain(line)
    assert alone is not None and alone.name == name


@pytest.mark.parametrize("line", LINES["harmless"])
def test_a_look_alike_proves_nothing(line: str) -> None:
    """Advice, requests of users, command lines and status lines are no causes."""
    assert explain(f"INFO starting\n{line}\nINFO bye") is None


def test_every_signature_has_a_real_line() -> None:
    """Each row of the table has at least one recorded line, and each recorded name has a row."""
    rows = {item.name for item in signatures().causes}
    recorded = {re.sub(r"^oom_(load|run)$", "oom", name) for name in LINES["proofs"]}
    assert rows == recorded


def test_a_retry_follows_from_the_verdict() -> None:
    """A retry makes sense exactly where the machine is to blame."""
    for name, line, _ in PROOFS:
        cause = explain(line)
        assert cause is not None, name
        assert cause.retry == (REASONS[cause.code].verdict is Verdict.INFRA_ERROR)
        assert cause.remedy


@pytest.mark.parametrize(
    "log", [f"{NCCL}\n{OOM}", f"{OOM}\n{NCCL}\nsrun: error: n1: task 1: Exited with exit code 1"]
)
def test_the_cause_wins_over_its_followers(log: str) -> None:
    """Memory that ran out on one rank is the cause, whichever rank's lines were written first."""
    cause = explain(log)
    assert cause is not None and cause.name == "oom_load"


def test_the_first_of_two_causes_wins() -> None:
    """Where two causes are proven the earlier one counts; what a server may get over counts last."""
    first = explain(f"NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.\n{OOM}")
    assert first is not None and first.name == "device_lost"
    late = explain(f"toomanyrequests: You have reached your pull rate limit\n{OOM}")
    assert late is not None and late.name == "oom_load"


def test_memory_at_load_and_at_run_are_told_apart() -> None:
    """After the line that says that the server is up it ran out while serving, with another remedy."""
    load, run = explain(f"{OOM}\n{UP}"), explain(f"{UP}\n{OOM}")
    assert load is not None and run is not None
    assert (load.name, run.name) == ("oom_load", "oom_run")
    assert load.remedy != run.remedy and load.code == run.code == "oom"
    gap = explain(LogEnds(head=UP, tail=OOM))
    assert gap is not None and gap.name == "oom_run" and gap.lines[0][0] is None


def test_a_log_is_read_from_where_an_attempt_began(tmp_path: Path) -> None:
    """What was written before is another attempt's; the server was up then; numbers are the file's."""
    path = tmp_path / "server.log"
    path.write_text(f"{UP}\nCUDA error: unspecified launch failure\n")
    sizes = log_sizes(tmp_path)
    assert explain_logs(server_logs(tmp_path), "vllm", sizes) is None
    with path.open("a") as log:
        log.write(f"INFO one more\n{OOM}\n")
    cause = explain_logs(server_logs(tmp_path), "vllm", sizes)
    assert cause is not None and (cause.name, cause.lines, cause.log) == (
        "oom_run",
        ((4, OOM),),
        "server.log",
    )


def test_several_logs_of_one_deployment(tmp_path: Path) -> None:
    """The cause in one role's log wins over the follower in another's; where equal, the main log's counts."""
    (tmp_path / "server-decode.0.log").write_text(f"{OOM}\n")
    (tmp_path / "server-prefill.0.log").write_text(f"{NCCL}\n")
    cause = explain_logs(server_logs(tmp_path))
    assert cause is not None and (cause.name, cause.log) == ("oom_load", "server-decode.0.log")
    (tmp_path / "server.log").write_text("vllm: error: unrecognized arguments: --x\n")
    main = explain_logs(server_logs(tmp_path))
    assert main is not None and main.log == "server.log"
    assert "server.log line 1" in main.text() and "a retry will not help" in main.text()


def test_engines_of_a_pattern(tmp_path: Path) -> None:
    """A pattern of one engine is not believed of another one."""
    line = "llama_model_load: error loading model: failed to open x"
    assert explain(line, "llamacpp") is not None
    assert explain(line, "vllm") is None


def test_the_proof_is_short_and_clean() -> None:
    """At most three different lines, without colours, cut to a readable length."""
    log = "\n".join(f"\x1b[31mERROR\x1b[0m {OOM} {'x' * n}" for n in range(400, 600))
    cause = explain(log)
    assert cause is not None
    assert len(cause.lines) <= 3 and all(len(text) <= 300 and "\x1b" not in text for _, text in cause.lines)


def test_a_huge_log_is_read_at_its_ends(tmp_path: Path) -> None:
    """Of a log of 100 MB only the ends are read; a cause in either is found."""
    path = tmp_path / "server.log"
    filler = b"INFO a line that says nothing at all, again and again\n" * 2_000_000
    path.write_bytes(OOM.encode() + b"\n" + filler)
    found = explain_file(path)
    assert found is not None and found.lines == ((1, OOM),)
    path.write_bytes(filler + OOM.encode() + b"\n")
    ends = read_ends(path)
    assert len(ends.head) + len(ends.tail) < 10 << 20
    last = explain(ends)
    assert last is not None and last.lines == ((None, OOM),)
    assert explain_file(path, offset=path.stat().st_size - len(OOM) - 1) is not None
    assert explain_file(tmp_path / "absent") is None


def test_long_lines_and_garbage_cost_little() -> None:
    """One endless line, repeated needles and binary garbage are scanned in time linear in their size."""
    begin = time.perf_counter()
    baseline = "INFO plain\n" * 200_000
    explain(baseline)
    unit = time.perf_counter() - begin
    hostile = [
        "NCCL WARN Net " + "a" * 2_000_000,
        "CUDA error" * 200_000,
        "\x00\ufffd" * 1_000_000,
        "error: argument " * 120_000,
        ("HIP error " + " " * 300 + "\n") * 6000,
    ]
    for log in hostile:
        begin = time.perf_counter()
        explain(log)
        assert time.perf_counter() - begin < 10 * unit + 1, log[:20]


def test_a_cause_in_a_long_line_is_found() -> None:
    """The words are found deep inside a line that is longer than what is shown of it."""
    cause = explain("x" * 10 * LINE_CHARS + OOM + "y" * 10 * LINE_CHARS)
    assert cause is not None and cause.name == "oom_load"


@given(st.binary(max_size=2000))
def test_any_bytes_are_survived(data: bytes) -> None:
    """Whatever the bytes are, there is an answer."""
    explain(data.decode(errors="replace"))
