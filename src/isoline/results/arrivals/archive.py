"""An archive of an untrusted job: unpacked within limits, or refused whole (DESIGN 5.6).

Nothing that it says of itself is believed. Names are checked before a file is made, bytes are counted
while they come out, and anything that is no plain file (link, device, sparse file) refuses all of it.
Bundles and files of others are looked at afterwards, by those who read them from a folder too.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

import pyarrow as pa

from isoline.errors import IncompleteError, InfraError
from isoline.results.arrivals.names import NameRefusedError, Names, shown

SUFFIXES = {".zip": "zip", ".tar": "tar", ".tar.gz": "gz", ".tgz": "gz", ".tar.zst": "zst"}
"""The archives that are read, by the end of their names. Not LZMA: its memory is what the archive says."""

_MAGIC = {b"PK\x03\x04": "zip", b"PK\x05\x06": "zip", b"\x1f\x8b": "gz", b"\x28\xb5\x2f\xfd": "zst"}
_CENTRAL = b"PK\x01\x02"  # begins each entry of a zip's directory
_PIECE = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What an archive may be at most. ``free_bytes`` come out whatever the ratio is: small files of
    zeros are no bomb."""

    packed_bytes: int = 8 * 1024**3
    bytes: int = 16 * 1024**3
    file_bytes: int = 2 * 1024**3
    members: int = 100_000
    ratio: int = 200
    free_bytes: int = 32 * 1024**2
    header_bytes: int = 64 * 1024


DEFAULT = Limits()

_BAD = (
    zipfile.BadZipFile,
    tarfile.TarError,
    EOFError,
    zlib.error,
    struct.error,
    ValueError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
    OSError,
    pa.ArrowException,
)
# Of our machine, not of the archive.
_OURS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE)


def suffix_of(name: str) -> str | None:
    """The archive suffix that a file's name ends in; None where it is no archive's name."""
    return next((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), None)


def unpack(archive: Path, into: Path, limits: Limits = DEFAULT) -> int:
    """Unpack an archive into an empty folder. Returns how many files came out.

    :raises IncompleteError: when it is refused; remove the folder then, it may hold a part.
    :raises InfraError: when this machine cannot hold it.
    """
    try:
        kind = _kind(archive)
        size = archive.stat().st_size
        if size > limits.packed_bytes:
            _refuse(f"{size} bytes, at most {limits.packed_bytes} are taken")
        meter = _Meter(limits, size)
        names = Names()
        if kind == "zip":
            count = _unzip(archive, into, meter, names)
        else:
            count = _untar(archive, kind, into, meter, names)
        if not count:
            _refuse("there is no file in it")
    except IncompleteError as error:
        raise IncompleteError(error.what, where=str(archive)) from None
    except NameRefusedError as error:
        raise IncompleteError(str(error), where=str(archive)) from None
    except _BAD as error:
        if isinstance(error, OSError) and error.errno in _OURS:
            raise InfraError(f"cannot be unpacked: {error.strerror}", where=str(archive)) from None
        text = f"damaged or cut off: {type(error).__name__}: {shown(error)}"
        raise IncompleteError(text, where=str(archive)) from None
    return count


def _refuse(why: str) -> NoReturn:
    raise IncompleteError(why)


def _kind(archive: Path) -> str:
    """What the archive is by its first bytes, which its name must not contradict."""
    with archive.open("rb") as file:
        head = file.read(512)
    found = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
    if found is None and head[257:262] == b"ustar":
        found = "tar"
    suffix = suffix_of(archive.name)
    if suffix is None:
        _refuse(f"no archive that is read: its name ends in none of {', '.join(SUFFIXES)}")
    if found != SUFFIXES[suffix]:
        _refuse(f"its name says {suffix}, its first bytes {found or 'nothing that is read'}")
    return SUFFIXES[suffix]


class _Meter:
    """Counts what comes out, and refuses as soon as it is too much."""

    def __init__(self, limits: Limits, packed: int) -> None:
        self.limits = limits
        self._packed = packed
        self._bytes = 0
        self._members = 0

    def member(self) -> None:
        self._members += 1
        if self._members > self.limits.members:
            _refuse(f"more than {self.limits.members} members")

    def size(self, name: str, size: int) -> None:
        """The size that a member is said to have."""
        if not 0 <= size <= self.limits.file_bytes:
            _refuse(f"{shown(name)}: {size} bytes, at most {self.limits.file_bytes} are taken")

    def came(self, count: int) -> None:
        self._bytes += count
        if self._bytes > self.limits.bytes:
            _refuse(f"unpacks to more than {self.limits.bytes} bytes")
        if self._bytes > max(self.limits.free_bytes, self.limits.ratio * self._packed):
            _refuse(f"unpacks to more than {self.limits.ratio} times its size of {self._packed} bytes")


