"""Jobs that a dead orchestrator left, found by their comment alone, and ended."""

from __future__ import annotations

from pathlib import Path

from isoline.catalog.pools import Pool
from isoline.runners import gc, slurm_jobs
from isoline.runners.container_gc import orchestrator_of
from isoline.runners.gc import Left
from isoline.runners.hosts import Host, ToolUnavailableError
from isoline.runners.orchestrators import life_of
from isoline.runners.slurm_job import FollowedJob
from isoline.runners.slurm_nodes import needs_sweep, sweep


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
        problems = []
        if needs_sweep(job.job, forced=job.forced):
            for pool in self.pools.values():
                problems.append(sweep(host, pool, job.job.nodes, left.run_id, left.launch_id))
        return "; ".join(item for item in problems if item)


_JOBS = Jobs()


def clean_jobs_of(pool: Pool) -> None:
    """From now on clean-up looks at Slurm's queue too; nothing for other kinds of pools."""
    if pool.launcher == "slurm":
        _JOBS.pools[pool.name] = pool
        gc.register(_JOBS)
        # First of all: a job's folder is removed after it.
        gc.CLEANERS.sort(key=lambda item: item.kind != Jobs.kind)
