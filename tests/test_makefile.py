"""The Makefile and its scripts, with stand-ins for the programs that they call."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

UV = "0.13.9"


def stand_in(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path, project_root: Path) -> Path:
    """A folder with our Makefile and scripts, where ``.venv/bin/isoline`` only writes what it was asked."""
    shutil.copy(project_root / "Makefile", tmp_path)
    shutil.copytree(project_root / "scripts", tmp_path / "scripts")
    stand_in(
        tmp_path / ".venv/bin/isoline",
        'echo "isoline $*" >> calls\n'
        'case "$1" in\nsweep) exit ${SWEEP_RC:-0} ;;\nresults) exit ${INGEST_RC:-0} ;;\n'
        "dashboard) exit ${DASH_RC:-0} ;;\nesac",
    )
    return tmp_path


def call(
    checkout: Path, *command: str, path: str | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in ("CI", "SYSTEM", "ISOLINE_UV", "MAKEFLAGS")
    }
    kept["PATH"] = path or kept["PATH"]
    return subprocess.run(
        command, cwd=checkout, env={**kept, **env}, capture_output=True, text=True, timeout=60, check=False
    )


def calls(checkout: Path) -> list[str]:
    path = checkout / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_help_is_the_default_and_lists_every_target(checkout: Path) -> None:
    """``make`` alone says what there is."""
    result = call(checkout, "make")
    assert result.returncode == 0
    for target in ("setup", "demo", "test", "soak", "lint", "docs", "bench", "clean"):
        assert f"make {target} " in result.stdout


DEMO = ["isoline sweep run demo", "isoline results ingest", "isoline frontier --sweep demo"]
SERVE = "isoline dashboard serve --open"


@pytest.mark.parametrize(
    ("env", "code", "expected"),
    [
        ({}, 0, [*DEMO, SERVE]),
        ({"SERVE": "0"}, 0, DEMO),
        ({"SERVE": "0", "SWEEP_RC": "3"}, 3, DEMO),
        ({"SERVE": "0", "SWEEP_RC": "4"}, 4, DEMO[:1]),
        ({"SERVE": "0", "SWEEP_RC": "130"}, 130, DEMO[:1]),
        ({"SERVE": "0", "INGEST_RC": "3"}, 3, DEMO),
        ({"SERVE": "0", "SWEEP_RC": "3", "INGEST_RC": "4"}, 3, DEMO),
        ({"DASH_RC": "130"}, 0, [*DEMO, SERVE]),
        ({"DASH_RC": "1"}, 1, [*DEMO, SERVE]),
    ],
)
def test_the_demo_shows_what_it_can_and_fails_with_the_first_code(
    checkout: Path, env: dict[str, str], code: int, expected: list[str]
) -> None:
    """Invalid points do not hide the curve, broken machinery ends the demo, and no exit code is lost."""
    assert call(checkout, "scripts/demo", **env).returncode == code
    assert calls(checkout) == expected


@pytest.fixture
def tools(checkout: Path) -> Path:
    """A folder for PATH with the few programs of a bare machine; no uv, no Python of the right version."""
    folder = checkout / "tools"
    folder.mkdir()
    for name in ("sh", "dirname", "awk", "mkdir", "rm", "id", "cat", "env"):
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    stand_in(folder / "python3", "exit 1")
    shutil.rmtree(checkout / ".venv")
    return folder


#: A Python of the right version whose ``-m venv`` brings the stand-ins of pip and uv.
GOOD_PYTHON = """case "$*" in
*version_info*) exit 0 ;;
*sys.executable*) echo "$0" ;;
*ensurepip*) exit ${VENV_RC:-0} ;;
--version) echo Python 3.12.1 ;;
"-m venv .isoline/uv") mkdir -p .isoline/uv/bin; cp fakes/pip .isoline/uv/bin/python ;;
esac"""


def fake_uv(version: str, name: str) -> str:
    """A uv of that version that makes ``.venv`` and writes down that it was called."""
    return (
        f'[ "$1" = --version ] && echo "uv {version}" && exit\n'
        f'echo "{name} $*" >> calls\nmkdir -p .venv/bin\ncp fakes/isoline .venv/bin/isoline'
    )


@pytest.fixture
def good_tools(checkout: Path, tools: Path) -> Path:
    """The bare machine with a right Python and a package index that brings uv."""
    (tools / "cp").symlink_to(shutil.which("cp") or "")
    stand_in(tools / "python3.12", GOOD_PYTHON)
    stand_in(checkout / "fakes/isoline", 'echo "isoline $*" >> calls')
    stand_in(checkout / "fakes/uv", fake_uv(UV, "private uv"))
    stand_in(checkout / "fakes/pip", 'echo "pip $*" >> calls\ncp fakes/uv .isoline/uv/bin/uv')
    return tools


def test_setup_without_a_right_python_says_what_to_install(checkout: Path, tools: Path) -> None:
    """A name on PATH that does not run, or is too old, is no Python; the message says what to do."""
    result = call(checkout, "scripts/setup", path=str(tools))
    assert result.returncode == 4
    assert result.stderr.splitlines() == [
        "setup: no Python 3.11 to 3.13 on PATH; "
        "on Debian: apt-get install python3 (or name one in ISOLINE_PYTHON)"
    ]


def test_setup_installs_a_pinned_uv_where_there_is_none(checkout: Path, good_tools: Path) -> None:
    """Where uv is missing it comes from the package index, pinned, into a private environment."""
    result = call(checkout, "scripts/setup", path=str(good_tools))
    assert result.returncode == 0, result.stderr
    assert calls(checkout) == [
        f"pip -m pip install --quiet --disable-pip-version-check uv=={UV}",
        f"private uv sync --locked --quiet --python {good_tools}/python3.12",
        "isoline setup",
    ]


def test_setup_names_the_debian_package_that_makes_environments(checkout: Path, good_tools: Path) -> None:
    """Debian's Python without python3-venv gets the name of that package, not a traceback."""
    result = call(checkout, "scripts/setup", path=str(good_tools), VENV_RC="1")
    assert result.returncode == 4
    assert "apt-get install python3-venv" in result.stderr


@pytest.mark.parametrize(
    ("version", "used"),
    [("0.13.9", True), ("0.13.10", True), ("1.0.0", True), ("0.13.8", False), ("0.9.30", False)],
)
def test_an_old_uv_is_not_used(checkout: Path, good_tools: Path, version: str, used: bool) -> None:
    """A uv older than the one that wrote uv.lock is passed over; versions are compared as numbers."""
    stand_in(good_tools / "uv", fake_uv(version, "uv on PATH"))
    assert call(checkout, "scripts/setup", path=str(good_tools)).returncode == 0
    assert any(line.startswith("uv on PATH sync") for line in calls(checkout)) is used


def test_a_uv_that_does_not_run_is_not_used(checkout: Path, good_tools: Path) -> None:
    """A name on PATH that only says that it is not there is passed over."""
    stand_in(good_tools / "uv", "echo not found >&2; exit 127")
    assert call(checkout, "scripts/setup", path=str(good_tools)).returncode == 0
    assert "isoline setup" in calls(checkout)


def test_a_failing_index_is_an_infrastructure_error(checkout: Path, good_tools: Path) -> None:
    """When uv cannot bring the packages the exit code is 4 and isoline is not started."""
    stand_in(good_tools / "uv", f'[ "$1" = --version ] && echo "uv {UV}" && exit\nexit 2')
    result = call(checkout, "scripts/setup", path=str(good_tools))
    assert result.returncode == 4
    assert calls(checkout) == []


PARTS = {
    "chromium": "chromium",
    "podman": "podman",
    "runc": "runc",
    "catatonit": "catatonit",
    "newuidmap": "uidmap",
    "slurmctld": "slurm-wlm",
    "munged": "munge",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
    "sshd": "openssh-server",
}


def test_system_parts_says_what_it_installs(checkout: Path, tools: Path) -> None:
    """As root on Debian the missing parts are named before apt-get is called; present ones are left alone."""
    stand_in(tools / "apt-get", 'echo "apt-get $*" >> calls')
    (tools / "id").unlink()
    stand_in(tools / "id", "echo 0")
    result = call(checkout, "scripts/system-parts", path=str(tools))
    assert result.returncode == 0
    packages = " ".join(PARTS.values())
    assert result.stdout == f"system-parts: installing with apt-get: {packages}\n"
    assert calls(checkout) == [
        "apt-get update -qq",
        f"apt-get install -y -qq --no-install-recommends {packages}",
    ]
    for program in PARTS:
        stand_in(tools / program, "exit 0")
    again = call(checkout, "scripts/system-parts", path=str(tools))
    assert again.stdout == "system-parts: all there\n"
    assert len(calls(checkout)) == 2


def test_system_parts_of_another_user_says_what_is_missing(checkout: Path, tools: Path) -> None:
    """Who may not install gets the list and exit code 4."""
    stand_in(tools / "apt-get", "exit 1")
    (tools / "id").unlink()
    stand_in(tools / "id", "echo 1000")
    result = call(checkout, "scripts/system-parts", path=str(tools))
    assert result.returncode == 4
    assert "missing: chromium" in result.stderr


def test_make_passes_failures_on(checkout: Path) -> None:
    """A failing step fails make; the step's own code stands in make's last line."""
    stand_in(checkout / "scripts/setup", "exit 0")
    result = call(checkout, "make", "demo", "SERVE=0", SWEEP_RC="3")
    assert result.returncode != 0
    assert "Error 3" in result.stderr


def test_clean_keeps_results_and_weights(checkout: Path) -> None:
    """``make clean`` removes what can be made again in minutes, never what was measured."""
    for name in ("results/store/x", ".isoline/weights/w", ".isoline/envs/e", ".isoline/owners/o"):
        (checkout / name).parent.mkdir(parents=True)
        (checkout / name).write_text("x")
    assert call(checkout, "make", "clean").returncode == 0
    kept = {str(path.relative_to(checkout)) for path in checkout.rglob("*") if path.is_file()}
    assert {"results/store/x", ".isoline/weights/w", ".isoline/owners/o"} <= kept
    assert ".isoline/envs/e" not in kept
    assert not (checkout / ".venv").exists()
