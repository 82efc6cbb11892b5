"""Nodes that take no launches for a while, and the errors that led there: ``<state>/nodes/<node>.json``.

A node with three errors of the machine in a day, and no good launch between them, is quarantined with
an expiry. A person drains, quarantines and releases by hand. A pool's own ``exclude`` list counts too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from filelock import FileLock

from isoline.catalog.pools import Pool
from isoline.results.bundles.bundle import write_file
from isoline.runners.ownership.record import read_record

LIMIT = 3
"""So many errors of the machine quarantine a node."""

MEMORY = timedelta(hours=24)
"""An older error says nothing about the node now."""

EXPIRY = timedelta(hours=6)
"""How long a node stays quarantined where nobody says otherwise."""

NOT_THE_NODE = frozenset(
    {
        "client_died",
        "client_rate_capped",
        "clock_stepped",
        "disk_full",
        "drivers_differ",
        "job_cancelled",
        "job_rejected",
        "job_time_limit",
        "machine_busy",
        "no_nodes",
        "not_staged",
        "orchestrator_paused",
        "preempted",
        "queue_timeout",
        "rate_limited",
        "stale_export",
        "unreadable_export",
    }
)
"""Errors of the machine that Isoline itself, or somebody elsewhere, had: they say nothing about the node."""

AT_ONCE = frozenset({"device_lost", "gpu_unhealthy", "memory_not_freed"})
"""Errors of which one is enough: the next launch there would meet them too."""

Kind = Literal["drained", "quarantined"]


@dataclass(frozen=True)
class NodeError:
    """One error of the machine."""

    at: str
    pool: str
    run_id: str
    launch_id: str
    code: str
    detail: str


@dataclass(frozen=True)
class Hold:
    """Why a node takes nothing. ``until`` (UTC, ISO 8601): None is until somebody releases it."""

    kind: Kind
    reason: str
    since: str
    until: str | None

    def text(self) -> str:
        """The reason in one line."""
        end = f" until {self.until}" if self.until else ""
        return f"{self.kind}{end}: {self.reason}"


@dataclass(frozen=True)
class NodeRecord:
    """What is known of one node."""

    node: str
    errors: tuple[NodeError, ...] = ()
    hold: Hold | None = None

    def hold_at(self, now: datetime) -> Hold | None:
        """The hold that counts now; an expired one does not."""
        if self.hold is None or (self.hold.until and datetime.fromisoformat(self.hold.until) <= now):
            return None
        return self.hold

    def errors_at(self, now: datetime) -> list[NodeError]:
        """The errors that still say something."""
        return [item for item in self.errors if datetime.fromisoformat(item.at) > now - MEMORY]


def stamp(moment: datetime) -> str:
    """A moment as it is written here: UTC, seconds."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _path(state: Path, node: str) -> Path:
    return state / "nodes" / f"{quote(node, safe='@')}.json"


def _read(path: Path) -> NodeRecord:
    """The record in a file. One that cannot be read holds its node: it may have said "drained"."""
    found = read_record(path, NodeRecord)
    node = unquote(path.stem)
    if found is None or found.node != node or not _has_times(found):
        why = f"its record {path.name} in the state folder cannot be read; `isoline pool release` removes it"
        return NodeRecord(node, hold=Hold("quarantined", why, "", None))
    return found


def _has_times(record: NodeRecord) -> bool:
    """Whether every time that is compared is one, with a time zone."""
    said = [item.at for item in record.errors]
    said += [record.hold.until] if record.hold and record.hold.until else []
    try:
        return all(datetime.fromisoformat(text).tzinfo is not None for text in said)
    except ValueError:
        return False


def read_node(state: Path, node: str) -> NodeRecord:
    """What is known of a node; an empty record where nothing is."""
    path = _path(state, node)
    return _read(path) if path.exists() else NodeRecord(node)


def all_nodes(state: Path) -> list[NodeRecord]:
    """Every node that something is known of, by name."""
    return [_read(path) for path in sorted((state / "nodes").glob("*.json"))]


def _change(state: Path, record: NodeRecord) -> None:
    path = _path(state, record.node)
    if record.errors or record.hold:
        write_file(path, (json.dumps(asdict(record), indent=1) + "\n").encode())
    else:
        path.unlink(missing_ok=True)


def _lock(state: Path) -> FileLock:
    folder = state / "nodes"
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / ".lock", timeout=60)


def hold(state: Path, node: str, kind: Kind, reason: str, until: datetime | None, now: datetime) -> Hold:
    """Let a node take nothing new; what runs there goes on."""
    made = Hold(kind, reason, stamp(now), stamp(until) if until else None)
    with _lock(state):
        _change(state, replace(read_node(state, node), hold=made))
    return made


def release(state: Path, node: str) -> NodeRecord:
    """Let a node take launches again and forget its errors. Returns what was known of it."""
    with _lock(state):
        was = read_node(state, node)
        _change(state, NodeRecord(node))
    return was


def note_error(state: Path, node: str, error: NodeError) -> Hold | None:
    """Note an error of the machine. Returns the hold where this one led to it.

    :param error: one that is not in :data:`NOT_THE_NODE`; each launch counts once.
    """
    now = datetime.fromisoformat(error.at)
    with _lock(state):
        was = read_node(state, node)
        errors = [*was.errors_at(now), error]
        made = None
        if (len(errors) >= LIMIT or error.code in AT_ONCE) and was.hold_at(now) is None:
            codes = ", ".join(dict.fromkeys(item.code for item in errors))
            made = Hold("quarantined", f"{len(errors)} error(s): {codes}", stamp(now), stamp(now + EXPIRY))
            errors = []  # after the expiry it begins anew
        _change(state, replace(was, errors=tuple(errors), hold=made or was.hold_at(now)))
    return made


def note_good(state: Path, node: str) -> None:
    """A launch worked there: errors before say nothing any more."""
    if _path(state, node).exists():
        with _lock(state):
            _change(state, replace(read_node(state, node), errors=()))


def excluded_by(pool: Pool, now: datetime) -> dict[str, str]:
    """Node -> why, of the pool's own ``exclude`` list."""
    return {
        item.node: f"excluded: {item.reason}"
        for item in pool.exclude
        if item.until is None or datetime.fromisoformat(item.until) > now
    }


def kept_away(state: Path, pool: Pool, now: datetime) -> dict[str, str]:
    """Node -> why launches of a pool keep away from it now: its ``exclude`` list, drained, quarantined."""
    found = excluded_by(pool, now)
    for record in all_nodes(state):
        if counts := record.hold_at(now):
            found[record.node] = counts.text()
    return found
