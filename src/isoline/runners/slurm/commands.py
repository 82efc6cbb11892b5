"""Slurm's commands with time-outs, and what their words mean.

A controller that does not answer raises :class:`ToolUnavailableError`; only Slurm's own word that there
is no such job counts as "gone". Our jobs carry who started them in their comment, so that what a dead
orchestrator left is found again, and nothing else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from isoline.recipes.renderers.slurm_parts import NOTICE_S
from isoline.runners.launchers.interface import ExitStatus, PhaseFailedError
from isoline.runners.machine.hosts import Done, Host, ToolUnavailableError

ASK_S = 20.0
SUBMIT_S = 60.0
SIGTERM_CODE = 143

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "SLURM_CONF")
"""What sbatch sees of our environment, and so the job's script: the rest is not the recipe's."""

REASON = {
    "PREEMPTED": "preempted",
    "NODE_FAIL": "node_failed",
    "BOOT_FAIL": "node_failed",
    "TIMEOUT": "job_time_limit",
    "DEADLINE": "job_time_limit",
    "CANCELLED": "job_cancelled",
    "REVOKED": "job_cancelled",
    "OUT_OF_MEMORY": "oom",
}
"""Slurm's word for the end of a job -> our reason code."""

SCRIPT_REASON = {
    90: "launch_failed",
    91: "no_nodes",
    92: "launch_failed",
    94: "launch_timeout",
    95: "drivers_differ",
    96: "gpu_busy",
    97: "device_lost",
}
"""Exit code of our own script, which says more in its log -> our reason code."""

EARLY_S = 65.0
"""Slurm may give its notice up to a minute earlier than it was asked to (sbatch's page on --signal)."""

ENDED = frozenset({"COMPLETED", "FAILED", *REASON})
"""States after which nothing of a job runs any more."""

_NO_SUCH_JOB = re.compile(r"(?i)invalid job id")
_PAIR = re.compile(r"(?:^|\s)([A-Za-z]+)=(\S*)")
_TIME = re.compile(r"^(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)\Z")
_ID = re.compile(r"^(\d+)(;\S+)?\Z")


@dataclass(frozen=True)
class Job:
    """What Slurm says of a job. ``nodes`` is its compressed list (``n[1-2]``), "" while it waits.

    ``exit_code`` and ``signal`` are those of its script; ``why`` is Slurm's reason for the state.
    """

    id: int
    state: str
    why: str = ""
    nodes: str = ""
    exit_code: int = 0
    signal: int = 0
    run_s: float = 0.0
    limit_s: float | None = None
    was_preempted: bool = False
    partition: str = ""

    @property
    def is_pending(self) -> bool:
        """Whether it waits for nodes."""
        return self.state in ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")

    @property
    def is_ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.state in ENDED

    @property
    def reason(self) -> str | None:
        """Our reason code for its end; None where its programs say why.

        A script that was told before its time limit, or before a preemption, ends by itself: then the
        state is FAILED, and the times say what happened.
        """
        if not self.is_ended:
            return None
        if self.state in REASON:
            return REASON[self.state]
        if self.was_preempted:
            return "preempted"
        told_at = None if self.limit_s is None else self.limit_s - NOTICE_S - EARLY_S
        if self.exit_code == SIGTERM_CODE and told_at is not None and self.run_s >= told_at:
            return "job_time_limit"
        return SCRIPT_REASON.get(self.exit_code)

    def status(self) -> ExitStatus:
        """How its script ended."""
        if self.signal:
            return ExitStatus(None, self.signal, self.reason)
        return ExitStatus(self.exit_code, None, self.reason)


