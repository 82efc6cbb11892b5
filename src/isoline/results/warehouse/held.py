"""What a warehouse holds of each run, asked once for all of them: what an ingest compares the store with."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from isoline.results.warehouse.file import Connection
from isoline.results.warehouse.schema import BUNDLES, BY_NAME


class Took(NamedTuple):
    """One point that a run took over from another, as it was then: see the table ``reused``."""

    measured_in: str
    point_id: str
    attempt: int
    withdrawn: bool
    bundle_path: str
    bundle_digest: str
    run_digest: str


@dataclass(frozen=True)
class Held:
    """What there is of one run.

    :ivar bundles: path and digest of those whose rows are in the tables.
    :ivar refused: path and reason of those in quarantine.
    :ivar decided: the decisions that its rows were made with.
    :ivar took: what it took over.
    """

    bundles: dict[str, str] = field(default_factory=dict)
    refused: set[tuple[str, str]] = field(default_factory=set)
    decided: set[tuple[str | None, ...]] = field(default_factory=set)
    took: list[Took] = field(default_factory=list)


def held_runs(con: Connection) -> defaultdict[str, Held]:
    """By run id; of a run that is not there nothing is held."""
    held: defaultdict[str, Held] = defaultdict(Held)
    for run, path, digest in con.execute(BUNDLES).fetchall():
        held[run].bundles[path] = digest
    for run, path, reason in con.execute("SELECT run_id, path, reason FROM quarantine").fetchall():
        held[run].refused.add((path, reason))
    names = BY_NAME["overrides"].names
    for row in con.execute(f"SELECT {', '.join(names)} FROM overrides").fetchall():
        held[row[names.index("run_id")]].decided.add(row)
    for run, *took in con.execute(f"SELECT run_id, {', '.join(Took._fields)} FROM reused").fetchall():
        held[run].took.append(Took(*took))
    return held
