"""Read the metadata of a GGUF file (source: the GGUF specification, versions 2 and 3).

Names and values before the tensors; the tensors are never touched.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from isoline.errors import InputError

MAGIC = b"GGUF"
STRING = 8
ARRAY = 9
SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
MAX_COUNT = 1 << 24
"""Far more than any vocabulary: a larger count means a broken file, not a large model."""


@dataclass(frozen=True)
class GgufMetadata:
    """Metadata by name, and the SHA-256 over the bytes that hold them."""

    values: dict[str, Any]
    sha256: str


class _Reader:
    """Reads little-endian values and hashes what it read."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file = file
        self.path = path
        self.hash = hashlib.sha256()

    def take(self, size: int) -> bytes:
        data = self.file.read(size)
        if len(data) != size:
            raise InputError("the GGUF file ends early", where=str(self.path), remedy="fetch it again")
        self.hash.update(data)
        return data

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self) -> int:
        value = int(self.number("<Q"))
        if value > MAX_COUNT:
            raise InputError("not a readable GGUF file: a count is too large", where=str(self.path))
        return value

    def text(self) -> str:
        return self.take(self.count()).decode("utf-8", "surrogateescape")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            inner = int(self.number("<I"))
            size = self.count()
            if inner in SCALARS:
                form = SCALARS[inner]
                data = self.take(struct.calcsize(form) * size)
                return list(struct.unpack(f"<{size}{form[1]}", data))
            return [self.value(inner) for _ in range(size)]
        if kind not in SCALARS:
            raise InputError(f"unknown GGUF value type {kind}", where=str(self.path))
        return self.number(SCALARS[kind])


def read_metadata(path: Path) -> GgufMetadata:
    """The metadata of a GGUF file.

    :raises InputError: when it is not one, or broken.
    """
    try:
        with path.open("rb") as file:
            reader = _Reader(file, path)
            if reader.take(4) != MAGIC:
                raise InputError("not a GGUF file", where=str(path))
            version = int(reader.number("<I"))
            if version not in (2, 3):
                raise InputError(f"GGUF version {version} is not supported", where=str(path))
            reader.count()  # tensors
            values = {}
            for _ in range(reader.count()):
                name = reader.text()
                values[name] = reader.value(int(reader.number("<I")))
            return GgufMetadata(values=values, sha256=reader.hash.hexdigest())
    except OSError as error:
        raise InputError(error.strerror or str(error), where=str(path)) from error
