"""Python environments of other programs (AIPerf, engines), made by uv under ``<state>/envs``.

They are apart from Isoline's own because their pins contradict ours (DESIGN 6). An environment is
built under another name and renamed when it is whole; a stamp says from which requirements.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from isoline.errors import InfraError, InputError
from isoline.settings import Settings

AIPERF_VERSION = "0.13.0"
LOCKS = Path(__file__).parent / "locks"
STAMP = "isoline-env.json"
BUILD_TIMEOUT_S = 1800.0
LOCK_TIMEOUT_S = 1800.0

Progress = Callable[[str], None]


@dataclass(frozen=True)
class EnvInfo:
    """A ready environment: its folder of programs, its Python, its packages with versions."""

    name: str
    bin: Path
    python: Path
    packages: dict[str, str]


def find_uv(settings: Settings) -> str:
    """The uv program: the setting ``uv_bin``, else on PATH, else beside our own Python.

    :raises InfraError: when there is none.
    """
    if settings.uv_bin:
        found = shutil.which(settings.uv_bin)
        if not found:
            raise InfraError("no such program", where=settings.uv_bin, remedy="correct uv_bin or ISOLINE_UV")
        return found
    beside = Path(sys.executable).parent / "uv"
    private = settings.state / "uv" / "bin" / "uv"  # where the Makefile puts its own
    found = shutil.which("uv") or next(
        (str(path) for path in (beside, private) if os.access(path, os.X_OK)), None
    )
    if not found:
        raise InfraError("uv not found", remedy="run `make setup`, or set ISOLINE_UV to the uv program")
    return found


def run_uv(settings: Settings, *args: str, what: str, timeout_s: float = BUILD_TIMEOUT_S) -> None:
    """Run uv quietly. ``what`` is for the message.

    :raises InfraError: when it fails or hangs, with its last line.
    """
    env = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH")}
    try:
        done = subprocess.run(
            [find_uv(settings), *args],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InfraError(f"{what}: uv did not end within {timeout_s:.0f} s", remedy="try again") from None
    if done.returncode:
        raise InfraError(
            f"{what}: uv failed ({done.returncode}): {last_words(done.stdout)}",
            remedy="check the network and the free disk, then run the same command again",
        )


def last_words(output: bytes, lines: int = 3) -> str:
    """The last lines of a tool's output on one line, without addresses (they may hold secrets)."""
    text = re.sub(r"\w+://\S+", "<address>", output.decode(errors="replace"))
    kept = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(kept[-lines:])[-400:]


def _stamp_of(requirements: str, locked: bool) -> dict[str, str]:
    digest = hashlib.sha256(requirements.encode()).hexdigest()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"requirements_sha256": digest, "python": version, "hashes": "required" if locked else "open"}


def _info(folder: Path, name: str) -> EnvInfo:
    site = next(iter(sorted(folder.glob("lib/python3.*/site-packages"))), None)
    found = importlib.metadata.distributions(path=[str(site)]) if site else []
    packages = {dist.metadata["Name"].lower(): dist.version for dist in found}
    bin_dir = folder / "bin"
    return EnvInfo(name=name, bin=bin_dir, python=bin_dir / "python", packages=dict(sorted(packages.items())))


def _is_whole(folder: Path, stamp: dict[str, str]) -> bool:
    """Whether the environment there is finished, of these requirements, and its Python still exists."""
    try:
        found = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(found == stamp) and os.access(folder / "bin" / "python", os.X_OK)


def env_is_ready(settings: Settings, name: str, requirements: str, *, locked: bool) -> bool:
    """Whether :func:`ensure_env` would have nothing to do."""
    return _is_whole(settings.state / "envs" / name, _stamp_of(requirements, locked))


def ensure_env(
    settings: Settings,
    name: str,
    requirements: str,
    *,
    locked: bool,
    progress: Progress | None = None,
) -> EnvInfo:
    """Have ``<state>/envs/<name>`` hold exactly these requirements; make it where it does not.

    :param requirements: the text of a requirements file.
    :param locked: every requirement carries hashes, and they are checked.
    :raises InfraError: when uv, the network or the disk fails.
    """
    envs = settings.state / "envs"
    envs.mkdir(parents=True, exist_ok=True)
    target = envs / name
    stamp = _stamp_of(requirements, locked)
    if _is_whole(target, stamp):
        return _info(target, name)
    try:
        with FileLock(envs / f".{name}.lock", timeout=LOCK_TIMEOUT_S):
            if not _is_whole(target, stamp):  # somebody else may have built it while we waited
                _build(settings, target, requirements, locked, stamp, progress or (lambda line: None))
    except Timeout:
        raise InfraError(
            f"another process has been building the environment {name} for too long",
            remedy="end it, then run the same command again",
        ) from None
    return _info(target, name)


