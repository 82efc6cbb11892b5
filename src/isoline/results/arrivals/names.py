"""Names of files in archives and listings that somebody else made: checked before a file is made. Pure."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import Any

MAX_PATH_BYTES = 1024
MAX_PART_BYTES = 255
MAX_DEPTH = 32


class NameRefusedError(ValueError):
    """A name that is never made into a file. The text says why."""


def safe_path(name: str) -> str:
    """A relative path with ``/``, without ``.`` and empty parts at its ends.

    :raises NameRefusedError: when it is absolute, leads upwards, or is no name that every system can hold.
    """
    shown = ascii(name)[:200]
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        raise NameRefusedError(f"a name that is not UTF-8: {shown}") from None
    if size > MAX_PATH_BYTES:
        raise NameRefusedError(f"a name of {size} bytes")
    if name.startswith("/"):
        raise NameRefusedError(f"an absolute path: {shown}")
    if "\\" in name or any(unicodedata.category(char) in ("Cc", "Cf") for char in name):
        raise NameRefusedError(f"a name with a backslash, control or invisible character: {shown}")
    parts = [part for part in name.removesuffix("/").split("/") if part != "."]
    if ".." in parts:
        raise NameRefusedError(f"a path that leads upwards: {shown}")
    if "" in parts:
        raise NameRefusedError(f"a path with an empty part: {shown}")
    if len(parts) > MAX_DEPTH:
        raise NameRefusedError(f"a path of {len(parts)} folders")
    if any(len(part.encode("utf-8")) > MAX_PART_BYTES for part in parts):
        raise NameRefusedError(f"a part of a name is longer than {MAX_PART_BYTES} bytes: {shown}")
    if parts and len(parts[0]) == 2 and parts[0][1] == ":":
        raise NameRefusedError(f"a path with a drive: {shown}")
    return "/".join(parts)


def folded(path: str) -> str:
    """The same text for two paths that some file system takes for one: letter case, Unicode forms."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())


@dataclass
class Names:
    """The names of one archive so far: no two may be one file, here or on another system."""

    _files: dict[str, str] = field(default_factory=dict)
    _folders: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, *, is_folder: bool) -> str:
        """Check one name. Returns the path to make; "" for the archive's own root folder.

        :raises NameRefusedError: for a bad name, or one that is there already.
        """
        path = safe_path(name)
        if not path:
            if is_folder:
                return ""
            raise NameRefusedError("a file without a name")
        key = folded(path)
        if is_folder:
            self._enter(path, key)
            return path
        if key in self._files or key in self._folders:
            other = self._files.get(key) or self._folders[key]
            how = "twice the same name" if other == path else f"two names for one file: {other!a} and"
            raise NameRefusedError(f"{how} {path!a}")
        if "/" in path:
            self._enter(path.rpartition("/")[0], key.rpartition("/")[0])
        self._files[key] = path
        return path

    def _enter(self, path: str, key: str) -> None:
        """A folder, and those that it lies in: written in one way only, and no file."""
        while path and self._folders.get(key) != path:
            if key in self._files:
                raise NameRefusedError(f"both a file and a folder: {path!a}")
            if key in self._folders:
                raise NameRefusedError(f"two names for one folder: {self._folders[key]!a} and {path!a}")
            self._folders[key] = path
            path, key = path.rpartition("/")[0], key.rpartition("/")[0]


def shown(value: Any) -> str:
    """A text of somebody else in one of our lines: printable, and not long."""
    return " ".join(str(value).encode("ascii", "backslashreplace").decode().split())[:200]
