"""Nodes of a job that did not end in order: the launch's containers on them are removed by a short step.

A job's own script does this on every way out; only one that was killed, or whose node was lost, leaves it
to us. It needs the nodes once more, for seconds; where Slurm does not give them, that is said.
"""

from __future__ import annotations

from isoline.catalog.pools import Pool
from isoline.runners.hosts import Host, ToolUnavailableError
from isoline.runners.slurm_jobs import Job

WAIT_S = 30
STEP_S = 150.0

SWEEP = (
    'found=$(timeout 30 "$1" ps --all --quiet --filter "label=isoline.run=$2"'
    ' --filter "label=isoline.launch=$3") || exit 1; '
    '[[ -z $found ]] || timeout 60 "$1" rm --force $found'
)


def needs_sweep(job: Job, *, forced: bool) -> bool:
    """Whether a job's script may not have come to its end."""
    return forced or bool(job.signal) or job.state not in ("COMPLETED", "FAILED")


def sweep_words(pool: Pool, nodes: str, run_id: str, launch_id: str) -> list[str]:
    """The command that removes a launch's containers from nodes (Slurm's list); empty without a runtime."""
    slurm = pool.slurm
    if slurm is None or slurm.container not in ("docker", "podman") or not nodes:
        return []
    words = ["srun", f"--partition={slurm.partition}", f"--nodelist={nodes}", "--ntasks-per-node=1"]
    for name in ("account", "qos", "reservation"):
        if (value := getattr(slurm, name)) is not None:
            words.append(f"--{name}={value}")
    words += [f"--immediate={WAIT_S}", "--time=3", "--job-name=isoline-clean", "--input=none", "--chdir=/"]
    env = pool.container.env if pool.container else {}
    words += ["env", *(f"{name}={value}" for name, value in sorted(env.items()))]
    return [*words, "bash", "-c", SWEEP, "isoline", slurm.container, run_id, launch_id]


def sweep(host: Host, pool: Pool, nodes: str, run_id: str, launch_id: str) -> str:
    """Remove a launch's containers from nodes. What stood in the way, one line; "" = they are clean."""
    words = sweep_words(pool, nodes, run_id, launch_id)
    if not words:
        return ""
    try:
        done = host.run(words, timeout_s=STEP_S)
    except ToolUnavailableError as error:
        return error.line()
    return "" if done.ok else f"containers of {launch_id} on {nodes} may be left: {done.last_line()}"
