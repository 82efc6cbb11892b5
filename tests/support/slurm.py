"""A small real Slurm cluster on this machine: one controller, a few nodes, all on the loopback device.

Every daemon is a child of the test's process and ends with it. Nodes have two counted GPUs each (character
devices that do nothing), so that scripts for GPU fleets are accepted as they are.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "setpriv")
CPUS = 8
GPUS = 2
DEVICES = ("/dev/null", "/dev/zero")

CONFIG = """\
ClusterName=isoline
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/sock
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout={slurmd_timeout_s}
SlurmctldTimeout=10
InactiveLimit=0
KillWait=3
UnkillableStepTimeout=10
MinJobAge=300
MessageTimeout=10
CompleteWait=0
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
GresTypes=gpu
{nodes}
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=first Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9
"""


def missing() -> str | None:
    """Why Slurm cannot be used here, in one line; None when it can."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = [name for name in PROGRAMS if not shutil.which(name, path=path)]
    if absent:
        return f"needs {', '.join(absent)}: `make test SYSTEM=1` as root, or install slurm-wlm and munge"
    return None if os.geteuid() == 0 else "needs Slurm's daemons as root"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for item in held:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in held]


class Cluster:
    """A running cluster. ``env`` is what a process needs to talk to it.

    :param extra_env: of the daemons too, so that jobs' programs see it (a podman of the tests' own).
    """

    def __init__(
        self, nodes: int = 2, slurmd_timeout_s: int = 5, extra_env: Mapping[str, str] | None = None
    ) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.nodes = [f"n{number + 1}" for number in range(nodes)]
        self.env = {"SLURM_CONF": str(self.root / "slurm.conf"), **(extra_env or {})}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._write(slurmd_timeout_s)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _write(self, slurmd_timeout_s: int) -> None:
        self.root.chmod(0o755)
        (self.root / "state").mkdir()
        (self.root / "munge").mkdir(mode=0o711)
        key = self.root / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        ports = _free_ports(1 + len(self.nodes))
        rows = [
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} "
            f"RealMemory=4000 Gres=gpu:{GPUS} State=UNKNOWN"
            for name, port in zip(self.nodes, ports[1:], strict=True)
        ]
        config = CONFIG.format(
            root=self.root, ports=ports, slurmd_timeout_s=slurmd_timeout_s, nodes="\n".join(rows)
        )
        (self.root / "slurm.conf").write_text(config)
        names = ",".join(self.nodes)
        (self.root / "gres.conf").write_text(
            "".join(f"NodeName={names} Name=gpu File={device}\n" for device in DEVICES[:GPUS])
        )
        for name in self.nodes:
            (self.root / f"spool-{name}").mkdir()

    def _daemon(self, name: str, *argv: str) -> None:
        with (self.root / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *argv],
                env=os.environ | self.env | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.root,
            )

    def _start(self) -> None:
        munge = self.root / "munge"
        self._daemon(
            "munged",
            "munged",
            "--foreground",
            f"--socket={munge}/sock",
            f"--key-file={munge}/key",
            f"--pid-file={munge}/pid",
            f"--log-file={munge}/log",
            f"--seed-file={munge}/seed",
        )
        self.wait(lambda: (munge / "sock").exists(), "munged's socket")
        self._daemon("slurmctld", "slurmctld", "-D", "-f", self.env["SLURM_CONF"])
        for name in self.nodes:
            self.start_node(name)
        self.wait(lambda: set(self.states().values()) == {"idle"}, "idle nodes", 30)

    # --- nodes ------------------------------------------------------------------------------------

    def start_node(self, name: str) -> None:
        """Start the daemon of a node."""
        self._daemon(name, "slurmd", "-D", "-N", name, "-f", self.env["SLURM_CONF"])

    def kill_node(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to the daemon of a node; what its jobs started lives on, as with a lost network."""
        self._daemons[name].send_signal(number)
        if number == signal.SIGKILL:
            self._daemons[name].wait()

    def states(self) -> dict[str, str]:
        """node -> state word of sinfo; empty while the controller does not answer."""
        done = self.ask("sinfo", "--noheader", "--Node", "--format=%N %T")
        return dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)

    # --- commands ---------------------------------------------------------------------------------

    def ask(self, *argv: str, timeout_s: float = 20) -> subprocess.CompletedProcess[str]:
        """Any of Slurm's programs, to its end."""
        return subprocess.run(
            argv, env=os.environ | self.env, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def run(self, *argv: str, timeout_s: float = 20) -> str:
        """The same; what it printed. It has to succeed."""
        done = self.ask(*argv, timeout_s=timeout_s)
        assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def jobs(self) -> dict[int, str]:
        """Every job that is not over: id -> state."""
        said = self.run("squeue", "--noheader", "--format=%i %T")
        return {int(words[0]): words[1] for words in map(str.split, said.splitlines())}

    def node_of_job(self) -> str:
        """The first node of the newest job that runs; the first node of all where none does."""
        said = self.run("squeue", "--noheader", "--states=RUNNING", "--format=%i %N")
        rows = sorted(
            (int(words[0]), words[1]) for words in map(str.split, said.splitlines()) if len(words) > 1
        )
        return rows[-1][1] if rows else self.nodes[0]

    def wait(self, is_so: Callable[[], bool], what: str, timeout_s: float = 15) -> None:
        """Wait for something; with the daemons' last words when it does not come."""
        until = time.monotonic() + timeout_s
        while not is_so():
            assert time.monotonic() < until, f"no {what} within {timeout_s} s\n{self.tail()}"
            time.sleep(0.05)

    def tail(self) -> str:
        """The last lines of every log."""
        parts = []
        for path in [*self.root.glob("*.log"), *self.root.glob("*.out"), self.root / "munge" / "log"]:
            if path.exists():
                parts += [f"--- {path.name}", *path.read_text(errors="replace").splitlines()[-12:]]
        return "\n".join(parts)

    # --- the end ----------------------------------------------------------------------------------

    def processes(self) -> dict[int, str]:
        """pid -> command line of everything that lives by this cluster, daemons left out."""
        daemons = {item.pid for item in self._daemons.values()} | {os.getpid()}
        needle = f"SLURM_CONF={self.env['SLURM_CONF']}".encode()
        found = {}
        for name in os.listdir("/proc"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                if name.isdigit() and int(name) not in daemons:
                    folder = Path("/proc") / name
                    if needle in (folder / "environ").read_bytes():
                        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                        found[int(name)] = words.decode(errors="replace")
        return found

    def close(self) -> None:
        """End every job, daemon and left-over process of this cluster, by their ids; remove its files."""
        with contextlib.suppress(Exception):
            self.ask("scancel", "--user=root", timeout_s=5)
            self.wait(lambda: not self.jobs(), "an empty queue", 8)
        for item in reversed(list(self._daemons.values())):
            item.kill()
            item.wait()
        for _ in range(3):
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        shutil.rmtree(self.root, ignore_errors=True)
