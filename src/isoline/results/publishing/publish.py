"""Publish the official snapshot: public columns, scanned, as partitioned Parquet with a manifest.

Data files carry their digest as name and are never changed; the manifest, which names them, is replaced
last. So whoever reads by a manifest sees one snapshot whole, the old one or the new one.
"""

from __future__ import annotations

import getpass
import hashlib
import re
import socket
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

import isoline
from isoline.catalog.pools import load_pool
from isoline.errors import GateFailedError, InputError
from isoline.results.publishing.parquet import parquet_bytes, warehouse_digest
from isoline.results.publishing.public import MEASURED_HERE, PUBLIC, may_pass_on
from isoline.results.publishing.published import (
    DATA_FILE,
    MANIFEST,
    PublishedFile,
    PublishedManifest,
    PublishedTable,
    read_manifest,
)
from isoline.results.publishing.remote import Place
from isoline.results.publishing.scan import Hit, Scanner
from isoline.results.warehouse.file import Connection, open_reader
from isoline.results.warehouse.snapshots import snapshot_points
from isoline.settings import Settings

PARTITION = ("model", "scenario")
LeftOut = dict[tuple[str, str], int]
"""Rows that are not published, by reason and source."""
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_OURS = re.compile(
    rf"{DATA_FILE}|^(?:{re.escape(MANIFEST)}"
    rf"|(?:[a-z_]+/(?:[a-z_]+=[^/]+/)*)?\.(?:{re.escape(MANIFEST)}|[0-9a-f]{{64}}\.parquet)\.[0-9a-f]{{8}}\.part)$"
)


@dataclass(frozen=True)
class FoundHit:
    """Something that must not be published, and where it stands."""

    where: str
    id: str
    hit: Hit


class UnfitError(GateFailedError):
    """Something in the snapshot must not be public: a path, host, address or secret.

    Remedy: mend where it comes from; or allow the piece, when a person has looked at it.
    """

    def __init__(self, hits: list[FoundHit]) -> None:
        first = hits[0]
        more = f" (and {len(hits) - 1} more)" if len(hits) > 1 else ""
        super().__init__(
            f"{first.hit.what} in {first.where}: {first.hit.shown!r}{more}; nothing was published",
            where=first.id,
            remedy="mend it where it comes from, or --allow the piece after a look",
        )
        self.hits = hits


@dataclass
class Published:
    """What one call did, or would do.

    :ivar written: data files that were new there.
    :ivar unchanged: the snapshot there is this one already; its manifest was left as it is.
    :ivar older: files of former snapshots that are there; :ivar removed: of these, how many were removed.
    :ivar left_out: rows that are not in it, by reason and source. Sources that are left out are named here
        only: nobody scanned their names.
    """

    manifest: PublishedManifest
    written: list[str] = field(default_factory=list)
    unchanged: bool = False
    older: int = 0
    removed: int = 0
    left_out: LeftOut = field(default_factory=dict)


