"""``isoline results import`` and ``replay``: foreign files into the store and the warehouse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isoline.cli.ingested import show_import
from isoline.cli.options import DryRunOption, StoreOption, WaitOption, WarehouseOption
from isoline.cli.output import Format, FormatOption
from isoline.errors import InputError
from isoline.settings import Settings, load_settings

if TYPE_CHECKING:
    from isoline.results.foreign.store import Said


def import_(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", help="Files, folders or archives of files, s3://.")
    ],
    as_: Annotated[
        str | None, typer.Option("--as", metavar="FORMAT", help="Take the files for this format.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Whose data it is; default: by the format. It is part of the curve.")
    ] = None,
    licence: Annotated[str | None, typer.Option(help="A note on the data's licence, kept with it.")] = None,
    group: Annotated[
        str | None, typer.Option(help="Name of the run that the files are; default: their folder.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="What the files do not say: model, sku, engine, precision, gpus, topology.",
        ),
    ] = None,
    wait: WaitOption = 0.0,
    dry_run: DryRunOption = False,
    store: StoreOption = None,
    warehouse: WarehouseOption = None,
    format: FormatOption = "table",
) -> None:
    """Bring in what others published.

    Known: InferenceX (rows, API, database dump, evaluations), vLLM bench serve, AIPerf, guidellm,
    inference-perf, lm-eval and power logs. Files are kept byte for byte in the store; a second time adds
    nothing. What cannot be taken in is quarantined with the reason, the rest lands. Exit code 3 when
    anything is in quarantine.
    """
    from isoline.results.foreign.store import Said

    said = Said(as_, source, licence, group, _pairs(set_ or []))
    settings = load_settings(store=store, warehouse=warehouse)
    bring_in(settings, paths, [], said, format, wait=wait, dry_run=dry_run)


def bring_in(
    settings: Settings,
    given: Sequence[str],
    own: Sequence[str],
    said: Said,
    format: Format,
    *,
    wait: float = 0.0,
    dry_run: bool = False,
) -> None:
    """Bring what is elsewhere into the store, ingest it and the bundles at ``own``, and say what came of it.

    :raises IncompleteError: when anything is in quarantine or was refused.
    """
    from isoline.results.arrivals.bring import bring, bring_aside
    from isoline.results.warehouse.ingest import ingest

    if dry_run:
        with bring_aside(settings, given, said) as (aside, arrived, kept):
            show_import(kept, ingest(aside, dry_run=True), format, dry_run, arrived)
        return
    arrived, kept = bring(settings.store, given, said, wait_s=wait)
    runs = [*(Path(path) for path in own), *sorted(arrived.runs)]
    show_import(kept, ingest(settings, runs, wait_s=wait), format, dry_run, arrived)


def replay(
    wait: WaitOption = 0.0,
    dry_run: DryRunOption = False,
    store: StoreOption = None,
    warehouse: WarehouseOption = None,
    format: FormatOption = "table",
) -> None:
    """Try everything in quarantine again, after an alias was added or a file was mended.

    Bundles are tried again by each ingest too. Exit code 3 when anything is left in quarantine.
    """
    from isoline.results.warehouse.ingest import ingest

    settings = load_settings(store=store, warehouse=warehouse)
    report = ingest(settings, wait_s=wait, dry_run=dry_run, again=True)
    show_import(None, report, format, dry_run)


def _pairs(given: list[str]) -> dict[str, str]:
    found = {}
    for item in given:
        name, sign, value = item.partition("=")
        if not sign or not value:
            raise InputError(f"not NAME=VALUE: {item!r}", where="--set", remedy="write --set gpus=8")
        found[name.strip()] = value.strip()
    return found
