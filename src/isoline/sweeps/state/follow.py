"""What happens in a run, one line for each change of phase: cause, evidence, what comes next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from isoline.sweeps.state.journal import JOURNAL, event_of
from isoline.sweeps.state.runs import Run

POLL_S = 0.25

NEXT_PHASE = {
    "stage": "preflight",
    "preflight": "start",
    "start": "ready",
    "ready": "reset",
    "reset": "warmup",
    "warmup": "load",
    "load": "canary",
    "canary": "accuracy where it is asked for, then seal",
    "accuracy": "seal",
    "seal": "the next point, or stop",
    "stop": "the launch's bundle is sealed",
}
"""What follows a phase where nothing goes wrong."""

TOLD = frozenset(
    {
        "run",
        "launch",
        "phase",
        "sealed",
        "launch_failed",
        "landed",
        "held",
        "skipped",
        "quarantine",
        "control",
        "wreckage",
        "end",
    }
)
"""Events that are a line."""


def told(event: Mapping[str, Any], run: Run) -> dict[str, Any] | None:
    """The line of one event of the journal; None for what is no change of phase. Pure.

    The keys are the same for every line; what there is none of is null. ``evidence`` is a path.
    """
    kind = event.get("event")
    if kind not in TOLD:
        return None
    phase = event.get("phase") or {"run": "begin", "held": "held", "wreckage": "cleared"}.get(kind, kind)
    evidence = event.get("evidence")
    launch_id = event.get("launch_id")
    if not evidence and kind == "phase" and launch_id:
        evidence = f"_launch/{launch_id}/server.log"
    after = event.get("next") or (NEXT_PHASE.get(phase) if kind == "phase" else None)
    if kind == "end":
        skipped = event.get("skipped") or {}
        cause = ", ".join(f"{count} skipped: {name}" for name, count in sorted(skipped.items())) or None
    else:
        cause = event.get("cause") or event.get("what")
    return {
        "at": event.get("at"),
        "run_id": run.run_id,
        "event": kind,
        "phase": phase,
        "launch_id": launch_id,
        "point_id": event.get("point_id"),
        "attempt": event.get("attempt"),
        "verdict": event.get("verdict"),
        "cause": cause,
        "evidence": " ".join(str(run.folder / item) for item in evidence.split()) if evidence else None,
        "next": after,
    }


def line(row: Mapping[str, Any]) -> str:
    """A row for people."""
    who = row["point_id"] or (f"launch {row['launch_id']}" if row["launch_id"] else "run")
    parts = [str(row["at"])[11:19], who, row["phase"]]
    if row["verdict"]:
        parts.append(row["verdict"])
    text = " ".join(str(part) for part in parts)
    if row["cause"]:
        text += f": {row['cause']}"
        if row["next"]:
            text += f"; {row['next']}"
    return text


def journal_events(
    path: Path, is_over: Callable[[], bool], sleep: Callable[[float], None] = time.sleep
) -> Iterator[dict[str, Any]]:
    """Every event, those to come too, until the run ended and nobody works at it.

    A killed run has no end: it is waited for, and the lines of its next start follow.

    :param is_over: asked once nothing new is there and the last event is an end.
    """
    offset, rest, last = 0, b"", ""
    while True:
        data = b""
        if path.exists():
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read()
        offset += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for text in lines:
            if (event := event_of(text)) is not None:
                last = str(event["event"])
                yield event
        if not data:
            if last in ("end", "") and is_over():
                return
            sleep(POLL_S)


def follow(run: Run, is_over: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """The lines of a run (:func:`told`) from its begin, and on as they come."""
    for event in journal_events(run.work / JOURNAL, is_over):
        row = told(event, run)
        if row is not None:
            yield row
