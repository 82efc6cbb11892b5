"""Records of the state folder (owners, leases, nodes, held launches): JSON, checked against its dataclass.

A file that is damaged, or that somebody else wrote, must neither stop every command that comes by it nor
lead a clean-up to another file.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


@lru_cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read_record(path: Path, kind: type[T], name: str = "") -> T | None:
    """The record in a file; None where it is none of that kind.

    :param kind: a dataclass; every value must have the type that it says.
    :param name: a field that must be the file's own name: whoever removes the record goes by it.
    """
    try:
        found: T = _adapter(kind).validate_json(path.read_bytes(), strict=True)  # type: ignore[arg-type]
    except (OSError, ValueError):
        return None
    return found if not name or getattr(found, name) == path.stem else None
