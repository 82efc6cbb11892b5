"""What every launcher does, and the values that go in and out (DESIGN 3; issue 4's one interface).

A launcher is one way to start a server on a pool (``process``; ``container``, ``slurm`` and
``endpoint`` have the same form). The caller goes through the phases in order::

    stage -> preflight -> start -> ready -> (per point: reset, watch) -> stop -> collect

Each phase that fails raises :class:`PhaseFailedError` with a reason code of ``results/judging/reasons.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from isoline.catalog.facts import WeightFile
from isoline.catalog.pools import Pool
from isoline.errors import IsolineError
from isoline.recipes.deployment import Command, Deployment
from isoline.results.judging.reasons import REASONS, Verdict
from isoline.runners.machine.hosts import Host, this_host

if TYPE_CHECKING:
    from isoline.runners.engines.base import EngineAdapter
    from isoline.runners.launchers.compile_cache import CompileCache
    from isoline.runners.launchers.deadlines import ReadyBudget
    from isoline.runners.launchers.parts import Part
    from isoline.runners.launchers.watch import Watch
    from isoline.runners.machine.needs import Problem

ShouldStop = Callable[[], str | None]
"""Asked about ten times a second in every wait; a text (why) ends the wait at once."""


class PhaseFailedError(IsolineError):
    """A phase of a launch failed, for a known reason.

    :param code: a key of :data:`isoline.results.judging.reasons.REASONS`.
    :param detail: what was seen, one line.
    :param log_tail: the last lines of the server's log, for people; may be empty.
    :param log: that log, where there is one.
    """

    def __init__(
        self, code: str, detail: str, *, where: str = "", log_tail: str = "", log: Path | None = None
    ) -> None:
        reason = REASONS[code]
        self.code = code
        self.detail = detail
        self.log_tail = log_tail
        self.log = log
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
    """How long each phase may take, seconds. ``ready``: by size, where more than ``ready_s`` is known."""

    ready_s: float = 120.0
    reset_s: float = 30.0
    stop_s: float = 10.0
    ready: ReadyBudget | None = None


@dataclass(frozen=True)
class LaunchSpec:
    """One start of a deployment, with placeholders.

    Words and variables of the deployment may hold those of :data:`isoline.recipes.deployment.PLACEHOLDERS`.
    ``scratch`` is a folder of this launch alone on the node, outside the bundle; ``log`` is where the
    main program's output goes, that of the others lies beside it under their names.

    :param host: where servers listen.
    :param node: the machine that it runs on; ``devices`` are the indices leased to it there.
    :param files: the recipe's own files by name, on this machine.
    :param compile_cache: a folder of the node for compiled kernels, kept from launch to launch.
    :param hub: (hub id, revision) of weights that come from a hub; None where ``weights`` are files.
    """

    run_id: str
    launch_id: str
    engine: str
    alias: str
    deployment: Deployment
    weights: tuple[WeightFile, ...]
    packages: tuple[str, ...]
    scratch: Path
    log: Path
    host: str = "127.0.0.1"
    deadlines: Deadlines = Deadlines()
    pool: Pool | None = None
    node: Host = field(default_factory=this_host)
    devices: tuple[int, ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    hub: tuple[str, str | None] | None = None
    compile_cache: str | None = None

    @property
    def main(self) -> Command:
        """The first worker's command."""
        return self.deployment.workers[0]

    @property
    def is_alone(self) -> bool:
        """Whether it is one program."""
        return len(self.deployment.commands) == 1 and self.main.workers == 1

    def log_of(self, part: str) -> Path:
        """Where a program's output goes: ``server.log`` where there is one, else ``server-<part>.log``."""
        return self.log if self.is_alone else self.log.with_name(f"{self.log.stem}-{part}{self.log.suffix}")

    def scratch_of(self, part: str) -> Path:
        """A program's own folder on the node."""
        return self.scratch if self.is_alone else self.scratch / part


@dataclass(frozen=True)
class Staged:
    """What a launch needs, made ready: nothing is downloaded after this.

    ``package_versions`` and ``weights_sha256`` are for the lock. ``model_path`` is the server's own
    path of the model, ``local_model`` where it lies for programs of this machine, if it does.
    """

    python: Path
    model_path: Path
    package_versions: Mapping[str, str]
    weights_sha256: Mapping[str, str]
    local_model: Path | None = None


@dataclass(frozen=True)
class ExitStatus:
    """How a process ended: an exit code or a signal, never both; both null = unknown.

    ``reason``: a reason code where somebody says why (a batch system that took the node away).
    """

    exit_code: int | None
    signal: int | None
    reason: str | None = None

    def text(self) -> str:
        """``exit code 1`` or ``signal 6 (SIGABRT)``."""
        if self.signal is not None:
            return f"signal {self.signal} ({signal_name(self.signal)})"
        return "unknown exit" if self.exit_code is None else f"exit code {self.exit_code}"


@dataclass
class Server:
    """A started deployment. ``ready`` may start it again on other ports, so read its fields late.

    ``parts`` are the programs that run, in the order of their start; ``waiting`` groups of programs
    that start once those before them answer. ``stopping`` is set by ``stop``. ``effective`` holds the
    arguments that workers really run with: of the one worker, or by part. ``nodes``: where the pool's
    own scheduler chose them, after the stop: those that its end speaks of; ``compiled``: the folder for
    compiled kernels there, once it is ready.
    """

    spec: LaunchSpec
    staged: Staged
    adapter: EngineAdapter
    parts: list[Part] = field(default_factory=list)
    waiting: list[list[Part]] = field(default_factory=list)
    port_tries: int = 1
    stopping: bool = False
    stopped: StopOutcome | None = None
    effective: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    nodes: tuple[str, ...] = ()
    compiled: CompileCache | None = None
    is_fresh: bool = True  # until it was reset once
    can_count: bool = True  # whether it shows counters, by which a stall is seen

    @property
    def all_parts(self) -> list[Part]:
        """Those that run and those that wait for their start."""
        return [*self.parts, *(part for group in self.waiting for part in group)]

    @property
    def workers(self) -> list[Part]:
        """The started workers, without sidecars."""
        return [part for part in self.parts if part.command.role is not None]

    @property
    def main(self) -> Part:
        """The first worker."""
        return next(part for part in self.all_parts if part.command.role is not None)

    @property
    def entry(self) -> Part:
        """Who answers requests."""
        name = self.spec.deployment.entry.name
        return next(part for part in self.all_parts if part.command.name == name)

    @property
    def url(self) -> str:
        """``http://host:port`` of the entry, without a path."""
        return self.entry.url

    @property
    def port(self) -> int:
        """The entry's port."""
        return self.entry.port

    @property
    def host(self) -> str:
        """The entry's host."""
        return self.entry.host

    @property
    def pid(self) -> int:
        """The main program's process on this machine; 0 where it runs elsewhere."""
        return self.main.pid

    @property
    def argv(self) -> tuple[str, ...]:
        """The main program's words, filled in."""
        return self.main.argv

    @property
    def env(self) -> Mapping[str, str]:
        """The main program's environment."""
        return self.main.env

    def pids(self) -> set[int]:
        """Every process of it that runs on this machine."""
        return {pid for part in self.parts for pid in part.pids()}

    def ended(self) -> tuple[Part, ExitStatus] | None:
        """The first program that has ended, and how; None while all run."""
        for part in self.parts:
            status = part.poll()
            if status is not None:
                return part, status
        return None


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
    starts_servers: bool

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