def publish(
    settings: Settings,
    place: Place,
    *,
    own_only: bool = False,
    allowed: Collection[str] = (),
    prune: bool = False,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Published:
    """Write the official snapshot of the warehouse to a place.

    Rows of others are in it where their licence note says that anybody may pass them on: the whole curve
    or nothing of it.

    :param own_only: leave out everything of others.
    :param allowed: pieces of text that the scan finds and that may be published all the same.
    :param prune: remove files that the new manifest does not name; readers of older ones lose them.
    :param dry_run: scan, compare and write nothing.
    :raises InputError: when nothing is official, or something else lies at the place.
    :raises UnfitError: when the scan finds anything: nothing is written then.
    :raises InfraError: when the place cannot be read or written.
    """
    con = open_reader(settings.warehouse)
    try:
        tables, left_out = snapshot_tables(con, own_only=own_only)
        source = warehouse_digest(con)
    finally:
        con.close()
    if hits := list(scan(tables, Scanner(_words(settings.project), allowed))):
        raise UnfitError(hits)
    files = dict(_files(tables))
    points = tables["points"]
    foreign = points.filter(pc.is_valid(points.column("licence")))
    moment = (now or datetime.now(UTC)).astimezone(UTC)
    manifest = PublishedManifest(
        published_at=moment.isoformat(timespec="seconds").replace("+00:00", "Z"),
        isoline=isoline.__version__,
        warehouse_digest=source,
        curves=pc.count_distinct(points.column("curve_key")).as_py(),
        sources=_counts(points, "source"),
        licences=_counts(foreign, "licence"),
        left_out=_by_reason(left_out),
        tables=_tables(tables, files),
    )
    done = _write(place, manifest, {file.path: data for file, data in files.values()}, prune, dry_run)
    done.left_out = left_out
    return done


def _by_reason(left_out: LeftOut) -> dict[str, int]:
    total: Counter[str] = Counter()
    for (reason, _), count in left_out.items():
        total[reason] += count
    return dict(sorted(total.items()))


def snapshot_tables(con: Connection, *, own_only: bool = False) -> tuple[dict[str, pa.Table], LeftOut]:
    """(the public tables of the official snapshot, how many of its points are not in them by reason).

    :raises InputError: when nothing is left to publish: an empty snapshot would replace a full one.
    """
    frame = snapshot_points(con)
    kept, left_out = _passed_on(con, frame, own_only)
    if kept.empty:
        why = ", ".join(f"{count} {reason}: {source}" for (reason, source), count in left_out.items())
        raise InputError(
            f"there is nothing to publish ({why or 'no curve has a complete run of a published sweep'})",
            remedy="`isoline frontier --run newest` shows incomplete runs",
        )
    points = pa.Table.from_pandas(
        kept[PUBLIC["points"].names], schema=PUBLIC["points"].arrow, preserve_index=False
    ).replace_schema_metadata(None)
    con.register("published", points)
    runs = con.sql(f"""
        SELECT {_names("runs")} FROM runs WHERE run_id IN (SELECT run_id FROM published) ORDER BY run_id
    """).to_arrow_table()
    accuracy = con.sql(f"""
        SELECT {_names("accuracy", "a.")} FROM accuracy a JOIN published p
        ON a.run_id = p.measured_in AND a.point_id = p.point_id AND a.attempt = p.counting_attempt
        ORDER BY ALL
    """).to_arrow_table()
    con.unregister("published")
    found = {"points": points, "runs": runs, "accuracy": accuracy}
    return {name: table.cast(PUBLIC[name].arrow) for name, table in found.items()}, left_out


def _names(table: str, of: str = "") -> str:
    return ", ".join(f'{of}"{name}"' for name in PUBLIC[table].names)


def _passed_on(con: Connection, frame: pd.DataFrame, own_only: bool) -> tuple[pd.DataFrame, LeftOut]:
    """The points that may be passed on, with where they are from; and how many are left out, by reason."""
    origins = con.execute("""
        SELECT run_id, point_id, list(licence ORDER BY sha256, row_index), count(*) FILTER (licence IS NULL),
               first(format ORDER BY sha256, row_index), min(sha256),
               first(row_index ORDER BY sha256, row_index)
        FROM imports GROUP BY ALL
    """).fetchall()
    by_point = {(run, point): rest for run, point, *rest in origins}
    refused: dict[
        str, tuple[str, str]
    ] = {}  # by curve: a curve with a part of its points would be another curve
    licence, kind, digest, row = [], [], [], []
    for run, point, curve, source in zip(
        frame["run_id"], frame["point_id"], frame["curve_key"], frame["source"], strict=True
    ):
        notes, unsaid, form, sha256, index = by_point.get((run, point), ([], 0, None, None, None))
        if source not in MEASURED_HERE:
            if own_only:
                refused[curve] = ("of others", source)
            elif unsaid or not notes or not all(may_pass_on(note) for note in notes):
                refused[curve] = ("no licence to pass on", source)
        licence.append(notes[0] if notes else None)
        kind.append(form)
        digest.append(sha256)
        row.append(index)
    columns = {"licence": licence, "import_format": kind, "import_sha256": digest}
    frame = frame.assign(
        **{name: pd.Series(values, index=frame.index, dtype=object) for name, values in columns.items()},
        import_row=pd.Series(row, index=frame.index, dtype="Int64"),
    )
    why = [refused.get(curve) for curve in frame["curve_key"]]
    return frame[[reason is None for reason in why]], dict(sorted(Counter(filter(None, why)).items()))


def scan(tables: Mapping[str, pa.Table], scanner: Scanner) -> Iterator[FoundHit]:
    """Everything in texts that must not be public, with the first row that has it."""
    for name, table in tables.items():
        for column, kind in PUBLIC[name].columns:
            if not kind.startswith("VARCHAR"):
                continue
            values = table.column(column)
            flat = pc.list_flatten(values) if kind.endswith("[]") else values
            for text in pc.unique(flat.drop_null()).to_pylist():
                for hit in scanner.hits(text, is_version=column == "engine_version"):
                    rows = values.to_pylist()
                    at = next(i for i, value in enumerate(rows) if value == text or text in (value or []))
                    ids = table.slice(at, 1).to_pylist()[0]
                    yield FoundHit(f"{name}.{column}", ids.get("point_id") or ids["run_id"], hit)


def _words(project: Path) -> set[str]:
    """Names of this machine, of who works on it, and of the machines of the project's pools."""
    host = socket.gethostname()
    words = {host, host.partition(".")[0], Path.home().name}
    with suppress(OSError, KeyError):  # a user id without a name
        words.add(getpass.getuser())
    for path in sorted((project / "runners").glob("*.yaml")):
        pool = load_pool(project, path.stem)
        words |= {name.rpartition("@")[2] for name in (pool.host, *pool.hosts)}
    return words


def _files(tables: Mapping[str, pa.Table]) -> Iterator[tuple[str, tuple[PublishedFile, bytes]]]:
    """Every data file with its content, by its path."""
    for name, table in tables.items():
        for partition, part in _partitions(table) if name == "points" else [({}, table)]:
            data = parquet_bytes(part)
            sha256 = hashlib.sha256(data).hexdigest()
            folders = [f"{key}={_quoted(value)}" for key, value in partition.items()]
            path = "/".join([name, *folders, f"{sha256}.parquet"])
            yield (
                path,
                (
                    PublishedFile(
                        path=path, sha256=sha256, bytes=len(data), rows=part.num_rows, partition=partition
                    ),
                    data,
                ),
            )


def _partitions(table: pa.Table) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """The rows of each model and scenario, in their order."""
    pairs = list(zip(*(table.column(name).to_pylist() for name in PARTITION), strict=True))
    for pair in sorted(set(pairs), key=lambda pair: tuple(value or "" for value in pair)):
        yield (
            dict(zip(PARTITION, pair, strict=True)),
            table.filter(pa.array([item == pair for item in pairs])),
        )


def _quoted(value: str | None) -> str:
    """A value as one part of a path, as Hive writes it."""
    return NULL_PARTITION if value is None else quote(value, safe="")


def _tables(
    tables: Mapping[str, pa.Table], files: Mapping[str, tuple[PublishedFile, bytes]]
) -> dict[str, PublishedTable]:
    return {
        name: PublishedTable(
            columns=dict(PUBLIC[name].columns),
            rows=table.num_rows,
            files=[file for path, (file, _) in files.items() if path.startswith(f"{name}/")],
        )
        for name, table in tables.items()
    }


def _counts(table: pa.Table, column: str) -> dict[str, int]:
    return dict(sorted(Counter(table.column(column).to_pylist()).items()))


def _write(
    place: Place, manifest: PublishedManifest, data: Mapping[str, bytes], prune: bool, dry_run: bool
) -> Published:
    there = place.sizes()
    if other := next((name for name in there if not _OURS.match(name)), None):
        raise InputError(
            f"something else lies there: {other}; nothing was changed",
            where=place.name,
            remedy="name a place of its own",
        )
    had = read_manifest(place)
    # The same data may be of a newer warehouse, in which something else changed.
    about = {name: getattr(manifest, name) for name in ("published_at", "isoline", "warehouse_digest")}
    unchanged = had is not None and had.model_copy(update=about) == manifest
    new = [path for path, content in data.items() if there.get(path) != len(content)]
    old = [name for name in there if name not in data and name != MANIFEST]
    done = Published(had if had and unchanged else manifest, new, unchanged, older=len(old))
    if dry_run:
        return done
    for path in new:
        place.put(path, data[path])
    if not unchanged:
        place.put(MANIFEST, manifest.model_dump_json(indent=1).encode() + b"\n")
    if prune:
        for name in old:
            place.remove(name)
        done.removed = len(old)
    return done
