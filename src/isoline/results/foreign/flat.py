"""Landed points of others as columns: what can be made of each point alone, before they meet. Pure.

It is made where the files are read, by several processes where there are many rows, and handed to the one
that writes (:mod:`isoline.results.foreign.rows`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from isoline.results.identity import CURVE_FIELDS, canonical_json, curve_key, digest_of_parts
from isoline.results.importers.foreign import ForeignPoint, Sample, Score
from isoline.results.importers.normalise import Landed
from isoline.results.judging.reasons import worst
from isoline.results.metrics.registry import METRICS

MAX_RAW = 64 * 1024
"""Longest original row that is kept in the table, bytes; the file itself is always kept."""


@dataclass(frozen=True)
class Origin:
    """Where a row is from: the kept file, its first name, and what was said about it."""

    sha256: str
    name: str
    format: str
    source: str
    licence: str | None
    group: str

    @property
    def path(self) -> str:
        """The kept file, relative to the store."""
        return f"imports/{self.sha256}"


@dataclass
class Imported:
    """One landed point with its origin."""

    landed: Landed
    origin: Origin

    @property
    def run_id(self) -> str:
        """The run of imports that it belongs to."""
        return run_id(self.origin.source, self.landed.point.run or self.origin.group)


@dataclass(frozen=True)
class Refused:
    """One file or row in quarantine. ``path`` is the kept file, with ``#<row>`` for one of its rows."""

    path: str
    run_id: str
    digest: str
    reason: str


@lru_cache(maxsize=1 << 12)
def run_id(source: str, group: str) -> str:
    """The id of a run of imports."""
    plain = re.sub(r"[^a-z0-9._]+", "-", f"{source}-{group}".lower()).strip("-.")
    return f"import-{plain}"


_TEXTS = pa.list_(pa.string())
_COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("run_id", pa.string()),
    ("point_digest", pa.string()),
    ("sha256", pa.string()),
    ("row_index", pa.int32()),
    ("file_name", pa.string()),
    ("format", pa.string()),
    ("licence", pa.string()),
    ("notes", _TEXTS),
    ("original", pa.string()),
    ("name", pa.string()),  # the point's id up to the repetition
    ("load", pa.string()),
    ("recipe_id", pa.string()),
    ("scenario_kind", pa.string()),
    ("topology", pa.string()),
    ("gpus", pa.int32()),
    ("concurrency", pa.int32()),
    ("curve_key", pa.string()),
    ("verdict", pa.string()),
    ("reasons", _TEXTS),
    ("reason_details", _TEXTS),
    ("marks", _TEXTS),
    ("started_at", pa.timestamp("us")),
    ("ended_at", pa.timestamp("us")),
    ("asked", pa.int32()),
    ("completed", pa.int32()),
    ("failed", pa.int32()),
    ("client", pa.string()),
    *((name, pa.int32() if name == "scenario_version" else pa.string()) for name in CURVE_FIELDS),
)
SCHEMA = pa.schema(list(_COLUMNS))
NAMES = tuple(METRICS)
_PLACES = {name: place for place, name in enumerate(NAMES)}


@dataclass
class Flat:
    """Points by column, in the order in which they were read.

    :ivar table: of :data:`SCHEMA`, a row a point.
    :ivar values: points × :data:`NAMES`; NaN where a point does not have the metric.
    :ivar scores: of evaluations, by row.
    :ivar samples: of power logs, by row.
    """

    table: pa.Table
    values: np.ndarray
    scores: dict[int, list[Score]] = field(default_factory=dict)
    samples: dict[int, list[Sample]] = field(default_factory=dict)

    def of_runs(self, runs: set[str]) -> Flat:
        """Only the points of these runs."""
        keep = [index for index, run in enumerate(self.table.column("run_id").to_pylist()) if run in runs]
        if len(keep) == self.table.num_rows:
            return self
        new = {old: index for index, old in enumerate(keep)}
        return Flat(
            self.table.take(pa.array(keep, pa.int64())),
            self.values[keep],
            {new[old]: scores for old, scores in self.scores.items() if old in new},
            {new[old]: samples for old, samples in self.samples.items() if old in new},
        )


def joined(flats: Sequence[Flat]) -> Flat:
    """Several as one, in their order."""
    if len(flats) == 1:
        return flats[0]
    if not flats:
        return Flat(SCHEMA.empty_table(), np.empty((0, len(NAMES))))
    whole = Flat(pa.concat_tables([flat.table for flat in flats]), np.concatenate([f.values for f in flats]))
    before = 0
    for flat in flats:
        whole.scores |= {before + index: scores for index, scores in flat.scores.items()}
        whole.samples |= {before + index: samples for index, samples in flat.samples.items()}
        before += flat.table.num_rows
    return whole


