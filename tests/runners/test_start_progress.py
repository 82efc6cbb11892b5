"""The watchdog over a start, on real processes and real files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from isoline.runners.launchers.deadlines import ReadyBudget
from isoline.runners.launchers.start_progress import StartProgress, bytes_read

BUDGET = ReadyBudget(deadline_s=100, hard_cap_s=300, stall_s=50, why="a test")


def test_bytes_of_a_real_reader_keep_a_start_alive(
    spawn: Callable[..., subprocess.Popen[bytes]], eventually: Callable[..., None]
) -> None:
    """A process that reads gets on; once it only sleeps the start is over, and what was seen is told."""
    reads = "import sys,time\nf=open('/dev/zero','rb')\nfor _ in range(64): f.read(1<<20)\ntime.sleep(600)"
    process = spawn([sys.executable, "-c", reads])
    eventually(lambda: bytes_read([process.pid]).get(process.pid, 0) > 60_000_000, 20, "a read of 64 MB")
    progress = StartProgress("vllm", BUDGET, 0.0)
    assert progress.tell(40, [process.pid]) is None
    assert progress.tell(89, [process.pid]) is None
    late = progress.tell(91, [process.pid])
    assert late is not None and "no progress for 51 s; last seen: 0.1 GB read" in late.why


def test_lines_of_a_growing_log_keep_a_start_alive(tmp_path: Path) -> None:
    """New shards count, an old part of the log and what is half written does not."""
    log, other = tmp_path / "server.log", tmp_path / "server-decode.0.log"
    shard = "Loading safetensors checkpoint shards:  50% Completed | {}/4 [00:01<00:01, 1.0s/it]\n"
    log.write_text(shard.format(1))
    progress = StartProgress("vllm", BUDGET, 0.0)
    progress.follow(log, log.stat().st_size)
    assert progress.tell(40, []) is None
    with log.open("a") as out:
        out.write(shard.format(2))
    assert progress.tell(49, []) is None
    other.write_text(shard.format(3)[:-1])
    progress.follow(other, 0)
    assert progress.tell(90, []) is None
    with other.open("a") as out:
        out.write("\n")
    assert progress.tell(95, []) is None
    assert progress.tell(144, []) is None
    late = progress.tell(146, [])
    assert late is not None and "3/4" in late.why


def test_a_log_that_floods_is_read_at_its_end(tmp_path: Path) -> None:
    """Gigabytes of chatter between two looks cost little, and the last steps are still seen."""
    log = tmp_path / "server.log"
    log.write_bytes(b"chatter of no interest\n" * 1_000_000 + b"INFO Model loading took 12.66 GiB memory\n")
    progress = StartProgress("vllm", BUDGET, 0.0)
    progress.follow(log, 0)
    assert progress.tell(49, []) is None
    assert progress.clock.progress == 49 and "Model loading took" in progress.clock.last


def test_a_server_that_cannot_be_seen_has_its_whole_deadline() -> None:
    """Without a process or a log to look at nothing is concluded from that: the deadline decides."""
    progress = StartProgress("vllm", BUDGET, 0.0)
    assert progress.tell(51, [2**22 - 1]) is None
    assert progress.tell(99, []) is None
    late = progress.tell(101, [])
    assert late is not None and "not ready after 101 s" in late.why


def test_a_time_in_which_nobody_looked_is_not_the_servers() -> None:
    """An hour of sleep between two looks fails no start; what comes after it counts as before."""
    progress = StartProgress("vllm", BUDGET, 0.0)
    assert progress.tell(40, []) is None
    assert progress.tell(3640, []) is None
    assert progress.tell(3699, []) is None
    late = progress.tell(3701, [])
    assert late is not None and "not ready after 101 s" in late.why
