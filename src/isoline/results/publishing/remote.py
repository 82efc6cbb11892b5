"""Where results go and come from outside this machine: a folder, or a prefix in S3, through fsspec.

The one place where S3 is opened. Credentials, region and endpoint are those of AWS's own settings
(``AWS_ENDPOINT_URL``, ``AWS_PROFILE``, ``AWS_ACCESS_KEY_ID`` and so on).
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from isoline.errors import InfraError, InputError
from isoline.results.bundles.bundle import sync, write_file


def is_remote(text: str) -> bool:
    """Whether a place is named by a URL: ``s3://…``; everything else is a path."""
    return "://" in text


def s3_root(url: str) -> str:
    """``bucket/prefix`` of ``s3://bucket/prefix``.

    :raises InputError: for anything else.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise InputError("not of the form s3://bucket/prefix", where=url)
    return f"{parts.netloc}/{parts.path.strip('/')}".rstrip("/")


def s3_system(*, keeps_listings: bool = False) -> Any:
    """S3 as an fsspec file system.

    Without credentials it asks as anybody may: a public snapshot is read so.

    :param keeps_listings: do not ask again about what was listed: only where nobody changes a file.
    """
    import botocore.session
    import s3fs

    nobody = botocore.session.get_session().get_credentials() is None
    return s3fs.S3FileSystem(anon=nobody, use_listings_cache=keeps_listings, skip_instance_cache=True)


@contextmanager
def s3_errors(where: str) -> Iterator[None]:
    """What S3 can answer as errors of ours, in one line.

    :raises InputError: when the bucket or object is not there.
    :raises InfraError: when S3 does not answer, or refuses.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except FileNotFoundError:
        raise InputError("no such bucket or object", where=where) from None
    except (OSError, BotoCoreError, ClientError) as error:
        raise InfraError(
            f"S3 does not answer as it should: {str(error)[:200] or type(error).__name__}",
            where=where,
            remedy="AWS_ENDPOINT_URL, AWS_PROFILE or AWS_ACCESS_KEY_ID and so on say where and as whom",
        ) from None


class Place(Protocol):
    """A folder, or a prefix in S3, as files by path. A file is there whole or not at all."""

    name: str

    def sizes(self) -> dict[str, int | None]:
        """Every file, sorted, with its bytes; None for what is no plain file. Empty where nothing is yet."""

    def read(self, path: str) -> bytes | None:
        """The content of a file; None where there is none."""

    def put(self, path: str, content: bytes) -> None:
        """Write a file, or replace it."""

    def remove(self, path: str) -> None:
        """Remove a file that is there."""

    def url(self, path: str) -> str:
        """The file's name for a reader such as DuckDB."""

    def system(self) -> Any:
        """An fsspec file system for such a reader, of files that nobody changes; None for a folder."""


class FolderPlace:
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.name = str(folder)

    def sizes(self) -> dict[str, int | None]:
        """Every file, hidden ones too.

        :raises InputError: when it is a file.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError("not a folder", where=self.name)
        found = (path for path in self.folder.rglob("*") if path.is_symlink() or not path.is_dir())
        listed = {path.relative_to(self.folder).as_posix(): path for path in found}
        return {
            name: path.stat().st_size if path.is_file() else None for name, path in sorted(listed.items())
        }

    def read(self, path: str) -> bytes | None:
        """The content of a file."""
        try:
            return (self.folder / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise InfraError(f"cannot be read: {error.strerror}", where=f"{self.name}/{path}") from None

    def put(self, path: str, content: bytes) -> None:
        """Write aside, make durable, rename."""
        try:
            write_file(self.folder / path, content)
            sync((self.folder / path).parent)
        except OSError as error:
            raise InfraError(f"cannot be written: {error.strerror}", where=f"{self.name}/{path}") from None

    def remove(self, path: str) -> None:
        """Remove a file, and the folders that it leaves empty."""
        file = self.folder / path
        file.unlink(missing_ok=True)
        for parent in file.parents:
            if parent == self.folder or any(parent.iterdir()):
                return
            parent.rmdir()

    def url(self, path: str) -> str:
        """An absolute path; signs in it that readers take for patterns are escaped."""
        return glob.escape(str(self.folder / path))

    def system(self) -> Any:
        """None: every reader can read a folder."""
        return None


class S3Place:
    """A prefix in S3. An object appears whole when its upload ends."""

    def __init__(self, url: str) -> None:
        self.root = s3_root(url)
        self.name = url
        self._system = s3_system()

    def sizes(self) -> dict[str, int | None]:
        """Every object below the prefix.

        :raises InputError: when there is no such bucket.
        """
        with s3_errors(self.name):
            # `find` gives nothing for a bucket that is not there, and `exists` no for one that nobody serves.
            self._system.call_s3("head_bucket", Bucket=self.root.partition("/")[0])
            listed = self._system.find(self.root, detail=True)
        return {key.removeprefix(f"{self.root}/"): int(item["size"]) for key, item in sorted(listed.items())}

    def read(self, path: str) -> bytes | None:
        """The content of an object."""
        with s3_errors(self.name):
            try:
                return bytes(self._system.cat_file(f"{self.root}/{path}"))
            except FileNotFoundError:
                return None

    def put(self, path: str, content: bytes) -> None:
        """Upload an object."""
        with s3_errors(self.name):
            self._system.pipe_file(f"{self.root}/{path}", content)

    def remove(self, path: str) -> None:
        """Remove an object."""
        with s3_errors(self.name):
            self._system.rm_file(f"{self.root}/{path}")

    def url(self, path: str) -> str:
        """``s3://bucket/prefix/path``."""
        return f"s3://{self.root}/{path}"

    def system(self) -> Any:
        """A file system to be registered with the reader. It asks once for what lies there: a reader would
        ask ten times about each file."""
        system = s3_system(keeps_listings=True)
        with suppress(InfraError, InputError), s3_errors(self.name):  # not everybody may list
            system.find(self.root)
        return system


def place_at(text: str) -> Place:
    """The place that ``text`` names: ``s3://bucket/prefix``, or a folder, which need not be there.

    :raises InputError: for a URL of another kind.
    """
    return S3Place(text) if is_remote(text) else FolderPlace(Path(text))
