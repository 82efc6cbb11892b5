"""Batch scripts: where programs are put, and what bash makes of them (Slurm's tools are stand-ins)."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isoline.catalog.pools import Pool
from isoline.errors import InputError
from isoline.recipes.deployment import Command, Deployment, placeholders_in
from isoline.recipes.placement import Place, placed
from isoline.recipes.renderers.slurm import filled_script, slurm_script

SRUN = r"""#!/bin/bash
# Runs the step here: one task for each that was asked for, with its own signals.
tasks=1
[[ ! -e $FAKE/other ]] || cp "$FAKE/other" "$FAKE/module/nvidia/version"  # a node unlike the first
while [[ $1 == --* ]]; do case $1 in --ntasks=*) tasks=${1#*=};; esac; shift; done
for (( n = 0; n < tasks; n++ )); do
  ( echo $BASHPID >>"$FAKE/steps"; exec env --default-signal=TERM,INT,HUP "$@" ) & pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
exit "${code:-0}"
"""
SCONTROL = r"""#!/bin/bash
case $2 in hostnames) printf '%s\n' ${3//,/ };; node) echo "NodeName=$4 NodeAddr=127.0.0.1 State=IDLE";; esac
"""
SCANCEL = r"""#!/bin/bash
echo "$@" >>"$FAKE/scancel"
while read -r pid; do kill -TERM "$pid"; done <"$FAKE/steps" 2>/dev/null; true
"""
PODMAN = r"""#!/bin/bash
# A container is a process; stop ends it, ps lists nothing that is gone.
echo "$@" >>"$FAKE/podman"
case $1 in
  run) while [[ $1 != --entrypoint ]]; do [[ $1 != --name ]] || name=$2; shift; done
    setsid "$2" "${@:4}" & echo $! >"$FAKE/c.$name"; wait ;;
  stop) kill -TERM "$(cat "$FAKE/c.${*: -1}")" ;;