def seconds(text: str) -> float | None:
    """``1-02:03:04``, ``02:03:04`` or ``03:04`` in seconds; None for ``UNLIMITED`` and the like."""
    found = _TIME.match(text)
    if not found:
        return None
    days, hours, minutes, rest = (int(item or 0) for item in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


def read_job(text: str) -> Job:
    """One line of ``scontrol show job -o``."""
    found: dict[str, str] = {}
    for key, value in _PAIR.findall(text):
        found.setdefault(key, value)
    code, _, number = found.get("ExitCode", "0:0").partition(":")
    nodes = found.get("NodeList", "")
    return Job(
        id=int(found["JobId"]),
        state=found["JobState"],
        why=found.get("Reason", ""),
        nodes="" if nodes in ("(null)", "None") else nodes,
        exit_code=int(code or 0),
        signal=int(number or 0),
        run_s=seconds(found.get("RunTime", "")) or 0.0,
        limit_s=seconds(found.get("TimeLimit", "")),
        was_preempted=found.get("PreemptTime", "None") not in ("None", "", "Unknown"),
        partition=found.get("Partition", ""),
    )


def submit(host: Host, script: Path, comment: str, options: Iterable[str] = ()) -> int:
    """Submit a script; the job's id by sbatch's own word.

    :param comment: who owns it; a submission without an answer is looked for by it.
    :raises PhaseFailedError: ``job_rejected`` when Slurm does not take it.
    :raises ToolUnavailableError: when nobody can say whether it did.
    """
    kept = [f"{name}={os.environ[name]}" for name in PASSED_ON if name in os.environ]
    words = ["env", "-i", *kept, "sbatch", "--parsable", f"--comment={comment}", *options, str(script)]
    try:
        done = host.run(words, timeout_s=SUBMIT_S)
    except ToolUnavailableError:
        # It may have been taken nevertheless.
        found = [job.id for job in our_jobs(host) if job.comment == comment]
        if not found:
            raise
        return found[0]
    if done.exit_code == 127 or _is_unavailable(done):
        raise ToolUnavailableError(f"sbatch: {done.last_line()}", where=host.name)
    lines = [line.strip() for line in done.stdout.splitlines() if _ID.match(line.strip())]
    if not done.ok or not lines:
        raise PhaseFailedError("job_rejected", done.last_line(), where=host.name)
    return int(lines[-1].partition(";")[0])


def _is_unavailable(done: Done) -> bool:
    words = ("unable to contact slurm", "connection refused", "socket timed out", "timed out", "munge")
    text = done.stderr.lower()
    return not done.ok and any(item in text for item in words)


def show(host: Host, job_id: int) -> Job | None:
    """A job as the controller knows it; None when it says that it has none of that id.

    :raises ToolUnavailableError: when it does not answer.
    """
    done = host.run(["scontrol", "--oneliner", "show", "job", str(job_id)], timeout_s=ASK_S)
    if done.ok and "JobState=" in done.stdout:
        try:
            return read_job(done.stdout)
        except (KeyError, ValueError):
            raise ToolUnavailableError("scontrol printed no job", where=host.name) from None
    if _NO_SUCH_JOB.search(done.stderr):
        return None
    raise ToolUnavailableError(f"scontrol: {done.last_line()}", where=host.name)


def ask_to_end(host: Host, job: Job) -> None:
    """Tell a job's script to end in order; one that waits is taken out of the queue."""
    words = [] if job.is_pending else ["--batch", "--signal=TERM"]
    host.run(["scancel", "--quiet", *words, str(job.id)], timeout_s=ASK_S)


def cancel(host: Host, job_id: int) -> None:
    """End a job by Slurm's own means: SIGTERM to everything in it, then SIGKILL."""
    host.run(["scancel", "--quiet", str(job_id)], timeout_s=ASK_S)


@dataclass(frozen=True)
class OurJob:
    """A job of the queue with our comment. ``labels`` as those of a container."""

    id: int
    state: str
    comment: str
    labels: Mapping[str, str]


PREFIX = "isoline;"


def comment_of(labels: Mapping[str, str], token: str) -> str:
    """The comment of a job: who owns it."""
    return PREFIX + ";".join(f"{key}={value}" for key, value in {**labels, "token": token}.items())


def read_comment(comment: str) -> dict[str, str] | None:
    """The labels in a comment, ``isoline.`` in front of each; None where it is not ours."""
    if not comment.startswith(PREFIX):
        return None
    pairs = (item.partition("=") for item in comment.removeprefix(PREFIX).split(";"))
    return {f"isoline.{key}": value for key, _, value in pairs}


def our_jobs(host: Host) -> list[OurJob]:
    """This user's jobs that Isoline started and that are not over.

    :raises ToolUnavailableError: when the controller does not answer.
    """
    done = host.run(["squeue", "--me", "--noheader", "--format=%A|%T|%k"], timeout_s=ASK_S)
    if not done.ok:
        raise ToolUnavailableError(f"squeue: {done.last_line()}", where=host.name)
    found = []
    for line in done.stdout.splitlines():
        number, _, rest = line.partition("|")
        state, _, comment = rest.partition("|")
        labels = read_comment(comment.strip())
        if labels is not None and number.isdigit():
            found.append(OurJob(int(number), state, comment.strip(), labels))
    return found
