"""``isoline frontier``: the curves as a table, with their frontier and readings."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isoline.cli.compare import cost_bases
from isoline.cli.options import (
    AsOfOption,
    EngineOption,
    ModelOption,
    PrecisionOption,
    ScenarioOption,
    SkuOption,
    TierOption,
    XOption,
    YOption,
)
from isoline.cli.output import FormatOption, cell_text, emit
from isoline.cli.selection import parse_at, requests_of, select, select_published
from isoline.errors import InputError
from isoline.settings import load_settings

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]


def frontier(
    model: ModelOption = None,
    scenario: ScenarioOption = None,
    sku: SkuOption = None,
    engine: EngineOption = None,
    precision: PrecisionOption = None,
    sweep: Annotated[str | None, typer.Option(help="The newest run of this sweep.")] = None,
    run: Annotated[
        str | None,
        typer.Option(help="One run, or 'newest': of each curve its newest run, complete or not."),
    ] = None,
    x: XOption = None,
    y: YOption = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="X,X,...", help="Read the frontier at these values of x (CSV: only these)."),
    ] = None,
    tier: TierOption = None,
    as_of: AsOfOption = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Read a published snapshot, in a folder or s3://bucket/prefix; no project is needed.",
        ),
    ] = None,
    format: FormatOption = "table",
) -> None:
    """The non-dominated points of each curve, and readings.

    Shows of each curve its newest complete run, unless --sweep or --run says otherwise. A point is
    the median of its valid repetitions. A step reading is the best y that was measured at x or better;
    an estimate is interpolated between measured points. What the snapshot before had and this one has
    not is said on standard error, and in the notes of the JSON. Axes are metrics of docs/metrics.md that have
    a better direction; cost (such as usd_per_m_total_tokens) only upwards, made of readings of throughput.
    """
    from isoline.analysis.cost import CostBasis, read_as, shown_as
    from isoline.analysis.curves import curve_groups, curve_readings, curve_table
    from isoline.analysis.within import within_of
    from isoline.cli.notes import lost_notes, run_notes, warn
    from isoline.results.warehouse.asof import moment_at

    values = parse_at(at)
    read = None if y is None else read_as(y)  # cost is made of a throughput
    filters = {
        "model": model,
        "scenario": scenario,
        "sku": sku,
        "engine": engine,
        "weight_precision": precision,
    }
    lost: Mapping[str, Sequence[str]] = {}
    bases: dict[str, CostBasis] = {}
    if from_ is None:
        settings = load_settings()
        moment = moment_at(settings.warehouse, as_of)
        points = select(settings, filters, sweep=sweep, run=run, moment=moment, metrics=(x, read))
        if sweep is None and run is None:  # where a run is named, nothing was there before
            lost = lost_notes(settings, filters, moment)
        rows = curve_table(points, x, read)
        shown = dict.fromkeys(row[axis] for row in rows for axis in ("x_metric", "y_metric"))
        within = within_of(points, shown, lambda path: requests_of(settings.store / path))
        if within:
            rows = curve_table(points, x, read, within=within)
        if read != y:
            skus = sorted({row["sku"] for row in rows if row["sku"]})
            bases = dict(zip(skus, cost_bases(settings, skus, tier, moment), strict=True))
    else:
        points = select_published(from_, filters, {"sweep": sweep, "run": run, "as-of": as_of})
        if read != y:
            raise InputError(
                "a published snapshot has no prices", where="--y", remedy="choose a measured one"
            )
        rows = curve_table(points, x, y)
    notes = run_notes(points)
    curves = []
    for key, part in curve_groups(rows).items():
        readings = curve_readings(part, values)
        basis = bases.get(part[0]["sku"], CostBasis())
        if y is not None and read != y:
            part, readings = shown_as(y, part, basis), shown_as(y, readings, basis)
        said = {"as_of": as_of, "notes": [*notes.get(key, ()), *lost.get(key, ())]}
        priced = {"prices": basis.prices, "tier": basis.tier} if bases else {}
        curves.append({**curve_document(part, readings, points), **priced, **said})
    if format == "csv":
        warn(line for lines in notes.values() for line in lines)
    if format != "json":
        warn(line for lines in lost.values() for line in lines)
    if format == "json":
        emit(curves, "json")
    elif format == "csv":
        emit([row for curve in curves for row in curve["readings" if at else "points"]], "csv")
    else:
        for number, curve in enumerate(curves):
            if number:
                print()
            print_curve(curve, points[points["curve_key"] == curve["curve_key"]])
            for line in notes.get(curve["curve_key"], ()):
                print(line)


def curve_document(rows: Sequence[Row], readings: Sequence[Row], points: pd.DataFrame) -> dict[str, Any]:
    """One curve as JSON: what its points share, notes, ``points`` and ``readings``."""
    from isoline.analysis.curves import SHARED

    of_curve = points[points["curve_key"] == rows[0]["curve_key"]].iloc[0]
    shared = {name: rows[0][name] for name in SHARED}
    shared["window"] = next((row["window"] for row in rows if row["window"]), None)
    newer = of_curve.get("newer_incomplete_run")
    return {
        **shared,
        "x_metric": rows[0]["x_metric"],
        "y_metric": rows[0]["y_metric"],
        "complete": bool(of_curve.get("curve_complete", True)),
        "newer_incomplete_run": newer if isinstance(newer, str) else None,
        "points": list(rows),
        "readings": list(readings),
    }


def print_curve(curve: Row, points: pd.DataFrame) -> None:
    """One curve for people: its points, what was decided about them, then its readings."""
    from isoline.cli.notes import decided, decision_text

    rows, readings = curve["points"], curve["readings"]
    kept = sum(row["frontier"] for row in rows)
    parts = [curve[name] for name in ("model", "sku", "engine", "weight_precision")]
    parts.append(f"{curve['scenario']} v{curve['scenario_version']}")
    parts.extend(
        curve[name] for name in ("speculative", "kv_offload") if curve[name] not in (None, "none", "off")
    )
    if str(curve["deployment_class"]).startswith("unstated-"):
        parts.append(curve["deployment_class"])  # an import of which only the file's name tells more
    if curve["kind"] != "measured":
        parts.append(curve["kind"])
    if curve["source"] != "own":
        parts.append(f"from {curve['source']}")
    title = " · ".join("unknown" if part is None else str(part) for part in parts)
    window = f", {curve['window']} window" if curve["window"] else ""
    then = f", as of {curve['as_of']}" if curve["as_of"] else ""
    then += f", prices {curve['prices']} {curve['tier']}" if curve.get("prices") else ""
    title += f"\nrun {curve['run_id']}{window}{then}: {len(rows)} points, {kept} on the frontier"
    emit([_table_row(row) for row in rows], "table", title=title)
    for row in decided(points):
        print(decision_text(row))
    if readings:
        print()
        places = {row["point_id"]: _place(row) for row in rows}
        title = f"{curve['y_metric']}, step: measured at this x or better; estimate: interpolated"
        emit([_reading_row(row, places) for row in readings], "table", title=title)
    sys.stdout.flush()


def _place(row: Row) -> str:
    known = row["concurrency"] is not None  # an open loop of an import has none
    return f"{row['topology']} c{row['concurrency']}" if known else str(row["topology"])


def _table_row(row: Row) -> dict[str, Any]:
    of = row["repetitions"]
    several = len(row["verdicts"]) > 1
    return {
        "frontier": "*" if row["frontier"] else "",
        "topology": row["topology"],
        "conc": row["concurrency"],
        row["x_metric"]: row["x"],
        row["y_metric"]: row["y"],
        "interval": _interval_text(row),
        "ttft_p50_ms": row["ttft_p50_ms"],
        "n": f"{row['n']} of {of}" if row["n"] != of else str(of),
        "verdict": ", ".join(f"{count} {name}" for name, count in row["verdicts"].items())
        if several
        else row["verdict"],
        "official": row["official"],
        "marks": ", ".join([*row["marks"], *row["reasons"]]) or None,
    }


def _interval_text(row: Row) -> str | None:
    if row["y_low"] is None:
        return None
    return f"{cell_text(row['y_low'])} to {cell_text(row['y_high'])} ({row['y_interval']})"


def _reading_row(row: Row, places: Mapping[str, str]) -> dict[str, Any]:
    step = row["step"] if row["step"] is not None else "not reached"
    return {
        row["x_metric"]: row["at"],
        "step": step,
        "measured at": places.get(row["point_id"]),
        "state": row["step_state"],
        "estimate": row["estimate"],
    }
