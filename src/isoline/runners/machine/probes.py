"""Small questions to one machine: free space, ports, clock, tools, files. Each returns one finding.

A finding is (name, ok, detail, reason code or None). Parsers are pure; the question is one command.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from isoline.runners.machine import ports
from isoline.runners.machine.hosts import Host, ToolUnavailableError

Found = tuple[str, bool | None, str, str | None]

SKEW_S = 2.0
"""How far a machine's clock may be from ours."""

ROOM_SCRIPT = """
p=$1; while [ ! -e "$p" ]; do p=$(dirname -- "$p"); done
df -Pk -- "$p" | tail -n 1; if [ -w "$p" ]; then echo writable; else echo read-only; fi; echo "$p"
"""
CLOCK_SCRIPT = """
date +%s.%N; timedatectl show -p NTPSynchronized 2>/dev/null; echo --; chronyc -n tracking 2>/dev/null || true
"""
FILES_SCRIPT = 'for f in "$@"; do if [ -f "$f" ]; then wc -c <"$f"; else echo missing; fi; done'
LISTEN = "0A"


def parse_df(line: str) -> int | None:
    """Free bytes out of one line of ``df -Pk``."""
    match = re.search(r"\s(\d+)\s+(\d+)\s+(\d+)\s+\d+%\s", line)
    return int(match[3]) * 1024 if match else None


def room(host: Host, what: str, path: str, need_gb: float) -> Found:
    """Free space where a path is (or will be made), and whether it can be written there."""
    name = f"disk: {what}"
    done = host.run(["sh", "-c", ROOM_SCRIPT, "sh", path])
    lines = done.stdout.splitlines()
    free = parse_df(lines[0]) if len(lines) == 3 else None
    if free is None:
        return name, False, f"{path}: df does not say how much is free", "tool_missing"
    if not free >= need_gb * 1e9:  # also where the need is no number
        return name, False, f"{path}: {free / 1e9:.1f} GB free, {need_gb:g} GB needed", "disk_full"
    if lines[1] != "writable" and what != "model cache":
        return name, False, f"{path}: cannot be written", "disk_full"
    return name, True, f"{path}: {free / 1e9:.1f} GB free", None


def listening(output: str) -> set[int]:
    """Ports that are listened on, out of /proc/net/tcp and tcp6."""
    found = set()
    for line in output.splitlines():
        cells = line.split()
        if len(cells) > 3 and cells[3] == LISTEN:
            found.add(int(cells[1].rpartition(":")[2], 16))
    return found


def port_range(host: Host, need: int) -> Found:
    """Free ports of Isoline's range."""
    done = host.run(["sh", "-c", "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null || true"])
    if "local_address" not in done.stdout:
        return "ports", None, "the kernel does not list its sockets", None
    taken = {port for port in listening(done.stdout) if ports.FIRST <= port <= ports.LAST}
    free = ports.LAST - ports.FIRST + 1 - len(taken)
    detail = f"{free} of {ports.FIRST} to {ports.LAST} are free"
    return ("ports", True, detail, None) if free >= need else ("ports", False, detail, "port_in_use")


def synchronised(timedatectl: str, chronyc: str) -> bool | None:
    """Whether a time service sets the clock, by what the two tools printed; None where neither says."""
    leap = re.search(r"^Leap status\s*:\s*(.+)$", chronyc, re.MULTILINE)
    if leap:
        return leap[1].strip() != "Not synchronised"
    said = re.search(r"^NTPSynchronized=(yes|no)$", timedatectl, re.MULTILINE)
    return None if said is None else said[1] == "yes"


def clock(host: Host) -> Found:
    """Whether the clock is set by a time service, and for another machine how far it is from ours."""
    sent = time.time()
    done = host.run(["sh", "-c", CLOCK_SCRIPT])
    back = time.time()
    first, _, rest = done.stdout.partition("\n")
    timedatectl, _, chronyc = rest.partition("--\n")
    is_set = synchronised(timedatectl, chronyc)
    if not host.is_local:
        try:
            theirs = float(first)
        except ValueError:
            return "clock", None, "the machine does not say its time", None
        apart = max(sent - theirs, theirs - back, 0.0)
        if apart > SKEW_S:
            return "clock", False, f"{apart:.1f} s from ours", "clock_unsynchronised"
    if is_set is None:
        return "clock", None, "neither timedatectl nor chronyc says whether it is set", None
    if not is_set:
        return "clock", False, "no time service sets it", "clock_unsynchronised"
    return "clock", True, "set by a time service", None


