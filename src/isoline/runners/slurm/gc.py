"""Jobs that a dead orchestrator left, found by their comment alone, and ended."""

from __future__ import annotations

from pathlib import Path

from isoline.catalog.pools import Pool
from isoline.runners.launchers.container_gc import orchestrator_of
from isoline.runners.machine.hosts import Host, ToolUnavailableError
from isoline.runners.ownership import gc
from isoline.runners.ownership.gc import Left
from isoline.runners.ownership.orchestrators import life_of
from isoline.runners.slurm import commands as slurm_jobs
from isoline.runners.slurm.job import FollowedJob
from isoline.runners.slurm.nodes import all_unclean, is_clean, needs_sweep, sweep, sweep_or_note


class Jobs:
    """Cleaner of batch jobs of this user, and of their containers by the pools that it was told of."""

    kind = "job"

    def __init__(self) -> None:
        self.pools: dict[str, Pool] = {}

    def find(self, state: Path, host: Host) -> list[Left]:
        """Jobs of the queue whose comment names a dead orchestrator of this machine.

        :raises ToolUnavailableError: when the controller does not answer.
        """
        if not host.is_local:
            return []
        found = []
        for job in slurm_jobs.our_jobs(host):
            who = orchestrator_of(dict(job.labels))
            if who is not None and life_of(who) == "dead":
                found.append(
                    Left(
                        self.kind,
                        str(job.id),
                        host.name,
                        job.labels.get("isoline.run", ""),
                        job.labels.get("isoline.launch", ""),
                        what=f"Slurm job {job.id}, {job.state}",
                        handle=(host, job.id),
                    )
                )
        return found

    def remove(self, state: Path, left: Left) -> str:
        """Tell the job to end, which cleans its nodes; by force after a while."""
        host, number = left.handle
        try:
            # Nobody reads its files any more.
            job = FollowedJob(host, number, Path("/"), {}, is_shared=True)
            if not job.end():
                return f"job {number} is {job.job.state}"
        except ToolUnavailableError as error:
            return error.line()
        if not needs_sweep(job.job, forced=job.forced):
            return ""
        problems = [
            sweep_or_note(host, state, pool, job.job.nodes, left.run_id, left.launch_id)
            for pool in self._pools_with(job.job.partition)
        ]
        return "; ".join(problem for problem in problems if problem)

    def _pools_with(self, partition: str) -> list[Pool]:
        """Those whose jobs may run in a partition; all where a job's is not known."""
        names = ((pool, pool.slurm.partition.split(",")) for pool in self.pools.values() if pool.slurm)
        return [pool for pool, known in names if not partition or partition in known]


class LostNodes:
    """Cleaner of nodes that were lost with a launch's containers on them, once they are back."""

    kind = "node"

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def find(self, state: Path, host: Host) -> list[Left]:
        """Launches whose nodes could not be cleaned, of the pools that are known here."""
        if not host.is_local:
            return []
        return [
            Left(
                self.kind,
                item.nodes,
                host.name,
                item.run_id,
                item.launch_id,
                what="containers on a node that was lost",
                handle=(host, item),
            )
            for item in all_unclean(state)
            if item.pool in self._jobs.pools
        ]

    def remove(self, state: Path, left: Left) -> str:
        """Remove the launch's containers there. A node that is still away stays on the list."""
        host, item = left.handle
        problem = sweep(host, self._jobs.pools[item.pool], item.nodes, item.run_id, item.launch_id)
        if not problem:
            is_clean(state, item)
        return problem


_JOBS = Jobs()
_LOST = LostNodes(_JOBS)


def clean_jobs_of(pool: Pool) -> None:
    """From now on clean-up looks at Slurm's queue too; nothing for other kinds of pools."""
    if pool.launcher == "slurm":
        _JOBS.pools[pool.name] = pool
        gc.register(_JOBS)
        gc.register(_LOST)
        # First of all: a job's folder is removed after it.
        gc.CLEANERS.sort(key=lambda item: item.kind != Jobs.kind)
