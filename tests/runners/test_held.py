"""Folders of held launches: that of a failed one stays for a while, for its logs."""

from __future__ import annotations

import os
from pathlib import Path

from isoline.runners.ownership.held import KEPT_FAILED, forget, held_folder, keep_failed


def launched(state: Path, name: str, has_log: bool = True) -> Path:
    folder = held_folder(state) / name
    folder.mkdir(parents=True)
    if has_log:
        (folder / "server.log").write_text("why\n")
    return folder


def test_only_a_failed_launch_with_logs_leaves_its_folder(state: Path) -> None:
    """What ended well, and what failed before anything was started, leaves nothing."""
    good, early, failed = launched(state, "good"), launched(state, "early", False), launched(state, "failed")
    assert (keep_failed(state, "early"), keep_failed(state, "failed")) == (False, True)
    for name in ("good", "early", "failed"):
        forget(state, name)
    assert (good.exists(), early.exists(), failed.exists()) == (False, False, True)


def test_the_newest_failed_ones_are_kept(state: Path) -> None:
    """Beyond the newest few they go; a launch that is going on is not touched."""
    running = launched(state, "running")
    for number in range(KEPT_FAILED + 2):
        folder = launched(state, f"failed{number}")
        assert keep_failed(state, folder.name)
        os.utime(folder / "failed", ns=(number * 10**9, number * 10**9))
    last = launched(state, "last")
    assert keep_failed(state, "last")
    names = {path.name for path in held_folder(state).iterdir()}
    assert names == {running.name, last.name, *(f"failed{n}" for n in range(3, KEPT_FAILED + 2))}
