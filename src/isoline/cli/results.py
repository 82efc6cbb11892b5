"""``isoline results``: bring measurements into the warehouse, ask it, check it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isoline.cli import accept_change, results_export, results_import, results_publish, results_thin
from isoline.cli.ingested import show
from isoline.cli.options import AsOfOption, DryRunOption, StoreOption, WaitOption, WarehouseOption
from isoline.cli.output import FormatOption, emit
from isoline.errors import IncompleteError, InputError
from isoline.settings import Settings, load_settings

app = typer.Typer(help="Ingest, rebuild, query and verify results.")


def _settings(store: Path | None, warehouse: Path | None) -> Settings:
    if store is not None and not store.is_dir():
        raise InputError("no such folder", where=str(store), remedy="--store names where sealed bundles are")
    return load_settings(store=store, warehouse=warehouse)


@app.command()
def ingest(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH",
            help="Folders inside the store (a run, a bundle, a day), or from elsewhere: folders, archives "
            "(zip, tar, tar.gz, tar.zst), s3://bucket/prefix, files of others. Default: all of the store.",
        ),
    ] = None,
    as_: Annotated[
        str | None, typer.Option("--as", metavar="FORMAT", help="Take files of others for this format.")
    ] = None,
    wait: WaitOption = 0.0,
    dry_run: DryRunOption = False,
    store: StoreOption = None,
    warehouse: WarehouseOption = None,
    format: FormatOption = "table",
) -> None:
    """Bring new sealed bundles of the store into the warehouse; a second time adds nothing.

    A bundle that contradicts itself, its folder or its plan is quarantined with the reason, the rest
    lands. What comes from elsewhere is copied into the store first: bundles only when every file is what
    their manifest says, files of others as `isoline results import` does. An archive is unpacked within
    limits, or refused whole. Exit code 3 when anything is in quarantine or was refused.
    """
    from isoline.results.arrivals.bring import is_ours
    from isoline.results.warehouse.ingest import ingest as run

    settings = _settings(store, warehouse)
    own = [path for path in paths or () if is_ours(path, settings.store)]
    if paths and len(own) < len(paths):
        from isoline.results.foreign.store import Said

        others = [path for path in paths if path not in own]
        results_import.bring_in(settings, others, own, Said(as_), format, wait=wait, dry_run=dry_run)
        return
    report = run(settings, [Path(path) for path in own] or None, wait_s=wait, dry_run=dry_run)
    show(report, format, dry_run)


@app.command()
def rebuild(
    to: Annotated[
        Path | None, typer.Option(help="An empty or new file; default: in place of the warehouse.")
    ] = None,
    dry_run: DryRunOption = False,
    store: StoreOption = None,
    warehouse: WarehouseOption = None,
    format: FormatOption = "table",
) -> None:
    """Make the warehouse anew from the store and the decisions; the old one serves until it is whole.

    Exit code 3 when anything is in quarantine.
    """
    from isoline.results.warehouse.maintain import rebuild as run

    report = run(_settings(store, warehouse), to, dry_run=dry_run)
    show(report, format, dry_run)


@app.command()
def query(
    sql: Annotated[str, typer.Argument(help="One reading statement, such as: select * from points")],
    timeout: Annotated[
        float | None, typer.Option(help="Time limit in seconds; default: the setting.")
    ] = None,
    as_of: AsOfOption = None,
    warehouse: WarehouseOption = None,
    format: FormatOption = "table",
) -> None:
    """Ask the warehouse in SQL, read-only and with a time limit.

    Tables: points, attempts, metrics, runs, launches, accuracy, phases, telemetry, events, locks, skips,
    reused, imports, quarantine, overrides, prices, recipes; docs/warehouse.md says what is in them. The
    column "window" needs its double quotes. Points that a run took over from another one are there too:
    "where measured_in = run_id" leaves them out. With --as-of every table is as it was then, and
    warehouse.points as it is now.
    """
    from isoline.cli.bounded import bounded
    from isoline.results.warehouse.query import query as run

    settings = _settings(None, warehouse)
    limit = settings.query_timeout_s if timeout is None else timeout
    result = bounded(lambda: run(settings, sql, timeout_s=limit, as_of=as_of), limit)
    emit(result.rows, format, columns=result.columns)


@app.command()
def verify(
    store: StoreOption = None,
    warehouse: WarehouseOption = None,
    format: FormatOption = "table",
) -> None:
    """Hash every sealed file again and check every identity. Exit code 3 when anything is wrong."""
    from isoline.results.warehouse.maintain import verify as run

    settings = _settings(store, warehouse)
    problems = run(settings)
    if format == "table" and not problems:
        found = "no problems in" if settings.store.is_dir() else "nothing was measured yet: no folder"
        typer.echo(f"{found} {settings.store}")
        return
    emit(
        [{"path": problem.path, "problem": problem.problem} for problem in problems],
        format,
        columns=["path", "problem"],
        title=f"{len(problems)} problems in {settings.store}",
    )
    if problems:
        raise IncompleteError(f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in the store")


app.command("import")(results_import.import_)
app.command("replay")(results_import.replay)
app.command("export")(results_export.export)
app.command("publish")(results_publish.publish)
app.command("thin")(results_thin.thin)
app.command("accept-change")(accept_change.accept_change)
