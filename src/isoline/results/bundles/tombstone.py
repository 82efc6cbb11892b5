"""Tombstones: what was thinned away from a sealed bundle, in a file beside it (DESIGN 5.5).

``<bundle>.thinned.json`` names each file with its SHA-256, its class, and when it went. The manifest in
the bundle stays as it was sealed, so that the bundle's digest does too.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from isoline.errors import IncompleteError
from isoline.results.bundles.records import Manifest, Record
from isoline.results.identity import digest

SUFFIX = ".thinned.json"

NEEDED: Mapping[str, frozenset[str]] = {
    "run": frozenset({"plan.json", "environment.json"}),
    "launch": frozenset({"launch.json", "lock.json", "telemetry.parquet"}),
    "point": frozenset({"point.json", "lock.json"}),
    "skipped": frozenset({"skipped.json"}),
}
"""By kind of bundle: what the tables are made from, or what says who was measured. Never thinned, whatever
``results/retention.yaml`` says: a rebuild gives the same tables."""

EVIDENCE = ("requests.parquet", "telemetry.parquet")
"""What an attempt's metrics are derived from. They go together: one without the other derives to less."""


class ThinnedFile(Record):
    """One file that was removed. ``days``: how long its class was kept by the rules of that day."""

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True, validate_by_alias=True)

    path: str
    sha256: str
    bytes: int
    retention_class: str = Field(alias="class")
    days: int = Field(ge=1)
    when: str


class Tombstone(Record):
    """``<bundle>.thinned.json``."""

    schema_version: Literal[1] = 1
    bundle_digest: str
    files: list[ThinnedFile] = Field(min_length=1)


def tombstone_path(folder: Path) -> Path:
    """The place of a bundle's tombstone: beside it."""
    return folder.with_name(folder.name + SUFFIX)


def read_tombstone(folder: Path) -> Tombstone | None:
    """The tombstone of a bundle; None where nothing was thinned.

    :raises IncompleteError: when it is not of our form.
    """
    path = tombstone_path(folder)
    try:
        return Tombstone.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IncompleteError(f"unreadable tombstone: {error.strerror}", where=str(path)) from None
    except (ValidationError, UnicodeDecodeError) as error:
        raise IncompleteError(
            f"unreadable tombstone: {str(error).splitlines()[0]}", where=str(path)
        ) from None


def moment(text: str) -> datetime:
    """An ISO 8601 time with a zone.

    :raises ValueError: for anything else.
    """
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"time without a zone: {text!r}")
    return found.astimezone(UTC)


def contradictions(stone: Tombstone, manifest: Manifest) -> list[str]:
    """One line for each thing that cannot be: a tombstone excuses only what was sealed, and is old. Pure."""
    lines = []
    if stone.bundle_digest != digest([file.model_dump() for file in manifest.files]):
        lines.append("its tombstone is of another bundle")
    sealed = {file.path: file.sha256 for file in manifest.files}
    seen: set[str] = set()
    for file in stone.files:
        if sealed.get(file.path) != file.sha256:
            lines.append(f"{file.path}: thinned, but not what the manifest names")
        elif file.path in NEEDED[manifest.kind]:
            lines.append(f"{file.path}: thinned, but the tables are made from it")
        elif file.path in seen:
            lines.append(f"{file.path}: thinned twice")
        elif not _is_old(file, manifest):
            lines.append(f"{file.path}: thinned within {file.days} days of its sealing")
        seen.add(file.path)
    return lines


def _is_old(file: ThinnedFile, manifest: Manifest) -> bool:
    try:
        return moment(file.when) >= moment(manifest.sealed_at) + timedelta(days=file.days)
    except (ValueError, OverflowError):
        return False


def thinned(folder: Path, manifest: Manifest) -> tuple[frozenset[str], list[str]]:
    """(files of a bundle that are gone by its tombstone, what is wrong with the tombstone).

    A file that is named there but still lies in the bundle counts as there: whoever thinned was killed.
    """
    try:
        stone = read_tombstone(folder)
    except IncompleteError as error:
        return frozenset(), [error.line()]
    if stone is None:
        return frozenset(), []
    if lines := contradictions(stone, manifest):
        return frozenset(), lines
    return frozenset(file.path for file in stone.files if not (folder / file.path).is_file()), []
