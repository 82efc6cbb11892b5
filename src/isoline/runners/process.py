"""The launcher kind ``process``: the server is a plain child in its own session on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from isoline.errors import InfraError, InputError
from isoline.results.bundle import utc_now
from isoline.runners import owners, ports, proc
from isoline.runners.engines import EngineCallError, engine_adapter
from isoline.runners.envs import Progress, ensure_engine
from isoline.runners.exits import KILLED_FROM_OUTSIDE, exit_status, log_tail, reason_of_exit
from isoline.runners.launcher import (
    LaunchSpec,
    PhaseFailedError,
    Problem,
    Readiness,
    ResetProof,
    Server,
    ShouldStop,
    Staged,
    StopOutcome,
    StoppedError,
)
from isoline.runners.staging import ensure_weights
from isoline.runners.watch import Watch
from isoline.settings import Settings

PORT_TRIES = 5
READY_TOKENS = 5
POLL_S = 0.05
WRONG_ANSWERS = 3
"""So many definite wrong answers in a row end the wait: the server is up, and it is wrong."""

LOG_ROOM = 200_000_000
"""Free bytes below which no server is started: its log would fill the disk."""

PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
"""What a server gets of our environment. All else must be in the recipe, or it would decide unseen."""


class ProcessLauncher:
    """Starts servers as processes. ``settings.state`` holds environments, weights, leases, records."""

    kind = "process"

    def __init__(self, settings: Settings, progress: Progress | None = None) -> None:
        self.settings = settings
        self.state = settings.state
        self.progress = progress or (lambda line: None)

    def stage(self, spec: LaunchSpec) -> Staged:
        """Engine environment and weights, verified.

        :raises PhaseFailedError: ``weights_digest_mismatch``.
        :raises InfraError: when something cannot be fetched.
        """
        if not spec.weights:
            raise InputError(f"launch {spec.launch_id} names no weights file")
        env = ensure_engine(self.settings, spec.engine, spec.packages, self.progress)
        paths = [ensure_weights(self.settings, entry, self.progress) for entry in spec.weights]
        return Staged(
            python=env.python,
            model_path=paths[0],
            package_versions=env.packages,
            weights_sha256={entry.file: entry.sha256 for entry in spec.weights},
        )

    def preflight(self, spec: LaunchSpec, staged: Staged) -> list[Problem]:
        """Disk for the log, model file and start script there."""
        found = []
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(spec.log.parent).free
        if free < LOG_ROOM:
            found.append(Problem("disk_full", f"{free // 1_000_000} MB free where the server log goes"))
        for path in (staged.model_path, staged.python, engine_adapter(spec.engine).script()):
            if not path.exists():
                found.append(Problem("launch_failed", f"missing: {path.name}"))
        return found

    def start(self, spec: LaunchSpec, staged: Staged) -> Server:
        """Start the server on a leased port. It need not answer yet.

        :raises InfraError: when no process can be started or no port is free.
        """
        spec.scratch.mkdir(parents=True, exist_ok=True)
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        owner = owners.claim(
            self.state,
            run_id=spec.run_id,
            launch_id=spec.launch_id,
            what="server",
            log=spec.log,
            scratch=spec.scratch,
        )
        try:
            port = ports.lease(self.state, owner.token, spec.host)
            return self._spawn(spec, staged, owner, port)
        except BaseException:
            with contextlib.suppress(OSError):
                owners.release(self.state, owner)
            raise

    def _spawn(self, spec: LaunchSpec, staged: Staged, owner: owners.Owner, port: int) -> Server:
        adapter = engine_adapter(spec.engine)
        values = {
            "python": str(staged.python),
            "script": str(adapter.script()),
            "model_path": str(staged.model_path),
            "model_alias": spec.alias,
            "host": spec.host,
            "port": str(port),
            "scratch": str(spec.scratch.absolute()),
        }
        argv = tuple(fill(word, values) for word in spec.argv)
        env = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
        env["TMPDIR"] = values["scratch"]
        env |= {key: fill(value, values) for key, value in spec.env.items()}
        env |= owners.label(owner)
        try:
            with spec.log.open("ab") as log:
                log_offset = log.seek(0, os.SEEK_END)
                process = subprocess.Popen(
                    owners.wrap(self.state, owner, list(argv)),
                    env=env,
                    cwd=spec.scratch,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise InfraError(f"cannot start a process: {error.strerror}", where=str(spec.log)) from error
        found = proc.read_proc(process.pid)
        return Server(
            spec=spec,
            staged=staged,
            adapter=adapter,
            owner=owner,
            process=process,
            host=spec.host,
            port=port,
            pid=process.pid,
            pgid=process.pid,  # the leader of its own session
            start_ticks=found.start_ticks if found else 0,
            started_at=utc_now(),
            argv=argv,
            env=env,
            log_offset=log_offset,
        )

    def ready(self, server: Server, should_stop: ShouldStop | None = None) -> Readiness:
        """Wait for one real generation with the right token count; on a taken port start again on another.

        :raises PhaseFailedError: ``launch_failed``, ``server_killed``, ``launch_timeout``,
            ``not_generating``, ``port_in_use``, ``oom``, ``args_not_effective``.
        :raises StoppedError: when ``should_stop`` says so.
        """
        deadline_s = server.spec.deadlines.ready_s
        began = time.monotonic()
        tried = {server.port}
        last = "it never said that it is up"
        answered = False
        wrong = 0
        while True:
            if should_stop and (why := should_stop()):
                raise StoppedError(why)
            if server.process.poll() is not None or self._port_is_foreign(server):
                self._again_on_another_port(server, tried)
                wrong = 0
                continue
            left = deadline_s - (time.monotonic() - began)
            if left <= 0:
                code = "not_generating" if answered else "launch_timeout"
                self._fail(server, code, f"not ready after {deadline_s:.0f} s: {last}")
            if server.adapter.healthy(server.url):
                answered = True
                try:
                    tokens, text = server.adapter.generate(
                        server.url, server.spec.alias, READY_TOKENS, max(0.1, min(left, 30.0))
                    )
                except EngineCallError as error:
                    last = str(error)
                    wrong = wrong + 1 if error.definite else 0
                    if wrong >= WRONG_ANSWERS:
                        self._fail(server, "not_generating", last)
                else:
                    if server.process.poll() is None and self._listens(server):
                        self._check_args(server)
                        took_s = time.monotonic() - began
                        return Readiness(took_s, tokens, text, server.port_tries)
                    last = "another process answers on its port"
            time.sleep(POLL_S)

    def _listens(self, server: Server) -> bool:
        """Whether one of the server's own processes listens on its port."""
        pids = {item.pid for item in proc.all_procs() if item.sid == server.pid}
        return server.port in proc.listening_ports(pids)

    def _port_is_foreign(self, server: Server) -> bool:
        """Whether somebody listens on the port who is not our server."""
        # Ours may begin to listen between the two looks, so a foreign one is believed on the second.
        return all(proc.listener_exists(server.port) and not self._listens(server) for _ in range(2))

    def _again_on_another_port(self, server: Server, tried: set[int]) -> None:
        """Start the server again where the port was the trouble; fail with the right code where not."""
        status = None
        code: str | None = "port_in_use"
        if server.process.poll() is not None:
            status = exit_status(server.process.returncode)
            tail = log_tail(server.spec.log, server.log_offset)
            code = server.adapter.explain_exit(tail)
            if reason_of_exit(status) == KILLED_FROM_OUTSIDE:
                self._fail(server, KILLED_FROM_OUTSIDE, f"ended by {status.text()} before it was ready")
            if code != "port_in_use":
                self._fail(server, code or "launch_failed", f"ended by {status.text()} before it was ready")
        if server.port_tries >= PORT_TRIES:
            self._fail(server, "port_in_use", f"{PORT_TRIES} ports in a row were taken")
        server.notes.append(f"port {server.port} was taken by somebody else")
        owners.end_owned(self.state, server.owner, server.spec.deadlines.stop_s)
        server.process.wait()
        ports.release_all(self.state, server.owner.token)
        port = ports.lease(self.state, server.owner.token, server.host, avoid=tried)
        tried.add(port)
        with server.spec.log.open("ab") as log:
            log.write(f"isoline: port {server.port} was taken, starting again on {port}\n".encode())
        new = self._spawn(server.spec, server.staged, server.owner, port)
        for name in (
            "process",
            "port",
            "pid",
            "pgid",
            "start_ticks",
            "started_at",
            "argv",
            "env",
            "log_offset",
        ):
            setattr(server, name, getattr(new, name))
        server.port_tries += 1

    def _check_args(self, server: Server) -> None:
        """Compare what runs with what was asked. Done once, while the server answers."""
        try:
            server.effective = server.adapter.effective_args(server.url, server.spec.scratch)
            found = server.adapter.differences(server.argv, server.effective)
        except EngineCallError as error:
            found = [str(error)]
        if found:
            self._fail(server, "args_not_effective", "; ".join(found))

    def _fail(self, server: Server, code: str, detail: str) -> NoReturn:
        raise PhaseFailedError(
            code,
            detail,
            where=f"launch {server.spec.launch_id}",
            log_tail=log_tail(server.spec.log, server.log_offset),
        )

    def reset(self, server: Server, should_stop: ShouldStop | None = None) -> ResetProof:
        """Bring the server to rest and empty its caches.

        :raises PhaseFailedError: ``reset_failed``; ``server_died`` or ``server_killed`` when it is gone.
        """

        def ended() -> str | None:
            # A dead server never comes to rest: do not wait for the deadline.
            return "the server ended" if server.process.poll() is not None else None

        try:
            return server.adapter.reset(
                server.url,
                server.spec.deadlines.reset_s,
                lambda: ended() or (should_stop() if should_stop else None),
            )
        except (PhaseFailedError, StoppedError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(0.2)  # it may be ending right now
            if server.process.poll() is not None:
                status = exit_status(server.process.returncode)
                self._fail(server, reason_of_exit(status), f"ended by {status.text()} between two points")
            raise

    def watch(self, server: Server) -> Watch:
        """A started watch of this server."""
        watch = Watch(server)
        watch.start()
        return watch

    def stop(self, server: Server) -> StopOutcome:
        """SIGTERM to the group, the deadline, SIGKILL, and a look that nothing is left. Idempotent."""
        if server.stopped is not None:
            return server.stopped
        server.stopping = True
        began = time.monotonic()
        term_s = server.spec.deadlines.stop_s
        killed = False
        was_running = server.process.poll() is None
        if was_running:
            for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped group would not see SIGTERM
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(server.pgid, number)
            try:
                server.process.wait(term_s)
            except subprocess.TimeoutExpired:
                killed = True
        # What is left of it: the server itself past its deadline, or children that outlived it.
        _, left = owners.end_owned(self.state, server.owner, 0.0 if killed else min(term_s, 2.0))
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.process.wait(5.0)
        if not left:
            shutil.rmtree(server.spec.scratch, ignore_errors=True)
            owners.release(self.state, server.owner)
        code = server.process.poll()
        outcome = StopOutcome(
            status=exit_status(code),
            took_s=time.monotonic() - began,
            was_running=was_running,
            killed=killed,
        )
        if left:
            raise InfraError(
                f"processes {', '.join(map(str, left))} of launch {server.spec.launch_id} cannot be ended",
                remedy="look at them; the next run tries again",
            )
        server.stopped = outcome
        return outcome

    def collect(self, server: Server, into: Path) -> dict[str, Any]:
        """Put ``server.log`` and ``effective_args.json`` in ``into``; returns :func:`resolved`."""
        into.mkdir(parents=True, exist_ok=True)
        target = into / "server.log"
        if server.spec.log.is_file() and server.spec.log.absolute() != target.absolute():
            shutil.copyfile(server.spec.log, target)
        if server.effective is not None:
            text = json.dumps(server.effective, indent=1, ensure_ascii=False)
            (into / "effective_args.json").write_text(text + "\n", encoding="utf-8")
        return resolved(server)


def resolved(server: Server) -> dict[str, Any]:
    """What the placeholders of a launch became, and what it ran with: part of the lock."""
    return {
        "launcher": ProcessLauncher.kind,
        "argv": list(server.argv),
        "env": {key: value for key, value in server.env.items() if key in server.spec.env},
        "host": server.host,
        "port": server.port,
        "port_tries": server.port_tries,
        "packages": dict(server.staged.package_versions),
        "weights": dict(server.staged.weights_sha256),
        "effective_args": server.effective,
        "notes": list(server.notes),
    }


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace ``{name}`` by its value for each known name; other braces stay as they are (JSON arguments)."""
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text


def launcher_for(kind: str, settings: Settings, progress: Progress | None = None) -> ProcessLauncher:
    """The launcher of a kind.

    :raises InputError: for one that does not exist.
    """
    if kind != ProcessLauncher.kind:
        raise InputError(f"no launcher of kind {kind!r}", remedy=f"known: {ProcessLauncher.kind}")
    return ProcessLauncher(settings, progress)
