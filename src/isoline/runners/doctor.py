"""What works on this machine, what is missing, and how to get it. Changes nothing, asks no network."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from isoline.catalog.facts import WeightFile, load_catalog
from isoline.errors import IsolineError
from isoline.runners import envs
from isoline.runners.machine import ports
from isoline.runners.machine.hosts import ToolUnavailableError, this_host
from isoline.runners.staging.tokenizer import tokenizer_place
from isoline.runners.staging.weights import verify_weights, weights_path
from isoline.settings import Settings

TOOL_TIMEOUT_S = 5.0
DISK_NEEDED = 3_000_000_000
SHM_NEEDED = 64_000_000
PYTHONS = ((3, 11), (3, 14))


@dataclass(frozen=True)
class Check:
    """One finding. ``ok`` is None where it cannot be told (a tool that fails or hangs).

    ``required``: the demo cannot do without it; others are needed by some work only.
    """

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""
    required: bool = False


def checks(settings: Settings) -> list[Check]:
    """All findings, in a fixed order. Never raises: a check that fails by itself is a finding."""
    todo: tuple[tuple[str, Callable[[Settings], Check]], ...] = (
        ("python", _python),
        ("cores", _cores),
        ("uv", _uv),
        ("make", lambda _: _tool("make", "--version", "for make setup, demo and test", "make")),
        ("state", _disk),
        ("shared memory", _shm),
        ("ports", _ports),
        ("aiperf", _aiperf),
        ("engine", _engine),
        ("weights", _weights),
        ("tokenizer", _tokenizer),
        ("chromium", lambda _: _tool("chromium", "--version", "for browser tests", "chromium")),
        ("podman", lambda _: _tool("podman", "--version", "for container pools", "podman runc catatonit")),
        ("docker", lambda _: _tool("docker", "--version", "for container pools", "docker.io")),
        ("slurm", lambda _: _tool("sbatch", "--version", "for Slurm pools", "slurm-client")),
        ("nvidia-smi", lambda _: _tool("nvidia-smi", "--list-gpus", "for NVIDIA devices", "")),
        ("amd-smi", lambda _: _tool("amd-smi", "version", "for AMD devices", "")),
    )
    found = []
    for name, check in todo:
        try:
            found.append(check(settings))
        except (IsolineError, OSError) as error:
            found.append(Check(name, False, str(error), required=True))
    return found


def _python(_: Settings) -> Check:
    here = sys.version_info[:2]
    text = ".".join(map(str, sys.version_info[:3]))
    return Check(
        "python", PYTHONS[0] <= here < PYTHONS[1], text, "use Python 3.11, 3.12 or 3.13", required=True
    )


def _cores(_: Settings) -> Check:
    usable = len(os.sched_getaffinity(0))
    return Check(
        "cores", usable >= 2, f"{usable} usable", "with one core, engine and client starve each other"
    )


def _uv(settings: Settings) -> Check:
    try:
        path = envs.find_uv(settings)
    except IsolineError as error:
        return Check("uv", False, error.what, error.remedy, required=True)
    done = _run([path, "--version"])
    return Check("uv", done is not None, done or "does not run", "run `make setup`", required=True)


def _disk(settings: Settings) -> Check:
    folder = settings.state
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    ok = free >= DISK_NEEDED and os.access(folder, os.W_OK)
    detail = f"{free / 1e9:.1f} GB free" + ("" if os.access(folder, os.W_OK) else ", not writable")
    return Check(
        "state", ok, detail, f"have {DISK_NEEDED / 1e9:.0f} GB free, or set ISOLINE_STATE", required=True
    )


def _shm(_: Settings) -> Check:
    path = Path("/dev/shm")
    if not path.is_dir():
        return Check("shared memory", False, "no /dev/shm", "mount a tmpfs there", required=True)
    free = shutil.disk_usage(path).free
    return Check(
        "shared memory", free >= SHM_NEEDED, f"{free / 1e6:.0f} MB free", "enlarge /dev/shm", required=True
    )


def _ports(_: Settings) -> Check:
    probe = range(ports.FIRST, ports.LAST, 500)
    free = sum(ports.is_free("127.0.0.1", port) for port in probe)
    detail = f"{free} of {len(probe)} probed from {ports.FIRST} to {ports.LAST} are free"
    return Check("ports", free > 0, detail, "end what listens there", required=True)


def _aiperf(settings: Settings) -> Check:
    ready = envs.aiperf_is_ready(settings)
    if settings.aiperf_bin and not ready:
        detail = f"AIPERF_BIN names {settings.aiperf_bin}: no such program"
        return Check("aiperf", False, detail, "correct AIPERF_BIN, or unset it", required=True)
    detail = settings.aiperf_bin or f"{envs.AIPERF_VERSION} in its own environment"
    return Check("aiperf", ready, detail if ready else "not made yet", "run `make setup`", required=True)


def _demo_weights() -> tuple[str, WeightFile]:
    """The model and file of the demo: the first of the catalog that comes out of a wheel."""
    for name, model in load_catalog().models.items():
        for entry in model.weights:
            if entry.wheel:
                return name, entry
    raise IsolineError("the catalog names no weights that come out of a wheel")


def _engine(settings: Settings) -> Check:
    made = sorted((settings.state / "envs").glob("llamacpp-*/" + envs.STAMP))
    names = ", ".join(path.parent.name for path in made)
    return Check("engine", bool(made), names or "not made yet", "run `make setup`", required=True)


def _weights(settings: Settings) -> Check:
    _, entry = _demo_weights()
    path = weights_path(settings, entry)
    if not path.is_file():
        return Check("weights", False, f"{entry.file} is not here", "run `make setup`", required=True)
    try:
        verify_weights(path, entry)
    except IsolineError as error:
        return Check("weights", False, error.what, error.remedy, required=True)
    return Check("weights", True, f"{entry.file}, digest verified", required=True)


def _tokenizer(settings: Settings) -> Check:
    home = tokenizer_place(settings, "x")[0]
    made = sorted(path.parents[1].name for path in home.glob("hub/models--isoline--*/refs/main"))
    names = ", ".join(name.removeprefix("models--isoline--") for name in made)
    ok = bool(made) and importlib.util.find_spec("tokenizers") is not None
    return Check("tokenizer", ok, names or "not made yet", "run `make setup`", required=True)


def _run(argv: list[str]) -> str | None:
    """The first line that a tool prints; None when it fails or hangs."""
    try:
        done = this_host().run(argv, timeout_s=TOOL_TIMEOUT_S)
    except ToolUnavailableError:
        return None
    return next(iter(done.stdout.splitlines()), "").strip() if done.ok else None


def _tool(program: str, argument: str, use: str, package: str) -> Check:
    """A tool on PATH: its version, or that only some work needs it."""
    name = {"sbatch": "slurm"}.get(program, program)
    remedy = f"apt-get install {package}" if package else "comes with the vendor's driver"
    path = shutil.which(program)
    if path is None:
        return Check(name, False, f"not on PATH; {use}", remedy)
    said = _run([path, argument])
    if said is None:
        return Check(name, None, "there, but it fails or hangs", f"run `{program} {argument}` by hand")
    return Check(name, True, said)
