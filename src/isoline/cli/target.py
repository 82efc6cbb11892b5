"""``isoline target``: what is there to beat, as JSON for programs that tune."""

from __future__ import annotations

from typing import Annotated

import typer

from isoline.cli.compare import cost_bases
from isoline.cli.options import AsOfOption, SkuOption, TierOption, XOption, YOption
from isoline.cli.output import FormatOption, emit
from isoline.cli.selection import parse_at, select
from isoline.errors import InputError
from isoline.settings import load_settings


def target(
    model: Annotated[str, typer.Option(help="The model.")],
    scenario: Annotated[str, typer.Option(help="The scenario.")],
    at: Annotated[str, typer.Option(metavar="X", help="One value of x, such as 40 tokens/s/user.")],
    sku: SkuOption = None,
    x: XOption = None,
    y: YOption = None,
    tier: TierOption = None,
    as_of: AsOfOption = None,
    format: FormatOption = "json",
) -> None:
    """The best official reading of each SKU, the recipe that made it, and what would beat it.

    Only official points of the newest complete run of each curve count. A reading is a step: it was measured
    at x or better. Curves of one SKU and precision are joined (best of N), and the label says so. The notes
    name what the snapshot before had and this one has not.
    """
    from isoline.analysis.noise import constants_of
    from isoline.analysis.target import targets
    from isoline.cli.notes import lost_notes, run_notes, warn
    from isoline.results.warehouse.asof import moment_at

    settings = load_settings()
    values = parse_at(at) or []
    if len(values) != 1:
        raise InputError("one value of x", where="--at", remedy="write for example --at 40")
    moment = moment_at(settings.warehouse, as_of)
    filters = {"model": model, "scenario": scenario, "sku": sku}
    points = select(settings, filters, moment=moment, metrics=(x, y))
    own = points[(points["kind"] == "measured") & (points["source"] == "own")]
    rows = targets(
        own,
        values[0],
        x=x,
        y=y,
        basis=lambda name: cost_bases(settings, [name], tier, moment)[0],
        constants=constants_of(settings),
    )
    if not rows:
        raise InputError(
            "nothing official is measured for this model and scenario",
            remedy="`isoline frontier` shows what there is, and why it is not official",
        )
    both = (run_notes(own), lost_notes(settings, {**filters, "kind": "measured", "source": "own"}, moment))
    places = own.drop_duplicates("curve_key").set_index("curve_key")[["sku", "weight_precision"]]
    for row in rows:
        mine = places[(places["sku"] == row["sku"]) & (places["weight_precision"] == row["weight_precision"])]
        row["notes"] = [line for key in mine.index for notes in both for line in notes.get(str(key), ())]
        row["as_of"] = as_of
    if format != "json":
        warn(line for row in rows for line in row["notes"])
    if format == "table":
        columns = [
            "sku",
            "weight_precision",
            "at",
            "value",
            "state",
            "label",
            "recipe_id",
            "topology",
            "concurrency",
        ]
        emit(rows, "table", columns=columns, title=f"{rows[0]['y_metric']} at {rows[0]['x_metric']}")
    else:
        emit(rows, format)
