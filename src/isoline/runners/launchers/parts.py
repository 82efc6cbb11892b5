"""Parts: the started programs of a deployment, whatever starts them (a process, a container, a job).

Values for the placeholders of all parts are known before the first one starts: ports are leased for the
whole deployment at once, so a router can name workers and a worker can name a store.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from isoline.errors import InfraError
from isoline.recipes.deployment import Command, filled, placeholders_in
from isoline.runners.launchers.interface import ExitStatus
from isoline.runners.ownership.owners import Owner


@dataclass
class Part:
    """One program: a worker of a role, or a sidecar.

    ``ports`` are the leased ones by name, ``main`` among them. ``program`` are the command's words,
    filled in; ``argv`` what was executed for them (``podman run …``). Until it is started these are
    empty. ``scratch`` is its own folder on the node; ``log_offset`` is where this start's part of the
    log begins.
    """

    name: str
    command: Command
    worker: int
    owner: Owner
    host: str
    ports: dict[str, int]
    log: Path
    scratch: Path
    program: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    log_offset: int = 0
    started_at: str = ""

    @property
    def pid(self) -> int:
        """Its first process on this machine; 0 where there is none."""
        return 0

    @property
    def port(self) -> int:
        """Where it answers: a sidecar's first named port, else the main one."""
        return self.ports[self.command.ports[0]] if self.command.ports else self.ports["main"]

    @property
    def url(self) -> str:
        """``http://host:port``, without a path."""
        return f"http://{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether its sockets can be seen on this machine."""
        return True

    def poll(self) -> ExitStatus | None:
        """How it ended; None while it runs, and while nobody can say."""
        raise NotImplementedError

    def pids(self) -> set[int]:
        """Its processes on this machine; empty where they cannot be seen."""
        return set()

    def terminate(self) -> None:
        """Ask it to end; does not wait."""
        raise NotImplementedError

    def end(self, term_s: float) -> list[str]:
        """End it and all that it started: up to ``term_s`` seconds after :meth:`terminate`, then by force.

        :returns: what could not be ended, for people; empty when nothing is left.
        """
        raise NotImplementedError

    @property
    def was_killed(self) -> bool:
        """Whether :meth:`end` needed force."""
        return False


def part_name(command: Command, worker: int) -> str:
    """``decode.1``; sidecars and lone workers have a number too."""
    return f"{command.name}.{worker}"


def port_names(command: Command, declared: Iterable[str]) -> list[str]:
    """The ports that one program needs: ``main``, those it declares, and those that only it names."""
    others = set(declared)
    words = [*command.argv, *command.env.values(), *(str(item) for item in command.config_files.values())]
    named = {name.removeprefix("port.") for name in placeholders_in(words) if name.startswith("port.")}
    return ["main", *command.ports, *sorted(named - others - set(command.ports))]


def values_of(part: Part, parts: Iterable[Part], common: Mapping[str, str]) -> dict[str, str]:
    """What each placeholder of a part stands for.

    :param parts: all parts of the deployment; a sidecar's named ports are known to all.
    :param common: what is the same for all of them (``model_path``, ``scratch`` ...).
    """
    everyone = list(parts)
    values = dict(common)
    for other in everyone:
        values |= {f"port.{name}": str(other.ports[name]) for name in other.command.ports}
        values.setdefault(f"host.{other.command.name}", other.host)
    values |= {f"port.{name}": str(number) for name, number in part.ports.items() if name != "main"}
    values["port"] = str(part.ports["main"])
    values["role"] = part.command.role or part.command.name
    values["worker"] = str(part.worker)
    return values


def urls_of(parts: Iterable[Part]) -> dict[str, list[str]]:
    """``url`` and ``url.ROLE`` -> the addresses of the workers, in order; ``url.ROLE.N`` -> that of one."""
    found: dict[str, list[str]] = {"url": []}
    for part in parts:
        if part.command.role is not None:
            found["url"].append(part.url)
            found.setdefault(f"url.{part.command.role}", []).append(part.url)
            found[f"url.{part.command.role}.{part.worker}"] = [part.url]
    return found


def fill_words(
    words: Iterable[str], values: Mapping[str, str], urls: Mapping[str, list[str]]
) -> tuple[str, ...]:
    """Words with their placeholders replaced; a word that is one ``{url…}`` becomes one word a worker."""
    first = {name: found[0] for name, found in urls.items() if found}
    done: list[str] = []
    for word in words:
        if word[:1] == "{" and word[-1:] == "}" and word[1:-1] in urls:
            done += urls[word[1:-1]]
        else:
            done.append(filled(word, {**first, **values}))
    return tuple(done)


def popen_in_session(
    argv: list[str], *, env: dict[str, str], cwd: Path | None, log: Path
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a program in a session of its own, its output appended to ``log``.

    :returns: the process, and where its part of the log begins.
    :raises InfraError: when it cannot be started.
    """
    try:
        with log.open("ab") as file:
            offset = file.seek(0, 2)
            process = subprocess.Popen(
                argv,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise InfraError(f"cannot start a process: {error.strerror}", where=str(log)) from error
    return process, offset
