"""Sealed bundles: written aside, manifest last, renamed in, never changed (DESIGN 5.5)."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from isoline.errors import IncompleteError
from isoline.results.bundles.records import Manifest, ManifestFile, Record
from isoline.results.bundles.tombstone import thinned
from isoline.results.identity import digest, run_day

MANIFEST = "MANIFEST.json"
SKIPPED = "_skipped"
"""Where a run says, each time that it ends, which points it left out and why."""

Kind = Literal["run", "launch", "point", "skipped"]

WORK = ".work"
"""Scratch of a run inside its own folder: unsealed bundles, lock and journal. Never ingested."""


def utc_now() -> str:
    """Now, as UTC ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def run_folder(store: Path, run_id: str) -> Path:
    """``<store>/<yyyy>/<mm>/<dd>/<run_id>``."""
    return store.joinpath(*run_day(run_id), run_id)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Make a file's content, or a folder's entries, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_record(path: Path, record: Record) -> None:
    """Write a record as readable JSON."""
    # The bytes of `model_dump_json`, which would make a text of them: a plan has millions.
    write_file(path, record.__pydantic_serializer__.to_json(record, indent=1) + b"\n")


class BundleWriter:
    """A bundle while it is written. Use the folder ``path`` freely, then :meth:`seal`.

    :param run: the run's folder.
    :param target: the bundle's final place, relative to the run's folder (``_run``,
        ``_launch/<id>``, ``<point_id>/<attempt>``, ``_skipped/<n>``).
    """

    def __init__(self, run: Path, kind: Kind, target: str, id: str) -> None:
        self.kind = kind
        self.id = id
        self.target = run / target
        self.path = run / WORK / f"{target.replace('/', '~')}.{secrets.token_hex(4)}"
        self.path.mkdir(parents=True)

    @classmethod
    def adopt(cls, run: Path, kind: Kind, target: str, id: str, path: Path) -> BundleWriter:
        """Go on with a folder that another writer, which is dead, has left unsealed."""
        writer = cls.__new__(cls)
        writer.kind, writer.id, writer.target, writer.path = kind, id, run / target, path
        return writer

    def seal(self) -> Path:
        """Write the manifest, make it durable, rename it in. Returns the final folder.

        :raises FileExistsError: when the target is already sealed; it is never replaced.
        """
        files = []
        for path in sorted(self.path.rglob("*")):
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise IncompleteError("a bundle holds only plain files", where=str(path))
            sync(path)  # a folder too: its entries are not durable with the files alone
            if path.is_file():
                files.append(
                    ManifestFile(
                        path=path.relative_to(self.path).as_posix(),
                        sha256=file_sha256(path),
                        bytes=path.stat().st_size,
                    )
                )
        manifest = Manifest(kind=self.kind, id=self.id, sealed_at=utc_now(), files=files)
        write_record(self.path / MANIFEST, manifest)
        sync(self.path)
        self.target.parent.mkdir(parents=True, exist_ok=True)
        if self.target.exists():
            raise FileExistsError(f"already sealed: {self.target}")
        self.path.rename(self.target)
        sync(self.target.parent)
        return self.target

    def discard(self) -> None:
        """Drop what was written. A sealed bundle is not touched."""
        shutil.rmtree(self.path, ignore_errors=True)


def is_sealed(folder: Path) -> bool:
    """Whether the folder has a manifest."""
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a bundle.

    :raises IncompleteError: when it is missing or not of our form.
    """
    path = folder / MANIFEST
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise IncompleteError("not sealed: no MANIFEST.json", where=str(folder)) from None
    except OSError as error:
        raise IncompleteError(f"unreadable manifest: {error.strerror}", where=str(path)) from None
    except (ValidationError, UnicodeDecodeError) as error:
        raise IncompleteError(f"unreadable manifest: {str(error).splitlines()[0]}", where=str(path)) from None


def bundle_digest(manifest: Manifest) -> str:
    """The digest of a bundle's content: over the list of files, not over when it was sealed."""
    return digest([file.model_dump() for file in manifest.files])


def verify(folder: Path) -> list[str]:
    """Re-hash every file of a bundle. Returns one line for each difference; empty when all is well.

    A file that was thinned, as the tombstone beside the bundle says, is no difference.
    """
    manifest = read_manifest(folder)
    gone, problems = thinned(folder, manifest)
    named = {file.path for file in manifest.files}
    for file in manifest.files:
        path = folder / file.path
        if ".." in Path(file.path).parts or Path(file.path).is_absolute():
            problems.append(f"{file.path}: path leaves the bundle")
        elif file.path in gone:
            continue
        elif not path.is_file():
            problems.append(f"{file.path}: missing")
        elif (found := file_sha256(path)) != file.sha256:
            problems.append(f"{file.path}: sha256 {found}, manifest says {file.sha256}")
    if folder.is_symlink() or folder.parent.is_symlink():
        problems.append("the bundle is a link: its content lies elsewhere")
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            problems.append(f"{name}: not a plain file")
        elif path.is_file() and name != MANIFEST and name not in named:
            problems.append(f"{name}: not in the manifest")
    return problems


def run_folders(store: Path) -> Iterator[Path]:
    """Every run folder of a store, in the order of their ids."""
    found = [path for path in store.glob("[0-9]*/[0-9]*/[0-9]*/*") if path.is_dir()]
    yield from sorted(found, key=lambda path: path.name)


def sealed_bundles(run: Path) -> Iterator[Path]:
    """Every sealed bundle of a run: ``_run`` first, then launches, then attempts and what was skipped."""
    if is_sealed(run / "_run"):
        yield run / "_run"
    yield from sorted(path.parent for path in run.glob(f"_launch/*/{MANIFEST}") if path.is_file())
    for path in sorted(run.glob(f"*/*/{MANIFEST}")):
        folder = path.parent
        if folder.parent.name not in ("_launch", WORK) and folder.name.isdigit() and path.is_file():
            yield folder


def attempts(run: Path, point_id: str) -> list[Path]:
    """The sealed attempts at a point, in order."""
    folder = run / point_id
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if path.name.isdigit() and is_sealed(path)]
    return sorted(found, key=lambda path: int(path.name))
