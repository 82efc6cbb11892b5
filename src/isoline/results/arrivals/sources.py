"""Where files come from: a folder (what an archive unpacked to is one), or a prefix in S3.

Both list their files by path and size, and copy some of them to a folder. What they hold is not believed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from isoline.errors import InfraError, InputError
from isoline.results.arrivals.names import NameRefusedError, safe_path
from isoline.results.publishing.remote import s3_errors, s3_root, s3_system

MAX_LISTED = 2_000_000
"""Objects under one prefix. More is a whole bucket, not a store."""


@dataclass(frozen=True)
class Entry:
    """One file of a source. ``md5``: of its content, where the source says it; None elsewhere."""

    bytes: int
    md5: str | None = None

    def is_like(self, path: Path) -> bool:
        """Whether a file here has its content for certain, without a look at the source's."""
        if self.md5 is None or not path.is_file() or path.stat().st_size != self.bytes:
            return False
        return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() == self.md5


class Source(Protocol):
    """Files by path. ``name`` is for messages; ``above`` are the folders that the source itself lies in.

    :ivar is_job: it came from a job, not from a store: nothing was thinned there in good faith.
    """

    name: str
    above: tuple[str, ...]
    is_job: bool

    def files(self) -> Mapping[str, Entry]:
        """Every plain file; a path that is none of ours to make is left out."""

    def copy(self, paths: Mapping[str, Path]) -> None:
        """Copy files to new places, whose folders exist.

        :raises InfraError: when one cannot be read.
        """


class FolderSource:
    """A folder of this machine. Links are not followed.

    :param link: it is an unpacked archive. Its files are linked, not copied: nobody else writes them, and
        they are thrown away.
    """

    def __init__(self, folder: Path, name: str, *, link: bool = False) -> None:
        self.folder = folder
        self.name = name
        self.above = folder.resolve().parts[-1:]
        self.is_job = link
        self._link = link

    def files(self) -> Mapping[str, Entry]:
        """Every plain file below it."""
        found = {}
        for where, folders, names in os.walk(self.folder):
            folders.sort()
            for name in sorted(names):
                path = Path(where, name)
                if path.is_file() and not path.is_symlink():
                    found[path.relative_to(self.folder).as_posix()] = Entry(path.stat().st_size)
        return found

    def copy(self, paths: Mapping[str, Path]) -> None:
        """Copy, or link where that is allowed."""
        for name, target in paths.items():
            try:
                if self._link:
                    os.link(self.folder / name, target)
                else:
                    shutil.copyfile(self.folder / name, target, follow_symlinks=False)
            except OSError as error:
                raise InfraError(f"cannot be read: {error.strerror}", where=f"{self.name}: {name}") from None


class S3Source:
    """A prefix in S3. Credentials, region and endpoint are those of AWS's own settings.

    :raises InputError: for a URL without a bucket.
    """

    def __init__(self, url: str) -> None:
        self.name = url
        self._root = s3_root(url)
        self.above = tuple(self._root.split("/"))
        self.is_job = False
        self._system = s3_system()

    def files(self) -> Mapping[str, Entry]:
        """Every object below the prefix, by its key without that; one object by its last part."""
        with s3_errors(self.name):
            listed = self._system.find(self._root, detail=True)
        if not listed:
            raise InputError("there is nothing", where=self.name)
        if len(listed) > MAX_LISTED:
            raise InputError(f"more than {MAX_LISTED} objects", where=self.name, remedy="name a run or a day")
        found = {}
        for key, info in listed.items():
            relative = key.removeprefix(f"{self._root}/") if key != self._root else key.rpartition("/")[2]
            try:
                if safe_path(relative) != relative or key.endswith("/"):
                    continue
            except NameRefusedError:
                continue
            found[relative] = Entry(int(info["size"]), _md5(info.get("ETag")))
        return found

    def copy(self, paths: Mapping[str, Path]) -> None:
        """Fetch several objects at once."""
        if not paths:
            return
        keys = [self._root if self._is_one(name) else f"{self._root}/{name}" for name in paths]
        with s3_errors(self.name):
            self._system.get(keys, [str(path) for path in paths.values()])

    def _is_one(self, name: str) -> bool:
        return self._root.endswith(f"/{name}") and bool(self._system.isfile(self._root))


def _md5(etag: str | None) -> str | None:
    """An ETag is the content's MD5 where it has that form; not so for parts or keys of others."""
    text = (etag or "").strip('"').lower()
    return text if len(text) == 32 and all(char in "0123456789abcdef" for char in text) else None
