"""From foreign points to rows of the same tables as our own (DESIGN 5.6). Pure.

A row of a foreign file becomes a point of a run of its own kind: ``import-<source>-<group>``, where
the group is the run that the row names, else the folder that the file was in. It is never official.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from isoline.results.bundles.records import METRICS_VERSION
from isoline.results.foreign.flat import NAMES, Flat, Refused
from isoline.results.identity import CURVE_FIELDS, digest
from isoline.results.importers.foreign import Score
from isoline.results.metrics.registry import HEADLINE, METRICS
from isoline.results.warehouse.schema import BY_NAME, Table

Row = dict[str, Any]

UNOFFICIAL = "imported: not measured here"


@dataclass
class ImportTables:
    """All rows of imports, by table, and how many equal rows were left out."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    repeated: int = 0


def tables_of(flat: Flat, refused: Sequence[Refused]) -> ImportTables:
    """Every row of all imports.

    Rows of one run with the same identity are repetitions where any number differs, in the order
    of their time, then file, then place; where all is the same, one of them counts.
    """
    found = ImportTables()
    rows: dict[str, list[Row]] = defaultdict(list)
    made = found.tables
    if flat.table.num_rows:
        chosen = _repetitions(flat)
        found.repeated = len(chosen.point_of) - len(chosen.first)
        ids = _point_ids(flat, chosen)
        made["imports"] = _imports(flat, chosen, ids)
        points = [n for n, index in enumerate(chosen.first) if not _is_other(flat, index)]
        if points:
            at = np.array([chosen.first[n] for n in points], dtype=np.int64)
            head = flat.table.select(_HEAD).take(pa.array(at))
            names = pa.array([ids[n] for n in points], pa.string())
            made["points"] = _points(flat, head, at, names, [chosen.repetition[n] for n in points])
            made["attempts"] = _attempts(head, names)
            made["metrics"] = _metrics(flat, head, at, names)
            rows["runs"] = _runs(flat, head)
        for n, index in enumerate(chosen.first):
            _add_other(rows, flat, index, ids[n])
    rows["quarantine"] = [
        {"path": bad.path, "run_id": bad.run_id, "digest": bad.digest, "kind": "import", "reason": bad.reason}
        for bad in refused
    ]
    made |= {name: BY_NAME[name].rows(given) for name, given in rows.items() if given}
    return found


# --- which rows are one point -----------------------------------------------------------------


@dataclass
class _Chosen:
    """Rows that are word for word alike count once.

    :ivar first: the row that counts, for each of them.
    :ivar repetition: its number among those of one identity, from 1.
    :ivar point_of: for each row of the input the index in ``first``; in the order of the input.
    """

    first: list[int]
    repetition: list[int]
    point_of: list[int]


def _repetitions(flat: Flat) -> _Chosen:
    groups = _alike(flat.table)
    said, order = _said(flat, [index for members in groups if len(members) > 1 for index in members])
    chosen = _Chosen([], [], [0] * flat.table.num_rows)
    for members in groups:
        if len(members) == 1:
            chosen.point_of[members[0]] = len(chosen.first)
            chosen.first.append(members[0])
            chosen.repetition.append(1)
            continue
        kept: dict[Any, int] = {}
        for index in sorted(members, key=order.__getitem__):
            if said[index] not in kept:
                kept[said[index]] = len(chosen.first)
                chosen.first.append(index)
                chosen.repetition.append(len(kept))
            chosen.point_of[index] = kept[said[index]]
    return chosen


def _alike(table: pa.Table) -> list[list[int]]:
    """The rows of each identity in each run, by run and identity."""
    keys = table.select(["run_id", "point_digest"])
    order = pc.sort_indices(keys, [("run_id", "ascending"), ("point_digest", "ascending")])
    ordered = keys.take(order)
    is_new = np.zeros(table.num_rows, dtype=bool)
    is_new[:1] = True
    for column in ordered.columns:
        plain = column.combine_chunks()
        is_new[1:] |= pc.not_equal(plain[1:], plain[:-1]).to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(is_new).tolist()
    places = order.to_pylist()
    return [places[start:end] for start, end in pairwise([*starts, len(places)])]


