"""``isoline pool list|status|drain|quarantine|release|gc``: who has which node, and which take nothing."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from isoline.cli.options import DryRunOption
from isoline.cli.output import FormatOption, emit
from isoline.errors import InputError
from isoline.settings import Settings, load_settings

if TYPE_CHECKING:
    from isoline.catalog.pools import Pool

PoolOption = Annotated[
    str | None, typer.Argument(metavar="[POOL]", help="One pool; default: all of runners/.")
]
NodeArgument = Annotated[str, typer.Argument(help="A node, as `pool status` prints it.")]
ReasonOption = Annotated[str, typer.Option(help="Why; shown wherever the node is left out.")]
UntilOption = Annotated[
    str | None, typer.Option(help="Until when: 6h, 90m, 2d, or a time such as 2026-12-01T07:00Z.")
]

LONGEST_NAME = 200
"""Letters of a node's name: its record is a file of that name."""

_SPAN = re.compile(r"^(\d+(?:\.\d+)?)(m|h|d)\Z")


def moment_of(text: str, now: datetime) -> datetime:
    """A moment from ``6h``, ``90m``, ``2d`` or ISO 8601 with a time zone.

    :raises InputError: for anything else, or a moment that is over.
    """
    found: datetime | None = None
    if match := _SPAN.match(text):
        unit = {"m": "minutes", "h": "hours", "d": "days"}[match.group(2)]
        try:
            found = now + timedelta(**{unit: float(match.group(1))})
        except OverflowError:
            raise InputError(f"--until {text}: no time", remedy="without --until it has no end") from None
    else:
        with suppress(ValueError):
            found = datetime.fromisoformat(text)
    if found is None or found.tzinfo is None:
        raise InputError(f"--until {text}: no time", remedy="write 6h, 90m, 2d or 2026-12-01T07:00Z")
    if found <= now:
        raise InputError(f"--until {text}: this is over", remedy="name a moment to come")
    return found


def _pools(settings: Settings, name: str | None) -> list[Pool]:
    """The pool of that name, else those of ``runners/`` (not the examples)."""
    from isoline.catalog.facts import catalog_of
    from isoline.catalog.pools import load_pool

    with catalog_of(settings.project):
        names = [name] if name else sorted(p.stem for p in (settings.project / "runners").glob("*.yaml"))
        return [load_pool(settings.project, item) for item in names]


def list_pools(format: FormatOption = "table") -> None:
    """The pools of this project: kind, size, what is in flight, which nodes take nothing."""
    from isoline.sweeps.state.poolview import list_rows

    settings = load_settings()
    emit(list_rows(settings.state, _pools(settings, None), datetime.now(UTC)), format)


def status(pool: PoolOption = None, format: FormatOption = "table") -> None:
    """Each node: launch, phase, since when, expected end, last error."""
    from isoline.sweeps.state.poolview import status_rows

    settings = load_settings()
    columns = ["pool", "node", "state", "devices", "launch", "point", "phase", "since", "eta", "last_error"]
    if format != "table":
        columns += ["run_id", "eta_s"]
    emit(status_rows(settings.state, _pools(settings, pool), datetime.now(UTC)), format, columns=columns)


def _check_node(settings: Settings, node: str) -> None:
    """Refuse a node that no pool can have, or that is no name at all.

    :raises InputError: with the nearest name. Where a pool's nodes are its scheduler's, any name may be one.
    """
    from isoline.catalog.documents import nearest
    from isoline.catalog.pools import NODE
    from isoline.runners.ownership import quarantine
    from isoline.sweeps.state.poolview import node_names

    if not re.match(NODE, node) or len(node) > LONGEST_NAME:
        raise InputError(f"{node[:80]!r} is no name of a node")
    pools = _pools(settings, None)
    known = {name for pool in pools for name in node_names(pool)}
    known |= {item.node for item in quarantine.all_nodes(settings.state)}
    if node not in known and not any(pool.launcher == "slurm" for pool in pools):
        raise InputError(
            f"no pool has a node {node!r}", where="runners/", remedy=nearest(node, sorted(known))
        )


