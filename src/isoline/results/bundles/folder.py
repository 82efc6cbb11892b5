"""A sealed folder as its reader sees it: every file is hashed as it is read, every number is one."""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from isoline.errors import IncompleteError
from isoline.results.bundles import bundle
from isoline.results.bundles.records import Manifest, Record
from isoline.results.bundles.tombstone import thinned

R = TypeVar("R", bound=Record)

MAX_INTEGER = 2**63 - 1
"""Epoch nanoseconds fit; what is larger fits in no column."""


class Folder:
    """A sealed folder whose files are hashed as they are read.

    ``thinned`` names what its tombstone says is gone; a tombstone that cannot be true excuses nothing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest: Manifest = bundle.read_manifest(path)
        self.digest = bundle.bundle_digest(self.manifest)
        self._files = {file.path: file for file in self.manifest.files}
        self.thinned, _ = thinned(path, self.manifest)
        self._open: dict[str, pq.ParquetFile] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def sha256(self, name: str) -> str:
        """What the manifest says about a file. :raises KeyError: when it is not in it."""
        return self._files[name].sha256

    def read(self, name: str) -> bytes:
        """The bytes of a file.

        :raises IncompleteError: when it is not in the manifest, was thinned, or is not what the manifest
            says.
        """
        if name not in self._files:
            raise IncompleteError(f"no {name} in the bundle")
        if name in self.thinned:
            raise IncompleteError(f"{name} was thinned", where=str(self.path))
        data = (self.path / name).read_bytes()
        found = hashlib.sha256(data).hexdigest()
        if found != self._files[name].sha256:
            raise IncompleteError(f"{name}: sha256 {found}, manifest says {self._files[name].sha256}")
        return data

    def parquet(self, name: str) -> pq.ParquetFile:
        """A Parquet file, open; read and hashed once, however often it is asked for.

        :raises IncompleteError: as :meth:`read`.
        """
        if (file := self._open.get(name)) is None:
            file = self._open[name] = pq.ParquetFile(pa.BufferReader(self.read(name)))
        return file

    def record(self, name: str, kind: type[R]) -> R:
        """A JSON file as a record."""
        data = self.read(name)
        try:
            record = kind.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise IncompleteError(f"{name}: {where or 'file'}: {first['msg']}") from None
        if _MAY_BE_ODD.search(data) and (odd := odd_number(json.loads(data))):
            raise IncompleteError(f"{name}: {odd}; what is absent is null")
        return record


_MAY_BE_ODD = re.compile(rb"9\d{18}|\d{20}|[eE]\+?\d{3,}[,\]}\s]|NaN|Infinity")
"""A number beyond :data:`MAX_INTEGER`, or none that is finite, has one of these in it; a digest has not."""


def odd_number(value: Any, where: str = "") -> str:
    """The first number of a JSON value that no table can hold, with its place; "" when there is none."""
    if isinstance(value, dict):
        return next((odd for key, item in value.items() if (odd := odd_number(item, f"{where}.{key}"))), "")
    if isinstance(value, list):
        return next((odd for i, item in enumerate(value) if (odd := odd_number(item, f"{where}.{i}"))), "")
    is_odd = (
        abs(value) > MAX_INTEGER
        if isinstance(value, int)
        else isinstance(value, float) and not math.isfinite(value)
    )
    return f"{where.removeprefix('.')} is {str(value)[:30]}" if is_odd else ""