def _write(source: IO[bytes], target: Path, size: int, count: Callable[[int], None]) -> None:
    """Copy exactly ``size`` bytes into a new file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(handle, "wb") as file:
        left = size
        while left and (piece := source.read(min(_PIECE, left))):
            count(len(piece))
            file.write(piece)
            left -= len(piece)
    if left or source.read(1):
        _refuse(f"{shown(target.name)}: not of the {size} bytes that it is said to have")


# --- zip --------------------------------------------------------------------------------------


def _unzip(archive: Path, into: Path, meter: _Meter, names: Names) -> int:
    _count_entries(archive, meter.limits.members)
    with zipfile.ZipFile(archive) as opened:
        plain = []
        for info in opened.infolist():  # all of it is looked at before anything comes out
            meter.member()
            is_folder = _checked(info)
            path = names.add(info.orig_filename, is_folder=is_folder)
            meter.size(path, info.file_size)
            if is_folder and path:
                (into / path).mkdir(parents=True, exist_ok=True)
            elif not is_folder:
                plain.append((info, path))
        if sum(info.file_size for info, _ in plain) > meter.limits.bytes:
            _refuse(f"unpacks to more than {meter.limits.bytes} bytes")
        for info, path in plain:
            with opened.open(info) as source:
                _write(source, into / path, info.file_size, meter.came)
    return len(plain)


def _checked(info: zipfile.ZipInfo) -> bool:
    """Whether an entry is a folder. :raises IncompleteError: when it is neither that nor a plain file."""
    name = shown(info.orig_filename)
    if info.flag_bits & 0x1:
        _refuse(f"{name}: encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        _refuse(f"{name}: compressed in a way that is not read ({info.compress_type})")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        _refuse(f"{name}: {'a link' if kind == stat.S_IFLNK else 'no plain file'}")
    is_folder = info.orig_filename.endswith("/")
    if (kind == stat.S_IFDIR and not is_folder) or (is_folder and (kind == stat.S_IFREG or info.file_size)):
        _refuse(f"{name}: both a file and a folder")
    return is_folder


def _count_entries(archive: Path, most: int) -> None:
    """Refuse too many entries before the directory is read: each one costs memory.

    Every entry begins with the same four bytes, so that there are never more than these.
    """
    found, tail = 0, b""
    with archive.open("rb") as file:
        while piece := file.read(_PIECE):
            found += (tail + piece).count(_CENTRAL)
            if found > most:
                _refuse(f"more than {most} members")
            tail = piece[-3:]


# --- tar --------------------------------------------------------------------------------------


class _Counted:
    """The bytes of a tar as they come out of its compression."""

    def __init__(self, source: Any, meter: _Meter) -> None:
        self._source = source
        self._meter = meter

    def read(self, size: int) -> bytes:
        piece = bytes(self._source.read(size))
        self._meter.came(len(piece))
        return piece


def _untar(archive: Path, kind: str, into: Path, meter: _Meter, names: Names) -> int:
    count = 0
    with archive.open("rb") as file:
        source = _Counted(_decompressed(file, kind), meter)
        header, ended = _header_type(meter)
        # As a stream: nothing is looked for further on, and nothing is read twice.
        with tarfile.open(fileobj=source, mode="r|", tarinfo=header, bufsize=_PIECE) as opened:  # type: ignore[call-overload]
            for member in opened:
                path = names.add(member.name, is_folder=member.isdir())
                if member.isdir():
                    (into / path).mkdir(parents=True, exist_ok=True)
                    continue
                if member.issparse() or not member.isreg():
                    _refuse(f"{shown(member.name)}: no plain file")
                meter.size(member.name, member.size)
                content = opened.extractfile(member)
                if content is None:
                    _refuse(f"{shown(member.name)}: no plain file")
                _write(content, into / path, member.size, lambda _: None)  # counted as it came out
                count += 1
        if not ended():
            _refuse("cut off: its end is not there")
        while source.read(_PIECE):  # the rest, for the checksum at the end of the compressed data
            pass
    return count


def _decompressed(file: IO[bytes], kind: str) -> Any:
    if kind == "gz":
        return gzip.GzipFile(fileobj=file)
    if kind == "zst":
        return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    return file


def _header_type(meter: _Meter) -> tuple[type[tarfile.TarInfo], Callable[[], bool]]:
    """The type of a tar's headers, which sees each one as it is there, before the library acts on it.

    Long names and extended headers are read into memory by the library, whatever size they say; links and
    devices are refused before anything else is. The second value tells whether the end mark was seen.
    """
    plain = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
    more = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME)
    seen = []

    class Header(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Any:
            try:
                found = super().frombuf(buf, encoding, errors)
            except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
                seen.append(True)
                raise
            meter.member()
            if found.type in more:
                if not 0 <= found.size <= meter.limits.header_bytes:
                    _refuse(f"a header of {found.size} bytes")
            elif found.type not in plain:
                what = "a link" if found.type in (tarfile.SYMTYPE, tarfile.LNKTYPE) else "no plain file"
                _refuse(f"{shown(found.name)}: {what}")
            return found

    return Header, lambda: bool(seen)