def _build(
    settings: Settings,
    target: Path,
    requirements: str,
    locked: bool,
    stamp: dict[str, str],
    progress: Progress,
) -> None:
    for stale in target.parent.glob(f".{target.name}.new-*"):  # of a build that was killed; we hold the lock
        shutil.rmtree(stale, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.new-", dir=target.parent))
    try:
        folder = work / target.name
        listed = work / "requirements.txt"
        listed.write_text(requirements, encoding="utf-8")
        progress(f"environment {target.name}: building")
        # Relocatable, because it is renamed: otherwise the programs' first lines name the old place.
        run_uv(
            settings, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(folder),
            what=f"environment {target.name}",
        )  # fmt: skip
        install = ["pip", "install", "--quiet", "--python", str(folder / "bin" / "python")]
        if locked:
            install += ["--require-hashes", "--no-deps"]
        if sys.dont_write_bytecode:  # as in containers: each start would compile all that it imports
            install.append("--compile-bytecode")
        run_uv(settings, *install, "-r", str(listed), what=f"environment {target.name}")
        (folder / STAMP).write_text(json.dumps(stamp), encoding="utf-8")
        if target.exists() or target.is_symlink():
            target.rename(work / "old")
        folder.rename(target)
        progress(f"environment {target.name}: ready")
    except OSError as error:
        raise InfraError(
            f"environment {target.name}: {error.strerror or error}", remedy="free space and try again"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _read_lock(name: str) -> str:
    return (LOCKS / name).read_text(encoding="utf-8")


def ensure_aiperf(settings: Settings, progress: Progress | None = None) -> Path:
    """The aiperf program: the setting ``aiperf_bin``, else that of ``<state>/envs/aiperf``, made if need be.

    :raises InfraError: when it is set but not there, or cannot be made.
    """
    if settings.aiperf_bin:
        found = shutil.which(settings.aiperf_bin)
        if not found:
            raise InfraError(
                "no such program", where=settings.aiperf_bin, remedy="correct or unset AIPERF_BIN"
            )
        return Path(found).absolute()
    lock = _read_lock(f"aiperf-{AIPERF_VERSION}.txt")
    return ensure_env(settings, "aiperf", lock, locked=True, progress=progress).bin / "aiperf"


def aiperf_is_ready(settings: Settings) -> bool:
    """Whether :func:`ensure_aiperf` would have nothing to do."""
    if settings.aiperf_bin:
        return shutil.which(settings.aiperf_bin) is not None
    return env_is_ready(settings, "aiperf", _read_lock(f"aiperf-{AIPERF_VERSION}.txt"), locked=True)


PIN = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?==[A-Za-z0-9][A-Za-z0-9.!+_-]*\Z")


def engine_env(engine: str, packages: Sequence[str]) -> tuple[str, str, bool]:
    """Name, requirements and whether they are locked, of the environment of an engine at these packages.

    Packages that a lock of ours names are installed by that lock, hashes checked; others by their
    exact versions.

    :raises InputError: when a package is not pinned by ``==``.
    """
    for package in packages:
        if not PIN.match(package):
            raise InputError(
                f"engine package {package!r} is not pinned",
                where=f"engine {engine}",
                remedy="write name==version: a launch is identified by exact versions",
            )
    wanted = "\n".join(sorted(packages)) + "\n"
    name = f"{engine}-{hashlib.sha256(wanted.encode()).hexdigest()[:8]}"
    lock_path = LOCKS / f"{engine}.txt"
    if lock_path.is_file():
        lock = lock_path.read_text(encoding="utf-8")
        if set(packages) <= {line.split(" ")[0] for line in lock.splitlines() if "==" in line}:
            return name, lock, True
    return name, wanted, False


def ensure_engine(
    settings: Settings, engine: str, packages: Sequence[str], progress: Progress | None = None
) -> EnvInfo:
    """The environment of an engine with exactly these packages (``name==version``).

    :raises InputError: for a package without an exact version.
    :raises InfraError: when it cannot be made.
    """
    name, requirements, locked = engine_env(engine, packages)
    return ensure_env(settings, name, requirements, locked=locked, progress=progress)
