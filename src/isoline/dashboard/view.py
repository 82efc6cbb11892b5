"""One view: the rows, curves, counts and notes that picture, table and JSON are all made from. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd

from isoline.analysis.curves import curve_groups, curve_table
from isoline.dashboard.choices import Choices, complete, known_values, narrow
from isoline.dashboard.config import Palette
from isoline.dashboard.state import Known, PageState, parse
from isoline.results.identity import CURVE_FIELDS
from isoline.results.metrics.registry import METRICS, Metric

NEWEST = "newest"
"""The value of ``run`` for the newest run of each curve, complete or not."""

_TITLE_FIELDS = ("engine", "sku", "weight_precision")
"""What a curve is always called by; other fields join where two curves differ in them."""

_VERDICTS = ("valid", "partial", "invalid", "infra_error", "cancelled")


@dataclass(frozen=True)
class Row:
    """One point as drawn: the median over its repetitions. ``data`` is the row of ``curve_table``.

    ``members`` are the point ids of all its repetitions, ``point_id`` the one that stands for it.
    """

    point_id: str
    members: tuple[str, ...]
    run_id: str
    concurrency: int | None
    topology: str
    gpus: int | None
    repetitions: int
    x: float | None
    y: float | None
    verdict: str
    official: bool
    marks: tuple[str, ...]
    on_frontier: bool
    decisions: tuple[str, ...]
    data: dict[str, Any]


@dataclass(frozen=True)
class Curve:
    """One curve with its look. All rows are of one curve key, one run and one window."""

    key: str
    label: str
    run_id: str
    window: str | None
    colour: str
    shape: str
    line: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Counts:
    """Points of the selection, repetitions counted one by one.

    :param causes: for each point that is not valid, why: reason code or cause of absence.
    :param off_axes: valid or partial points that have no value on the displayed axes.
    """

    expected: int = 0
    got: int = 0
    verdicts: tuple[tuple[str, int], ...] = ()
    causes: tuple[tuple[str, int], ...] = ()
    missing: int = 0
    off_axes: int = 0
    quarantined: int = 0


@dataclass(frozen=True)
class View:
    """Everything that the page shows for one state.

    :param chosen: what the query chose, as far as it is known; ``state`` is the same made complete.
    :param point_run: the run of the chosen point; None where none is chosen.
    :param ignored: what of the query was ignored or corrected. The page says so; the JSON refuses.
    :param notes: what else a reader must know.
    """

    chosen: PageState
    state: PageState
    choices: Choices
    x: Metric
    y: Metric
    curves: tuple[Curve, ...]
    counts: Counts
    point_run: str | None
    ignored: tuple[str, ...]
    notes: tuple[str, ...]
    updated_at: datetime | None

    @property
    def rows(self) -> list[Row]:
        """All rows, curve after curve."""
        return [row for curve in self.curves for row in curve.rows]


def build_view(
    query: str,
    frame: pd.DataFrame,
    run_ids: Sequence[str],
    palette: Palette,
    *,
    quarantined: int = 0,
    updated_at: datetime | None = None,
    notes: Sequence[str] = (),
) -> View:
    """The view of a query string.

    :param query: as in the page's address.
    :param frame: rows of ``points``: those of the snapshot or run that the query asks for.
    :param run_ids: what ``run`` may be, beside :data:`NEWEST`.
    :param notes: what happened before: put first.
    """
    chosen, ignored = parse(query, known_values(frame, (NEWEST, *run_ids)))
    state, choices, adjusted = complete(chosen, frame)
    rows = narrow(frame, state)
    x, y = METRICS[state.x or "interactivity_p50_tps"], METRICS[state.y or "total_tps_per_gpu"]
    table = curve_table(rows, x.name, y.name) if len(rows) else []
    curves = _curves(table, palette)
    return View(
        chosen=chosen,
        state=state,
        choices=choices,
        x=x,
        y=y,
        curves=curves,
        counts=_counts(rows, curves, quarantined),
        point_run=_run_of(frame, state.point),
        ignored=tuple(dict.fromkeys((*ignored, *adjusted))),
        notes=(*notes, *_behind(rows)),
        updated_at=updated_at,
    )


def _behind(rows: pd.DataFrame) -> list[str]:
    """A line for each newer run that is not shown: it broke off, or meant only a part of the curve."""
    if "newer_incomplete_run" not in rows:
        return []
    newer = rows.dropna(subset="newer_incomplete_run")
    found = set(zip(newer["newer_incomplete_run"], newer["newer_is_part"], strict=True))
    words = {False: "is not complete and not shown", True: "measured only a part of a curve and is not shown"}
    return [f"A newer run {words[bool(is_part)]}: {run}." for run, is_part in sorted(found)]


def requested_run(query: str, run_ids: Sequence[str]) -> str | None:
    """The run that a query asks for; None for the snapshot, also where it names an unknown run."""
    state, _ = parse(query, Known({"run": (NEWEST, *run_ids)}))
    return state.run


def _run_of(frame: pd.DataFrame, point_id: str | None) -> str | None:
    if point_id is None or frame.empty:
        return None
    runs = frame.loc[frame["point_id"] == point_id, "run_id"]
    return str(runs.iloc[0]) if len(runs) else None


def _row(data: dict[str, Any]) -> Row:
    return Row(
        point_id=data["point_id"],
        members=tuple(data["point_ids"]),
        run_id=data["run_id"],
        concurrency=data["concurrency"],
        topology=data["topology"],
        gpus=data["gpus"],
        repetitions=data["n"],
        x=data["x"],
        y=data["y"],
        verdict=data["verdict"],
        official=data["official"],
        marks=tuple(data["marks"]),
        on_frontier=data["frontier"],
        decisions=tuple(data["decisions"]),
        data=data,
    )


def _curves(table: list[dict[str, Any]], palette: Palette) -> tuple[Curve, ...]:
    groups = curve_groups(table)
    firsts = {key: rows[0] for key, rows in groups.items()}
    labels = _labels(firsts)
    return tuple(
        Curve(
            key=key,
            label=labels[key],
            run_id=rows[0]["run_id"],
            window=next((row["window"] for row in rows if row["window"]), None),
            colour=palette.colour(str(rows[0]["sku"])),
            shape=palette.shape(str(rows[0]["engine"])),
            line=palette.line(str(rows[0]["weight_precision"])),
            rows=tuple(_row(row) for row in rows),
        )
        for key, rows in groups.items()
    )


def _labels(firsts: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Names of curves: engine, SKU, precision, whose data, and each other field in which they differ."""
    differing = [
        name
        for name in CURVE_FIELDS
        if name not in (*_TITLE_FIELDS, "source") and len({str(row[name]) for row in firsts.values()}) > 1
    ]
    labels = {}
    for key, row in firsts.items():
        parts = ["unknown" if row[name] is None else str(row[name]) for name in _TITLE_FIELDS]
        if row["source"] != "own":  # always said, also where all curves are of one source
            parts.append(f"from {row['source']}")
        parts += [f"{name.replace('_', ' ')} {_brief(row[name])}" for name in differing]
        labels[key] = " · ".join(parts)
    return labels


def _brief(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text[:10] if len(text) > 40 else text


def _counts(rows: pd.DataFrame, curves: tuple[Curve, ...], quarantined: int) -> Counts:
    if rows.empty:
        return Counts(quarantined=quarantined)
    verdicts: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    missing = 0
    for got, verdict, reasons, cause in zip(
        rows["got"], rows["verdict"], rows["reasons"], rows["missing_cause"], strict=True
    ):
        if not got or pd.isna(verdict):
            missing += 1
            causes["nobody knows why" if pd.isna(cause) or cause == "missing" else str(cause)] += 1
            continue
        verdicts[str(verdict)] += 1
        if verdict != "valid":
            causes.update(str(reason) for reason in reasons)
    off_axes = sum(
        1
        for curve in curves
        for row in curve.rows
        if row.verdict in ("valid", "partial") and (row.x is None or row.y is None)
    )
    return Counts(
        expected=len(rows),
        got=len(rows) - missing,
        verdicts=tuple((name, verdicts[name]) for name in _VERDICTS if verdicts[name]),
        causes=tuple(sorted(causes.items())),
        missing=missing,
        off_axes=off_axes,
        quarantined=quarantined,
    )
