"""What a lock says beside its recipe, and the digests that tell whether either was edited. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from isoline.catalog.documents import Document, ValueAtError
from isoline.results.identity import digest

_HEX = r"^[0-9a-f]{64}$"
NOT_CONTENT = frozenset(("extends", "locked"))
"""Fields of a recipe that are about its file, not about what it says."""


class Locked(Document):
    """Where a locked recipe comes from and what it rendered to.

    :ivar recipe_id: of the recipe that was locked; points of the lock have its ids.
    :ivar recipe_digest: of the content beside this block; it covers the notes too.
    :ivar pool: the pool whose launches these are.
    :ivar rev: git revision of the project, ``-dirty`` behind it where files differed; null: no checkout.
    :ivar launches: ``<topology> <scenario> c<concurrency>`` -> launch digest.
    :ivar digest: over all of it, so that no value can be edited alone.
    """

    recipe_id: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*$")
    recipe_digest: str = Field(pattern=_HEX)
    pool: str
    rev: str | None
    launches: dict[str, str] = Field(min_length=1)
    digest: str = Field(pattern=_HEX)


def launch_key(topology: str, scenario: str, concurrency: int) -> str:
    """The name of a launch in a lock."""
    return f"{topology} {scenario} c{concurrency}"


def lock_digest(locked: Mapping[str, Any]) -> str:
    """The digest of a lock's block; of the content it covers the digest that stands in it."""
    return digest({name: value for name, value in locked.items() if name != "digest"})


def check_locked(content: Mapping[str, Any], locked: Locked) -> None:
    """Refuse a lock that was edited.

    :param content: the resolved recipe without :data:`NOT_CONTENT`.
    :raises ValueAtError: with both digests.
    """
    if (found := digest(content)) != locked.recipe_digest:
        raise ValueAtError(
            f"the lock is of {locked.recipe_digest}, its content is {found}: it was edited; write it again",
            "locked",
            "recipe_digest",
        )
    if (found := lock_digest(locked.model_dump(mode="json"))) != locked.digest:
        raise ValueAtError(
            f"the lock's digest is {locked.digest}, its values give {found}: it was edited; write it again",
            "locked",
            "digest",
        )
