"""``isoline history``: curves and points over time, with the state of each night and the steps."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from isoline.cli.options import (
    AsOfOption,
    EngineOption,
    ModelOption,
    PrecisionOption,
    ScenarioOption,
    SkuOption,
    XOption,
)
from isoline.cli.output import FormatOption, emit
from isoline.cli.selection import parse_at, refuse_unknown, title
from isoline.errors import GateFailedError, InputError
from isoline.settings import load_settings

if TYPE_CHECKING:
    import pandas as pd

    from isoline.analysis.noise import Constants
    from isoline.results.decisions.documents import AcceptedChange

Shown = Literal["readings", "points"]


def history(
    model: ModelOption = None,
    scenario: ScenarioOption = None,
    sku: SkuOption = None,
    engine: EngineOption = None,
    precision: PrecisionOption = None,
    curve: Annotated[str | None, typer.Option(help="Only the curve with this key.")] = None,
    of: Annotated[
        Shown, typer.Option(help="Readings of curves at values of x, or the points that are the evidence.")
    ] = "readings",
    at: Annotated[
        str | None,
        typer.Option(metavar="X,X,...", help="Values of x; default: three round ones of the newest night."),
    ] = None,
    kind: Annotated[
        Literal["step", "estimate"],
        typer.Option(help="Of readings. A step jumps where a point passes x, an estimate hardly moves."),
    ] = "estimate",
    x: XOption = None,
    metric: Annotated[
        str | None, typer.Option(help="What to follow; default: the scenario's y axis.")
    ] = None,
    last: Annotated[int, typer.Option(min=1, help="So many nights in the table.")] = 10,
    check: Annotated[
        bool, typer.Option("--check", help="Exit code 2 when the newest night of a series is regressed.")
    ] = False,
    as_of: AsOfOption = None,
    format: FormatOption = "table",
) -> None:
    """Every night of a curve: value, baseline, threshold and state, and the steps over its whole history.

    States: ok, improved, regressed, suspicious, insufficient_data, missing_data, invalid. Accepted
    changes (`isoline results accept-change`) start the baseline anew.
    """
    from isoline.analysis.noise import constants_of
    from isoline.results.decisions.accepted import load_accepted
    from isoline.results.metrics.registry import METRICS
    from isoline.results.warehouse.asof import moment_at, open_at
    from isoline.results.warehouse.snapshots import with_metrics
    from isoline.results.warehouse.timeline import timeline_points

    settings = load_settings()
    moment = moment_at(settings.warehouse, as_of)
    values = parse_at(at)
    filters = {
        "model": model,
        "scenario": scenario,
        "sku": sku,
        "engine": engine,
        "weight_precision": precision,
        "curve_key": curve,
    }
    con = open_at(settings.warehouse, moment)
    try:
        points = timeline_points(con, **filters)
        if points.empty:
            refuse_unknown(filters, timeline_points(con))
            raise InputError("no published run matches", remedy="leave a filter out, or measure a night")
        points = with_metrics(con, points, [name for name in (x, metric) if name in METRICS])
    finally:
        con.close()
    accepted = load_accepted(settings.project)
    if moment is not None:
        accepted = [item for item in accepted if item.dated <= moment.day.isoformat()]
    series = _series(points, of, values, kind, x, metric, accepted, constants_of(settings))
    if not series:
        raise InputError(
            "no night has a valid point with both axes",
            remedy="choose another --x or --metric, or see the points with --of points",
        )
    if format == "json":
        emit(series, "json")
    elif format == "csv":
        emit([_flat(one, night) for one in series for night in one["nights"]], "csv")
    else:
        for number, one in enumerate(series):
            if number:
                print()
            _print(one, last)
    bad = sum(one["nights"][-1]["state"] == "regressed" for one in series)
    if check and bad:
        raise GateFailedError(f"{bad} of {len(series)} series are regressed", remedy="see `isoline history`")


def _series(
    points: pd.DataFrame,
    of: Shown,
    values: list[float] | None,
    kind: Literal["step", "estimate"],
    x: str | None,
    metric: str | None,
    accepted: list[AcceptedChange],
    constants: Constants,
) -> list[dict[str, Any]]:
    from isoline.analysis.curves import default_axes
    from isoline.analysis.history import curve_nights, history, point_nights
    from isoline.results.decisions.accepted import starts_of

    found = []
    for key, part in points.groupby("curve_key", sort=True):
        y = metric or default_axes(part["scenario_kind"].iloc[0]).y
        starts = starts_of(accepted, str(key))
        names = ("model", "sku", "engine", "weight_precision", "scenario", "kind", "source")
        head = {"curve_key": key, **{name: part[name].iloc[0] for name in names}, "metric": y}
        rows = partial(history, metric=y, accepted=starts, constants=constants)
        if of == "points":
            for series, nights in point_nights(part, y).items():
                found.append({**head, "series_key": series, "at": None, "reading": None, **rows(nights)})
            continue
        for value in values if values is not None else _round_values(part, x, y):
            nights = curve_nights(part, value, kind, x, y)
            found.append({**head, "series_key": None, "at": value, "reading": kind, **rows(nights)})
    return found


def _round_values(points: pd.DataFrame, x: str | None, y: str) -> list[float]:
    """Three round values of x on the newest night that has a frontier."""
    from isoline.analysis.compare import repeated_curve
    from isoline.analysis.curves import round_values

    whole = points[~points["curve_is_part"]]
    for run in reversed(list(dict.fromkeys(whole["run_id"]))):
        frontier = repeated_curve(points[points["run_id"] == run], x, y).frontier
        if frontier.x:
            return round_values(frontier) or [frontier.x[0]]
    return []


def _flat(one: dict[str, Any], night: dict[str, Any]) -> dict[str, Any]:
    head = {name: value for name, value in one.items() if name not in ("nights", "changes")}
    notes = {f"note_{name}": value for name, value in night["notes"].items()}
    return {**head, **{name: value for name, value in night.items() if name != "notes"}, **notes}


def _print(one: dict[str, Any], last: int) -> None:
    what = one["series_key"] or f"{one['curve_key']} at {one['at']:g} ({one['reading']})"
    head = f"{title(one)}\n{one['metric']}, {what}"
    columns = ["run_id", "state", "value", "n", "baseline", "change", "threshold", "cv"]
    emit(one["nights"][-last:], "table", columns=columns, title=head)
    for step in one["changes"]:
        notes = ", ".join(
            f"{name} {item['old']} -> {item['new']}" for name, item in step["explained"].items()
        )
        direction = "better" if step["better"] else "worse"
        done = ", accepted" if step["accepted"] else ""
        what = f"{step['change']:+.1%} ({direction}{done}); {notes or 'no note changed'}"
        print(f"step at {step['run_id']}: {what}")
    sys.stdout.flush()