def _said(flat: Flat, rows: list[int]) -> tuple[dict[int, Any], dict[int, Any]]:
    """For rows whose identity others have too: all that they say, and their place in time."""
    cells = flat.table.take(pa.array(rows, pa.int64())).select(
        ["asked", "completed", "failed", "started_at", "sha256", "row_index"]
    )
    said, order = {}, {}
    for index, (asked, completed, failed, started, sha256, row) in zip(
        rows, zip(*(column.to_pylist() for column in cells.columns), strict=True), strict=True
    ):
        scores = tuple((score.task, score.value) for score in flat.scores.get(index, ()))
        said[index] = (flat.values[index].tobytes(), asked, completed, failed, started, scores)
        order[index] = (str(started or ""), sha256, row)
    return said, order


def _is_other(flat: Flat, index: int) -> bool:
    """Whether a row is no point of a curve: an evaluation, or a power log."""
    return index in flat.scores or index in flat.samples


def _point_ids(flat: Flat, chosen: _Chosen) -> list[str]:
    at = flat.table.select(["name", "point_digest"]).take(pa.array(chosen.first, pa.int64()))
    names, digests = (column.to_pylist() for column in at.columns)
    return [
        f"{name}.r{repetition}.{point_digest[:10]}"
        for name, point_digest, repetition in zip(names, digests, chosen.repetition, strict=True)
    ]


# --- tables, column by column -----------------------------------------------------------------


def _table(name: str, count: int, columns: Mapping[str, Any]) -> pa.Table:
    """A table from some of its columns; one value stands for all rows, what is not given is null.

    :raises KeyError: for a column that the table does not have: a misspelt name must not become a null.
    """
    table: Table = BY_NAME[name]
    if strange := columns.keys() - set(table.names):
        raise KeyError(f"{name}: no column {', '.join(sorted(strange))}")
    arrays = []
    for item in table.arrow:
        value = columns.get(item.name)
        if isinstance(value, pa.Array | pa.ChunkedArray):
            arrays.append(value if value.type == item.type else value.cast(item.type))
        elif value is None:
            arrays.append(pa.nulls(count, item.type))
        else:
            arrays.append(pa.repeat(pa.scalar(value, item.type), count))
    return pa.Table.from_arrays(arrays, schema=table.arrow)


def _paths(sha256: pa.ChunkedArray) -> pa.Array:
    return pa.array([f"imports/{text}" for text in sha256.to_pylist()], pa.string())


def _imports(flat: Flat, chosen: _Chosen, ids: Sequence[str]) -> pa.Table:
    """Every row with the point that it became, those that are alike too."""
    table = flat.table
    same = ("run_id", "sha256", "row_index", "file_name", "format", "source", "licence", "notes", "original")
    columns = {name: table.column(name) for name in same}
    columns["point_id"] = pa.array([ids[index] for index in chosen.point_of], pa.string())
    return _table("imports", table.num_rows, columns)


_SAME = (
    *("run_id", "recipe_id", "scenario_kind", "topology", "gpus", "concurrency", "curve_key", "point_digest"),
    *("verdict", "reasons", "marks", "started_at", "ended_at", "asked", "completed", "failed"),
)
_HEAD = [*dict.fromkeys((*_SAME, *CURVE_FIELDS, "load", "sha256", "reason_details", "client"))]


def _points(flat: Flat, head: pa.Table, at: np.ndarray, ids: pa.Array, repetitions: list[int]) -> pa.Table:
    curves, topologies, loads = (head.column(name).to_pylist() for name in ("curve_key", "topology", "load"))
    columns: dict[str, Any] = {name: head.column(name) for name in (*_SAME, *CURVE_FIELDS)}
    for name in HEADLINE:
        values = flat.values[at, NAMES.index(name)]
        columns[name] = pa.array(values, pa.float64(), mask=np.isnan(values))
    columns |= {
        "point_id": ids,
        "counting_attempt": 1,
        "measured_in": head.column("run_id"),
        "attempts": 1,
        "got": True,
        "sweep": head.column("run_id"),
        "repetition": pa.array(repetitions, pa.int32()),
        "series_key": pa.array(
            [f"{curve}.{place}.{load}" for curve, place, load in zip(curves, topologies, loads, strict=True)]
        ),
        "accuracy_state": "not_run",
        "official": False,
        "unofficial_why": UNOFFICIAL,
        "unofficial_otherwise": UNOFFICIAL,
        "window": "full",
        "bundle_path": _paths(head.column("sha256")),
        "bundle_digest": head.column("sha256"),
    }
    return _table("points", head.num_rows, columns)


