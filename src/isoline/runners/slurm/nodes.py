"""Nodes of a job: which it keeps away from, and what is removed from them where it did not end in order.

A job's own script removes the launch's containers on every way out; only one that was killed, or whose
node was lost, leaves it to us. It needs the nodes once more, for seconds; where Slurm does not give them,
that is said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from isoline.catalog.pools import Pool
from isoline.results.bundles.bundle import write_file
from isoline.runners.machine.hosts import Host, ToolUnavailableError
from isoline.runners.ownership.quarantine import excluded_by, kept_away
from isoline.runners.ownership.record import read_record
from isoline.runners.slurm.commands import ASK_S, Job

WAIT_S = 30
STEP_S = 150.0

_LOST = re.compile(r"(?i)down|fail|unknown|[a-z]+\*$")
"""States of a node that lost its job."""

_TOLD = re.compile(r"^isoline: node (\S+): ", re.MULTILINE)
"""How the script names a node with which something is wrong."""

SWEEP = (
    'found=$(timeout 30 "$1" ps --all --quiet --filter "label=isoline.run=$2"'
    ' --filter "label=isoline.launch=$3") || exit 1; '
    '[[ -z $found ]] || timeout 60 "$1" rm --force $found'
)


def partition_nodes(host: Host, pool: Pool) -> set[str]:
    """The nodes of the pool's partition, by Slurm's names.

    :raises ToolUnavailableError: when Slurm does not say which these are.
    """
    assert pool.slurm is not None
    words = ["sinfo", "--noheader", "--Node", f"--partition={pool.slurm.partition}", "--format=%N"]
    done = host.run(words, timeout_s=ASK_S)
    if not done.ok:
        raise ToolUnavailableError(f"sinfo: {done.last_line()}", where=host.name)
    return set(done.stdout.split())


def nodes_to_judge(host: Host, job: Job, seen: Sequence[str], log: Path | None = None) -> tuple[str, ...]:
    """The nodes that a job's end speaks of: where one was lost, or its devices were found wanting, that
    one; else all of its nodes.

    :param seen: the names that the job itself wrote; empty where it did not come so far.
    :param log: what its script wrote.
    """
    names = list(seen)
    if job.reason in ("gpu_busy", "device_lost") and log is not None:
        with suppress(OSError):
            told = set(_TOLD.findall(log.read_text(encoding="utf-8", errors="replace")))
            names = [name for name in names if name in told] or names
    with suppress(ToolUnavailableError):
        if not names and job.nodes:
            done = host.run(["scontrol", "show", "hostnames", job.nodes], timeout_s=ASK_S)
            names = done.stdout.split() if done.ok else []
        if job.reason == "node_failed" and len(names) > 1:
            words = ["sinfo", "--noheader", "--Node", f"--nodes={','.join(names)}", "--format=%N %T"]
            rows = [row.split() for row in host.run(words, timeout_s=ASK_S).stdout.splitlines()]
            # `down*`: a star is a node that does not answer.
            lost = {row[0] for row in rows if len(row) == 2 and _LOST.match(row[1])}
            names = [name for name in names if name in lost] or names
    return tuple(names)


def away_from(host: Host, state: Path, pool: Pool, now: datetime) -> dict[str, str]:
    """Node -> why the pool's jobs keep away from it now.

    What people drained may be a node of another pool, or misspelt, and Slurm takes no job that names a
    node which it does not have: of these only the partition's own count.

    :raises ToolUnavailableError: when Slurm does not say which these are.
    """
    listed, away = excluded_by(pool, now), kept_away(state, pool, now)
    if set(away) == set(listed) or pool.slurm is None:
        return away
    own = partition_nodes(host, pool)
    return {node: why for node, why in away.items() if node in own or node in listed}


def needs_sweep(job: Job, *, forced: bool) -> bool:
    """Whether a job's script may not have come to its end."""
    return forced or bool(job.signal) or job.state not in ("COMPLETED", "FAILED")


def sweep_words(pool: Pool, nodes: str, run_id: str, launch_id: str) -> list[str]:
    """The command that removes a launch's containers from nodes (Slurm's list); empty without a runtime."""
    slurm = pool.slurm
    if slurm is None or not slurm.has_runtime or not nodes:
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


@dataclass(frozen=True)
class Unclean:
    """Nodes of a launch that could not be cleaned: lost, or not given for the step that cleans them."""

    pool: str
    nodes: str  # Slurm's list
    run_id: str
    launch_id: str
    why: str

    @property
    def name(self) -> str:
        """What its record is called."""
        return f"{self.run_id}-{self.launch_id}"


def _folder(state: Path) -> Path:
    return state / "unclean"


def sweep_or_note(host: Host, state: Path, pool: Pool, nodes: str, run_id: str, launch_id: str) -> str:
    """:func:`sweep`; where that does not work the nodes are kept in mind, see :func:`note_unclean`."""
    problem = sweep(host, pool, nodes, run_id, launch_id)
    if problem:
        note_unclean(state, Unclean(pool.name, nodes, run_id, launch_id, problem))
    return problem


def note_unclean(state: Path, item: Unclean) -> None:
    """Keep in mind that these nodes are to be cleaned once they are back."""
    text = json.dumps(asdict(item), indent=1, ensure_ascii=False) + "\n"
    write_file(_folder(state) / f"{item.name}.json", text.encode())


def all_unclean(state: Path) -> list[Unclean]:
    """What is still to be cleaned; a broken record is none."""
    found = (read_record(path, Unclean, "name") for path in sorted(_folder(state).glob("*.json")))
    return [item for item in found if item is not None]


def is_clean(state: Path, item: Unclean) -> None:
    """Forget it."""
    (_folder(state) / f"{item.name}.json").unlink(missing_ok=True)
