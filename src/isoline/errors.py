"""The errors that a person sees: one line that says what, where and how to mend it.

Each class carries the exit code of DESIGN 5.7. Anything else that escapes is a bug of ours:
the CLI writes a report file and exits with 1.
"""

from __future__ import annotations


class IsolineError(Exception):
    """Base of all expected errors.

    :param what: what is wrong, in one line.
    :param where: file:line, path or identifier, or "" when there is none.
    :param remedy: what to do about it, or "".
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(self.line())

    def line(self) -> str:
        """The message on one line: ``where: what; remedy``."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.remedy:
            text = f"{text}; {self.remedy}"
        return " ".join(text.split())


class InputError(IsolineError):
    """Wrong input by the caller: a file, a flag or a name. Exit code 1."""

    exit_code = 1


class GateFailedError(IsolineError):
    """A gate failed or a regression was found. Exit code 2."""

    exit_code = 2


class IncompleteError(IsolineError):
    """Something is invalid, incomplete or quarantined. Exit code 3."""

    exit_code = 3


class InfraError(IsolineError):
    """The machine, a tool or the network failed: trying again may help. Exit code 4."""

    exit_code = 4
