"""A podman of the tests' own: its storage, its containers and its configuration lie in one folder.

What works on a plain Debian as root, also where hard limits cannot be raised: runc (crun fails on
kernels without some cgroup files), cgroupfs, the host's network, storage driver vfs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]

CONTAINERS = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "host"
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""

STORAGE = """\
[storage]
driver = "vfs"
runroot = "{root}/run"
graphroot = "{root}/storage"
"""

POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}\n'


def missing() -> str | None:
    """Why podman cannot be used here, in one line; None when it can."""
    absent = [name for name in ("podman", "runc", "conmon") if not shutil.which(name)]
    if absent:
        return f"needs {', '.join(absent)}: `make test SYSTEM=1` as root, or install podman and runc"
    return None if os.geteuid() == 0 else "needs podman as root"


def image_tool() -> Any:
    """tools/llamacpp_image.py as a module."""
    name = "isoline_tool_llamacpp_image"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, PROJECT / "tools" / "llamacpp_image.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


class Podman:
    """Podman with a storage of its own. ``env`` is what a process needs to use the same one."""

    def __init__(self) -> None:
        # Short: sockets of containers lie below it, and their paths may have 107 bytes.
        self.root = Path(tempfile.mkdtemp(prefix="pod-"))
        (self.root / "containers.conf").write_text(CONTAINERS)
        (self.root / "storage.conf").write_text(STORAGE.format(root=self.root))
        self.env = {
            "CONTAINERS_CONF": str(self.root / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.root / "storage.conf"),
        }
        self._image: Any = None

    def run(self, *args: str | Path, check: bool = True, timeout_s: float = 60) -> str:
        """``podman ARGS``; what it printed."""
        done = subprocess.run(
            ["podman", *args],
            env=os.environ | self.env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert not check or done.returncode == 0, f"podman {args}: {done.returncode}\n{done.stderr}"
        return done.stdout.strip()

    def image(self) -> Any:
        """The engine's image, loaded: an object with ``ref`` and ``pinned`` (the name by digest)."""
        if self._image is None:
            made = image_tool().make(PROJECT / ".isoline")
            self.run("load", "--quiet", "--input", made.path, timeout_s=180)
            self._image = made
        return self._image

    def containers(self, *filters: str) -> dict[str, str]:
        """name -> state of every container that is there (``label=isoline.launch=x`` filters)."""
        words = [word for item in filters for word in ("--filter", item)]
        said = json.loads(self.run("ps", "--all", *words, "--format", "json"))
        return {item["Names"][0]: item["State"] for item in said}

    def close(self) -> None:
        """Remove every container of this storage, and the storage."""
        self.run("rm", "--all", "--force", "--time", "0", check=False)
        shutil.rmtree(self.root, ignore_errors=True)
