"""The journal of a run: one line for each thing that happens, for status and overhead.

It lies beside the bundles, is no evidence, and a run without one is still whole.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import statistics
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from isoline.results.bundles.bundle import utc_now
from isoline.results.bundles.records import PointRecord

JOURNAL = "journal.jsonl"


class Journal:
    """Appends to ``journal.jsonl``; each line is whole or, after a crash, skipped by the reader.

    Several threads may write.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._lock = threading.Lock()

    def write(self, event: str, **fields: Any) -> None:
        """Append one event. A disk that is full stops the run elsewhere, never by way of its journal."""
        line = json.dumps({"at": utc_now(), "mono_s": round(time.monotonic(), 3), "event": event, **fields})
        with self._lock, contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def event_of(line: str | bytes) -> dict[str, Any] | None:
    """The event of a journal's line; None for one that was cut off."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The events of a journal, in order; lines that were cut off are left out."""
    events: list[dict[str, Any]] = []
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return events
    for line in text.splitlines():
        if (event := event_of(line)) is not None:
            events.append(event)
    return events


@dataclass(frozen=True)
class Overhead:
    """What the harness costs between two points of one launch, seconds; None where there is no pair."""

    median_s: float | None
    pairs: int


def overhead(records: list[PointRecord]) -> Overhead:
    """From the end of one point's load to the start of the next one's, minus warm-up, canary and accuracy.

    The load generator's own start is harness: a load ends with its last token and begins with its
    first request, not with AIPerf's process. Only consecutive points of one launch are compared.

    :param records: attempts that have a load, any order.
    """
    loaded = [record for record in records if record.windows.get("full") is not None]
    loaded.sort(key=lambda record: datetime.fromisoformat(record.started_at))
    gaps = []
    for before, after in itertools.pairwise(loaded):
        if before.launch_id != after.launch_id:
            continue
        end, begin = before.windows["full"], after.windows["full"]
        assert end is not None
        assert begin is not None
        work = sum(row.duration_s for row in before.phases if row.name in ("canary", "accuracy"))
        work += sum(row.duration_s for row in after.phases if row.name == "warmup")
        # The load generator's own warm-up comes after its start and before its first measured request.
        work += after.client.get("client_warmup_s") or 0.0
        gaps.append((begin.start_ns - end.end_ns) / 1e9 - work)
    return Overhead(round(statistics.median(gaps), 2) if gaps else None, len(gaps))