def _hold(
    kind: Literal["drained", "quarantined"], node: str, reason: str, until: str | None, dry_run: bool
) -> None:
    from isoline.runners.ownership import quarantine
    from isoline.sweeps.execution.context import folder_is_usable

    if not reason.strip():
        raise InputError("it is empty", where="--reason", remedy="say why: whoever meets the node reads it")
    settings = load_settings()
    _check_node(settings, node)
    now = datetime.now(UTC)
    end = moment_of(until, now) if until else None
    if end is None and kind == "quarantined":
        end = now + quarantine.EXPIRY
    if not dry_run:
        with folder_is_usable(settings.state, "ISOLINE_STATE"):
            quarantine.hold(settings.state, node, kind, reason, end, now)
    text = f"until {quarantine.stamp(end)}" if end else "until `isoline pool release`"
    would = "would be " if dry_run else ""
    typer.echo(f"{node} {would}{kind} {text}: {reason}; what runs there goes on, nothing new starts")


def drain(
    node: NodeArgument, reason: ReasonOption, until: UntilOption = None, dry_run: DryRunOption = False
) -> None:
    """Let a node take nothing new, for work on it: until it is released, or until a time."""
    _hold("drained", node, reason, until, dry_run)


def quarantine(
    node: NodeArgument, reason: ReasonOption, until: UntilOption = None, dry_run: DryRunOption = False
) -> None:
    """Let a node that is suspected take nothing new; it ends by itself, after 6 hours or at a time."""
    _hold("quarantined", node, reason, until, dry_run)


def release(node: NodeArgument, dry_run: DryRunOption = False) -> None:
    """Let a node take launches again, and forget its errors."""
    from isoline.runners.ownership.quarantine import read_node
    from isoline.runners.ownership.quarantine import release as release_node
    from isoline.sweeps.execution.context import folder_is_usable

    settings = load_settings()
    was = read_node(settings.state, node)
    if was.hold is None and not was.errors:
        _check_node(settings, node)
        typer.echo(f"{node} was neither drained nor quarantined; nothing to do")
        return
    if not dry_run:
        with folder_is_usable(settings.state, "ISOLINE_STATE"):
            release_node(settings.state, node)
    held = f"it was {was.hold.text()}" if was.hold else f"{len(was.errors)} error(s) are forgotten"
    typer.echo(f"{node} {'would take' if dry_run else 'takes'} launches again; {held}")


def gc(
    pool: PoolOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is left, remove nothing.")] = False,
    format: FormatOption = "table",
) -> None:
    """What dead runs left here and on the pools' machines: shows it, and removes only that.

    Processes, containers, jobs, leases, ports, scratch. Exit code 4 when something is still there, or a
    machine did not answer.
    """
    from isoline.runners.ownership import gc as cleaning
    from isoline.runners.ownership.cleaners import machines_of, register_cleaners

    settings = load_settings()
    wanted = _pools(settings, pool)
    register_cleaners(wanted)
    found, silent = cleaning.find_all(settings.state, machines_of(wanted))
    done = [] if dry_run else cleaning.remove_all(settings.state, found)
    problems = {id(item.left): item.problem for item in done}
    emit(
        [
            {
                "kind": left.kind,
                "name": left.name,
                "host": left.host,
                "run_id": left.run_id or None,
                "launch": left.launch_id or None,
                "since": left.since or None,
                "what": left.what or None,
                "state": "left" if dry_run else problems[id(left)] or "removed",
            }
            for left in found
        ],
        format,
        columns=["kind", "name", "host", "run_id", "launch", "since", "what", "state"],
    )
    for line in silent:
        print(f"not looked at: {line}", file=sys.stderr)
    if silent or any(item.problem for item in done):
        raise typer.Exit(4)
