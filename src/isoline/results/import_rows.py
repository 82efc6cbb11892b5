"""From foreign points to rows of the same tables as our own (DESIGN 5.6). Pure.

A row of a foreign file becomes a point of a run of its own kind: ``import-<source>-<group>``, where
the group is the run that the row names, else the folder that the file was in. It is never official.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from isoline.results.identity import CURVE_FIELDS, canonical_json, curve_key, digest, slug
from isoline.results.importers.foreign import Sample, Score
from isoline.results.importers.normalise import Landed
from isoline.results.metrics import HEADLINE, METRICS
from isoline.results.reasons import worst
from isoline.results.records import METRICS_VERSION
from isoline.results.schema import BY_NAME

Row = dict[str, Any]

UNOFFICIAL = "imported: not measured here"
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


@dataclass
class ImportTables:
    """All rows of imports by run, and how many equal rows were left out."""

    by_run: dict[str, dict[str, pa.Table]] = field(default_factory=dict)
    repeated: int = 0


def run_id(source: str, group: str) -> str:
    """The id of a run of imports."""
    plain = re.sub(r"[^a-z0-9._]+", "-", f"{source}-{group}".lower()).strip("-.")
    return f"import-{plain}"


def tables_of(points: Sequence[Imported], refused: Sequence[Refused]) -> ImportTables:
    """Every row of all imports.

    Rows of one run with the same identity are repetitions where any number differs, in the order
    of their time, then file, then place; where all is the same, one of them counts.
    """
    found = ImportTables()
    by_run: dict[str, list[Imported]] = defaultdict(list)
    for item in points:
        by_run[item.run_id].append(item)
    refused_by_run: dict[str, list[Refused]] = defaultdict(list)
    for bad in refused:
        refused_by_run[bad.run_id].append(bad)
    for name in sorted({*by_run, *refused_by_run}):
        rows = _Rows(name)
        for point_digest, members in _grouped(by_run[name]):
            kept = _distinct(members)
            found.repeated += len(members) - len(kept)
            for repetition, equal in enumerate(kept, start=1):
                rows.add(equal[0], point_digest, repetition, equal[1:])
        rows.refuse(refused_by_run[name])
        found.by_run[name] = rows.tables()
    return found


def _grouped(items: Iterable[Imported]) -> list[tuple[str, list[Imported]]]:
    """Points of one identity together, by their point digest."""
    groups: dict[str, list[Imported]] = defaultdict(list)
    for item in items:
        groups[digest(identity_of(item))].append(item)
    return sorted(groups.items())


def _distinct(members: list[Imported]) -> list[list[Imported]]:
    """Rows that are word for word alike together, in the order of their time, then file, then place."""

    def order(item: Imported) -> tuple[str, str, int]:
        return str(item.landed.point.started_at or ""), item.origin.sha256, item.landed.point.row

    if len(members) == 1:
        return [members]
    kept: dict[bytes, list[Imported]] = {}
    for item in sorted(members, key=order):
        said = canonical_json([item.landed.values, _counts(item), _scores(item)])
        kept.setdefault(said, []).append(item)
    return list(kept.values())


def _counts(item: Imported) -> list[Any]:
    point = item.landed.point
    return [point.asked, point.completed, point.failed, str(point.started_at)]


def _scores(item: Imported) -> list[Any]:
    return [[score.task, score.value] for score in item.landed.point.scores]


def identity_of(item: Imported) -> dict[str, Any]:
    """What makes a foreign point one point: its curve, topology, load, and what else the row names."""
    point = item.landed.point
    return {
        "curve": curve_of(item),
        "topology": item.landed.topology,
        "concurrency": point.concurrency,
        "rate": point.rate,
        "samples": item.origin.sha256 if point.samples else None,
        "task": [score.task for score in point.scores],
        "other": {name: value for name, value in point.identity.items() if name != "model_path"},
    }


def curve_of(item: Imported) -> dict[str, Any]:
    """The fields of its curve. Role sizes are in the topology's label: other sizes are other points."""
    fields = {**item.landed.curve, "source": item.origin.source}
    return {name: fields[name] for name in CURVE_FIELDS}


