"""What every launcher does, and the values that go in and out (DESIGN 3; issue 4's one interface).

A launcher is one way to start a server on a pool (``process``; ``container``, ``slurm`` and
``endpoint`` have the same form). The caller goes through the phases in order::

    stage -> preflight -> start -> ready -> (per point: reset, watch) -> stop -> collect

Each phase that fails raises :class:`PhaseFailedError` with a reason code of ``results/reasons.py``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from isoline.catalog.facts import WeightFile
from isoline.errors import IsolineError
from isoline.results.reasons import REASONS, Verdict

if TYPE_CHECKING:
    from isoline.runners.engines.base import EngineAdapter
    from isoline.runners.owners import Owner
    from isoline.runners.watch import Watch

ShouldStop = Callable[[], str | None]
"""Asked about ten times a second in every wait; a text (why) ends the wait at once."""


class PhaseFailedError(IsolineError):
    """A phase of a launch failed, for a known reason.

    :param code: a key of :data:`isoline.results.reasons.REASONS`.
    :param detail: what was seen, one line.
    :param log_tail: the last lines of the server's log, for people; may be empty.
    """

    def __init__(self, code: str, detail: str, *, where: str = "", log_tail: str = "") -> None:
        reason = REASONS[code]
        self.code = code
        self.detail = detail
        self.log_tail = log_tail
        self.exit_code = 4 if reason.verdict is Verdict.INFRA_ERROR else 3
        super().__init__(f"{code}: {detail}", where=where, remedy=reason.remedy)


class StoppedError(IsolineError):
    """A wait was ended because ``should_stop`` said so; ``why`` is its text."""

    exit_code = 130

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"stopped: {why}")


@dataclass(frozen=True)
class Deadlines:
    """How long each phase may take, seconds."""

    ready_s: float = 120.0
    reset_s: float = 30.0
    stop_s: float = 10.0


@dataclass(frozen=True)
class LaunchSpec:
    """One server start, with placeholders.

    ``argv`` and ``env`` may hold ``{python}`` (of the engine's environment), ``{script}``,
    ``{model_path}``, ``{model_alias}``, ``{host}``, ``{port}`` and ``{scratch}``. ``scratch`` is a
    folder of this launch alone, outside the bundle; ``log`` is where stdout and stderr go.
    """

    run_id: str
    launch_id: str
    engine: str
    alias: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    weights: tuple[WeightFile, ...]
    packages: tuple[str, ...]
    scratch: Path
    log: Path
    host: str = "127.0.0.1"
    deadlines: Deadlines = Deadlines()


@dataclass(frozen=True)
class Staged:
    """What a launch needs, made ready: nothing is downloaded after this.

    ``package_versions`` and ``weights_sha256`` are for the lock.
    """

    python: Path
    model_path: Path
    package_versions: Mapping[str, str]
    weights_sha256: Mapping[str, str]


@dataclass(frozen=True)
class Problem:
    """One finding of the preflight; ``code`` is a reason code."""

    code: str
    detail: str


@dataclass(frozen=True)
class ExitStatus:
    """How a process ended: an exit code or a signal, never both; both null = unknown."""

    exit_code: int | None
    signal: int | None

    def text(self) -> str:
        """``exit code 1`` or ``signal 6 (SIGABRT)``."""
        if self.signal is not None:
            return f"signal {self.signal} ({signal_name(self.signal)})"
        return "unknown exit" if self.exit_code is None else f"exit code {self.exit_code}"


@dataclass
class Server:
    """A started server. ``ready`` may start it again on another port, so read its fields late.

    ``start_ticks`` is field 22 of ``/proc/<pid>/stat``; with the pid it names the process for good.
    ``log_offset`` is where this start's part of the log begins; ``stopping`` is set by ``stop``.
    """

    spec: LaunchSpec
    staged: Staged
    adapter: EngineAdapter
    owner: Owner
    process: subprocess.Popen[bytes]
    host: str
    port: int
    pid: int
    pgid: int
    start_ticks: int
    started_at: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    port_tries: int = 1
    log_offset: int = 0
    stopping: bool = False
    stopped: StopOutcome | None = None
    effective: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """``http://host:port``, without a path."""
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True)
class Readiness:
    """The proof that a server answers: one real generation with the right token count."""

    took_s: float
    tokens: int
    text: str
    port_tries: int


@dataclass(frozen=True)
class ResetProof:
    """The proof that a server is at rest and remembers nothing. ``slots`` were erased."""

    took_s: float
    slots: int
    tokens_erased: int | None


@dataclass(frozen=True)
class StopOutcome:
    """How a server was stopped. ``was_running`` is false when it had ended before; ``killed`` when
    SIGKILL was needed."""

    status: ExitStatus
    took_s: float
    was_running: bool
    killed: bool


class Launcher(Protocol):
    """One way to start servers."""

    kind: str

    def stage(self, spec: LaunchSpec) -> Staged:
        """Make environment and weights ready, verified. :raises PhaseFailedError, InfraError:"""
        ...

    def preflight(self, spec: LaunchSpec, staged: Staged) -> list[Problem]:
        """What stands in the way of a start; empty when nothing does."""
        ...

    def start(self, spec: LaunchSpec, staged: Staged) -> Server:
        """Start the server; it need not answer yet. :raises PhaseFailedError:"""
        ...

    def ready(self, server: Server, should_stop: ShouldStop | None = None) -> Readiness:
        """Wait for one right generation. :raises PhaseFailedError, StoppedError:"""
        ...

    def reset(self, server: Server, should_stop: ShouldStop | None = None) -> ResetProof:
        """Bring the server to rest and empty its caches. :raises PhaseFailedError: ``reset_failed``"""
        ...

    def watch(self, server: Server) -> Watch:
        """Watch the server from now on (a started thread; end it by its ``close``)."""
        ...

    def stop(self, server: Server) -> StopOutcome:
        """End the server and everything that it started. May be called twice."""
        ...

    def collect(self, server: Server, into: Path) -> dict[str, Any]:
        """Put log and effective arguments in the folder ``into``; return what the lock records."""
        ...


def signal_name(number: int) -> str:
    """``SIGABRT`` for 6; ``signal 99`` for what has no name."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
