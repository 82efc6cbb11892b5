"""``isoline compare A B``: two curves at equal interactivity."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isoline.cli.options import AsOfOption, ModelOption, ScenarioOption, TierOption, XOption
from isoline.cli.output import FormatOption, cell_text, emit
from isoline.cli.selection import one_curve, parse_at, requests_of, select, title
from isoline.errors import InputError
from isoline.settings import Settings, load_settings

if TYPE_CHECKING:
    from isoline.analysis.compare import RepeatedCurve
    from isoline.analysis.cost import CostBasis
    from isoline.results.warehouse.asof import Moment


def compare(
    a: Annotated[str, typer.Argument(help="A curve: its key, or sku=h200,engine=vllm.")],
    b: Annotated[str, typer.Argument(help="The curve to compare it with.")],
    at: Annotated[
        str | None,
        typer.Option(metavar="X,X,...", help="Values of x; default: round ones that both reach."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="What to compare, also cost, such as usd_per_m_total_tokens; default: the y axis."),
    ] = None,
    x: XOption = None,
    model: ModelOption = None,
    scenario: ScenarioOption = None,
    tier: TierOption = None,
    as_of: AsOfOption = None,
    format: FormatOption = "table",
) -> None:
    """A against B at the same x: like readings, their ratio (A / B) and its interval.

    Of each curve its newest complete run. Steps are what was measured at x or better, estimates are
    interpolated; a ratio is of two readings of one kind. Cost is made of the readings of throughput with
    the newest dated price list; without a price or power it is null. With --as-of all is of then, the price
    list too.
    """
    from isoline.analysis.compare import compare as compared
    from isoline.analysis.compare import compare_frontiers
    from isoline.analysis.cost import read_as
    from isoline.analysis.curves import round_values
    from isoline.cli.notes import decided, lost_notes, run_notes, warn
    from isoline.results.warehouse.asof import moment_at

    settings = load_settings()
    values = parse_at(at)
    moment = moment_at(settings.warehouse, as_of)
    filters = {"model": model, "scenario": scenario}
    y = read_as(metric) if metric else None
    points = select(settings, filters, moment=moment, metrics=(x, y))
    parts = [one_curve(points, text, name) for name, text in (("A", a), ("B", b))]
    curves = [_curve(settings, part, x, y, name) for part, name in zip(parts, "AB", strict=True)]
    one, other = curves
    said = (run_notes(points), lost_notes(settings, filters, moment))
    notes = [
        [line for lines in said for line in lines.get(curve.shared["curve_key"], ())] for curve in curves
    ]
    bases = cost_bases(settings, [curve.shared["sku"] for curve in curves], tier, moment)
    if values is None:
        values = sorted({value for curve in curves for value in round_values(curve.frontier)})
    rows = compared(one, other, values, metric=metric, bases=(bases[0], bases[1]))
    shown = metric or one.shared["y_metric"]
    if format != "json":
        warn(f"{name}: {line}" for name, lines in zip("AB", notes, strict=True) for line in lines)
    if format == "csv":
        emit(rows, "csv")
    elif format == "json":
        document = {
            "a": {**one.shared, **vars(bases[0]), "decisions": decided(parts[0]), "notes": notes[0]},
            "b": {**other.shared, **vars(bases[1]), "decisions": decided(parts[1]), "notes": notes[1]},
            "as_of": as_of,
            "differ": [name for name, *_ in differing(one, other)],
            "metric": shown,
            "x_metric": one.shared["x_metric"],
            **compare_frontiers(one, other),
            "rows": rows,
        }
        emit([document], "json")
    else:
        decisions = (decided(parts[0]), decided(parts[1]))
        _print(one, other, shown, rows, bases[0], compare_frontiers(one, other), decisions)


def _curve(settings: Settings, points: Any, x: str | None, y: str | None, name: str) -> RepeatedCurve:
    from isoline.analysis.compare import repeated_curve
    from isoline.analysis.within import within_of

    curve = repeated_curve(points, x, y)
    if not curve.frontier.x:
        axes = f"{curve.shared['x_metric']} and {curve.shared['y_metric']}"
        raise InputError(
            f"{name} has no valid point with {axes}",
            where=str(curve.shared["curve_key"]),
            remedy="choose another --x or --metric; `isoline frontier` shows what there is",
        )
    if curve.n > 1:
        return curve
    within = within_of(points, [curve.shared["y_metric"]], lambda path: requests_of(settings.store / path))
    return repeated_curve(points, x, y, within=within)


def differing(one: RepeatedCurve, other: RepeatedCurve) -> list[tuple[str, Any, Any]]:
    """The parts of the identity in which two curves differ: (name, of A, of B)."""
    from isoline.results.identity import CURVE_FIELDS

    pairs = ((name, one.shared[name], other.shared[name]) for name in CURVE_FIELDS)
    return [pair for pair in pairs if pair[1] != pair[2]]


def cost_bases(
    settings: Settings, skus: list[str], tier: str | None, moment: Moment | None = None
) -> list[CostBasis]:
    """Price and power of SKUs, by the newest list that holds today, or on the day of a moment."""
    from isoline.analysis.cost import basis_of
    from isoline.catalog.facts import load_catalog
    from isoline.catalog.prices import load_prices, rates_on

    day = moment.day if moment is not None else datetime.now(UTC).date()
    rates = rates_on(load_prices(settings.project), day, tier or settings.price_tier)
    known = load_catalog().skus
    return [basis_of(sku, rates, known) for sku in skus]


def _print(
    one: RepeatedCurve,
    other: RepeatedCurve,
    metric: str,
    rows: list[dict[str, Any]],
    basis: CostBasis,
    whole: dict[str, Any],
    decisions: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    from isoline.cli.notes import decision_text
    from isoline.results.metrics.registry import FROM_READINGS

    for name, curve, decided in (("A", one, decisions[0]), ("B", other, decisions[1])):
        print(f"{name}: {title(curve.shared)}, run {curve.shared['run_id']}")
        for row in decided:
            print(f"{name}: {decision_text(row)}")
    apart = [f"{name} {left} and {right}" for name, left, right in differing(one, other)]
    print(f"they differ in: {', '.join(apart) or 'nothing'}")
    if metric in FROM_READINGS and basis.prices and FROM_READINGS[metric].needs == "usd":
        print(f"prices: list {basis.prices}, {basis.tier}")
    table = [
        {
            one.shared["x_metric"]: row["at"],
            "reading": row["kind"],
            "A": _value(row, "a"),
            "B": _value(row, "b"),
            "A / B": row["ratio"],
            "interval": _interval(row),
        }
        for row in rows
    ]
    emit(table, "table", title=metric)
    for name, text in (("epsilon_ab", "A reaches all of B"), ("epsilon_ba", "B reaches all of A")):
        if whole[name] is not None:
            print(f"{text} after a factor of {cell_text(whole[name])}")


def _value(row: dict[str, Any], side: str) -> Any:
    state = row[f"{side}_state"]
    return row[side] if row[side] is not None or state == "ok" else state.replace("_", " ")


def _interval(row: dict[str, Any]) -> str | None:
    if row["ratio_low"] is None:
        return None
    return f"{cell_text(row['ratio_low'])} to {cell_text(row['ratio_high'])} ({row['ratio_interval']})"
