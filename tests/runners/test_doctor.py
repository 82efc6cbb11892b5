"""The doctor finds what is missing and says how to get it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from isoline.runners import doctor, envs
from isoline.runners.doctor import Check, checks
from isoline.settings import Settings


def by_name(found: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in found}


def tool(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_empty_machine_is_told_in_full(settings: Settings) -> None:
    """Without set-up each missing part is required and has a remedy; nothing is created."""
    found = by_name(checks(settings))
    for name in ("aiperf", "engine", "weights", "tokenizer"):
        check = found[name]
        assert check.ok is False and check.required and "make setup" in check.remedy
    assert found["python"].ok and found["state"].ok
    assert not settings.state.exists()
    assert all(check.ok or check.remedy for check in found.values())


def test_what_is_there_is_found(settings: Settings, tmp_path: Path) -> None:
    """An engine environment and an own AIPerf are seen."""
    made = settings.state / "envs" / "llamacpp-12345678"
    made.mkdir(parents=True)
    (made / envs.STAMP).touch()
    tool(tmp_path, "aiperf", "true")
    found = by_name(checks(replace(settings, aiperf_bin=str(tmp_path / "aiperf"))))
    assert found["engine"] == Check("engine", True, "llamacpp-12345678", "run `make setup`", required=True)
    assert found["aiperf"].ok


def test_a_named_aiperf_that_is_not_there_is_no_missing_setup(settings: Settings) -> None:
    """`make setup` cannot mend a wrong AIPERF_BIN, so it is not the remedy."""
    (check,) = [
        item for item in checks(replace(settings, aiperf_bin="/nope/aiperf")) if item.name == "aiperf"
    ]
    assert (check.ok, "AIPERF_BIN names /nope/aiperf" in check.detail) == (False, True)
    assert "setup" not in check.remedy


def test_flipped_weights_are_found(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor hashes the weights; a wrong file is not well."""
    _, entry = doctor._demo_weights()
    path = doctor.weights_path(settings, entry)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not the weights")
    found = by_name(checks(settings))["weights"]
    assert found.ok is False and "weights_digest_mismatch" in found.detail


def test_tools_that_fail_or_hang_are_unknown(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A working tool shows its version, an absent one is optional, a failing or hanging one is unknown."""
    folder = tmp_path / "tools"
    folder.mkdir()
    tool(folder, "podman", "echo podman version 9; echo more")
    tool(folder, "nvidia-smi", "exit 9")
    tool(folder, "amd-smi", "exec /bin/sleep 60")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(doctor, "TOOL_TIMEOUT_S", 0.3)
    found = by_name(checks(settings))
    assert found["podman"].ok and found["podman"].detail == "podman version 9"
    assert found["slurm"].ok is False and not found["slurm"].required
    assert found["nvidia-smi"].ok is None and found["amd-smi"].ok is None


def test_full_disk_is_found(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little free space is required to be mended."""
    monkeypatch.setattr(doctor, "DISK_NEEDED", 1 << 62)
    check = by_name(checks(settings))["state"]
    assert check.ok is False and check.required and "free" in check.remedy


def test_project_is_not_touched(settings: Settings, tmp_path: Path) -> None:
    """Looking leaves no file behind."""
    before = set(os.listdir(tmp_path))  # noqa: PTH208
    checks(settings)
    assert set(os.listdir(tmp_path)) == before  # noqa: PTH208
