"""What a reader of curves must know beside the numbers: newer runs, lost points, what people decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from isoline.results.warehouse.asof import Moment, open_at
from isoline.results.warehouse.snapshots import lost_points
from isoline.settings import Settings

if TYPE_CHECKING:
    import pandas as pd


def run_notes(points: pd.DataFrame) -> dict[str, list[str]]:
    """Curve key -> lines about its run, and about a newer one that is incomplete or only a part.

    :param points: of :func:`isoline.results.warehouse.snapshots.snapshot_points`.
    """
    notes: dict[str, list[str]] = {}
    for key, part in points.groupby("curve_key", sort=True):
        first, lines = part.iloc[0], []
        if first["curve_is_part"]:
            lines.append("This run measured only a part of the curve.")
        elif not first["curve_complete"]:
            lines.append("This run of the curve is incomplete.")
        if isinstance(newer := first["newer_incomplete_run"], str):
            is_part = first["newer_is_part"]
            what = "measured only a part of this curve" if is_part else "of this curve is incomplete"
            lines.append(f"A newer run {what}: {newer}")
        if lines:
            notes[str(key)] = lines
    return notes


def lost_notes(
    settings: Settings, filters: Mapping[str, str | None], moment: Moment | None = None
) -> dict[str, list[str]]:
    """Curve key -> lines about the points that the snapshot before had and this one has not."""
    con = open_at(settings.warehouse, moment)
    try:
        lost = lost_points(con, **filters)
    finally:
        con.close()
    notes: dict[str, list[str]] = {}
    for row in lost:
        notes.setdefault(row["curve_key"], []).append(lost_line(row))
    return notes


def lost_line(row: Mapping[str, Any]) -> str:
    """One lost point in one line."""
    load = "" if row["concurrency"] is None else f" c{row['concurrency']}"
    why = f"{row['now']}: {', '.join(row['reasons'])}" if row["reasons"] else str(row["now"])
    return (
        f"Lost: {row['topology']}{load}, valid in {row['former_run_id']}, is in {row['run_id']} "
        f"{why.replace('_', ' ', 1)}"
    )


def warn(notes: Iterable[str]) -> None:
    """Say notes on standard error, each once."""
    for line in dict.fromkeys(notes):
        typer.echo(f"note: {line}", err=True)


def decided(points: pd.DataFrame) -> list[dict[str, Any]]:
    """What people decided about the points of one curve: ``topology``, ``concurrency`` and ``decision``.

    One row for each decision; one about a whole run is there once, with both null.
    """
    places = [
        (topology, None if is_open else int(load))  # an open loop of an import has no concurrency
        for topology, load, is_open in zip(
            points["topology"], points["concurrency"], points["concurrency"].isna(), strict=True
        )
    ]
    found: dict[str, set[tuple[Any, Any]]] = {}
    for place, decisions in zip(places, points["decisions"], strict=True):
        for line in decisions:
            found.setdefault(line, set()).add(place)
    rows = []
    for line, at in found.items():
        is_run = len(at) == len({*places}) > 1
        shown: Sequence[tuple[Any, Any]] = [(None, None)] if is_run else sorted(at, key=str)
        rows += [{"topology": topology, "concurrency": load, "decision": line} for topology, load in shown]
    return rows


def decision_text(row: Mapping[str, Any]) -> str:
    """One row of :func:`decided` for people."""
    if row["topology"] is None:
        return f"all points: {row['decision']}"
    load = "" if row["concurrency"] is None else f" c{row['concurrency']}"
    return f"{row['topology']}{load}: {row['decision']}"
