"""The nodes of a pool as the scheduler sees them: what is closed, what others hold, what went wrong there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from isoline.catalog.pools import Pool
from isoline.results.bundles.records import ReasonNote
from isoline.results.judging.reasons import REASONS, Verdict
from isoline.runners.machine.hosts import Host, hosts_of
from isoline.runners.ownership import leases, owners, quarantine
from isoline.runners.ownership.orchestrators import this_orchestrator
from isoline.sweeps.execution.schedule import Node, Placement, Taken
from isoline.sweeps.state.runs import Run


class Fleet:
    """The machines of one pool, with what the state folder knows of them."""

    def __init__(self, state: Path, pool: Pool) -> None:
        self._state = state
        self._pool = pool
        self.hosts: dict[str, Host] = {host.name: host for host in hosts_of(pool)}

    def nodes(self, now: datetime) -> tuple[Node, ...] | None:
        """The nodes that launches may have; None where the pool's own scheduler chooses."""
        if not self._pool.is_placed_by_us:
            return None
        away = quarantine.kept_away(self._state, self._pool, now)
        errors = {item.node: len(item.errors_at(now)) for item in quarantine.all_nodes(self._state)}
        return tuple(
            Node(name, self._pool.accelerators, away.get(name, ""), errors.get(name, 0))
            for name in self.hosts
        )

    def taken(self) -> tuple[Taken, ...]:
        """What others hold on these nodes."""
        me = this_orchestrator()
        if any(not item.is_over for item in leases.unreadable(self._state)):
            return tuple(Taken(node, None) for node in self.hosts)  # it may hold any of them
        return tuple(
            Taken(node, None if lease.is_whole else devices)
            for lease in leases.all_leases(self._state)
            if lease.orchestrator != me and lease.life != "dead"
            for node, devices in lease.places
            if node in self.hosts
        )

    def lease(self, run: Run, launch_id: str, placement: Placement, ends_at: datetime) -> leases.Lease:
        """Lease what a launch was given. :raises InfraError: where somebody else was faster."""
        return leases.take(
            self._state,
            pool=self._pool.name,
            run_id=run.run_id,
            launch_id=launch_id,
            places=placement,
            is_whole=not self._pool.share_node,
            run_folder=run.folder,
            ends_at=quarantine.stamp(ends_at),
        )

    def end_ours(self) -> None:
        """End every process of this orchestrator at once; their bundles stay unsealed."""
        me = this_orchestrator()
        for owner in owners.all_owners(self._state):
            if owner.orchestrator == me:
                owners.sweep_one(self._state, owner, term_s=0.5)

    def note(
        self,
        lease: leases.Lease,
        notes: Sequence[ReasonNote],
        is_good: bool,
        nodes: Sequence[str] = (),
    ) -> list[tuple[str, quarantine.Hold]]:
        """Count a launch's error of the machine against its nodes; a good point speaks for them.

        :param nodes: where the pool's own scheduler chose them.
        :returns: the nodes that are quarantined by it.
        """
        bad = [
            note
            for note in notes
            if REASONS[note.code].verdict is Verdict.INFRA_ERROR
            and note.code not in quarantine.NOT_THE_NODE
            # This machine alone: there is no other to go to, and retries are bounded.
            and (self._pool.hosts or not self._pool.is_placed_by_us or note.code in quarantine.AT_ONCE)
        ]
        bad.sort(key=lambda note: note.code not in quarantine.AT_ONCE)
        held = []
        for node in nodes or [name for name, _ in lease.places]:
            if bad:
                at = quarantine.stamp(datetime.now(UTC))
                error = quarantine.NodeError(
                    at, lease.pool, lease.run_id, lease.launch_id, bad[0].code, bad[0].detail
                )
                if hold := quarantine.note_error(self._state, node, error):
                    held.append((node, hold))
            elif is_good:
                quarantine.note_good(self._state, node)
        return held
