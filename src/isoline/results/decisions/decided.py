"""What people wrote down, at the border of an ingest: overrides of things that exist, and the price lists."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from isoline.catalog.documents import DocumentError, locate, nearest
from isoline.catalog.prices import load_prices
from isoline.errors import IncompleteError
from isoline.results.bundles import bundle
from isoline.results.bundles.folder import Folder
from isoline.results.bundles.records import Plan
from isoline.results.decisions.documents import IMPORT, Override
from isoline.results.identity import RUN_ID
from isoline.results.warehouse.file import Connection, insert, transaction
from isoline.results.warehouse.schema import BY_NAME

OVERRIDES = "results/overrides.yaml"


def check_overrides(project: Path, store: Path, overrides: Sequence[Override]) -> None:
    """Refuse decisions about what cannot be meant: a misspelt one must not look as if it were applied.

    A point has to be in the plan of its run. A run that this store does not have may be in another one (the
    file goes with the project, a store does not), so it is refused only where it differs from a run that is
    here in one of its three parts: time, sweep or suffix. :func:`strange_runs` names the others.

    :raises DocumentError: with file and line, and the nearest name, for each of them.
    """
    if not overrides:
        return
    runs = {run.name for run in bundle.run_folders(store) if RUN_ID.fullmatch(run.name)}
    problems = []
    for number, item in enumerate(overrides):

        def refuse(what: str, field: str, number: int = number) -> None:
            place = locate(project / OVERRIDES, ["overrides", number, field], OVERRIDES)
            problems.append((place, what))

        if item.run_id not in runs:
            if alike := [run for run in runs if _differ_in(run, item.run_id) == 1]:
                refuse(f"no run {item.run_id!r} in the store; {nearest(item.run_id, alike)}", "run_id")
        elif item.point_id is not None:
            points = _points_of(bundle.run_folder(store, item.run_id))
            if points and item.point_id not in points:
                refuse(
                    f"no point {item.point_id!r} in that run; {nearest(item.point_id, points)}", "point_id"
                )
    if problems:
        raise DocumentError(problems)


def strange_runs(store: Path, overrides: Sequence[Override]) -> list[str]:
    """One line for each run that is decided about and not in this store, with the nearest that is."""
    if not overrides:
        return []
    runs = [run.name for run in bundle.run_folders(store)]
    lines = []
    own = {item.run_id for item in overrides if not item.run_id.startswith(IMPORT)}
    for run_id in sorted(own - {*runs}):
        near = get_close_matches(run_id, runs, n=1, cutoff=0.4)
        hint = f"; the nearest that it has is {near[0]}" if near else ""
        lines.append(f"{OVERRIDES}: the store has no run {run_id}, what is decided about it waits{hint}")
    return lines


def _differ_in(one: str, other: str) -> int:
    """In how many of its parts a run id differs from another one."""
    parts = [match.groups() for name in (one, other) if (match := RUN_ID.fullmatch(name))]
    days = [(first + second, third, fourth) for first, second, third, fourth in parts]
    return sum(left != right for left, right in zip(*days, strict=True)) if len(days) == 2 else 3


def _points_of(run: Path) -> set[str]:
    """The points that a run expects; none where its plan cannot be read, which its ingest says."""
    try:
        plan = Folder(run / "_run").record("plan.json", Plan)
    except (IncompleteError, OSError, ValueError, RecursionError):
        return set()
    own = {point.point_id for launch in plan.launches for point in launch.points}
    return own | {item.point_id for item in plan.reused}


def bring_prices(con: Connection, project: Path) -> None:
    """Make the table ``prices`` what the dated lists of the project say, with an open writer.

    :raises DocumentError: for a list that is not of its schema.
    """
    rows = [
        {
            "version": version,
            "tier": tier,
            "is_default": tier == found.default_tier,
            "sku": sku,
            "usd_per_gpu_hour": usd,
            "source": found.source,
            "dated": found.dated,
        }
        for version, found in load_prices(project).items()
        for tier, prices in found.tiers.items()
        for sku, usd in prices.items()
    ]
    table = BY_NAME["prices"]
    wanted = [tuple(row[name] for name in table.names) for row in rows]
    if sorted(con.execute("FROM prices").fetchall()) == sorted(wanted):
        return  # not written: the read copy stays as it is
    with transaction(con):
        con.execute("DELETE FROM prices")
        insert(con, table, table.rows(rows))


_WITHDRAWN = "coalesce(list_contains(marks, 'withdrawn'), false)"

_DECIDED = f"""(run_id LIKE '{IMPORT}%' AND EXISTS (
    FROM overrides o WHERE o.action = 'withdraw' AND o.run_id = points.run_id
    AND coalesce(o.point_id, points.point_id) = points.point_id))"""


def decide_imports(con: Connection, overrides: Sequence[Override]) -> list[str]:
    """Apply decisions to the points of other people's files, with an open writer and after these landed.

    Their rows are made from the files alone, so that each time all decisions are applied anew.

    :returns: one line for each decision that matches no point, with the nearest run or point.
    """
    mine = [item for item in overrides if item.run_id.startswith(IMPORT)]
    known: dict[str, set[str]] = {}
    for run_id, point_id in con.execute(
        "SELECT run_id, point_id FROM points WHERE list_contains($runs, run_id)",
        {"runs": [item.run_id for item in mine]},
    ).fetchall():
        known.setdefault(run_id, set()).add(point_id)
    table = BY_NAME["overrides"]
    rows = [item.model_dump() for item in mine if item.run_id in known]
    shown = f"SELECT {', '.join(table.names)} FROM overrides WHERE run_id LIKE '{IMPORT}%'"
    with transaction(con):
        if {tuple(row[name] for name in table.names) for row in rows} != set(con.execute(shown).fetchall()):
            con.execute(f"DELETE FROM overrides WHERE run_id LIKE '{IMPORT}%'")
            insert(con, table, table.rows(rows))
        changed = f"run_id LIKE '{IMPORT}%' AND {_WITHDRAWN} <> {_DECIDED}"
        row = con.execute(f"SELECT count(*) FROM points WHERE {changed}").fetchone()
        if row and row[0]:
            con.execute(
                f"""UPDATE points SET marks = CASE WHEN {_WITHDRAWN}
                THEN list_filter(marks, lambda mark: mark <> 'withdrawn')
                ELSE list_append(marks, 'withdrawn') END WHERE {changed}"""
            )
    return [_unmatched(con, item, known) for item in mine if not _matches(item, known)]


def _matches(item: Override, known: Mapping[str, Collection[str]]) -> bool:
    return item.run_id in known and (item.point_id is None or item.point_id in known[item.run_id])


def _unmatched(con: Connection, item: Override, known: Mapping[str, Collection[str]]) -> str:
    if item.run_id in known:
        return (
            f"{OVERRIDES}: {item.run_id} has no point {item.point_id}; "
            f"{nearest(item.point_id or '', known[item.run_id])}"
        )
    runs = con.execute(f"SELECT run_id FROM runs WHERE run_id LIKE '{IMPORT}%'").fetchall()
    return f"{OVERRIDES}: nothing was imported as {item.run_id}; {nearest(item.run_id, [r for (r,) in runs])}"
