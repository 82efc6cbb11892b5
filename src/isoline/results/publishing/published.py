"""A published snapshot as its reader sees it: a manifest, and Parquet files that DuckDB reads where they lie.

In S3 through a registered fsspec file system: no extension is fetched, so it works offline too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import duckdb
import pandas as pd
from pydantic import Field, ValidationError

from isoline.errors import InfraError, InputError
from isoline.results.bundles.records import Record
from isoline.results.publishing.public import PUBLIC
from isoline.results.publishing.remote import Place
from isoline.results.warehouse.schema import BY_NAME
from isoline.results.warehouse.snapshots import given_filters, steady_types

MANIFEST = "manifest.json"
DATA_FILE = r"^[a-z_]+/(?:[a-z_]+=[^/]+/)*[0-9a-f]{64}\.parquet$"
"""The form of a data file's path; none leads out of its place."""


class PublishedFile(Record):
    """One data file. ``partition``: the values that all its rows share."""

    path: str = Field(pattern=DATA_FILE)
    sha256: str
    bytes: int
    rows: int
    partition: dict[str, str | None] = {}


class PublishedTable(Record):
    """One table: its columns with DuckDB's types, in order, and its files."""

    columns: dict[str, str]
    rows: int
    files: list[PublishedFile]


class PublishedManifest(Record):
    """``manifest.json``: what the snapshot is, and where it is from.

    :ivar schema_version: raised when a column goes or changes its meaning; further columns and tables leave
        it as it is.
    :ivar sources: rows of ``points`` by whose they are.
    :ivar licences: rows of ``points`` of others by licence note.
    :ivar left_out: rows of the official snapshot that are not here, by reason.
    """

    schema_version: Literal[1] = 1
    kind: Literal["isoline-published-snapshot"] = "isoline-published-snapshot"
    published_at: str
    isoline: str
    warehouse_digest: str
    curves: int
    sources: dict[str, int]
    licences: dict[str, int]
    left_out: dict[str, int]
    tables: dict[str, PublishedTable]


def read_manifest(place: Place) -> PublishedManifest | None:
    """The manifest of a published snapshot; None where there is none.

    :raises InputError: when it is not one that this Isoline can read.
    """
    content = place.read(MANIFEST)
    if content is None:
        return None
    try:
        return PublishedManifest.model_validate_json(content)
    except (ValidationError, UnicodeDecodeError) as error:
        raise InputError(
            f"no manifest of a published snapshot that this Isoline knows: {str(error).splitlines()[0]}",
            where=f"{place.name}/{MANIFEST}",
            remedy="update Isoline, or name another place",
        ) from None


def published_points(place: Place, **filters: str | None) -> pd.DataFrame:
    """The points of a published snapshot, as :func:`.warehouse.snapshots.snapshot_points` gives them.

    Columns that are not public are null.

    :param filters: equality on any of :data:`isoline.results.warehouse.snapshots.FILTERS`; None is no filter.
    :raises InputError: when no snapshot lies there.
    :raises InfraError: when a file of it cannot be read.
    :raises TypeError: for a name that is no filter.
    """
    given = given_filters(filters)
    manifest = read_manifest(place)
    if manifest is None or "points" not in manifest.tables:
        raise InputError(
            f"no published snapshot there: no {MANIFEST}",
            where=place.name,
            remedy="write one with `isoline results publish`",
        )
    table = manifest.tables["points"]
    files = [file for file in table.files if _may_hold(file, given)]
    if not files:  # the form is wanted all the same
        files = table.files[:1]
    con = connect_to(place)
    try:
        # A manifest is somebody else's text: only names that we know become SQL.
        columns = ", ".join(f'"{name}"' for name in PUBLIC["points"].names if name in table.columns)
        where = " AND ".join(["true", *(f"{name} = ${name}" for name in given)])
        values = {"files": [place.url(file.path) for file in files], **given}
        sql = f"SELECT {columns} FROM read_parquet($files, hive_partitioning = false) WHERE {where}"
        frame = con.execute(
            f"{sql} ORDER BY curve_key, topology, concurrency, repetition, point_id", values
        ).df()
    except duckdb.Error as error:
        raise InfraError(
            f"a file of the snapshot cannot be read: {str(error).splitlines()[0][:300]}",
            where=place.name,
            remedy="publish it again",
        ) from None
    finally:
        con.close()
    absent = {*BY_NAME["points"].names, *PUBLIC["points"].names} - set(frame.columns)
    frame = pd.concat(
        [frame, pd.DataFrame(None, index=frame.index, columns=sorted(absent), dtype=object)], axis=1
    )
    frame["decisions"] = [list(lines) if lines is not None else [] for lines in frame["decisions"]]
    return steady_types(frame)


def connect_to(place: Place) -> duckdb.DuckDBPyConnection:
    """A DuckDB that can read a place, and fetches nothing from anywhere else."""
    con = duckdb.connect(":memory:")
    con.execute("SET autoinstall_known_extensions = false")
    con.execute("SET autoload_known_extensions = false")
    con.execute("SET python_enable_replacements = false")
    con.execute("SET temp_directory = ''")
    if (system := place.system()) is not None:
        con.register_filesystem(system)
    return con


def _may_hold(file: PublishedFile, given: Mapping[str, str]) -> bool:
    """Whether rows with these values can be in a file, by its partition."""
    return all(file.partition[name] == given[name] for name in file.partition.keys() & given.keys())
