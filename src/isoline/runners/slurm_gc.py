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


class Jobs:
    """Cleaner of batch jobs of this user."""

    kind = "job"

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
            return "" if job.end() else f"job {number} is {job.job.state}"
        except ToolUnavailableError as error:
            return error.line()


def clean_jobs_of(pool: Pool) -> None:
    """From now on clean-up looks at Slurm's queue too; nothing for other kinds of pools."""
    if pool.launcher == "slurm":
        gc.register(Jobs())
        # First of all: a job's folder is removed after it.
        gc.CLEANERS.sort(key=lambda item: item.kind != Jobs.kind)
