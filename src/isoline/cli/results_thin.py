"""``isoline results thin``: remove what is past its days, by the rules of results/retention.yaml."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from isoline.cli.options import DryRunOption, StoreOption, WaitOption, WarehouseOption
from isoline.cli.output import FormatOption, emit
from isoline.errors import IncompleteError, InputError
from isoline.settings import load_settings


def thin(
    as_of: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="With --dry-run: what would go on that day, such as 2027-03-01."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="A run that stays whole, such as one that an alert refers to."),
    ] = None,
    wait: WaitOption = 0.0,
    dry_run: DryRunOption = False,
    store: StoreOption = None,
    warehouse: WarehouseOption = None,
    format: FormatOption = "table",
) -> None:
    """Remove raw exports, logs and request tables that are older than results/retention.yaml allows.

    Identity, lock and metrics stay for ever, and so do the tables: a rebuild gives the same. Beside each
    thinned bundle a tombstone says what went, and `isoline results verify` accepts it. What is in
    quarantine, and runs that a decision in results/ names, stay whole. Exit code 3 when something was
    kept because it is damaged or in quarantine.
    """
    from isoline.results.bundles.thin import thin as run

    moment = None
    if as_of is not None:
        if not dry_run:
            raise InputError("only with --dry-run", where="--as-of", remedy="files go by today's date")
        try:
            moment = datetime.fromisoformat(as_of)
        except ValueError:
            raise InputError(f"no date: {as_of!r}", where="--as-of", remedy="write 2027-03-01") from None
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    settings = load_settings(store=store, warehouse=warehouse)
    report = run(settings, now=moment, held=keep or (), dry_run=dry_run, wait_s=wait)
    rows = [
        {"run": gone.run_id, "class": gone.retention_class, "files": gone.files, "bytes": gone.bytes}
        for gone in report.gone
    ]
    if format != "table":
        emit(rows, format, columns=["run", "class", "files", "bytes"])
    else:
        if rows:
            emit(rows, "table")
        verb = "would remove" if dry_run else "removed"
        typer.echo(f"{verb} {report.files} files, {_size(report.bytes)}")
        for run_id, why in report.held:
            typer.echo(f"{run_id} stays whole: {why} names it")
        if report.kept:
            kept = [{"path": item.path, "kept because": item.problem} for item in report.kept]
            emit(kept, "table", title="Kept though past its days")
    if report.kept:
        first = report.kept[0]
        raise IncompleteError(
            f"{len(report.kept)} kept though past their days: {first.path}: {first.problem}",
            remedy="look with `isoline results verify`, and ingest",
        )


def _size(count: int) -> str:
    value = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{count} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError
