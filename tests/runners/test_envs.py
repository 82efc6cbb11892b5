"""Environments of other programs, made by uv."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from isoline.errors import InfraError, InputError
from isoline.runners import envs
from isoline.settings import Settings

REQUIREMENTS = "thing==1.2\n"


def calls(fake_uv: Path) -> list[str]:
    path = fake_uv.parent / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_made_once(uv_settings: Settings, fake_uv: Path) -> None:
    """An environment is made on the first call; the second one only reads it."""
    info = envs.ensure_env(uv_settings, "x", REQUIREMENTS, locked=True)
    assert info.packages == {"thing": "1.2"}
    assert info.python == uv_settings.state / "envs" / "x" / "bin" / "python"
    made = calls(fake_uv)
    assert any("--require-hashes --no-deps" in call for call in made)
    assert envs.ensure_env(uv_settings, "x", REQUIREMENTS, locked=True) == info
    assert calls(fake_uv) == made
    assert envs.env_is_ready(uv_settings, "x", REQUIREMENTS, locked=True)


def test_other_requirements_make_it_anew(uv_settings: Settings, fake_uv: Path) -> None:
    """Changed requirements replace the environment."""
    envs.ensure_env(uv_settings, "x", REQUIREMENTS, locked=True)
    stray = uv_settings.state / "envs" / "x" / "stray"
    stray.touch()
    envs.ensure_env(uv_settings, "x", "thing==1.3\n", locked=True)
    assert not stray.exists()
    assert not envs.env_is_ready(uv_settings, "x", REQUIREMENTS, locked=True)


@pytest.mark.parametrize("damage", ["no_stamp", "half_stamp", "no_python"])
def test_half_built_is_built_again(uv_settings: Settings, damage: str) -> None:
    """An environment without its stamp, or whose Python is gone, is not taken for whole."""
    info = envs.ensure_env(uv_settings, "x", REQUIREMENTS, locked=True)
    stamp = info.bin.parent / envs.STAMP
    if damage == "no_stamp":
        stamp.unlink()
    elif damage == "half_stamp":
        stamp.write_text(stamp.read_text()[:20])
    else:
        info.python.unlink()
        info.python.symlink_to("/nonexistent/python")
    assert not envs.env_is_ready(uv_settings, "x", REQUIREMENTS, locked=True)
    envs.ensure_env(uv_settings, "x", REQUIREMENTS, locked=True)
    assert envs.env_is_ready(uv_settings, "x", REQUIREMENTS, locked=True)


def test_leavings_of_a_killed_build_go(uv_settings: Settings) -> None:
    """The working folder of a build that was killed is removed by the next build."""
    stale = uv_settings.state / "envs" / ".x.new-dead"
    stale.mkdir(parents=True)
    envs.ensure_env(uv_settings, "x", REQUIREMENTS, locked=True)
    assert not stale.exists()
    assert [path.name for path in (uv_settings.state / "envs").iterdir() if path.is_dir()] == ["x"]


def test_two_at_once_build_once(uv_settings: Settings, fake_uv: Path) -> None:
    """Of two processes that need the same environment one builds and the other waits."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: envs.ensure_env(uv_settings, "x", REQUIREMENTS, locked=True), range(2)))
    assert sum(call.startswith("venv") for call in calls(fake_uv)) == 1


def test_failure_is_infrastructure_and_hides_addresses(uv_settings: Settings, fake_uv: Path) -> None:
    """A failed install says why and what to do, shows no address, and leaves nothing half made."""
    (fake_uv.parent / "fail").touch()
    with pytest.raises(InfraError) as failed:
        envs.ensure_env(uv_settings, "x", REQUIREMENTS, locked=True)
    line = failed.value.line()
    assert "no network" in line and "check the network" in line
    assert "secret" not in line and "://" not in line
    assert not (uv_settings.state / "envs" / "x").exists()
    (fake_uv.parent / "fail").unlink()
    assert envs.ensure_env(uv_settings, "x", REQUIREMENTS, locked=True).python.exists()


def test_uv_that_is_not_there(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without uv there is one line with the remedy; a wrong setting is named."""
    with pytest.raises(InfraError, match="correct uv_bin"):
        envs.find_uv(replace(settings, uv_bin="/nonexistent/uv"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(InfraError, match="make setup"):
        envs.find_uv(settings)


def test_aiperf_of_the_setting(settings: Settings, tmp_path: Path) -> None:
    """AIPERF_BIN is used as it is; a wrong one is an error before anything is built."""
    own = tmp_path / "aiperf"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    assert envs.ensure_aiperf(replace(settings, aiperf_bin=str(own))) == own
    with pytest.raises(InfraError, match="AIPERF_BIN"):
        envs.ensure_aiperf(replace(settings, aiperf_bin=str(tmp_path / "absent")))


def test_engine_packages_are_pinned() -> None:
    """A package without an exact version is refused; each version has its own environment."""
    for loose in ("xllamacpp", "xllamacpp>=1", "xllamacpp==1.*", "-r file", "x==1 --index-url=y"):
        with pytest.raises(InputError, match="not pinned"):
            envs.engine_env("llamacpp", [loose])
    one, two = envs.engine_env("llamacpp", ["a==1"]), envs.engine_env("llamacpp", ["a==2"])
    assert one[0] != two[0] and one[1:] == ("a==1\n", False)


def test_known_engine_is_installed_by_its_lock() -> None:
    """The version that our lock names is installed with hashes checked."""
    _, text, locked = envs.engine_env("llamacpp", ["xllamacpp==2026.10.11549"])
    assert locked and "--hash=sha256:" in text


@pytest.mark.parametrize("name", sorted(path.name for path in envs.LOCKS.glob("*.txt")))
def test_locks_are_whole(name: str) -> None:
    """Every requirement of a lock is exact and carries a hash; no address is in it."""
    text = (envs.LOCKS / name).read_text()
    assert "://" not in text
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert blocks
    for block in blocks:
        assert re.match(r"^[A-Za-z0-9._-]+(\[[^\]]+\])?==\S+", block), block
        assert "--hash=sha256:" in block, block
    assert name != "aiperf-0.13.0.txt" or any(
        block.startswith(f"aiperf=={envs.AIPERF_VERSION}") for block in blocks
    )
