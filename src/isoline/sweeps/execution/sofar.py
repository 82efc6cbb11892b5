"""What a run has come to: verdicts, starts and time spent, read once and then kept up; and its window."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from isoline.results.bundles.bundle import SKIPPED, BundleWriter, utc_now, write_record
from isoline.results.bundles.records import LaunchRecord, PointRecord, SkippedPoint, SkippedRecord
from isoline.results.judging.reasons import Verdict
from isoline.sweeps.execution.schedule import Skip, next_close
from isoline.sweeps.execution.schedule_breaker import ImageState, Told, image_key, image_state, judge_start
from isoline.sweeps.state.control import Controls
from isoline.sweeps.state.journal import JOURNAL, read_journal
from isoline.sweeps.state.runs import Run, launch_records, records


class SoFar:
    """The sealed state of a run in memory; :meth:`note_attempt` and :meth:`note_start` keep it up."""

    def __init__(self, run: Run) -> None:
        self.image_of = {launch.launch_digest: image_key(launch) for launch in run.plan.launches}
        self._gpus = {launch.launch_digest: launch.gpus for launch in run.plan.launches}
        self._launch_of = {
            point.point_id: launch.launch_digest for launch in run.plan.launches for point in launch.points
        }
        found = records(run)
        self.verdicts: dict[str, list[Verdict]] = {
            point_id: [item.verdict for item in items] for point_id, items in found.items()
        }
        self.spent_s = 0.0  # device seconds of all starts
        self.failed_launches: set[str] = set()
        self._told: dict[str, list[Told]] = defaultdict(list)
        self._served: set[str] = set()  # images with a good point, whether or not its launch has ended
        served: dict[str, list[PointRecord]] = defaultdict(list)
        for items in found.values():
            for item in items:
                served[item.launch_id].append(item)
        for record in launch_records(run):
            with contextlib.suppress(ValueError):  # a moment that is none
                self.note_start(record, served[record.launch_id])

    def note_attempt(self, record: PointRecord) -> None:
        """An attempt was sealed. One good point is enough for an image to have proved itself."""
        self.verdicts.setdefault(record.point_id, []).append(record.verdict)
        if record.verdict in (Verdict.VALID, Verdict.PARTIAL) and record.launch_digest in self.image_of:
            self._served.add(self.image_of[record.launch_digest])

    def note_start(self, record: LaunchRecord, points: Sequence[PointRecord]) -> None:
        """A start was sealed, with these attempts on it."""
        digest = record.launch_digest
        if digest not in self.image_of:
            return
        told = judge_start(record, points)
        self._told[self.image_of[digest]].append(told)
        if told.says == "bad":
            self.failed_launches.add(digest)
        began, ended = (datetime.fromisoformat(at) for at in (record.started_at, record.ended_at))
        self.spent_s += max((ended - began).total_seconds(), 0.0) * self._gpus[digest]

    def images(self, controls: Controls) -> Mapping[str, ImageState]:
        """What is known of each image. A retry of one of its points opens its breaker."""
        opened: dict[str, str] = {}
        for point_id, at in controls.retried_at.items():
            if point_id in self._launch_of:
                image = self.image_of[self._launch_of[point_id]]
                opened[image] = max(opened.get(image, ""), at)
        found = {
            image: image_state(self._told.get(image, ()), opened.get(image, ""))
            for image in self._told.keys() | self._served
        }
        return {
            image: replace(state, is_proven=state.is_proven or image in self._served)
            for image, state in found.items()
        }


def window_of(until: str | None, run: Run, now: datetime) -> float | None:
    """When the window closes, epoch seconds; None without one.

    A run that was killed and starts again keeps its window: at its old close it ends, however late it
    comes back. One that ended and is asked to go on gets the next.
    """
    if until is None:
        return None
    for event in reversed(read_journal(run.work / JOURNAL)):
        if event["event"] == "end":
            break
        if event["event"] == "run" and isinstance(event.get("closes_at"), (int, float)):
            return float(event["closes_at"])
    return next_close(until, now).timestamp()


def _last_number(run: Run) -> int:
    names = (path.name for path in (run.folder / SKIPPED).glob("[0-9]*"))
    return max((int(name) for name in names if name.isdecimal()), default=0)


def last_skipped(run: Run) -> SkippedRecord | None:
    """What the run left out when it last ended; None where it left out nothing, or that cannot be read."""
    path = run.folder / SKIPPED / str(_last_number(run)) / "skipped.json"
    try:
        return SkippedRecord.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None


def seal_skipped(run: Run, skips: Sequence[Skip], *, is_new: bool) -> None:
    """Seal what the run left out, unless it says what it said last time and nothing was measured since."""
    rows = [
        SkippedPoint(point_id=point_id, cause=skip.cause, detail=skip.detail, evidence=list(skip.evidence))
        for skip in skips
        for point_id in skip.points
    ]
    last = last_skipped(run)
    if last is not None and not is_new:
        said = [(item.point_id, item.cause) for item in last.points]
        if said == [(item.point_id, item.cause) for item in rows]:
            return
    number = _last_number(run) + 1
    name = f"{SKIPPED}/{number}"
    writer = BundleWriter(run.folder, "skipped", name, name)
    try:
        write_record(
            writer.path / "skipped.json",
            SkippedRecord(run_id=run.run_id, number=number, at=utc_now(), points=rows),
        )
        writer.seal()
    except BaseException:
        writer.discard()
        raise