esac
"""


def serve(port: str) -> list[str]:
    """A program that answers every request on a port."""
    return ["python3", "-m", "http.server", port, "--bind", "127.0.0.1"]


def of(**more: Any) -> Deployment:
    """Two roles of three workers, a store before and a router after them."""
    worker = Command("prefill", serve("{port}"), {}, role="prefill", workers=2, gpus=1)
    decode = Command("decode", serve("{port}"), {}, role="decode", gpus=1)
    store = Command("store", serve("{port.store}"), {"A": "a b"}, ports=("store",), ready="/")
    router = Command(
        "router",
        [
            "bash",
            "-c",
            'echo "$@"; exec python3 -m http.server {port.router}',
            "x",
            "{url.prefill}",
            "{host.store}",
        ],
        {},
        config_files={"peers.json": {"at": "{url.decode.0}", "worker": "{worker}"}},
        ports=("router",),
        is_entry=True,
    )
    return Deployment("image:1", (store,), (worker, decode), (router,))


def pool(container: str = "none", **slurm: Any) -> Pool:
    parts = {"device_profile": "cpu", "runtime": "podman", "model_cache": "/m", "scratch": "/s"}
    return Pool.model_validate(
        {
            "schema_version": 1,
            "name": "p",
            "launcher": "slurm",
            "sku": "cpu",
            "nodes": 3,
            "container": None if container == "none" else parts,
            "slurm": {"partition": "x", "container": container, **slurm},
        }
    )


def free_ports(count: int) -> list[str]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [str(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return ports


class Job:
    """A script that runs in bash on this machine."""

    def __init__(
        self,
        folder: Path,
        deployment: Deployment,
        where: Pool,
        driver: str = "",
        other: str = "",
        smi: str = "",
    ) -> None:
        self.scratch, tools, self.fake = folder / "scratch", folder / "tools", folder / "fake"
        for item in (self.scratch, tools, self.fake):
            item.mkdir()
        bodies = {
            "srun": SRUN,
            "scontrol": SCONTROL,
            "scancel": SCANCEL,
            "podman": PODMAN,
            "getent": "#!/bin/false\n",
            "nvidia-smi": f"#!/bin/bash\n{smi or 'exit 1'}\n",
        }
        for name, body in bodies.items():
            (tools / name).write_text(body)
            (tools / name).chmod(0o755)
        if driver:
            (self.fake / "module/nvidia").mkdir(parents=True)
            (self.fake / "module/nvidia/version").write_text(f"{driver}\n")
        if other:
            (self.fake / "other").write_text(f"{other}\n")
        names = sorted(placeholders_in([slurm_script(deployment, where)]))
        ports = [name for name in names if name.startswith("port.")]
        self.ports = dict(zip(ports, free_ports(len(ports)), strict=True))
        values = (
            {name: name.replace(".", "-") for name in names} | self.ports | {"scratch": str(self.scratch)}
        )
        text = filled_script(slurm_script(deployment, where, ready_s=20, health="/"), values)
        (folder / "job.sh").write_text(text.replace("/sys/module/", f"{self.fake}/module/"))
        env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "FAKE": str(self.fake)}
        env |= {"SLURM_JOB_NODELIST": "n1,n2,n3", "SLURM_JOB_ID": "7"}
        command = ["bash", str(folder / "job.sh")]
        with (self.scratch / "job.log").open("w") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)

    def until(self, done: Callable[[], bool]) -> None:
        for _ in range(300):
            if done():
                return
            time.sleep(0.1)
        raise AssertionError(f"{(self.scratch / 'job.log').read_text()}{list(self.scratch.iterdir())}")

    def answers(self, name: str) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", int(self.ports[name]))) == 0

    def compiled(self) -> list[str]:
        """What it says of compiled kernels, once it does."""
        file = self.scratch / "compiled"
        self.until(lambda: file.exists() and file.read_text().endswith("\n"))
        return file.read_text().split()

    def codes(self) -> dict[str, str]:
        return {item.stem: item.read_text().strip() for item in self.scratch.glob("[!.]*.exit")}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """``job(deployment, pool)`` runs its script; what is left of it is ended afterwards."""
    made: list[Job] = []

    def make(deployment: Deployment, where: Pool, **more: Any) -> Job:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Job(folder, deployment, where, **more))
        return made[-1]

    yield make
    for item in made:
        if item.process.poll() is None:
            item.process.terminate()
            item.process.wait(60)


def test_the_programs_start_in_order_and_the_first_that_ends_ends_the_job(job: Callable[..., Job]) -> None:
    """The store answers before workers start, these before the router; a dead worker ends all the others."""
    found = job(of(), pool())
    found.until(lambda: found.answers("port.router"))
    assert (found.scratch / "nodes").read_text().split() == ["n1", "n2", "n3"]
    said = (found.scratch / "router.0.log").read_text().split()
    assert said[:3] == [
        *(f"http://127.0.0.1:{found.ports[f'port.prefill_{n}']}" for n in (0, 1)),
        "127.0.0.1",
    ]
    peers = (found.scratch / "files/router/peers.json").read_text()
    assert f"http://127.0.0.1:{found.ports['port.decode_0']}" in peers
    assert '"worker": "0"' in peers
    steps = [int(pid) for pid in (found.fake / "steps").read_text().split()]
    commands = {pid: Path(f"/proc/{pid}/cmdline") for pid in steps}
    own = f"\0{found.ports['port.decode_0']}\0"
    os.kill(next(pid for pid, file in commands.items() if file.exists() and own in file.read_text()), 9)
    assert found.process.wait(60) == 137
    assert found.codes() == {
        "decode.0": "137", "prefill.0": "143", "prefill.1": "143", "router.0": "143", "store.0": "143",
    }  # fmt: skip


def test_a_program_that_ends_while_another_waits_for_it(job: Callable[..., Job]) -> None:
    """Nobody waits for a dead program until the deadline."""
    store = Command("store", ["bash", "-c", "exit 3"], {}, ports=("store",), ready="/")
    worker = Command("aggregated", serve("{port.store}"), {}, role="aggregated", gpus=1)
    found = job(Deployment(None, (store,), (worker,), ()), pool())
    assert found.process.wait(60) == 93
    assert found.codes() == {"store.0": "3"}


def test_a_signal_stops_containers_in_order(job: Callable[..., Job]) -> None:
    """A cancelled job stops each container by its name, and removes it."""
    worker = Command("aggregated", serve("{port}"), {}, role="aggregated", gpus=1)
    found = job(Deployment("image:1", (), (worker,), ()), pool("podman"))
    found.until(lambda: found.answers("port.aggregated_0"))
    found.process.terminate()
    assert found.process.wait(60) == 143
    calls = [row.split()[0] for row in (found.fake / "podman").read_text().splitlines()]
    assert calls == ["run", "stop", "rm", "ps", "ps", "ps"]
    assert not found.answers("port.aggregated_0")


def kernels(tmp_path: Path) -> tuple[Deployment, Pool]:
    """A worker whose kernels are kept, on a pool whose podman is a stand-in."""
    where = pool("podman").model_copy(update={"sku": "h100"})
    assert where.container is not None
    parts = {"device_profile": "nvidia", "scratch": f"{tmp_path}/node"}
    where = where.model_copy(update={"container": where.container.model_copy(update=parts)})
    worker = Command("aggregated", serve("{port}"), {}, role="aggregated", gpus=1)
    return Deployment("image:1@sha256:" + "a" * 64, (), (worker,), ()), where


def test_compiled_kernels_are_kept_by_driver(job: Callable[..., Job], tmp_path: Path) -> None:
    """The folder is mounted and told to be cold until a server was steady with it; another driver has
    another one; a job whose nodes differ ends before anything starts."""
    deployment, where = kernels(tmp_path)
    first = job(deployment, where, driver="580.65 x")
    state, path = first.compiled()
    assert (state, Path(path).parent) == ("cold", tmp_path / "node/compile") and path.endswith("-580.65_x")
    calls = first.fake / "podman"
    first.until(lambda: calls.exists() and f"--volume {path}:/compiled " in calls.read_text())
    (Path(path) / ".isoline-warm").touch()
    assert job(deployment, where, driver="580.65 x").compiled() == ["warm", path]
    assert job(deployment, where, driver="590.1").compiled()[0] == "cold"
    mixed = job(deployment, where, driver="580.65", other="575.1")
    assert mixed.process.wait(60) == 95
    assert "driver 575.1 on " in (mixed.scratch / "job.log").read_text()
    assert not (mixed.fake / "podman").exists()


LIST = "if [[ $1 == -L ]]; then printf 'GPU 0: H100 (UUID: x)\\nGPU 1: H100 (UUID: y)\\n'; exit; fi"
USED = "echo '00000000:01:00.0, 4711, python3, 61000 MiB'"


@pytest.mark.parametrize(
    ("smi", "accelerators", "code", "said"),
    [
        (f"{LIST}; {USED}", 2, 96, ": a device is used by 00000000:01:00.0, 4711, python3, 61000 MiB"),
        (LIST, 4, 97, ": 2 of 4 devices"),
        ("echo 'Unable to determine the device handle'; exit 15", 2, None, ""),
        (f"{LIST}; echo 'No running processes found'", 2, None, ""),
        ("sleep 0.1; exit 9", 2, None, ""),
    ],
)
def test_devices_of_a_node_are_looked_at_inside_the_job(
    job: Callable[..., Job], tmp_path: Path, smi: str, accelerators: int, code: int | None, said: str
) -> None:
    """One that somebody uses, or that is not there, ends the job before anything starts, with its own code;
    a tool that fails proves nothing."""
    deployment, where = kernels(tmp_path)
    found = job(deployment, where.model_copy(update={"accelerators": accelerators}), driver="1", smi=smi)
    if code is None:
        assert found.compiled()[0] == "cold"
        return
    assert found.process.wait(60) == code
    assert said in (found.scratch / "job.log").read_text()
    assert not (found.fake / "podman").exists()


def test_a_pool_that_asks_for_devices_itself_knows_their_number(tmp_path: Path) -> None:
    """They are not counted where its own lines say how many; nodes that are shared may be in use."""
    deployment, where = kernels(tmp_path)
    assert where.slurm is not None
    parts = {"extra": ["--gres=gpu:1"], "exclusive": False}
    shared = where.model_copy(update={"slurm": where.slurm.model_copy(update=parts)})
    assert "nvidia-smi" in slurm_script(deployment, where)
    assert "nvidia-smi" not in slurm_script(deployment, shared)


def test_nothing_is_compiled_for_a_cpu(tmp_path: Path) -> None:
    """No folder for a CPU, nor where jobs run without a container."""
    worker = Command("aggregated", ["x"], {}, role="aggregated", gpus=1)
    assert "compiled" not in slurm_script(Deployment("image:1", (), (worker,), ()), pool("podman"))
    deployment, where = kernels(tmp_path)
    assert where.slurm is not None
    bare = where.model_copy(update={"slurm": where.slurm.model_copy(update={"container": "none"})})
    assert "compiled" not in slurm_script(deployment, bare)


def test_without_a_shared_folder_the_job_stays_until_its_files_were_fetched(job: Callable[..., Job]) -> None:
    """Nothing of the script needs a shared folder, and its end waits for whoever fetches the logs."""
    worker = Command("aggregated", serve("{port}"), {}, role="aggregated", gpus=1)
    found = job(Deployment(None, (), (worker,), ()), pool(shared_home=False))
    found.until(lambda: found.answers("port.aggregated_0"))
    found.process.terminate()
    found.until((found.scratch / "finished").exists)
    assert found.process.poll() is None
    (found.scratch / "collected").touch()
    assert found.process.wait(60) == 143
    assert "--output=/dev/null" in (found.scratch.parent / "job.sh").read_text()


def test_placement() -> None:
    """Workers share a node where they fit, with devices of their own; one that spans nodes has whole ones."""
    two = Command("prefill", [], {}, role="prefill", workers=3, gpus=4)
    wide = Command("decode", [], {}, role="decode", gpus=16, nodes=2, followers=(["x"],))
    found = placed(Deployment(None, (), (two, wide), (Command("router", [], {}),)), 8)
    low, high, all_8 = (0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8))
    assert found == {
        ("prefill", 0): (Place(0, low),),
        ("prefill", 1): (Place(0, high),),
        ("prefill", 2): (Place(1, low),),
        ("decode", 0): (Place(2, all_8), Place(3, all_8)),
        ("router", 0): (Place(0),),
    }
    with pytest.raises(InputError, match="a worker of 12 accelerators does not come out even on nodes of 8"):
        placed(Deployment(None, (), (Command("aggregated", [], {}, role="aggregated", gpus=12),), ()), 8)


def test_options(project_root: Path) -> None:
    """What the pool says about its jobs is in the head of the script, and further lines win."""
    where = pool(account="a", qos="q", reservation="r", constraint="c", extra=["--mem=8G", "--comment=a b"])
    where = Pool.model_validate(
        {**where.model_dump(), "exclude": [{"node": "n7", "reason": "ecc"}, {"node": "n9", "reason": "slow"}]}
    )
    text = slurm_script(of(), where)
    head = {row.removeprefix("#SBATCH ") for row in text.splitlines() if row.startswith("#SBATCH")}
    assert {"--account=a", "--qos=q", "--reservation=r", "--constraint=c", "--exclusive", "--mem=8G"} <= head
    assert {"--exclude=n7,n9", "--no-requeue", "--signal=B:TERM@30", "'--comment=a b'", "--nodes=3"} <= head
    assert "--mem=0" not in head
    assert not any("gpus" in row for row in head)  # a cpu pool asks for none


def test_every_placeholder_must_have_a_plain_value() -> None:
    """A value that a shell would not read as one word is refused, as is a missing one."""
    text = "start {port.a} {scratch}"
    assert filled_script(text, {"port.a": "1", "scratch": "/a/b"}) == "start 1 /a/b"
    with pytest.raises(InputError, match=re.escape("{scratch} has no value")):
        filled_script(text, {"port.a": "1"})
    for value in ("/a b", "$(x)", "a;b", "'", "`", "a\nb"):
        with pytest.raises(InputError, match="scratch"):
            filled_script(text, {"port.a": "1", "scratch": value})


def test_ranks_started_by_mpi_are_one_step() -> None:
    """One task a device on all nodes of the worker; containers of docker or podman cannot do it."""
    worker = Command("aggregated", ["launch"], {}, role="aggregated", gpus=8, nodes=2, mpi=True)
    deployment = Deployment("image:1", (), (worker,), ())
    where = pool("apptainer").model_copy(update={"accelerators": 4})
    text = slurm_script(deployment, where)
    start = next(row for row in text.splitlines() if row.startswith("start "))
    assert '"${nodes[0]},${nodes[1]}" --nodes=2 --ntasks=8 --ntasks-per-node=4 --mpi=pmix apptainer' in start
    with pytest.raises(InputError, match="which podman containers cannot"):
        slurm_script(deployment, pool("podman").model_copy(update={"accelerators": 4}))


def test_no_word_of_a_recipe_becomes_shell(tmp_path: Path) -> None:
    """A control character, with which the script's own marks are made, is refused; a page is quoted."""
    for argv, env in ((["x", "\x03$(id)"], {}), (["x", "\x010\x02"], {}), (["x"], {"A": "\x00"})):
        command = Command("aggregated", argv, env, role="aggregated", gpus=1)
        with pytest.raises(InputError, match="a control character"):
            slurm_script(Deployment("image:1", (), (command,), ()), pool())
    command = Command("aggregated", ["x", "{port}"], {}, role="aggregated", gpus=1)
    store = Command("store", ["x"], {}, ports=("store",), ready="/; touch y")
    assert " '/; touch y' " in slurm_script(Deployment("image:1", (store,), (command,), ()), pool())
