"""``isoline results export``: the tables of the warehouse as files for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isoline.cli.options import DryRunOption, WarehouseOption
from isoline.cli.output import FormatOption, emit
from isoline.settings import load_settings


def export(
    parquet: Annotated[Path, typer.Option(metavar="FOLDER", help="Write <table>.parquet files there.")],
    table: Annotated[
        list[str] | None, typer.Option(metavar="TABLE", help="Only this table; may be given again.")
    ] = None,
    dry_run: DryRunOption = False,
    warehouse: WarehouseOption = None,
    format: FormatOption = "table",
) -> None:
    """Write every table of the warehouse as Parquet, typed and sorted.

    The same warehouse gives the same bytes. The folder appears whole or not at all; one that an earlier
    export made is replaced, any other that is not empty is refused. This is everything, also what is not
    for the public: for that see `isoline results publish`.
    """
    from isoline.results.publishing.export import export as run

    done = run(load_settings(warehouse=warehouse), parquet, table or (), dry_run=dry_run)
    rows = [item.model_dump(mode="json") for item in done.record.tables]
    if format != "table":
        emit(rows, format)
        return
    emit(rows, "table")
    verb = "would write" if dry_run else "replaced" if done.replaced else "wrote"
    typer.echo(f"{verb} {parquet}: {len(rows)} tables of warehouse {done.record.warehouse_digest[:12]}")
