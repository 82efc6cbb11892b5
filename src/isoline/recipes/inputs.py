"""What a launch is rendered from beside recipe, topology and pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Shape:
    """What a launch needs to know of a scenario: its name, and its lengths where they are fixed."""

    scenario: str
    isl: int | None = None
    osl: int | None = None


@dataclass(frozen=True)
class Inputs:
    """What is not in the recipe but decides its rendering.

    :param script_sha256: digest of the engine's start script (launcher ``process``).
    :param images: channel -> reference, as resolved for the run.
    :param files: file of the recipe's folder -> sha256.
    """

    script_sha256: str | None = None
    images: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
