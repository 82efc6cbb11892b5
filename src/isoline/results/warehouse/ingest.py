"""Bring sealed bundles of the store into the warehouse (DESIGN 5.6).

The unit is a run: whenever anything about it changed, all its rows are made anew from its bundles
and replaced in one transaction. So a second ingest adds nothing, a killed one leaves nothing half,
and the order in which bundles came in cannot matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from isoline.catalog.facts import load_catalog
from isoline.errors import InputError
from isoline.results.bundles import bundle
from isoline.results.bundles.readers import Quarantined, run_bundles, run_name
from isoline.results.decisions.decided import bring_prices, check_overrides, decide_imports, strange_runs
from isoline.results.decisions.documents import Override, check_decisions, load_overrides
from isoline.results.foreign.imports import Landing, has_imports, land
from isoline.results.warehouse.expected import Withdrawals, is_withdrawn, withdrawals
from isoline.results.warehouse.file import Connection, open_writer, replace_runs, scratch
from isoline.results.warehouse.held import Held, Took, held_runs
from isoline.results.warehouse.helpers import Helpers
from isoline.results.warehouse.made import MadeRun, make_run, together
from isoline.results.warehouse.reused import reused_digests
from isoline.results.warehouse.schema import derivation
from isoline.settings import Settings

AT_ONCE = 32
"""Runs that are written in one transaction."""

MANY = 200
"""Bundles that are worth another process."""


@dataclass
class IngestReport:
    """What one ingest did.

    :param ingested: bundles that are new in the warehouse.
    :param unchanged: bundles that were in it already.
    :param runs: the runs whose rows were made anew.
    :param quarantined: every bundle in the ingested part of the store that is refused, also those
        refused before: they are tried again each time.
    :param warnings: one line each, for people.
    :param imported: what the store's foreign files gave.
    """

    ingested: int = 0
    unchanged: int = 0
    runs: list[str] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    imported: Landing = field(default_factory=Landing)


def ingest(
    settings: Settings,
    paths: Sequence[Path] | None = None,
    *,
    wait_s: float = 0.0,
    dry_run: bool = False,
    again: bool = False,
) -> IngestReport:
    """Ingest the store, or the runs that ``paths`` lie in.

    :param paths: folders inside the store: a run, a bundle, a day; None: all of it.
    :param wait_s: how long to wait for another writer, seconds.
    :param dry_run: do it on a copy that is thrown away.
    :param again: read all foreign files again, also where nothing about them changed.
    :raises InputError: for a path outside the store, a decision file that is not of its schema, or a
        decision about a point that is not there.
    :raises InfraError: while another process writes the warehouse.
    """
    overrides = checked_overrides(settings)
    wanted = _runs_at(settings.store, paths)
    if dry_run:
        with scratch(settings.warehouse) as con:
            return fill_all(con, settings, wanted, overrides, again=again)
    with open_writer(settings.warehouse, wait_s=wait_s) as con:
        return fill_all(con, settings, wanted, overrides, again=again)


def checked_overrides(settings: Settings) -> list[Override]:
    """What people decided about results, once every file of decisions is right.

    :raises InputError: for a file that is not of its schema, or a decision about a point that is not there.
    """
    check_decisions(settings.project)
    overrides = load_overrides(settings.project)
    check_overrides(settings.project, settings.store, overrides)
    return overrides


def fill_all(
    con: Connection,
    settings: Settings,
    wanted: set[str] | None,
    overrides: Sequence[Override],
    *,
    again: bool = False,
) -> IngestReport:
    """Bring everything in, with an open writer: bundles (:func:`fill`), price lists, files of others.

    :param again: read all foreign files again, also where nothing about them changed.
    """
    report = fill(con, settings.store, wanted, overrides)
    bring_prices(con, settings.project)
    if not has_imports(con, settings.store):
        return report  # also where the project's catalog cannot be read
    landing = land(con, settings.store, load_catalog(settings.project), again=again)
    report.imported = landing
    report.runs += landing.changed
    report.warnings += decide_imports(con, overrides)
    report.quarantined += [
        Quarantined(bad.path, bad.run_id, bad.digest, "import", bad.reason) for bad in landing.refused
    ]
    return report


def _runs_at(store: Path, paths: Sequence[Path] | None) -> set[str] | None:
    """The names (:func:`run_name`) of the runs that the paths lie in or hold; None for all."""
    if paths is None:
        return None
    names: set[str] = set()
    for given in paths:
        path = given.resolve()
        if not path.exists():
            raise InputError("no such folder", where=str(given))
        if not path.is_relative_to(store):
            raise InputError(
                "this is not inside the store",
                where=str(given),
                remedy=f"the store is {store}; name another one with --store",
            )
        parts = path.relative_to(store).parts
        if len(parts) > 4:  # inside yyyy/mm/dd/run_id
            path = store.joinpath(*parts[:4])
        names |= {run_name(store, run) for run in bundle.run_folders(store) if run.is_relative_to(path)}
    return names


def fill(
    con: Connection, store: Path, wanted: set[str] | None, overrides: Sequence[Override]
) -> IngestReport:
    """Ingest with an open writer.

    :param wanted: names (:func:`run_name`) of runs; None for all.
    """
    report = IngestReport()
    stale = _value(con, "derivation") != derivation()
    folders = list(bundle.run_folders(store))
    withdrawn = withdrawals(overrides)
    decided = defaultdict(set)
    for item in overrides:
        decided[item.run_id].add(tuple(item.model_dump().values()))
    held = held_runs(con)
    all_due: list[tuple[Path, Held]] = []
    new = 0
    for run in folders:
        name = run_name(store, run)
        had = held[name]
        due = stale or had.decided != decided[name] or _took_over_anew(store, had.took, withdrawn)
        if not (due or wanted is None or name in wanted):
            continue
        found = run_bundles(store, run)
        due = due or found != had.bundles or bool(had.refused)
        if not due:
            report.unchanged += len(found)
        elif found or had.bundles or had.refused:
            all_due.append((run, had))
            new += len(found.items() - had.bundles.items())
    _bring_runs(con, store, all_due, overrides, report, is_much=new > MANY)
    if stale:
        # Only now: whoever is killed before starts over.
        con.execute("INSERT OR REPLACE INTO meta VALUES ('derivation', ?)", [derivation()])
    report.warnings += _warnings(con, store, {run_name(store, run) for run in folders}, overrides)
    return report


def _bring_runs(
    con: Connection,
    store: Path,
    due: Sequence[tuple[Path, Held]],
    overrides: Sequence[Override],
    report: IngestReport,
    *,
    is_much: bool,
) -> None:
    """Make the rows of runs anew, some at a time; read by several processes where it is much to read."""
    with Helpers(f"{make_run.__module__}:make_run", (store, list(overrides)), worth=is_much) as helpers:
        made = helpers.map([(run, had.bundles) for run, had in due])
        for start in range(0, len(due), AT_ONCE):
            some = list(islice(made, AT_ONCE))  # the next ones are read while these are written
            for (_, had), run in zip(due[start:], some, strict=False):
                if not _same_rows(run, had):
                    report.runs.append(run.run_id)
                new = sum(had.bundles.get(path) != digest for path, digest in run.landed.items())
                report.ingested += new
                report.unchanged += len(run.landed) - new
                report.quarantined += run.bad
            replace_runs(con, [run.run_id for run in some], together([run.tables for run in some]))


def _same_rows(run: MadeRun, had: Held) -> bool:
    return run.landed == had.bundles and {(bad.path, bad.reason) for bad in run.bad} == had.refused


def _took_over_anew(store: Path, took: Sequence[Took], withdrawn: Withdrawals) -> bool:
    """Whether what a run took over is no more as it was: bundles of others, or what people decided."""
    return any(
        is_withdrawn(withdrawn, was.measured_in, was.point_id) != was.withdrawn
        or reused_digests(store, was.measured_in, was.point_id, was.attempt)
        != (was.bundle_path, was.bundle_digest, was.run_digest)
        for was in took
    )


def _value(con: Connection, name: str) -> str | None:
    row = con.execute("SELECT value FROM meta WHERE name = ?", [name]).fetchone()
    return str(row[0]) if row else None


def _warnings(con: Connection, store: Path, in_store: set[str], overrides: Sequence[Override]) -> list[str]:
    lines = []
    own = "SELECT run_id FROM runs WHERE run_id NOT IN (SELECT run_id FROM imports)"
    had = {str(run) for (run,) in con.execute(own).fetchall()}
    if gone := sorted(had - in_store):
        lines.append(
            f"{len(gone)} runs are in the warehouse but not in the store {store} (first {gone[0]}); "
            "`isoline results rebuild` drops them"
        )
    lines += strange_runs(store, overrides)
    for item in overrides:
        if item.run_id not in in_store:
            continue
        point = con.execute(
            "SELECT count(*) FROM points WHERE run_id = $run AND (point_id = $point OR $point IS NULL)",
            {"run": item.run_id, "point": item.point_id},
        ).fetchone()
        if not point or not point[0]:
            what = item.point_id or "the run"
            lines.append(f"results/overrides.yaml: {item.action} of {what} in {item.run_id} matches no point")
    return lines
