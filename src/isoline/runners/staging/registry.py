"""Asking an image registry for a digest, by the tools that a machine has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

TIMEOUT_S = 60.0

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def registry_digest(ref: str, arch: str) -> str | None:
    """``sha256:…`` of an image for one CPU architecture; None where nothing here can say.

    Asks ``skopeo``, else ``docker manifest``: whichever is on PATH. A registry that does not answer is
    no error: the launch is then unresolved, and says so.
    """
    if shutil.which("skopeo"):
        return _skopeo(ref, arch)
    if shutil.which("docker"):
        return _docker(ref, arch)
    return None


def _output(words: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout if done.returncode == 0 else None


def _skopeo(ref: str, arch: str) -> str | None:
    text = _output(
        ["skopeo", "inspect", "--override-os", "linux", "--override-arch", arch, f"docker://{ref}"]
    )
    found = _json(text)
    return _digest(found.get("Digest")) if isinstance(found, dict) else None


def _docker(ref: str, arch: str) -> str | None:
    found = _json(_output(["docker", "manifest", "inspect", "--verbose", ref]))
    for item in found if isinstance(found, list) else [found]:
        descriptor = item.get("Descriptor") if isinstance(item, dict) else None
        if not isinstance(descriptor, dict):
            continue
        platform = descriptor.get("platform") or {}
        if platform.get("architecture") == arch and platform.get("os", "linux") == "linux":
            return _digest(descriptor.get("digest"))
    return None


def _json(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def _digest(value: Any) -> str | None:
    return value if isinstance(value, str) and _DIGEST.fullmatch(value) else None
