"""The rows of one run of the store, made from its bundles alone: what several processes do at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from isoline.results.bundles.readers import Quarantined, RunFiles, read_run, run_bundles, run_name
from isoline.results.decisions.documents import Override
from isoline.results.warehouse.rows import run_tables


@dataclass(frozen=True)
class MadeRun:
    """What a run gives.

    :ivar tables: its rows, by table.
    :ivar landed: path and digest of every bundle that is in them.
    :ivar bad: its bundles that are refused.
    """

    run_id: str
    tables: Mapping[str, pa.Table]
    landed: dict[str, str]
    bad: list[Quarantined]


def make_run(context: tuple[Path, Sequence[Override]], run: tuple[Path, Mapping[str, str]]) -> MadeRun:
    """Read and check the bundles of a run, and make its rows.

    :param context: the store, and all decisions.
    :param run: its folder, and the bundles that were checked by an earlier ingest; see
        :func:`isoline.results.bundles.readers.read_run`.
    """
    (store, overrides), (folder, known) = context, run
    files = read_run(store, folder, known)
    decided = [item for item in overrides if item.run_id == files.run_id]
    others = [item for item in overrides if item.run_id != files.run_id]
    try:
        tables = run_tables(files, decided, others)
    except _NO_ROWS:
        files = _without_culprits(files, decided)
        try:
            tables = run_tables(files, decided, others)
        except _NO_ROWS as error:
            # Each file is right by itself, but not together. The other runs land all the same.
            files = _all_refused(store, folder, _why(error))
            tables = run_tables(files, decided)
    return MadeRun(files.run_id, tables, _landed(files), files.bad)


def together(runs: Iterable[Mapping[str, pa.Table]]) -> dict[str, pa.Table]:
    """The rows of several runs, by table."""
    found: dict[str, list[pa.Table]] = defaultdict(list)
    for tables in runs:
        for name, rows in tables.items():
            found[name].append(rows)
    return {name: pa.concat_tables(rows) for name, rows in found.items()}


def _landed(files: RunFiles) -> dict[str, str]:
    landed = {files.plan.path: files.plan.digest} if files.plan else {}
    landed |= {launch.path: launch.digest for launch in files.launches}
    landed |= {item.path: item.digest for item in files.skipped}
    return landed | {point.path: point.digest for point in files.points}


_NO_ROWS = (ValueError, TypeError, KeyError, OverflowError, pa.ArrowException)


def _why(error: BaseException) -> str:
    return " ".join(f"no rows can be made of it: {type(error).__name__}: {error}".split())[:500]


def _without_culprits(files: RunFiles, overrides: Sequence[Override]) -> RunFiles:
    """The files of a run without the launches and attempts of which, even alone, no rows can be made."""
    left = RunFiles(files.run_id, files.plan, bad=list(files.bad), taken=files.taken)

    def is_good(kind: str, path: str, digest: str, alone: RunFiles) -> bool:
        try:
            run_tables(alone, overrides)
        except _NO_ROWS as error:
            left.bad.append(Quarantined(path, files.run_id, digest, kind, _why(error)))
            return False
        return True

    left.skipped = list(files.skipped)
    for launch in files.launches:
        alone = RunFiles(files.run_id, files.plan, launches=[launch])
        if is_good("launch", launch.path, launch.digest, alone):
            left.launches.append(launch)
    for point in files.points:
        alone = RunFiles(files.run_id, files.plan, points=[point])
        if is_good("point", point.path, point.digest, alone):
            left.points.append(point)
    return left


def _all_refused(store: Path, run: Path, line: str) -> RunFiles:
    files = RunFiles(run_name(store, run))
    for path, digest in run_bundles(store, run).items():
        kind = "run" if path.endswith("/_run") else "launch" if "/_launch/" in path else "point"
        files.bad.append(Quarantined(path, files.run_id, digest, kind, line))
    return files
