"""One submitted job, followed by a thread: its state, the addresses of its nodes, its programs' logs.

Whoever asks (:class:`Watch`, readiness) reads what the thread last saw and never waits for Slurm. Where
the nodes' folders are not seen here, the same is fetched through a step of the job.
"""

from __future__ import annotations

import base64
import contextlib
import shlex
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from isoline.recipes.renderers.slurm_parts import STOP_S
from isoline.runners.launchers.exits import exit_status
from isoline.runners.launchers.interface import ExitStatus
from isoline.runners.machine.hosts import Done, Host, ToolUnavailableError
from isoline.runners.slurm import commands as slurm_jobs
from isoline.runners.slurm.commands import Job

LOOK_S = 1.0
FETCH_S = 4.0
"""How often a job is asked; files that are fetched through Slurm cost a step each time."""

HOLD_S = 60.0
"""A program's end is told once the job says why (a preemption, a lost node), or after so long."""

ORDERLY_S = STOP_S + 25.0
"""How long a job has to end by itself once it was told: its programs, then its containers."""

FORCED_S = 90.0
"""How long Slurm has to end a job by force: its KillWait (30 s by default), and the epilogue."""

FETCH = """
cd {scratch} 2>/dev/null || exit 0
for name in nodes hosts compiled finished *.exit; do
  [[ -f $name ]] && echo "= $name $(base64 -w0 <"$name")"
done
tell() {{ [[ -f $1 ]] && echo "+ $1 $(tail -c +$(( $2 + 1 )) "$1" | head -c 400000 | base64 -w0)"; }}
{logs}
exit 0
"""


@dataclass
class JobFiles:
    """What was seen of a job's folder: small files whole, logs as far as they were copied."""

    small: dict[str, str] = field(default_factory=dict)
    ends: list[str] = field(default_factory=list)  # programs in the order in which they ended
    offsets: dict[str, int] = field(default_factory=dict)