def _attempts(head: pa.Table, ids: pa.Array) -> pa.Table:
    same = ("run_id", "verdict", "reasons", "reason_details", "started_at", "ended_at", "client")
    columns: dict[str, Any] = {name: head.column(name) for name in (*same, "asked", "completed", "failed")}
    columns |= {
        "point_id": ids,
        "attempt": 1,
        "accuracy_state": "not_run",
        "bundle_path": _paths(head.column("sha256")),
        "bundle_digest": head.column("sha256"),
    }
    return _table("attempts", head.num_rows, columns)


def _metrics(flat: Flat, head: pa.Table, at: np.ndarray, ids: pa.Array) -> pa.Table:
    """A row a metric, those of one point together: so they are small, and quickly written."""
    values = flat.values[at]
    point, metric = np.nonzero(~np.isnan(values))

    def of_point(column: Any) -> Any:
        plain = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return pa.DictionaryArray.from_arrays(pa.array(point, pa.int32()), plain)

    def of_metric(texts: list[str]) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(metric, pa.int32()), pa.array(texts, pa.string()))

    count = len(point)
    completed = head.column("completed").combine_chunks().cast(pa.int64())
    columns = {
        "run_id": of_point(head.column("run_id")),
        "point_id": of_point(ids),
        "attempt": pa.repeat(pa.scalar(1, pa.int32()), count),
        "name": of_metric(list(NAMES)),
        "window": pa.repeat(pa.scalar("full"), count),
        "value": pa.array(values[point, metric]),
        "unit": of_metric([METRICS[name].unit for name in NAMES]),
        "n": completed.take(pa.array(point)),
        "note": pa.repeat(pa.scalar(""), count),
        "metrics_version": pa.repeat(pa.scalar(METRICS_VERSION, pa.int32()), count),
    }
    return pa.table({name: columns[name] for name in BY_NAME["metrics"].names})


def _runs(flat: Flat, head: pa.Table) -> list[Row]:
    """One row a run that has points."""
    files: dict[str, set[str]] = defaultdict(set)
    for run, sha256 in zip(*(flat.table.column(n).to_pylist() for n in ("run_id", "sha256")), strict=True):
        files[run].add(sha256)
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    times: dict[str, Any] = {}
    cells = (head.column(name).to_pylist() for name in ("run_id", "verdict", "started_at"))
    for run, verdict, started in zip(*cells, strict=True):
        counts[run][verdict] += 1
        if started is not None:
            times[run] = max(times.get(run, started), started)
    rows = []
    for run, verdicts in counts.items():
        expected = sum(verdicts.values())
        row: Row = dict.fromkeys(BY_NAME["runs"].names)
        row |= {"run_id": run, "sweep": run, "started_at": times.get(run), "finished_at": times.get(run)}
        row |= {name: verdicts.get(name, 0) for name in ("valid", "partial", "invalid")}
        row |= dict.fromkeys(("infra_error", "cancelled", "skipped", "missing"), 0)
        row |= {"expected": expected, "got": expected, "complete": True, "published": True}
        rows.append(row | {"bundle_digest": digest(sorted(files[run]))})
    return rows


# --- evaluations and power logs ---------------------------------------------------------------


def _add_other(rows: dict[str, list[Row]], flat: Flat, index: int, point_id: str) -> None:
    if not _is_other(flat, index):
        return
    cells = flat.table.slice(index, 1).select(["run_id", "sha256", "concurrency"]).to_pylist()[0]
    for sample in flat.samples.get(index, ()):
        row = {"t": sample.t, "name": sample.name, "device": sample.device, "value": sample.value}
        rows["telemetry"].append(
            {"run_id": cells["run_id"], "launch_id": f"imports/{cells['sha256']}", **row}
        )
    key = {"run_id": cells["run_id"], "point_id": point_id, "attempt": 1}
    rows["accuracy"] += [_accuracy(key, score, cells["concurrency"]) for score in flat.scores.get(index, ())]


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
