"""What came of an ingest, in words: of bundles, and of files of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from isoline.cli.output import Format, emit
from isoline.errors import IncompleteError

if TYPE_CHECKING:
    from isoline.results.arrivals.admit import Arrived
    from isoline.results.foreign.store import Kept
    from isoline.results.warehouse.ingest import IngestReport


def show(report: IngestReport, format: Format, dry_run: bool) -> None:
    """How many bundles came, and what was refused.

    :raises IncompleteError: when anything is in quarantine.
    """
    quarantined = _refused(report)
    count = len(quarantined)
    if format == "table":
        verb = "would ingest" if dry_run else "ingested"
        typer.echo(f"{verb} {report.ingested} bundles, {report.unchanged} unchanged, {count} quarantined")
        if quarantined:
            emit(quarantined, "table", title="Quarantine")
    else:
        row: dict[str, Any] = {
            "ingested": report.ingested,
            "unchanged": report.unchanged,
            "runs": report.runs,
            "quarantined": quarantined,
        }
        emit([row], format)
    _end(
        report,
        f"{count} {_what(report, count)} in quarantine",
        _remedy(quarantined),
    )


def _what(report: IngestReport, count: int) -> str:
    kinds = {"row" if bad.kind == "import" else "bundle" for bad in report.quarantined}
    noun = kinds.pop() if len(kinds) == 1 else "item"
    return f"{noun}s are" if count > 1 else f"{noun} is"


def show_import(
    kept: Kept | None, report: IngestReport, format: Format, dry_run: bool, arrived: Arrived | None = None
) -> None:
    """What was kept, what landed and what was refused.

    :param arrived: what came from outside the store, where something did.
    :raises IncompleteError: when anything is in quarantine or was refused.
    """
    landing = report.imported
    if arrived is not None:
        report.quarantined += arrived.refused
    quarantined = _refused(report)
    if format == "table":
        if kept is not None:
            verb = "would keep" if dry_run else "kept"
            typer.echo(
                f"{verb} {kept.files} new files; {kept.known} were there already, {kept.skipped} skipped"
            )
        if arrived is not None and _has_bundles(arrived):
            verb = "would take in" if dry_run else "took in"
            left = f"; {arrived.unsealed} files are of no sealed bundle" if arrived.unsealed else ""
            typer.echo(
                f"{verb} {arrived.bundles} new bundles; {arrived.known} were there already, "
                f"{len(arrived.refused)} refused{left}"
            )
            typer.echo(
                f"{'would ingest' if dry_run else 'ingested'} {report.ingested} bundles, "
                f"{report.unchanged} unchanged"
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
        if arrived is not None:
            files |= {"bundles": arrived.bundles, "bundles_known": arrived.known}
            files |= {"refused": len(arrived.refused), "unsealed_files": arrived.unsealed}
            files |= {"ingested": report.ingested, "unchanged": report.unchanged}
        row = {
            **files,
            "rows": landing.rows,
            "new": landing.new,
            "repeated": landing.repeated,
            "runs": report.runs,
            "quarantined": quarantined,
        }
        emit([row], format)
    count, refused = len(quarantined), len(arrived.refused) if arrived is not None else 0
    if refused:
        what = f"{refused} refused, not in the store"
        rest = f", {count - refused} in quarantine" if count > refused else ""
        _end(report, what + rest, "read the reasons; mend the source and ingest it again")
    _end(
        report,
        f"{count} {'is' if count == 1 else 'are'} in quarantine",
        _remedy(quarantined),
    )


_REMEDIES = {
    "unknown_name": "add an alias to recipes/_catalog/aliases.yaml, then `isoline results replay`",
    "no_model": "say the model by `isoline results import FILE --set model=MODEL --set sku=SKU`",
}
"""What mends a refused file of others, by the code of its reason."""


def _remedy(quarantined: list[dict[str, str]]) -> str:
    """What to do about what is in quarantine."""
    codes = {bad["reason"].partition(":")[0] for bad in quarantined if bad["kind"] == "import"}
    found = [remedy for code, remedy in _REMEDIES.items() if code in codes]
    if any(bad["kind"] != "import" for bad in quarantined):
        found.append("read the reasons; each ingest tries bundles again")
    elif codes - _REMEDIES.keys():
        found.append("read the reasons; `isoline results replay` tries files of others again")
    return "; ".join(found)


def _has_bundles(arrived: Arrived) -> bool:
    return bool(arrived.bundles or arrived.known or arrived.refused or arrived.unsealed)


def _by_reason(quarantined: list[dict[str, str]]) -> list[dict[str, Any]]:
    """How often each reason is there, with one example; names of files do not tell reasons apart."""
    found: dict[str, list[str]] = {}
    for bad in quarantined:
        found.setdefault(bad["reason"].rpartition(" (")[0] or bad["reason"], []).append(bad["path"])
    return [
        {"count": len(paths), "reason": reason, "first": paths[0][:24]}
        for reason, paths in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def _refused(report: IngestReport) -> list[dict[str, str]]:
    return [{"path": bad.path, "kind": bad.kind, "reason": bad.reason} for bad in report.quarantined]


def _end(report: IngestReport, what: str, remedy: str) -> None:
    for line in report.warnings:
        typer.echo(f"warning: {line}", err=True)
    if report.quarantined:
        raise IncompleteError(what, remedy=remedy)
