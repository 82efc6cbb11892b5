"""How fast launches of a pool got ready before: deadlines follow from it where nobody measured the pool."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from isoline.results.judging.reasons import Verdict
from isoline.runners.launchers.deadlines import PastLoad, weights_bytes
from isoline.sweeps.state.runs import PAST_RUNS, launch_records, runs_newest_first


def past_loads(store: Path, pool: str) -> list[PastLoad]:
    """Launches of the newest runs on this pool that got ready, with the bytes of their weights."""
    found = []
    for run in islice(runs_newest_first(store), PAST_RUNS):
        sizes = {
            launch.launch_digest: weights_bytes(launch.identity)
            for launch in run.plan.launches
            if launch.pool == pool
        }
        for record in launch_records(run):
            size = sizes.get(record.launch_digest)
            ready = [row.duration_s for row in record.phases if row.name == "ready" and row.outcome == "ok"]
            if size and ready and record.verdict is Verdict.VALID:
                found.append(PastLoad(size, ready[-1]))
    return found
