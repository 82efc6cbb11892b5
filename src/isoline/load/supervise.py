"""Runs AIPerf as a child in a session of its own, watches it, and leaves none of it behind.

AIPerf is never imported: its pins conflict with ours and its run function ends the process. Its
exit code is recorded and not believed (0 with failed requests); the export is judged instead.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from isoline.errors import InfraError
from isoline.load.command import LoadSpec, build_command
from isoline.load.profile import AIPERF_VERSION
from isoline.runners.ownership.owners import SCRATCH_PREFIX

POLL_S = 0.1
SAMPLE_S = 0.5
INTERRUPT_GRACE_S = 8.0
"""SIGINT lets AIPerf write partial results (0.7 s when idle); SIGTERM would lose all."""
KILL_WAIT_S = 5.0
CLOCK_SLACK_S = 0.1
CLOCK_SLEW = 0.001
"""The kernel slews a clock by at most 500 parts in a million; twice that is allowed."""
REMEDY = "run `make setup`, or set AIPERF_BIN"


@dataclass
class LoadProgress:
    """How far the load is: measured requests written so far, seconds since AIPerf's start."""

    done: int
    total: int
    elapsed_s: float


@dataclass(frozen=True)
class LoadOutcome:
    """How one AIPerf process went.

    :param exit_code: its exit code; None where a signal ended it.
    :param signal: the signal that ended it, or None.
    :param stop_reason: reason code for which we stopped it (from ``should_stop``, or
        ``load_timeout``), or "".
    :param killed_from_outside: a signal ended it that we did not send.
    :param started_ns: epoch nanoseconds just before the start.
    :param wall_s: monotonic seconds from start to end.
    :param cpu_s: CPU seconds of all its processes.
    :param busy_share: process role (``worker``, ``timing_manager``, ...) to the highest CPU share
        of one core that a process of that role had over 2 s or more, from the first measured
        request on (starting up takes whole cores and does no harm).
    :param was_stopped: a process of it stood still by a signal (SIGSTOP) when its time was over.
    :param longest_poll_gap_s: longest time between two looks of ours: how long we stood still.
    """

    exit_code: int | None
    signal: int | None
    stop_reason: str
    killed_from_outside: bool
    started_ns: int
    ended_ns: int
    wall_s: float
    cpu_s: float
    busy_share: dict[str, float] = field(default_factory=dict)
    longest_poll_gap_s: float = 0.0
    was_stopped: bool = False

    @property
    def clock_step_s(self) -> float:
        """By how much the wall clock was set during the load, seconds; 0 for what slewing explains.

        Requests are stamped by the wall clock: a step would be latency, or negative latency.
        """
        step = (self.ended_ns - self.started_ns) / 1e9 - self.wall_s
        return step if abs(step) > CLOCK_SLACK_S + CLOCK_SLEW * self.wall_s else 0.0


