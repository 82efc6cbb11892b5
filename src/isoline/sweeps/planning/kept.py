"""Outlines and launches that were planned before, kept by everything that decides them.

One file under the state folder. What is kept of a recipe has a key over its text, the catalog and the
code; what is kept of a launch one over the recipe's, the pool, the image and the files too. So nothing
is looked for by name or time, and what changed is not found. The file can be removed at any time; one
that is damaged, or of other code, counts as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pydantic
from pydantic_core import from_json

from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Pool
from isoline.catalog.treecache import hash_files, pruned, write_aside
from isoline.recipes.inputs import Inputs
from isoline.results.identity import canonical_json, digest_of_parts
from isoline.sweeps.planning.outline import Case, Draft, Outline, Start, TopologyOutline, start_of

FILE = "plans.json"
CODE = (
    "errors.py",
    "catalog",
    "datasets",
    "recipes",
    "results/identity.py",
    "sweeps/planning/estimates.py",
    "sweeps/planning/kept.py",
    "sweeps/planning/outline.py",
    "sweeps/planning/schema.py",
)
"""What decides outlines and launches, relative to the package: a test compares it with what they import."""


def _code() -> str:
    found = hashlib.sha256(f"{platform.python_version()} {pydantic.VERSION}\0".encode())
    package = Path(__file__).parents[2]
    for name in CODE:
        if name.endswith(".py"):
            found.update((package / name).read_bytes())
        else:
            hash_files(found, package / name, "*.py")
    return found.hexdigest()


VERSION = _code()
"""Of the code that runs: taken as it is loaded, not later, when the files may be other ones."""


class KeptPlans:
    """What is kept, and what of it was used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_new = False
        self._known: dict[str, dict[str, Any]] = self._read()
        self._used: dict[str, dict[str, Any]] = {"outlines": {}, "launches": {}}

    def _read(self) -> dict[str, dict[str, Any]]:
        nothing: dict[str, dict[str, Any]] = {"outlines": {}, "launches": {}}
        try:
            head, _, body = self._path.read_bytes().partition(b"\n")
            # Before it is parsed: what another version wrote, or half a file, is not looked into.
            if head != self._head(body):
                return nothing
            content: dict[str, dict[str, Any]] = from_json(body, cache_strings="none")
        except (OSError, ValueError):
            return nothing
        return content

    @staticmethod
    def _head(body: bytes) -> bytes:
        return f"isoline {VERSION} {hashlib.sha256(body).hexdigest()}".encode()

    @staticmethod
    def key(text: str) -> str:
        """The key of a recipe's text, with the catalog that holds now."""
        parts = (load_catalog().digest, text)
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()

    def outline(self, key: str) -> Outline | None:
        """What is kept of a recipe; None where nothing is."""
        found = self._used["outlines"].get(key) or self._known["outlines"].get(key)
        if found is None:
            return None
        self._used["outlines"][key] = found
        return Outline(**{**found, "topologies": [TopologyOutline(*item) for item in found["topologies"]]})

    def keep(self, key: str, outline: Outline) -> None:
        """Keep the outline of a recipe."""
        self._is_new = True
        self._used["outlines"][key] = {name: getattr(outline, name) for name in Outline.__annotations__}

    def launches(self, key: str) -> dict[str, Any]:
        """The launches that are kept under a key, by the name of their case."""
        found: dict[str, Any] = self._known["launches"].get(key) or {}
        return self._used["launches"].setdefault(key, found)  # type: ignore[no-any-return]

    def start(self, launches: dict[str, Any], draft: Draft, pool: Pool, inputs: Inputs, case: Case) -> Start:
        """:func:`start_of`, or what is kept of it in ``launches``."""
        name = case.name(by_level=draft.outline.by_level)
        if name in launches:
            return Start(*launches[name])
        made = start_of(draft, pool, inputs, case)
        launches[name] = list(made)
        self._is_new = True
        return made

    def save(self) -> None:
        """Write what was used, if anything is new. A folder that cannot be written is no error."""
        if not self._is_new:
            return
        body = json.dumps(
            {part: pruned(self._known[part], used) for part, used in self._used.items()},
            separators=(",", ":"),
        ).encode()
        write_aside(self._path, self._head(body) + b"\n" + body)


def launches_key(draft: Draft, pool: bytes, inputs: Inputs) -> str | None:
    """What decides the launches of a recipe beside their cases; None where they are not kept.

    :param pool: its canonical bytes.
    """
    if draft.key is None:
        return None
    others = canonical_json([inputs.script_sha256, dict(inputs.images), dict(inputs.files)])
    return digest_of_parts({"recipe": draft.key.encode(), "pool": pool, "inputs": others})


_current: ContextVar[KeptPlans | None] = ContextVar("isoline_kept_plans", default=None)


def current() -> KeptPlans | None:
    """What is kept in the block that runs, if anything."""
    return _current.get()


@contextlib.contextmanager
def kept_plans(folder: Path) -> Iterator[None]:
    """Inside, outlines and launches come from ``<folder>/plans.json`` where they were made before."""
    kept = KeptPlans(folder / FILE)
    token = _current.set(kept)
    try:
        yield
    finally:
        _current.reset(token)
        kept.save()
