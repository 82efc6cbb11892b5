"""What environment variables do to a measurement (see :class:`isoline.catalog.engines.Environment`)."""

from __future__ import annotations

from fnmatch import fnmatchcase

from isoline.catalog.engines import Environment


def kind_of(name: str, environment: Environment) -> str | None:
    """The kind of one variable by the first rule that matches; None where none does."""
    for rule in environment.rules:
        if any(fnmatchcase(name, pattern) for pattern in rule.match):
            return rule.kind
    return None