class FollowedJob:
    """A job and its follower.

    :param scratch: its folder on the nodes; ``is_shared`` whether it is seen here.
    :param logs: file of the folder -> where its content goes on this machine.
    """

    def __init__(
        self, host: Host, job_id: int, scratch: Path, logs: Mapping[str, Path], *, is_shared: bool
    ) -> None:
        self.host = host
        self.job = Job(job_id, "PENDING")
        self.scratch = scratch
        self.is_shared = is_shared
        self.forced = False
        self.silent = ""  # why Slurm gave no answer the last time; "" = it did
        self._logs = dict(logs)
        self._files = JobFiles()
        self._end_seen_at: float | None = None
        self._asked_to_end = False
        self._close = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._follow, name=f"job-{job_id}", daemon=True)
        self._thread.start()

    # --- what was seen ------------------------------------------------------------------------

    @property
    def hosts(self) -> list[str]:
        """The addresses of its nodes, in order; empty until it runs."""
        return self._files.small.get("hosts", "").split()

    @property
    def nodes(self) -> list[str]:
        """Slurm's names of its nodes, in order; empty until it runs."""
        return self._files.small.get("nodes", "").split()

    @property
    def compiled(self) -> tuple[str, str] | None:
        """``cold`` or ``warm``, and the folder of compiled kernels; None where it has none."""
        state, _, path = self._files.small.get("compiled", "").strip().partition(" ")
        return (state, path) if state in ("cold", "warm") and path.startswith("/") else None

    def status_of(self, name: str) -> ExitStatus | None:
        """How a program ended; None while it runs, and while it is not known why the job ends.

        Only the first program that ended is told of while the job ends: the others were ended for it.
        """
        with self._lock:
            job, ends, seen = self.job, self._files.ends, self._end_seen_at
        code = self._files.small.get(f"{name}.exit", "").strip()
        if not job.is_ended and (not ends or seen is None or time.monotonic() - seen < HOLD_S):
            return None
        if ends and ends[0] != name and not job.is_ended:
            return None
        if job.reason is not None:
            status = job.status()
            return replace(exit_status(int(code)), reason=status.reason) if code.isdigit() else status
        if ends and ends[0] != name and not self._asked_to_end:
            return None
        return exit_status(int(code)) if code.isdigit() else job.status()

    # --- following ----------------------------------------------------------------------------

    def _follow(self) -> None:
        while not self._close.wait(LOOK_S if self.is_shared else FETCH_S):
            self.look()
            if self.job.is_ended:
                return

    def look(self) -> None:
        """Ask once for everything."""
        try:
            found = slurm_jobs.show(self.host, self.job.id)
        except ToolUnavailableError as error:
            self.silent = error.line()
            return
        self.silent = ""
        # A job that its controller has forgotten ended a while ago.
        job = found or replace(self.job, state="COMPLETED")
        if not job.is_pending and job.nodes:
            # What is cut or garbled is looked at again: the follower has to go on.
            with contextlib.suppress(ToolUnavailableError, OSError, ValueError):
                self._look_at_files() if self.is_shared else self._fetch(job)
        with self._lock:
            self.job = job

    def _look_at_files(self) -> None:
        for name in ("nodes", "hosts", "compiled"):
            with contextlib.suppress(FileNotFoundError):
                self._files.small[name] = (self.scratch / name).read_text()
        exits = sorted(self.scratch.glob("[!.]*.exit"), key=lambda path: path.stat().st_mtime_ns)
        for path in exits:
            self._note_end(path.name, path.read_text())
        for name, into in self._logs.items():
            with contextlib.suppress(FileNotFoundError), (self.scratch / name).open("rb") as source:
                source.seek(self._files.offsets.get(name, 0))
                self._append(name, into, source.read())

    def _fetch(self, job: Job) -> None:
        if job.is_ended:
            return
        offsets = self._files.offsets
        text = FETCH.format(
            scratch=shlex.quote(str(self.scratch)),
            logs="\n".join(f"tell {shlex.quote(name)} {offsets.get(name, 0)}" for name in self._logs),
        )
        for line in self.step(text).splitlines():
            kind, _, rest = line.partition(" ")
            name, _, content = rest.partition(" ")
            if kind not in ("+", "="):
                continue  # somebody else's line: a banner
            data = base64.b64decode(content)
            if kind == "+" and name in self._logs:
                self._append(name, self._logs[name], data)
            elif kind == "=" and name.endswith(".exit"):
                self._note_end(name, data.decode())
            elif kind == "=":
                self._files.small[name] = data.decode()
        if "finished" in self._files.small:
            self.step(f"touch {shlex.quote(str(self.scratch / 'collected'))}")

    def step(self, text: str, node: str | None = None) -> str:
        """What a few lines of bash print on the job's first node, or another one.

        :raises ToolUnavailableError: when the step does not run.
        """
        place = ["--nodelist=" + node] if node else ["--relative=0"]
        words = ["srun", f"--jobid={self.job.id}", "--overlap", "--nodes=1", "--ntasks=1", *place]
        words += ["--mem=0", "--input=none", "bash", "-c", text]
        done = self.host.run(words, timeout_s=60)
        if not done.ok:
            raise ToolUnavailableError(f"srun: {done.last_line()}", where=self.host.name)
        return done.stdout

    def everywhere(self, words: list[str]) -> Done:
        """Run a command once on each of the job's nodes.

        :raises ToolUnavailableError: when the step does not run.
        """
        count = len(self.nodes)
        where = [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--mem=0", "--input=none"]
        return self.host.run(["srun", f"--jobid={self.job.id}", "--overlap", *where, *words], timeout_s=60)

    def _note_end(self, name: str, text: str) -> None:
        if name in self._files.small:
            return
        self._files.small[name] = text
        with self._lock:
            self._files.ends.append(name.removesuffix(".exit"))
            self._end_seen_at = self._end_seen_at or time.monotonic()

    def _append(self, name: str, into: Path, data: bytes) -> None:
        if data:
            into.parent.mkdir(parents=True, exist_ok=True)
            with into.open("ab") as log:
                log.write(data)
            self._files.offsets[name] = self._files.offsets.get(name, 0) + len(data)

    # --- the end ------------------------------------------------------------------------------

    def ask_to_end(self) -> None:
        """Tell it once to end in order; does not wait."""
        if not self._asked_to_end and not self.job.is_ended:
            with contextlib.suppress(ToolUnavailableError):
                slurm_jobs.ask_to_end(self.host, slurm_jobs.show(self.host, self.job.id) or self.job)
                self._asked_to_end = True

    def end(self, orderly_s: float = ORDERLY_S, forced_s: float = FORCED_S) -> bool:
        """Wait until it is over, by force after a while. Whether it is; bounded in time."""
        self.ask_to_end()
        if not self._wait_for_end(orderly_s):
            self.forced = True
            with contextlib.suppress(ToolUnavailableError):
                slurm_jobs.cancel(self.host, self.job.id)
            self._wait_for_end(forced_s)
        self._close.set()
        self._thread.join(60)
        self.look()  # the last words of its logs
        return self.job.is_ended

    def _wait_for_end(self, limit_s: float) -> bool:
        until = time.monotonic() + limit_s
        while not self.job.is_ended and time.monotonic() < until:
            if not self._thread.is_alive():
                self.look()
            time.sleep(0.1)
        return self.job.is_ended
