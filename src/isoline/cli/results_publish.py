"""``isoline results publish``: the official snapshot for everybody, in a folder or in S3."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from isoline.cli.options import DryRunOption, WarehouseOption
from isoline.cli.output import FormatOption, emit
from isoline.settings import load_settings


def publish(
    to: Annotated[str, typer.Option(metavar="PLACE", help="A folder, or s3://bucket/prefix.")],
    own_only: Annotated[bool, typer.Option("--own-only", help="Leave out everything of others.")] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A piece that the scan finds and that is harmless."),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Remove files of former snapshots; who still reads those loses them."),
    ] = False,
    dry_run: DryRunOption = False,
    warehouse: WarehouseOption = None,
    format: FormatOption = "table",
) -> None:
    """Write the official snapshot as Parquet by model and scenario, with a manifest.

    Only public columns, and of others only curves whose licence note says that anybody may pass them on.
    All texts are scanned first: paths and names of machines, addresses and secrets refuse the whole
    (exit code 2). A reader sees one snapshot whole, the old one or the new one. Read it with `isoline
    frontier --from PLACE`, or with any engine. S3 is that of AWS's own settings (AWS_ENDPOINT_URL,
    AWS_PROFILE and so on).
    """
    from isoline.results.publishing.publish import UnfitError
    from isoline.results.publishing.publish import publish as run
    from isoline.results.publishing.remote import place_at

    settings = load_settings(warehouse=warehouse)
    place = place_at(to)
    try:
        done = run(settings, place, own_only=own_only, allowed=allow or (), prune=prune, dry_run=dry_run)
    except UnfitError as error:
        rows = [
            {"what": found.hit.what, "text": found.hit.shown, "where": found.where, "of": found.id}
            for found in error.hits
        ]
        emit(rows, format, title="Not for the public")
        raise
    manifest = done.manifest
    left_out = {f"{reason}: {source}": count for (reason, source), count in done.left_out.items()}
    files = [file for table in manifest.tables.values() for file in table.files]
    row: dict[str, Any] = {
        "place": place.name,
        "curves": manifest.curves,
        "points": manifest.tables["points"].rows,
        "files": len(files),
        "bytes": sum(file.bytes for file in files),
        "new_files": len(done.written),
        "unchanged": done.unchanged,
        "left_out": left_out,
        "sources": manifest.sources,
        "older_files": done.older - done.removed,
        "published_at": manifest.published_at,
        "warehouse_digest": manifest.warehouse_digest,
    }
    if format != "table":
        emit([row], format)
        return
    verb = "would publish" if dry_run else "published"
    what = f"{row['points']} points of {row['curves']} curves in {row['files']} files"
    typer.echo(
        f"unchanged since {manifest.published_at}: {what}"
        if done.unchanged
        else f"{verb} {what}, {row['new_files']} of them new: {place.name}"
    )
    for reason, count in left_out.items():
        typer.echo(f"left out: {count} points, {reason}")
    if row["older_files"]:
        typer.echo(f"{row['older_files']} files of former snapshots are there; --prune removes them")
