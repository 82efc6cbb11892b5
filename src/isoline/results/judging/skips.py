"""Why a planned point has no attempt (DESIGN 5.4): what the run said at its end or its starts show. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from isoline.results.bundles.checks import utc
from isoline.results.bundles.records import LaunchRecord, PointRecord, SkippedRecord
from isoline.results.judging.reasons import SKIPPED, Verdict


def check_skipped(record: SkippedRecord, *, run_id: str, folder: str, planned: Collection[str]) -> list[str]:
    """What is wrong with what a run says that it left out: of its plan, each point once, a known cause."""
    problems = [] if record.run_id == run_id else [f"run_id is {record.run_id!r}, expected {run_id!r}"]
    problems += [] if str(record.number) == folder else [f"number is {record.number}, expected {folder}"]
    names = [point.point_id for point in record.points]
    problems += [f"point {name} is not in the plan" for name in names if name not in planned]
    problems += [] if len(set(names)) == len(names) else ["a point is skipped twice"]
    causes = sorted({point.cause for point in record.points} - set(SKIPPED))
    return problems + [f"unknown cause {cause!r}" for cause in causes]


class Causes:
    """The causes of one run, from its sealed records."""

    def __init__(
        self,
        launches: Sequence[LaunchRecord],
        attempts: Iterable[PointRecord],
        skipped: Sequence[SkippedRecord],
    ) -> None:
        last = {item.launch_digest: item for item in sorted(launches, key=lambda item: utc(item.started_at))}
        verdicts = {item.verdict for item in last.values()} | {item.verdict for item in attempts}
        self._other = "cancelled_run" if Verdict.CANCELLED in verdicts else "missing"
        self._failed: dict[str, tuple[datetime, str]] = {
            digest: (
                utc(item.ended_at),
                self._other if item.verdict is Verdict.CANCELLED else "launch_failed",
            )
            for digest, item in last.items()
            if item.verdict is not Verdict.VALID
        }
        self._said: dict[str, tuple[datetime, str]] = {}
        if skipped:
            newest = max(skipped, key=lambda item: item.number)
            self._said = {item.point_id: (utc(newest.at), item.cause) for item in newest.points}

    def of(self, point_id: str, launch_digest: str) -> str:
        """One of :data:`isoline.results.judging.reasons.SKIPPED`, or ``missing``: nobody knows why, an alert.

        Of a failed start and of what the run left out, the later one is the newest knowledge.
        """
        said, failed = self._said.get(point_id), self._failed.get(launch_digest)
        if said and (failed is None or said[0] >= failed[0]):
            return said[1]
        return failed[1] if failed else self._other