def flatten(items: Sequence[Imported]) -> Flat:
    """Points as columns.

    :raises pyarrow.ArrowException: and others, for a value that no column holds.
    """
    curves: dict[tuple[Any, ...], tuple[bytes, str]] = {}
    columns = list(zip(*(_row(item, curves) for item in items), strict=True)) or [()] * len(_COLUMNS)
    arrays = [pa.array(column, kind) for column, (_, kind) in zip(columns, _COLUMNS, strict=True)]
    values = np.full((len(items), len(NAMES)), math.nan)
    counts = [len(item.landed.values) for item in items]
    places = [_PLACES[name] for item in items for name in item.landed.values]
    values[np.repeat(np.arange(len(items)), counts), places] = [
        value for item in items for value in item.landed.values.values()
    ]
    flat = Flat(pa.Table.from_arrays(arrays, schema=SCHEMA), values)
    for index, item in enumerate(items):
        point = item.landed.point
        if point.samples:
            flat.samples[index] = point.samples
        elif point.scores:
            flat.scores[index] = point.scores
    return flat


def _row(item: Imported, curves: dict[tuple[Any, ...], tuple[bytes, str]]) -> tuple[Any, ...]:
    """The cells of one point, in the order of :data:`_COLUMNS`.

    :param curves: the canonical JSON and the key of each curve that was met: few, for many points.
    """
    landed, point, origin = item.landed, item.landed.point, item.origin
    key = (*(landed.curve[name] for name in CURVE_FIELDS[:-1]), origin.source)
    if (known := curves.get(key)) is None:
        fields = dict(zip(CURVE_FIELDS, key, strict=True))
        curves[key] = known = canonical_json(fields), curve_key(fields)
    curve_json, curve = known
    load = f"c{point.concurrency}" if point.concurrency is not None else f"q{point.rate or 0:g}"
    who = (landed.curve[name] or "unknown" for name in ("model", "engine", "sku", "weight_precision"))
    recipe = _recipe(*who, str(point.identity.get("variant") or ""))
    return (
        item.run_id,
        digest_of_parts(identity_of(item, curve_json)),
        origin.sha256,
        point.row,
        origin.name,
        origin.format,
        origin.licence,
        landed.notes,
        _original(point),
        f"{recipe.replace('/', '.')}.{landed.topology}.{landed.curve['scenario']}.{load}",
        load,
        recipe,
        point.scenario_kind,
        landed.topology,
        landed.gpus,
        point.concurrency,
        curve,
        worst(landed.reasons).value,
        landed.reasons,
        [_detail(code, landed) for code in landed.reasons],
        landed.marks,
        point.started_at,
        point.ended_at,
        point.asked,
        point.completed,
        point.failed,
        _client(point.client),
        *key,
    )


@lru_cache(maxsize=1 << 12)
def _recipe(model: str, engine: str, sku: str, precision: str, variant: str) -> str:
    recipe = f"imported/{model}/{engine}-{sku}-{precision}"
    return f"{recipe}-{re.sub(r'[^a-z0-9._-]+', '-', variant.lower())}" if variant else recipe


@lru_cache(maxsize=1 << 12)
def _text(text: str) -> bytes:
    return canonical_json(text)


def identity_of(item: Imported, curve: bytes) -> dict[str, bytes]:
    """What makes a foreign point one point: its curve, topology, load, and what else the row names.

    Role sizes are in the topology's label: other sizes are other points.

    :param curve: its fields, as canonical JSON.
    """
    point = item.landed.point
    other = {name: value for name, value in point.identity.items() if name != "model_path"}
    return {
        "curve": curve,
        "topology": _text(item.landed.topology),
        "concurrency": b"null" if point.concurrency is None else b"%d" % point.concurrency,
        "rate": b"null" if point.rate is None else canonical_json(point.rate),
        "samples": canonical_json(item.origin.sha256) if point.samples else b"null",
        "task": canonical_json([score.task for score in point.scores]) if point.scores else b"[]",
        "other": canonical_json(other),
    }


_CLIENTS: dict[str, str] = {}


def _client(name: str) -> str:
    if name not in _CLIENTS:
        _CLIENTS[name] = canonical_json({"class": name}).decode()
    return _CLIENTS[name]


def _detail(code: str, landed: Landed) -> str:
    """What was seen, for one reason code."""
    point = landed.point
    if code in ("failed_requests", "too_many_failed"):
        return f"{point.failed} of {point.asked} requests failed"
    if code == "zero_output_tokens":
        return (
            f"{point.completed or 0} requests completed"
            if point.completed is not None
            else "all numbers are 0"
        )
    return ""


def _original(point: ForeignPoint) -> str | None:
    """The row as it is in its file: its own line, else the canonical JSON of its value."""
    if (line := point.line) is not None:
        return None if len(line) > MAX_RAW else line
    try:
        raw = canonical_json(point.raw).decode()
    except (ValueError, TypeError):
        raw = canonical_json(_plain(point.raw)).decode()
    return raw if len(raw) <= MAX_RAW else None


def _plain(value: Any) -> Any:
    """A JSON value without what canonical JSON has not: NaN, infinity and broken texts become texts."""
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace").decode()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
