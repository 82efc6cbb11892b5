"""Running commands on the machines of a pool: here, or over SSH. Every command has a time-out.

A tool that is missing, hangs or cannot be reached raises :class:`ToolUnavailableError`: it is never
read as an answer ("no such container", "job gone").
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from isoline.catalog.pools import Pool
from isoline.errors import InfraError

QUICK_S = 20.0
"""Time-out of commands that only ask something."""

SSH_OPTIONS = (
    "-o", "BatchMode=yes",
    "-o", "ConnectTimeout=10",
    "-o", "ServerAliveInterval=10",
    "-o", "ServerAliveCountMax=3",
)  # fmt: skip
SSH_FAILED = 255
NOT_FOUND = 127


MOST_BYTES = 64_000_000
"""More than any answer that is asked for here: a tool that prints on and on must not fill our memory."""


class ToolUnavailableError(InfraError):
    """A tool gave no answer: it is missing, hung past its time-out, or its machine is out of reach."""


@dataclass(frozen=True)
class Done:
    """One finished command. ``exit_code`` is negative for a signal, as in :mod:`subprocess`."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str
    took_s: float

    @property
    def ok(self) -> bool:
        """Whether it ended with 0."""
        return self.exit_code == 0

    def last_line(self) -> str:
        """The last line that says something: of the errors, else of the output."""
        rows = [row.strip() for row in (self.stderr or self.stdout).splitlines() if row.strip()]
        return rows[-1][:300] if rows else f"exit code {self.exit_code}"


@dataclass(frozen=True)
class Host:
    """A machine of a pool. ``address`` None is this machine; else what ``ssh`` is given (host or user@host).

    :param name: what people call it; node name in leases, quarantine and logs.
    :param env: extra environment for local commands (``CONTAINERS_CONF`` in tests, say).
    """

    name: str
    address: str | None = None
    ssh_options: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether commands run on this machine."""
        return self.address is None

    def words(self, argv: Sequence[str]) -> list[str]:
        """The local command that runs ``argv`` on this machine."""
        if self.address is None:
            return list(argv)
        command = shlex.join([*(f"{name}={value}" for name, value in self.env.items()), *argv])
        if self.env:
            command = f"env {command}"
        return ["ssh", *SSH_OPTIONS, *self.ssh_options, self.address, "--", command]

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command there, in a session of its own: :func:`kill_session` ends its children too.

        :param options: of :class:`subprocess.Popen`.
        :raises OSError: when it cannot be started.
        """
        env = {**os.environ, **(self.env if self.is_local else {})}
        return subprocess.Popen(self.words(argv), env=env, start_new_session=True, **options)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = QUICK_S,
        input: str | None = None,
    ) -> Done:
        """Run a command to its end and return what it said, whatever its exit code is.

        :raises ToolUnavailableError: missing program, time-out, or a machine out of reach.
        """
        began = time.monotonic()
        program = self.words(argv)[0]
        process = None
        try:
            process = self.popen(
                argv,
                stdin=subprocess.PIPE if input is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            out, err = _talk(process, input, began + timeout_s)
        except FileNotFoundError:
            raise ToolUnavailableError(
                f"{program} is not on PATH", where=self.name, remedy=f"install {program}"
            ) from None
        except OSError as error:
            raise ToolUnavailableError(
                f"{program} cannot be started: {error.strerror}", where=self.name
            ) from error
        except _TooMuchError:
            raise ToolUnavailableError(
                f"{argv[0]} prints more than {MOST_BYTES // 1_000_000} MB",
                where=self.name,
                remedy="run it by hand on that machine",
            ) from None
        except subprocess.TimeoutExpired:
            raise ToolUnavailableError(
                f"{argv[0]} did not answer within {timeout_s:g} s",
                where=self.name,
                remedy="look at that machine; nothing was concluded from the silence",
            ) from None
        finally:
            if process is not None and process.poll() is None:
                kill_session(process)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(5)
        done = Done(
            tuple(argv),
            process.returncode,
            out.decode(errors="replace"),
            err.decode(errors="replace"),
            time.monotonic() - began,
        )
        if not self.is_local and done.exit_code == SSH_FAILED:
            raise ToolUnavailableError(
                f"ssh: {done.last_line()}", where=self.name, remedy="look at that machine"
            )
        if not self.is_local and done.exit_code == NOT_FOUND:
            raise ToolUnavailableError(
                f"{argv[0]} is not on PATH there",
                where=self.name,
                remedy=f"install {argv[0]} on that machine",
            )
        return done


def kill_session(process: subprocess.Popen[Any]) -> None:
    """Kill what :meth:`Host.popen` started, and its children, unless it has ended."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


class _TooMuchError(Exception):
    """A command printed more than :data:`MOST_BYTES`."""


def _talk(process: subprocess.Popen[bytes], input: str | None, until: float) -> tuple[bytes, bytes]:
    """What a command prints until it ends, as ``communicate``, but never more than a limit.

    :param until: on the monotonic clock, s.
    :raises _TooMuchError, subprocess.TimeoutExpired: the command still runs then.
    """
    said: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
    too_much = threading.Event()

    def read(name: str) -> None:
        with suppress(OSError, ValueError), getattr(process, name) as stream:
            while (data := stream.read1(1 << 16)) and not too_much.is_set():
                said[name] += data
                if len(said[name]) > MOST_BYTES:
                    too_much.set()

    def write() -> None:
        with suppress(OSError, ValueError), process.stdin as stream:  # type: ignore[union-attr]
            stream.write((input or "").encode())

    threads = [threading.Thread(target=read, args=(name,), daemon=True) for name in said]
    threads += [threading.Thread(target=write, daemon=True)] if input is not None else []
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not too_much.is_set():
            left = until - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(process.args, 0)
            thread.join(min(left, 0.5))
    if too_much.is_set():
        raise _TooMuchError
    process.wait(max(until - time.monotonic(), 0.1))
    return bytes(said["stdout"]), bytes(said["stderr"])


def this_host(name: str | None = None) -> Host:
    """The machine that Isoline runs on."""
    return Host(name or os.uname().nodename)


def hosts_of(pool: Pool) -> list[Host]:
    """The machines of a process or container pool: its ``hosts``, else this one."""
    env = dict(pool.container.env) if pool.container else {}
    options = ("-F", pool.ssh_config) if pool.ssh_config else ()
    if pool.hosts:
        return [Host(name, name, options, env) for name in pool.hosts]
    return [Host("local", env=env)]
