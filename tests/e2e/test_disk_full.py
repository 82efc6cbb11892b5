"""A store that is full: one clear line, nothing sealed half, and the same command goes on later."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

FILE_LIMIT = 20_000
"""Bytes: above the plan of one point, below what the load generator writes for one."""


def check_clear(done: Any) -> None:
    """Exit code 4, and the last line says what, where and what to do."""
    assert done.code == 4, done.out + done.err
    line = done.err.strip().splitlines()[-1]
    assert "disk_full" in line and "free space" in line
    assert "Traceback" not in done.err


def test_file_size_limit(tiny: Any) -> None:
    """With RLIMIT_FSIZE too small for an export nothing is sealed half; without it the run completes."""
    tiny.sweep("full", {"concurrency": [2]})
    prlimit = shutil.which("prlimit")
    assert prlimit, "util-linux has it"
    done = tiny.sweep_run("full", code=None, wrapper=[prlimit, f"--fsize={FILE_LIMIT}"])
    check_clear(done)
    assert tiny.processes() == {}
    assert tiny.run("results", "verify").code == 0
    assert tiny.at(tiny.the_run(), 2) == []
    tiny.sweep_run("full")
    assert [item.verdict.value for item in tiny.at(tiny.the_run(), 2)] == ["valid"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 MB in memory, as a folder."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a tmpfs")
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256m", "isoline-test", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill the file system up to its last page."""
    filler = folder / "filler"
    with filler.open("wb") as file, contextlib.suppress(OSError):
        while True:
            os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, 1 << 20)
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    return filler


@pytest.mark.soak
def test_disk_that_fills_up_under_load(tiny: Any, small_disk: Path) -> None:
    """The disk fills up under the second point's load: the first one stays, the second is done later."""
    store = small_disk / "store"
    tiny.store = store
    tiny.sweep("full", {"concurrency": [1, 2]})
    running = tiny.start("sweep", "run", "full", "--store", str(store))
    tiny.wait_phase(running, "load", 2)
    kept = tiny.digests()
    filler = fill(small_disk)
    check_clear(running.end())
    assert tiny.processes() == {}
    assert tiny.digests() == kept and len(kept) == 2, "the run's plan and its first point"
    assert tiny.run("results", "verify", "--store", str(store)).code == 0

    # Still full: refused before anything is started.
    check_clear(tiny.run("sweep", "run", "full", "--store", str(store)))
    filler.unlink()
    done = tiny.run("sweep", "run", "full", "--store", str(store))
    assert done.code == 0, done.err
    assert [item.verdict.value for item in tiny.at(tiny.the_run(), 2)] == ["valid"]
    assert kept.items() <= tiny.digests().items()
