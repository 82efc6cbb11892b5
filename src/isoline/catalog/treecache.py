"""Parsed documents kept by the content of their text, so that what did not change is not parsed again.

One file under the state folder. It holds nothing that the texts do not say, and can be removed at any
time; a damaged one counts as none. Validation is never skipped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

FORMAT = 1
"""Raised whenever :mod:`isoline.catalog.fastyaml` reads any text differently."""

FILE = "documents.json"


class TreeCache:
    """Trees by the SHA-256 of their text."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._used: dict[str, Any] = {}
        self._is_new = False
        self._known = self._read()

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            return {}
        trees = content.get("trees")
        return trees if isinstance(trees, dict) else {}

    @staticmethod
    def key(text: str) -> str:
        """The key of a text."""
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def get(self, key: str) -> Any:
        """The tree of a key; None where there is none (a document is never just null)."""
        tree = self._known.get(key)
        if isinstance(tree, dict):
            self._used[key] = tree
            return tree
        return None

    def put(self, key: str, tree: Any) -> None:
        """Keep a tree; only mappings are kept, as every document is one."""
        if isinstance(tree, dict):
            self._used[key] = tree
            self._is_new = True

    def save(self) -> None:
        """Write what was used, if anything is new. A folder that cannot be written is no error."""
        if not self._is_new:
            return
        trees = pruned(self._known, self._used)
        with contextlib.suppress(ValueError):
            text = json.dumps({"format": FORMAT, "trees": trees}, separators=(",", ":"))
            write_aside(self._path, text.encode())


def pruned(known: dict[str, Any], used: dict[str, Any]) -> dict[str, Any]:
    """What a cache writes: old entries go once there are four times as many as are used."""
    return {**known, **used} if len(known) < 4 * len(used) else used


def write_aside(path: Path, data: bytes) -> None:
    """Write a file that can be made again, whole or not at all; not where the folder cannot be written."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def hash_files(into: Any, folder: Path, pattern: str) -> None:
    """Add the names and bytes of all files of a folder to a hash, those of its folders included."""
    for path in sorted(folder.rglob(pattern)):
        data = path.read_bytes()
        into.update(f"{path.relative_to(folder).as_posix()}\0{len(data)}\0".encode())
        into.update(data)


_current: ContextVar[TreeCache | None] = ContextVar("isoline_tree_cache", default=None)


def current() -> TreeCache | None:
    """The cache of the block that runs, if any."""
    return _current.get()


@contextlib.contextmanager
def cached_trees(folder: Path) -> Iterator[None]:
    """Inside, good documents come from ``<folder>/documents.json`` where their text was read before."""
    cache = TreeCache(folder / FILE)
    token = _current.set(cache)
    try:
        yield
    finally:
        _current.reset(token)
        cache.save()