INFO = {
    "docker": ("docker", "info", "--format", "{{.ServerVersion}} {{.DockerRootDir}}"),
    "podman": ("podman", "info", "--format", "{{.Version.Version}} {{.Store.GraphRoot}}"),
}


def tool(host: Host, name: str, image_gb: float = 0.0) -> Found:
    """Whether a program answers; for container runtimes also the space where images are kept."""
    label = f"tool: {name}"
    try:
        done = host.run(list(INFO.get(name, (name, "--version"))))
    except ToolUnavailableError as error:
        return label, False, error.what, "tool_missing"
    if not done.ok:
        return label, False, f"{name} does not work: {done.last_line()}", "tool_missing"
    said = " ".join(done.stdout.split())[:120]
    if name not in INFO:
        return label, True, said, None
    version, _, root = said.partition(" ")
    found = room(host, "images", root, image_gb) if root.startswith("/") else None
    if found is not None and found[1] is False:
        return label, False, f"images in {found[2]}", found[3]
    return label, True, f"{version}, images in {found[2] if found else 'an unknown place'}", None


ROOTLESS = {
    "docker": ("docker", "info", "--format", "{{.SecurityOptions}}"),
    "podman": ("podman", "info", "--format", "{{.Host.Security.Rootless}}"),
}


def rootless(host: Host, runtime: str) -> Found:
    """Whether a container runtime runs without root, as a pool with ``rootless`` demands."""
    done = host.run(ROOTLESS[runtime])
    said = done.stdout.strip()
    if not done.ok:
        return "rootless", False, f"{runtime} does not work: {done.last_line()}", "tool_missing"
    if said == "true" or "name=rootless" in said:
        return "rootless", True, f"{runtime} runs without root", None
    return "rootless", False, f"{runtime} runs as root", "runtime_not_rootless"


GONE_STATES = ("down", "drain", "fail", "maint", "unk", "error", "power", "boot", "reboot", "not_resp")
"""Beginnings of the states in which a node takes no job."""


def parse_sinfo(output: str) -> tuple[int, int]:
    """(nodes that take jobs, all nodes) of ``sinfo -h -o '%D %T'``; a mark behind a state is left out."""
    usable = total = 0
    for line in output.splitlines():
        count, _, state = line.strip().partition(" ")
        if count.isdigit():
            total += int(count)
            is_gone = state.lower().startswith(GONE_STATES) or state.rstrip().endswith("*")
            usable += 0 if is_gone else int(count)
    return usable, total


def partition_command(name: str) -> tuple[str, ...]:
    """What Slurm is asked about a partition."""
    return ("sinfo", "-h", "-p", name, "-o", "%D %T")


def partition(host: Host, name: str, need: int) -> Found:
    """Whether Slurm's controller answers, knows the partition, and has enough nodes that take jobs."""
    label = f"partition {name}"
    done = host.run(partition_command(name))
    if not done.ok:
        return label, False, f"sinfo does not work: {done.last_line()}", "tool_missing"
    usable, total = parse_sinfo(done.stdout)
    if not total:
        return label, False, "there is no partition of this name", "no_nodes"
    detail = f"{usable} of {total} node(s) take jobs"
    return (label, True, detail, None) if usable >= need else (label, False, detail, "no_nodes")


def files(host: Host, wanted: Sequence[tuple[str, int | None]]) -> Found:
    """Whether every model file is there with its size."""
    done = host.run(["sh", "-c", FILES_SCRIPT, "sh", *(path for path, _ in wanted)], timeout_s=60)
    said = [line.strip() for line in done.stdout.splitlines()]
    if len(said) != len(wanted):
        return "model", False, "the machine does not list its model files", "tool_missing"
    for (path, size), have in zip(wanted, said, strict=True):
        if have == "missing":
            return "model", False, f"{path} is not there", "model_missing"
        if size is not None and int(have) != size:
            return "model", False, f"{path} has {have} bytes, {size} are right", "model_missing"
    return "model", True, f"{len(wanted)} file(s) complete", None
