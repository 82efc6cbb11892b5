"""Options and arguments that several commands have: one wording each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ModelOption = Annotated[str | None, typer.Option(help="Only this model.")]
ScenarioOption = Annotated[str | None, typer.Option(help="Only this scenario.")]
SkuOption = Annotated[str | None, typer.Option(help="Only this SKU.")]
EngineOption = Annotated[str | None, typer.Option(help="Only this engine.")]
PrecisionOption = Annotated[str | None, typer.Option(help="Only this precision of the weights.")]
XOption = Annotated[
    str | None, typer.Option(metavar="METRIC", help="Horizontal axis; default: the scenario's.")
]
YOption = Annotated[
    str | None, typer.Option(metavar="METRIC", help="Vertical axis; default: the scenario's.")
]
TierOption = Annotated[str | None, typer.Option(help="Tier of the price list; default: the setting.")]
AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="DATE|RUN",
        help="As it was at the end of a day, at a time (UTC) or at the end of a run.",
    ),
]

PoolArgument = Annotated[str, typer.Argument(help="The pool's name: runners/<name>.yaml.")]

StoreOption = Annotated[
    Path | None, typer.Option("--store", help="Where sealed bundles are; default: the setting.")
]
WarehouseOption = Annotated[
    Path | None, typer.Option("--warehouse", help="The DuckDB file; default: the setting.")
]
WaitOption = Annotated[float, typer.Option(min=0, help="How long to wait for another writer, seconds.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, change nothing.")]