def aiperf_version(aiperf_bin: str | Path) -> str:
    """The version of an AIPerf program.

    :raises InfraError: when it is missing, does not run, or is not of :data:`AIPERF_VERSION`.
    """
    where = str(aiperf_bin)
    try:
        done = subprocess.run(
            [where, "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise InfraError("AIPerf is not there", where=where, remedy=REMEDY) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfraError(f"AIPerf does not run: {error}", where=where, remedy=REMEDY) from None
    match = re.search(r"\d+\.\d+\.\d+\S*", done.stdout)
    if done.returncode != 0 or not match:
        raise InfraError(f"AIPerf does not run (exit code {done.returncode})", where=where, remedy=REMEDY)
    version = match.group()
    if version.rsplit(".", 1)[0] != AIPERF_VERSION and not version.startswith(f"{AIPERF_VERSION}."):
        raise InfraError(f"AIPerf {version}, but {AIPERF_VERSION}.* is needed", where=where, remedy=REMEDY)
    return version


def child_env(
    base: Mapping[str, str], extra: Mapping[str, str], *, hf_home: Path, scratch: Path, url: str
) -> dict[str, str]:
    """The environment of AIPerf. Pure.

    Offline, with its own home and scratch, and without settings of AIPerf or proxies that the
    caller's shell happens to have: both would change what is measured.
    """
    dropped = ("AIPERF_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    env = {key: value for key, value in base.items() if not key.upper().startswith(dropped)}
    host = urlsplit(url).hostname or "127.0.0.1"
    env |= {
        "HF_HOME": str(hf_home),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "NO_PROXY": host,
        "no_proxy": host,
        "AIPERF_RECORD_EXPORT_BATCH_SIZE": "1",  # progress is read off the export
    }
    return env | dict(extra)


def session_members(session: int) -> list[psutil.Process]:
    """The live processes of a session (zombies are not live)."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(pid) == session:
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


def end_session(session: int, wait_s: float = KILL_WAIT_S) -> bool:
    """Kill every process of a session. Returns whether all are gone within ``wait_s``."""
    deadline = time.monotonic() + wait_s
    while members := session_members(session):
        for process in members:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _is_stopped(session: int) -> bool:
    """Whether one of a session's processes stands still by a signal."""
    for process in session_members(session):
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_STOPPED:
                return True
    return False


class _Cpu:
    """CPU time of the processes of a session, by role."""

    WINDOW_S = 2.0

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self.busy: dict[str, float] = {}
        self._marks: dict[int, tuple[float, float]] = {}

    def sample(self, session: int, now: float, is_loaded: bool) -> None:
        for process in session_members(session):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                used = times.user + times.system
                self.seconds[process.pid] = used
                if not is_loaded:
                    continue
                at, before = self._marks.setdefault(process.pid, (now, used))
                if now - at >= self.WINDOW_S:
                    role = _role(process)
                    self.busy[role] = max(self.busy.get(role, 0.0), (used - before) / (now - at))
                    self._marks[process.pid] = (now, used)


def _role(process: psutil.Process) -> str:
    """``worker`` of a process titled ``aiperf worker_1a2b``; ``main`` where it has no such title."""
    title = " ".join(process.cmdline()).strip()
    match = re.match(r"^aiperf ([a-z_]+?)(_[0-9a-f]+)?\Z", title)
    return match.group(1) if match else "main"


def _count_measured(path: Path, offset: int) -> tuple[int, int]:
    """(measured rows after ``offset``, new offset) of the per-request export."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except OSError:
        return 0, offset
    whole = data[: data.rfind(b"\n") + 1]
    return whole.count(b'"benchmark_phase":"profiling"'), offset + len(whole)


def make_scratch() -> Path:
    """A new folder for what AIPerf writes while it runs.

    A short path: AIPerf puts sockets below it, and their paths may have 107 bytes.
    """
    return Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX))


def run_load(
    spec: LoadSpec,
    *,
    aiperf_bin: str | Path,
    hf_home: Path,
    env: Mapping[str, str],
    log: Path,
    deadline_s: float,
    should_stop: Callable[[], str | None] = lambda: None,
    on_progress: Callable[[LoadProgress], None] = lambda _: None,
    wrap: Callable[[list[str]], list[str]] = lambda argv: argv,
    scratch: Path | None = None,
) -> LoadOutcome:
    """Run one load to its end, its deadline, or until ``should_stop`` gives a reason code.

    :param env: added to the environment of every process of AIPerf (the owner's label).
    :param log: file for AIPerf's output.
    :param deadline_s: longest time from start to end, seconds (reason ``load_timeout``).
    :param should_stop: asked every 0.1 s; a reason code ends the load (SIGINT, later SIGKILL).
    :param wrap: makes the command note who owns it before it becomes AIPerf.
    :param scratch: from :func:`make_scratch`, where the caller notes it somewhere; removed afterwards.
    :raises InfraError: when AIPerf cannot be started, or a process of it cannot be ended.
    """
    # AIPerf runs in a folder of its own, so that it leaves nothing in ours.
    spec = replace(
        spec,
        artifact_dir=spec.artifact_dir.resolve(),
        input_file=spec.input_file.resolve() if spec.input_file else None,
    )
    argv = build_command(spec, aiperf_bin)
    spec.artifact_dir.mkdir(parents=True, exist_ok=True)
    scratch = scratch or make_scratch()
    try:
        with log.open("wb") as output:
            started_ns, start = time.time_ns(), time.monotonic()
            try:
                child = subprocess.Popen(
                    wrap(argv),
                    env=child_env(os.environ, env, hf_home=hf_home, scratch=scratch, url=spec.url),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    cwd=scratch,
                )
            except OSError as error:
                raise InfraError(
                    f"AIPerf cannot be started: {error.strerror}", where=str(aiperf_bin), remedy=REMEDY
                ) from None
            try:
                return _watch(child, spec, start, started_ns, deadline_s, should_stop, on_progress)
            finally:
                # Also when should_stop or on_progress raised, or a person pressed Ctrl-C.
                all_gone = end_session(child.pid)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=KILL_WAIT_S)
                if not all_gone:
                    raise InfraError("processes of AIPerf could not be ended", where=f"session {child.pid}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _watch(
    child: subprocess.Popen[bytes],
    spec: LoadSpec,
    start: float,
    started_ns: int,
    deadline_s: float,
    should_stop: Callable[[], str | None],
    on_progress: Callable[[LoadProgress], None],
) -> LoadOutcome:
    export = spec.artifact_dir / "profile_export.jsonl"
    done = offset = 0
    stop_reason = ""
    interrupted_at = killed_at = None
    was_stopped = False
    cpu = _Cpu()
    sampled = 0.0
    looked, gap = start, 0.0
    while child.poll() is None:
        now = time.monotonic()
        gap, looked = max(gap, now - looked), now
        if interrupted_at is None:
            stop_reason = should_stop() or ("load_timeout" if now - start > deadline_s else "")
            if stop_reason:
                was_stopped = _is_stopped(child.pid)
                child.send_signal(signal.SIGINT)
                interrupted_at = now
        elif killed_at is None and now - interrupted_at > INTERRUPT_GRACE_S:
            child.kill()
            killed_at = now
        if now - sampled >= SAMPLE_S:
            sampled = now
            new, offset = _count_measured(export, offset)
            done += new
            cpu.sample(child.pid, now, done > 0)
            on_progress(LoadProgress(min(done, spec.requests), spec.requests, now - start))
        time.sleep(POLL_S)
    code = child.returncode
    new, offset = _count_measured(export, offset)
    on_progress(LoadProgress(min(done + new, spec.requests), spec.requests, time.monotonic() - start))
    return LoadOutcome(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        stop_reason=stop_reason,
        killed_from_outside=code < 0 and interrupted_at is None,
        started_ns=started_ns,
        ended_ns=time.time_ns(),
        wall_s=time.monotonic() - start,
        cpu_s=sum(cpu.seconds.values()),
        busy_share={role: round(share, 3) for role, share in sorted(cpu.busy.items())},
        longest_poll_gap_s=gap,
        was_stopped=was_stopped,
    )
