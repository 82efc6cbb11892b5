"""Phases are named, timed and kept, whatever ends them."""

from __future__ import annotations

import pytest

from isoline.runners.launchers.interface import PhaseFailedError
from isoline.sweeps.execution.phases import Phases


def test_each_phase_is_kept_with_its_outcome() -> None:
    """A good phase is ok, a failed one has its reason code, any other error its name; all are kept."""
    begun: list[str] = []
    phases = Phases(begun.append)
    with phases.phase("reset"):
        pass
    with pytest.raises(PhaseFailedError), phases.phase("ready"):
        raise PhaseFailedError("launch_timeout", "not ready")
    with pytest.raises(KeyboardInterrupt), phases.phase("load"):
        raise KeyboardInterrupt
    assert begun == ["reset", "ready", "load"]
    assert [(row.name, row.outcome) for row in phases.rows] == [
        ("reset", "ok"),
        ("ready", "launch_timeout"),
        ("load", "KeyboardInterrupt"),
    ]
    assert all(0 <= row.duration_s < 1 and row.started_at.endswith("Z") for row in phases.rows)