class _Rows:
    """Collects the rows of one run."""

    def __init__(self, name: str) -> None:
        self._run = name
        self._rows: dict[str, list[Row]] = defaultdict(list)
        self._metrics: list[tuple[Any, ...]] = []  # in the order of the table's columns
        self._verdicts: dict[str, int] = defaultdict(int)
        self._times: list[Any] = []
        self._digests: set[str] = set()
        self._curves: dict[tuple[Any, ...], str] = {}

    def add(self, item: Imported, point_digest: str, repetition: int, alike: Sequence[Imported]) -> None:
        """One point. ``alike`` are further rows that say the same: they are listed, and count once."""
        landed, point, origin = item.landed, item.landed.point, item.origin
        load = f"c{point.concurrency}" if point.concurrency is not None else f"q{point.rate or 0:g}"
        recipe = "imported/{model}/{engine}-{sku}-{weight_precision}".format_map(
            {key: value or "unknown" for key, value in landed.curve.items()}
        )
        if variant := point.identity.get("variant"):
            recipe += f"-{re.sub(r'[^a-z0-9._-]+', '-', str(variant).lower())}"
        scenario = landed.curve["scenario"]
        name = f"{slug(recipe)}.{landed.topology}.{scenario}.{load}.r{repetition}.{point_digest[:10]}"
        key = {"run_id": self._run, "point_id": name, "attempt": 1}
        self._digests.add(origin.sha256)
        self._rows["imports"] += [_import_row(each, key) for each in (item, *alike)]
        if point.samples:
            self._rows["telemetry"] += _telemetry(self._run, origin, point.samples)
            return
        if point.only_scores:
            self._rows["accuracy"] += [_accuracy(key, score, point.concurrency) for score in point.scores]
            return
        verdict = worst(landed.reasons).value
        self._verdicts[verdict] += 1
        self._times += [point.started_at] if point.started_at else []
        curve = curve_of(item)
        curve_id = self._curves.get(tuple(curve.values())) or curve_key(curve)
        self._curves[tuple(curve.values())] = curve_id
        self._rows["points"].append(
            {
                **_blank("points"),
                **curve,
                **{name: landed.values.get(name) for name in HEADLINE},
                "run_id": self._run,
                "point_id": name,
                "point_digest": point_digest,
                "counting_attempt": 1,
                "measured_in": self._run,
                "attempts": 1,
                "got": True,
                "sweep": self._run,
                "recipe_id": recipe,
                "scenario_kind": point.scenario_kind,
                "topology": landed.topology,
                "gpus": landed.gpus,
                "concurrency": point.concurrency,
                "repetition": repetition,
                "curve_key": curve_id,
                "series_key": f"{curve_id}.{landed.topology}.{load}",
                "verdict": verdict,
                "reasons": landed.reasons,
                "accuracy_state": "not_run",
                "official": False,
                "unofficial_why": UNOFFICIAL,
                "marks": landed.marks,
                "started_at": point.started_at,
                "ended_at": point.ended_at,
                "asked": point.asked,
                "completed": point.completed,
                "failed": point.failed,
                "window": "full",
                "bundle_path": origin.path,
                "bundle_digest": origin.sha256,
            }
        )
        self._rows["attempts"].append(
            {
                **_blank("attempts"),
                **key,
                "verdict": verdict,
                "reasons": landed.reasons,
                "reason_details": [_detail(code, landed) for code in landed.reasons],
                "accuracy_state": "not_run",
                "started_at": point.started_at,
                "ended_at": point.ended_at,
                "asked": point.asked,
                "completed": point.completed,
                "failed": point.failed,
                "client": canonical_json({"class": point.client}).decode(),
                "bundle_path": origin.path,
                "bundle_digest": origin.sha256,
            }
        )
        self._metrics += [
            (
                self._run,
                name,
                1,
                metric,
                "full",
                value,
                METRICS[metric].unit,
                point.completed,
                "",
                METRICS_VERSION,
            )
            for metric, value in landed.values.items()
        ]

    def refuse(self, refused: Sequence[Refused]) -> None:
        for bad in refused:
            self._rows["quarantine"].append(
                {
                    "path": bad.path,
                    "run_id": self._run,
                    "digest": bad.digest,
                    "kind": "import",
                    "reason": bad.reason,
                }
            )

    def tables(self) -> dict[str, pa.Table]:
        count = len(self._rows["points"])
        if count:
            got = {name: self._verdicts[name] for name in ("valid", "partial", "invalid")}
            self._rows["runs"].append(
                {
                    **_blank("runs"),
                    "run_id": self._run,
                    "sweep": self._run,
                    "started_at": max(self._times, default=None),
                    "finished_at": max(self._times, default=None),
                    "expected": count,
                    "got": count,
                    **got,
                    **dict.fromkeys(("infra_error", "cancelled", "skipped", "missing"), 0),
                    "complete": True,
                    "published": True,
                    "bundle_path": None,
                    "bundle_digest": digest(sorted(self._digests)),
                }
            )
        made = {name: BY_NAME[name].rows(rows) for name, rows in self._rows.items() if rows}
        if self._metrics:
            schema = BY_NAME["metrics"].arrow
            columns = zip(*self._metrics, strict=True)  # ten rows a point: by column they take half the time
            arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
            made["metrics"] = pa.Table.from_arrays(arrays, schema=schema)
        return made


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


def _blank(table: str) -> Row:
    return dict.fromkeys(BY_NAME[table].names)


def _import_row(item: Imported, key: Mapping[str, Any]) -> Row:
    point, origin = item.landed.point, item.origin
    try:
        raw = canonical_json(point.raw).decode()
    except (ValueError, TypeError):
        raw = canonical_json(_plain(point.raw)).decode()
    return {
        "run_id": key["run_id"],
        "point_id": key["point_id"],
        "sha256": origin.sha256,
        "row_index": point.row,
        "file_name": origin.name,
        "format": origin.format,
        "source": origin.source,
        "licence": origin.licence,
        "notes": item.landed.notes,
        "original": raw if len(raw) <= MAX_RAW else None,
    }


def _plain(value: Any) -> Any:
    """A JSON value without what canonical JSON has not: NaN, infinity and broken texts become texts."""
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace").decode()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _telemetry(run: str, origin: Origin, samples: Sequence[Sample]) -> list[Row]:
    return [
        {
            "run_id": run,
            "launch_id": origin.path,
            "t": sample.t,
            "name": sample.name,
            "device": sample.device,
            "value": sample.value,
        }
        for sample in samples
    ]


def _accuracy(key: Mapping[str, Any], score: Score, concurrency: int | None) -> Row:
    reach = None if score.error is None else 1.96 * score.error
    correct = None if score.n is None else round(score.value * score.n)
    return {
        **key,
        "task": score.task,
        "dataset_digest": None,
        "n": score.n,
        "correct": correct,
        "unparsed": None,
        "reference": None,
        "interval_low": None if reach is None else max(score.value - reach, 0.0),
        "interval_high": None if reach is None else min(score.value + reach, 1.0),
        # Without a reference nobody can say passed; what answers nothing right has failed all the same.
        "state": "failed" if score.value == 0 else "inconclusive",
        "concurrency": concurrency,
    }
