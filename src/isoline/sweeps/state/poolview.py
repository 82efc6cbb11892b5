"""Pools and nodes as an operator sees them: who has what, in which phase, until when, what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from isoline.catalog.pools import Pool
from isoline.results.bundles.bundle import WORK
from isoline.runners.machine.hosts import hosts_of
from isoline.runners.ownership import leases, quarantine
from isoline.sweeps.state.journal import JOURNAL, read_journal
from isoline.sweeps.state.poollock import holder_of

Row = dict[str, Any]


def node_names(pool: Pool) -> list[str]:
    """The nodes that we place launches on; none where the pool's own scheduler does."""
    return [host.name for host in hosts_of(pool)] if pool.is_placed_by_us else []


def _placed_names(pools: Iterable[Pool]) -> set[str]:
    """Machines that we place launches on: none of them is a node of Slurm's."""
    return {name for pool in pools for name in node_names(pool)}


def _last_error(record: quarantine.NodeRecord | None, now: datetime) -> str | None:
    errors = record.errors_at(now) if record else []
    return f"{errors[-1].at} {errors[-1].code}: {errors[-1].detail}" if errors else None


def list_rows(state: Path, pools: Iterable[Pool], now: datetime) -> list[Row]:
    """One row for each pool."""
    taken = [lease for lease in leases.all_leases(state) if lease.life != "dead"]
    pools = list(pools)
    ours = _placed_names(pools)
    rows = []
    for pool in pools:
        nodes = node_names(pool)
        away = quarantine.kept_away(state, pool, now)
        holder = holder_of(state, pool.name)
        rows.append(
            {
                "pool": pool.name,
                "launcher": pool.launcher,
                "sku": pool.sku,
                "nodes": len(nodes) or pool.nodes,
                "accelerators": pool.accelerators,
                "max_parallel": pool.max_parallel,
                "until": pool.until,
                "in_flight": sum(lease.pool == pool.name for lease in taken),
                "closed": [name for name in nodes if name in away] if nodes else sorted(away.keys() - ours),
                "run_id": holder.run_id if holder else None,
            }
        )
    return rows


def status_rows(state: Path, pools: Iterable[Pool], now: datetime) -> list[Row]:
    """One row for each launch on each node, and one for each node without.

    Of a pool whose own scheduler places launches: one row a launch, and one for each node that it keeps
    away from or where something went wrong lately.
    """
    every = leases.all_leases(state)
    unknown = [item.text() for item in leases.unreadable(state) if not item.is_over]
    journals: dict[str, list[dict[str, Any]]] = {}
    records = {item.node: item for item in quarantine.all_nodes(state)}
    pools = list(pools)
    ours = _placed_names(pools)
    rows = []
    for pool in pools:
        away = quarantine.kept_away(state, pool, now)
        mine = [lease for lease in every if lease.pool == pool.name]
        for node in node_names(pool):
            last = _last_error(records.get(node), now)
            here = [lease for lease in every if node in dict(lease.places)]
            free = f"held by nobody known: {'; '.join(unknown)}" if unknown else "free"
            common = {"pool": pool.name, "node": node}
            for lease in here:
                # A node is of several pools where they name one machine.
                taken = "busy" if lease.pool == pool.name else f"busy for pool {lease.pool}"
                rows.append(
                    {**common, "state": away.get(node, taken), **_of_lease(lease, node, journals, last)}
                )
            if not here:
                rows.append({**common, "state": away.get(node, free), **_EMPTY, "last_error": last})
        if pool.launcher == "slurm":
            erring = {
                name
                for name, item in records.items()
                if any(error.pool == pool.name for error in item.errors_at(now))
            }
            for node in sorted((away.keys() | erring) - ours):
                common = {"pool": pool.name, "node": node, "state": away.get(node, "open")}
                rows.append({**common, **_EMPTY, "last_error": _last_error(records.get(node), now)})
        for lease in mine:
            if not lease.places:
                found = _of_lease(lease, None, journals, None)
                rows.append({"pool": pool.name, "node": None, "state": "busy", **found})
    return rows


_EMPTY: Row = dict.fromkeys(
    ("devices", "launch", "run_id", "point", "phase", "since", "eta", "eta_s", "last_error")
)


def _of_lease(
    lease: leases.Lease, node: str | None, journals: dict[str, list[dict[str, Any]]], last: str | None
) -> Row:
    """What a launch does, off its run's journal."""
    if lease.run_folder not in journals:
        journals[lease.run_folder] = read_journal(Path(lease.run_folder) / WORK / JOURNAL)
    events = [item for item in journals[lease.run_folder] if item.get("launch_id") == lease.launch_id]
    phase: dict[str, Any] = next((item for item in reversed(events) if item.get("phase")), {})
    failed = next((item for item in reversed(journals[lease.run_folder]) if _is_bad(item)), None)
    if last is None and failed is not None:
        last = f"{failed['at']} {failed['cause']}"
    life = {"dead": " (its orchestrator is dead: `isoline pool gc`)", "elsewhere": " (of another machine)"}
    return {
        "devices": list(dict(lease.places).get(node, ())) if node else None,
        "launch": lease.launch_id + life.get(lease.life, ""),
        "run_id": lease.run_id,
        "point": phase.get("point_id"),
        "phase": phase.get("phase"),
        "since": phase.get("at") or lease.since,
        "eta": lease.ends_at,
        "eta_s": _left(lease.ends_at),
        "last_error": last,
    }


def _is_bad(event: Mapping[str, Any]) -> bool:
    bad = event.get("event") == "launch_failed" or event.get("verdict") in ("invalid", "infra_error")
    return bad and bool(event.get("cause"))


def _left(ends_at: str | None) -> float | None:
    """Seconds until an expected end, not below 0."""
    if ends_at is None:
        return None
    try:
        left = datetime.fromisoformat(ends_at) - datetime.now(UTC)
    except (ValueError, TypeError):  # damaged, or without a time zone
        return None
    return round(max(left.total_seconds(), 0.0), 0)
