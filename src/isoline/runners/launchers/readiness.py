"""Waiting until a deployment is ready: started in order, answering, and proven by a real generation."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from isoline.runners.engines.base import EngineCallError
from isoline.runners.engines.openai import call
from isoline.runners.launchers.deadlines import STALL_S, ReadyBudget
from isoline.runners.launchers.exits import KILLED_FROM_OUTSIDE, log_tail, reason_of_exit
from isoline.runners.launchers.interface import ExitStatus, Readiness, Server, ShouldStop, StoppedError
from isoline.runners.launchers.parts import Part
from isoline.runners.launchers.start_progress import StartProgress
from isoline.runners.machine import proc

if TYPE_CHECKING:
    from isoline.runners.launchers.deploy import PartsLauncher

PORT_TRIES = 5
READY_TOKENS = 5
POLL_S = 0.05
WRONG_ANSWERS = 3
"""So many definite wrong answers in a row end the wait: the server is up, and it is wrong."""

PROBE_S = 2.0
ANSWER_S = 30.0
LOOK_EVERY_S = 1.0


class ReadyWait:
    """One wait. What fails is raised through the launcher, which knows the logs."""

    def __init__(self, launcher: PartsLauncher, server: Server) -> None:
        self.launcher = launcher
        self.server = server
        self.tried = {number for part in server.all_parts for number in part.ports.values()}
        self.last = "it never said that it is up"
        self.answered = False
        self.wrong = 0

    def wait(self, should_stop: ShouldStop | None) -> Readiness:
        """Until it is ready. :raises PhaseFailedError, StoppedError: as the launcher's ``ready``."""
        server = self.server
        began = time.monotonic()
        budget = budget_of(server)
        progress = StartProgress(server.spec.engine, budget, began)
        looked = began - LOOK_EVERY_S
        late = None
        while True:
            if should_stop and (why := should_stop()):
                raise StoppedError(why)
            ended = server.ended()
            if ended or self._foreign_ports():
                self._again_on_other_ports(ended)
                continue
            now = time.monotonic()
            if now - looked >= min(LOOK_EVERY_S, budget.deadline_s / 10):
                looked = now
                for part in server.parts:
                    progress.follow(part.log, part.log_offset)
                late = progress.tell(now, server.pids())
            if late is not None:
                code = "not_generating" if self.answered else late.code
                self.launcher.fail(server, code, f"{self.last}; {late.why}")
            left = budget.hard_cap_s - (now - began)
            silent = next((part for part in server.parts if not self._answers(part)), None)
            if silent is not None:
                if not server.spec.is_alone:
                    self.last = f"{silent.name} never said that it is up"
            elif server.waiting:
                self.launcher.start_next(server)
                continue
            elif (proof := self._proof(max(0.1, min(left, ANSWER_S)))) is not None:
                tokens, text = proof
                return Readiness(time.monotonic() - began, tokens, text, server.port_tries)
            time.sleep(POLL_S)

    def _proof(self, timeout_s: float) -> tuple[int, str] | None:
        """(tokens, text) of a right generation by our own servers; None where it has to be tried again."""
        server = self.server
        self.answered = True
        try:
            tokens, text = self._generate(timeout_s)
        except EngineCallError as error:
            self.last = str(error)
            self.wrong = self.wrong + 1 if error.definite else 0
            if self.wrong >= WRONG_ANSWERS:
                self.launcher.fail(server, "not_generating", self.last)
            return None
        if server.ended() is None and all(listens(part) for part in server.parts):
            if found := self.launcher.compare_args(server):
                self.launcher.fail(server, "args_not_effective", "; ".join(found))
            return tokens, text
        self.last = "another process answers on its port"
        return None

    def _answers(self, part: Part) -> bool:
        """Whether a part says that it is up: only a first filter, never a proof."""
        if part.command.role is not None:
            return self.server.adapter.healthy(part.url)
        if part.command.ready is not None:
            try:
                call("GET", f"{part.url}/{part.command.ready.lstrip('/')}", PROBE_S)
            except EngineCallError:
                return False
            return True
        if part.command.ports:
            try:
                with socket.create_connection((part.host, part.port), timeout=PROBE_S):
                    return True
            except OSError:
                return False
        return True

    def _generate(self, timeout_s: float) -> tuple[int, str]:
        """One generation through the entry; each role must have worked on it.

        :raises EngineCallError: no right answer, or a role whose counters stood still.
        """
        server = self.server
        before = self._work()
        tokens, text = server.adapter.generate(server.url, server.spec.alias, READY_TOKENS, timeout_s)
        after = self._work()
        if idle := [role for role in before if after.get(role, 0.0) <= before[role]]:
            raise EngineCallError(f"an answer came without {' and '.join(idle)}", definite=True)
        return tokens, text

    def _work(self) -> dict[str, float]:
        """Tokens that each role has worked on; empty for one role alone, whose answer proves it.

        :raises EngineCallError: when a worker does not say.
        """
        if len(self.server.spec.deployment.workers) < 2:
            return {}
        found: dict[str, float] = {}
        for part in self.server.workers:
            counters = self.server.adapter.counters(part.url, PROBE_S)
            # A prefill worker reads the prompt, a decode worker writes: each grows one of the two.
            work = counters.get("input_tokens", 0.0) + counters.get("output_tokens", 0.0)
            found[part.command.name] = found.get(part.command.name, 0.0) + work
        return found

    def _foreign_ports(self) -> bool:
        """Whether somebody listens on a worker's port who is not ours."""
        # Ours may begin to listen between the two looks, so a foreign one is believed on the second.
        return any(
            part.is_local and all(proc.listener_exists(part.port) and not listens(part) for _ in range(2))
            for part in self.server.workers
        )

    def _again_on_other_ports(self, ended: tuple[Part, ExitStatus] | None) -> None:
        """Start everything again where a port was the trouble; fail with the right code where not."""
        server, launcher = self.server, self.launcher
        self.wrong = 0
        if ended is not None:
            part, status = ended
            code = server.adapter.explain_exit(log_tail(part.log, part.log_offset))
            if reason_of_exit(status) == KILLED_FROM_OUTSIDE:
                code = KILLED_FROM_OUTSIDE
            code = status.reason or code
            if code != "port_in_use":
                who = "" if server.spec.is_alone else f"{part.name} was "
                detail = f"{who}ended by {status.text()} before it was ready"
                launcher.fail(server, code or "launch_failed", detail, part)
        if server.port_tries >= PORT_TRIES:
            launcher.fail(server, "port_in_use", f"{PORT_TRIES} ports in a row were taken")
        was = server.port
        server.notes.append(f"port {was} was taken by somebody else")
        for part in launcher.again(server, self.tried):
            self.tried |= set(part.ports.values())
            with part.log.open("ab") as log:
                log.write(f"isoline: port {was} was taken, starting again on {server.port}\n".encode())
        launcher.start_next(server)
        server.port_tries += 1


def budget_of(server: Server) -> ReadyBudget:
    """The deadlines of a start: by size where the launch says, else the recipe's own alone."""
    deadlines = server.spec.deadlines
    if deadlines.ready is not None:
        return deadlines.ready
    limit = deadlines.ready_s
    return ReadyBudget(limit, limit, max(limit, STALL_S), f"{limit:.0f} s")


def listens(part: Part) -> bool:
    """Whether one of the part's own processes listens on its port; True where that cannot be seen."""
    if not part.is_local or (part.command.role is None and not part.command.ports):
        return True
    return part.port in proc.listening_ports(part.pids())
