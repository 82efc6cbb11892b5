"""The lock of a pool, and folders that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from isoline.errors import InfraError
from isoline.sweeps.execution.context import folder_is_usable
from isoline.sweeps.state.poollock import pool_lock


def test_one_run_at_a_time_on_a_pool(tmp_path: Path) -> None:
    """The second run on a pool is refused at once, another pool is free, and afterwards the pool is too."""
    with pool_lock(tmp_path, "local"):
        with pytest.raises(InfraError, match="in use by another run"), pool_lock(tmp_path, "local"):
            pass
        with pool_lock(tmp_path, "other"):
            pass
    with pool_lock(tmp_path, "local"):
        pass


def test_a_state_folder_that_is_none_is_one_line(tmp_path: Path) -> None:
    """Where nothing can be written the person is told which setting to change."""
    file = tmp_path / "state"
    file.write_text("")
    with pytest.raises(InfraError, match=r"cannot be written: .*ISOLINE_STATE"), pool_lock(file, "local"):
        pass


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    """A full disk or a bug is not called a wrong folder."""
    with pytest.raises(OSError, match="No space"), folder_is_usable(tmp_path, "ISOLINE_STORE"):
        raise OSError(28, "No space left on device")
