"""What people tell a run while it works or rests: small durable files in its work folder.

Each command is one file ``control-<time>-<verb>-<random>.json``, never changed. The orchestrator folds them
in their order (:func:`fold`) a few times a second; where none runs, the next start does. So a command
survives every crash, and a finished one has no effect twice.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from isoline.results.bundles.bundle import utc_now, write_file
from isoline.results.judging.reasons import Verdict
from isoline.runners.ownership.record import read_record
from isoline.sweeps.planning.due import is_due

DIGITS = 20
"""Of the time in a command's file name, ns."""

Verb = Literal["pause", "resume", "cancel", "skip", "retry"]


@dataclass(frozen=True)
class Command:
    """One command. ``target``: a launch (``skip``) or a point (``retry``).

    ``attempts``: of a ``retry``, how many sealed attempts the point had when it was given.
    """

    verb: Verb
    at: str
    target: str = ""
    attempts: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Controls:
    """What all commands of a run say together.

    :param skipped: launch (digest prefix or launch id) -> why.
    :param retries: point id -> attempts that it had when it was made due once more.
    :param retried_at: point id -> when.
    """

    is_paused: bool = False
    is_cancelled: bool = False
    skipped: Mapping[str, str] = field(default_factory=dict)
    retries: Mapping[str, int] = field(default_factory=dict)
    retried_at: Mapping[str, str] = field(default_factory=dict)

    def is_due(self, point_id: str, verdicts: Sequence[Verdict]) -> bool:
        """Whether a point is due, with what people asked for."""
        return is_due(verdicts, self.retries.get(point_id, -1))

    def why_skipped(self, launch_digest: str) -> str:
        """Why a launch was taken out by hand; "" where it was not."""
        for target, why in self.skipped.items():
            if launch_digest.startswith(target.partition("-")[0]):
                return why
        return ""


def fold(commands: Iterable[Command]) -> Controls:
    """What commands say together, in the order in which they were given. Pure."""
    is_paused = is_cancelled = False
    skipped: dict[str, str] = {}
    retries: dict[str, int] = {}
    retried_at: dict[str, str] = {}
    for item in commands:
        match item.verb:
            case "pause":
                is_paused = True
            case "cancel":
                is_cancelled = True
            case "resume":
                is_paused = is_cancelled = False
                skipped.clear()
            case "skip":
                skipped[item.target] = f"skipped by hand{f': {item.reason}' if item.reason else ''}"
            case "retry":
                retries[item.target] = item.attempts
                retried_at[item.target] = item.at
    return Controls(is_paused, is_cancelled, skipped, retries, retried_at)


def give(work: Path, command: Command) -> Path:
    """Write a command. Durable when this returns."""
    # Also where the clock was set back: what is given later counts later.
    given = [path.name.split("-")[1] for path in work.glob("control-*-*.json")]
    last = max((int(text) for text in given if text.isdecimal() and len(text) == DIGITS), default=0)
    moment = max(time.time_ns(), last + 1)
    path = work / f"control-{moment:0{DIGITS}d}-{command.verb}-{secrets.token_hex(3)}.json"
    write_file(path, (json.dumps(asdict(command), ensure_ascii=False, indent=1) + "\n").encode())
    return path


def new_command(verb: Verb, target: str = "", *, attempts: int = 0, reason: str = "") -> Command:
    """A command of now."""
    return Command(verb, utc_now(), target, attempts, reason)


def read_commands(work: Path) -> list[Command]:
    """The commands of a run, oldest first; a file that is none is left out."""
    found = []
    for path in sorted(work.glob("control-*.json")):
        if (command := read_record(path, Command)) is not None:
            found.append(command)
    return found


def read_controls(work: Path) -> Controls:
    """What people told a run so far."""
    return fold(read_commands(work))
