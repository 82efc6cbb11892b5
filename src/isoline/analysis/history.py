"""From all runs of a curve to series of nights, for trend and change points (DESIGN 5.10). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from isoline.analysis.changes import change_points
from isoline.analysis.compare import reading_by_repetition, repeated_curve
from isoline.analysis.cost import known_metric
from isoline.analysis.curves import eligible
from isoline.analysis.frontier import sign
from isoline.analysis.noise import Constants
from isoline.analysis.readings import Kind
from isoline.analysis.trend import NightState, SeriesNight, trend_of
from isoline.results.warehouse.timeline import NOTES

Row = dict[str, Any]


def point_nights(points: pd.DataFrame, metric: str) -> dict[str, list[SeriesNight]]:
    """Series key -> its nights, one for each run that planned it, oldest first.

    :param points: from :func:`isoline.results.warehouse.timeline.timeline_points`.
    :param metric: a column of it.
    """
    found: dict[str, list[SeriesNight]] = {}
    # By curve and run, because what may count depends on the other points of the same run.
    for (_, run_id), part in points.groupby(["curve_key", "run_id"], sort=False):
        may = pd.Series(eligible(part), index=part.index)
        for series, own in part.groupby("series_key", sort=False):
            values = own.loc[may[own.index], metric].to_numpy(dtype=np.float64, na_value=np.nan)
            found.setdefault(str(series), []).append(_night(str(run_id), own, values.tolist()))
    return found


def curve_nights(
    points: pd.DataFrame, at: float, kind: Kind, x: str | None = None, y: str | None = None
) -> list[SeriesNight]:
    """The readings of one curve at ``at``, a night for each run that planned it, oldest first.

    The values of a night are the readings of its first, second, ... repetitions. A run that meant to measure
    a part of the curve only is no night of it: what was left out would look like a loss of speed.

    :param points: rows of one curve, from :func:`isoline.results.warehouse.timeline.timeline_points`.
    """
    nights = []
    whole = points[~points["curve_is_part"].astype(bool)] if "curve_is_part" in points else points
    for run_id, part in whole.groupby("run_id", sort=False):
        readings = reading_by_repetition(repeated_curve(part, x, y), at, kind)
        nights.append(_night(str(run_id), part, [value for value in readings if value is not None]))
    return nights


def _night(run_id: str, rows: pd.DataFrame, values: Sequence[float]) -> SeriesNight:
    notes = {name: _only(rows[f"note_{name}"]) for name in NOTES if f"note_{name}" in rows}
    if "window" in rows:
        notes["window"] = _only(rows["window"])  # full and steady are two definitions of one number
    return SeriesNight(
        key=run_id,
        values=tuple(float(value) for value in values if np.isfinite(value)),
        measured=bool(rows["verdict"].isin(["valid", "partial", "invalid"]).any()),
        node=notes.get("node"),
        notes=notes,
    )


def _only(values: pd.Series[Any]) -> str | None:
    """What all rows say; several values as one text, so that another mixture is another note."""
    said = sorted({str(value) for value in values.dropna()})
    return " + ".join(said) or None


def history(
    nights: Sequence[SeriesNight],
    metric: str,
    *,
    accepted: Sequence[str] = (),
    constants: Constants = Constants(),
) -> Row:
    """One series as JSON: ``nights`` (state and numbers) and ``changes`` (steps, and what changed there).

    A step's ``better`` says whether it is one for the better.

    :param metric: decides which direction is better.
    """
    better = known_metric(metric).better or "max"
    states = trend_of(nights, better, accepted=accepted, constants=constants)
    values = [np.nan if state.value is None else state.value for state in states]
    steps = change_points(values, [night.notes for night in nights], min_change=constants.min_change)
    return {
        "nights": [
            {**_row(state), "notes": dict(night.notes)} for state, night in zip(states, nights, strict=True)
        ],
        "changes": [
            {
                "run_id": nights[step.index].key,
                "before": step.before,
                "after": step.after,
                "change": step.change,
                "better": sign(better) * step.change > 0,
                "p": step.p,
                "explained": {name: {"old": old, "new": new} for name, (old, new) in step.explained.items()},
                "accepted": nights[step.index].key in accepted,
            }
            for step in steps
        ],
    }


def _row(state: NightState) -> Mapping[str, Any]:
    return {"run_id": state.key, **{name: value for name, value in vars(state).items() if name != "key"}}
