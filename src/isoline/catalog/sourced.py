"""Facts with their source and date: the base of all that the catalog says about the world."""

from __future__ import annotations

from pydantic import Field

from isoline.catalog.documents import Document

HUB_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$"
"""The form of a repository id on the model hub."""


class Sourced(Document):
    """A group of facts that were read in one place. ``dated`` is the day or month the
    source is of; where it bears none, when it was read."""

    source: str = Field(min_length=3)
    dated: str = Field(pattern=r"^20\d\d-[01]\d(-[0-3]\d)?$")
