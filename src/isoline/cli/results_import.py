"""``isoline results import`` and ``replay``: foreign files into the store and the warehouse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isoline.cli.output import Format, FormatOption, emit
from isoline.cli.results import DryRunOption, StoreOption, WarehouseOption, app
from isoline.errors import IncompleteError, InputError
from isoline.settings import Settings, load_settings

if TYPE_CHECKING:
    from isoline.results.import_store import Kept, Said
    from isoline.results.ingest import IngestReport

WaitOption = Annotated[float, typer.Option(min=0, help="How long to wait for another writer, seconds.")]


@app.command("import")
def import_(
    paths: Annotated[list[Path], typer.Argument(help="Files, or folders of files.")],
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
    from isoline.results.import_store import Said

    said = Said(as_, source, licence, group, _pairs(set_ or []))
    settings = load_settings(store=store, warehouse=warehouse)
    bring_in(settings, paths, [], said, format, wait=wait, dry_run=dry_run)


def bring_in(
    settings: Settings,
    foreign: Sequence[Path],
    own: Sequence[Path],
    said: Said,
    format: Format,
    *,
    wait: float = 0.0,
    dry_run: bool = False,
) -> None:
    """Keep foreign files, ingest them and the bundles at ``own``, and say what came of it.

    :raises IncompleteError: when anything is in quarantine.
    """
    import tempfile

    from isoline.results.import_store import keep
    from isoline.results.ingest import ingest

    if dry_run:  # in a store of their own, which is thrown away
        with tempfile.TemporaryDirectory(prefix="isoline-") as folder:
            kept = keep(Path(folder), foreign, said)
            aside = replace(settings, store=Path(folder), warehouse=Path(folder) / "none.duckdb")
            show_import(kept, ingest(aside, dry_run=True), format, dry_run)
        return
    kept = keep(settings.store, foreign, said)
    show_import(kept, ingest(settings, own, wait_s=wait), format, dry_run)


@app.command()
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
    from isoline.results.ingest import ingest

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


def show_import(kept: Kept | None, report: IngestReport, format: Format, dry_run: bool) -> None:
    """What was kept, what landed and what was refused.

    :raises IncompleteError: when anything is in quarantine.
    """
    landing = report.imported
    quarantined = [{"path": bad.path, "kind": bad.kind, "reason": bad.reason} for bad in report.quarantined]
    if format == "table":
        if kept is not None:
            verb = "would keep" if dry_run else "kept"
            typer.echo(
                f"{verb} {kept.files} new files; {kept.known} were there already, {kept.skipped} skipped"
            )
        rows = ", ".join(f"{count} {name}" for name, count in landing.rows.items()) or "none"
        typer.echo(
            f"imported rows in the warehouse: {rows} ({landing.new} new, {landing.repeated} word for word "
            f"like another); {len(quarantined)} in quarantine"
        )
        if quarantined:
            emit(_by_reason(quarantined), "table", title="Quarantine, by reason")
    else:
        files: dict[str, Any] = {} if kept is None else {"files": kept.files, "known": kept.known}
        row = {
            **files,
            "rows": landing.rows,
            "new": landing.new,
            "repeated": landing.repeated,
            "runs": report.runs,
            "quarantined": quarantined,
        }
        emit([row], format)
    for line in report.warnings:
        typer.echo(f"warning: {line}", err=True)
    if quarantined:
        raise IncompleteError(
            f"{len(quarantined)} {'is' if len(quarantined) == 1 else 'are'} in quarantine",
            remedy="add an alias to recipes/_catalog/aliases.yaml, then `isoline results replay`",
        )


def _by_reason(quarantined: list[dict[str, str]]) -> list[dict[str, Any]]:
    """How often each reason is there, with one example; names of files do not tell reasons apart."""
    found: dict[str, list[str]] = {}
    for bad in quarantined:
        found.setdefault(bad["reason"].rpartition(" (")[0] or bad["reason"], []).append(bad["path"])
    return [
        {"count": len(paths), "reason": reason, "first": paths[0][:24]}
        for reason, paths in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
