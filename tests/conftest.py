"""What every test shares: a clean environment, the price of a skip, the place for evidence."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest

pytest_plugins = ["pytester"]

PROJECT = Path(__file__).resolve().parents[1]

# Settings of the person's shell must not reach the tests; those that name tools may.
for _name in (
    "ISOLINE_PROJECT",
    "ISOLINE_STORE",
    "ISOLINE_WAREHOUSE",
    "ISOLINE_STATE",
    "ISOLINE_QUERY_TIMEOUT_S",
):
    os.environ.pop(_name, None)

# Two busy cores make time limits of single examples meaningless; CI must not fail by the draw of a seed.
hypothesis.settings.register_profile("house", deadline=None, derandomize=os.environ.get("CI") == "true")
hypothesis.settings.load_profile("house")


def no_skip_allowed() -> bool:
    """Whether the system parts are promised, so that a skipped test is a failed one (DESIGN 9)."""
    return os.environ.get("CI") == "true" or os.environ.get("SYSTEM") == "1"


def _reason(longrepr: object) -> str:
    return str(longrepr[2] if isinstance(longrepr, tuple) else longrepr)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where nothing may be skipped (an expected failure is no skip)."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and no_skip_allowed():
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: skipped although nothing may be: {_reason(report.longrepr)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a whole file that skips itself while it is read."""
    report = yield
    if report.skipped and no_skip_allowed():
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid}: skipped although nothing may be: {_reason(report.longrepr)}"
    return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, with one line, what this machine lacks."""
    if item.get_closest_marker("browser") and not shutil.which("chromium"):
        pytest.skip("needs Debian's chromium: `make test SYSTEM=1` as root, or install it")
    if item.get_closest_marker("engine") and not _tools_are_there():
        pytest.skip("needs AIPerf and the engine: `make setup`")


def _tools_are_there() -> bool:
    envs = PROJECT / ".isoline" / "envs"
    aiperf = os.environ.get("AIPERF_BIN") or (envs / "aiperf" / "bin" / "aiperf").exists()
    return bool(aiperf) and any(envs.glob("llamacpp*"))


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The folder of the checkout."""
    return PROJECT


@pytest.fixture(scope="session")
def support() -> Callable[[str], ModuleType]:
    """``support(name)`` is the module tests/support/<name>.py, loaded once by its path."""

    def load(name: str) -> ModuleType:
        full = f"isoline_test_{name}"
        if full not in sys.modules:
            spec = importlib.util.spec_from_file_location(full, PROJECT / "tests" / "support" / f"{name}.py")
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[full] = module
            spec.loader.exec_module(module)
        return sys.modules[full]

    return load


@pytest.fixture(scope="session")
def bundles(support: Callable[[str], ModuleType]) -> Any:
    """The factory of sealed bundles, tests/support/bundles.py."""
    return support("bundles")


@pytest.fixture(scope="session")
def tables(support: Callable[[str], ModuleType]) -> ModuleType:
    """Per-request tables from short descriptions, tests/support/tables.py."""
    return support("tables")


@pytest.fixture(scope="session")
def planning(support: Callable[[str], ModuleType]) -> Any:
    """Plans of single recipes, tests/support/planning.py."""
    return support("planning")


@pytest.fixture(scope="session")
def podman(support: Callable[[str], ModuleType]) -> Iterator[Any]:
    """A podman of the tests' own, tests/support/podman.py; skips with one line where there is none."""
    module = support("podman")
    if why := module.missing():
        pytest.skip(why)
    made = module.Podman()
    yield made
    made.close()


@pytest.fixture(scope="session")
def container_image(podman: Any) -> Any:
    """The engine's image in that podman: ``ref``, ``pinned`` and ``digest``."""
    if not any((PROJECT / ".isoline" / "envs").glob("llamacpp*")):
        pytest.skip("needs the engine: `make setup`")
    return podman.image()


@pytest.fixture(scope="module")
def slurm(support: Callable[[str], ModuleType], request: pytest.FixtureRequest) -> Iterator[Any]:
    """A real Slurm cluster of two nodes, tests/support/slurm.py; its jobs see the tests' podman."""
    module = support("slurm")
    if why := module.missing():
        pytest.skip(why)
    has_podman = support("podman").missing() is None
    made = module.Cluster(extra_env=request.getfixturevalue("podman").env if has_podman else None)
    yield made
    made.close()


@pytest.fixture(scope="session")
def sshd(support: Callable[[str], ModuleType]) -> Iterator[Any]:
    """A real sshd, tests/support/sshd.py: ``config`` is for ``ssh -F``, ``HOSTS`` are its machines."""
    module = support("sshd")
    if why := module.missing():
        pytest.skip(why)
    made = module.Sshd()
    yield made
    made.close()


@pytest.fixture
def project(
    tmp_path: Path,
    project_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    support: Callable[[str], ModuleType],
) -> Any:
    """A copy of the project's YAML, and the folder that the test stands in."""
    root = tmp_path / "project"
    copied = support("project").copy_project(project_root, root)
    monkeypatch.chdir(root)
    return copied


@pytest.fixture
def measured(project: Any, bundles: Any, support: Callable[[str], ModuleType]) -> Any:
    """``measured(store)`` seals a run of the demo with a real lock: (its folder, the point)."""
    module = support("locks")
    return lambda store, sweep="demo": module.measured_run(project.root, store, bundles, sweep)


@pytest.fixture
def fakes(support: Callable[[str], ModuleType]) -> Any:
    """Made-up machines with accelerators, tests/support/devices/fakes.py."""
    return support("devices/fakes")


@pytest.fixture
def fake_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fakes: Any) -> Callable[..., Any]:
    """``fake_machine(tools, devices)``: the tools of a made-up machine, first on PATH."""

    def make(tools: Sequence[str], devices: list[dict[str, Any]], **said: Any) -> Any:
        made = fakes.Machine(tmp_path / "machine", tools, devices, **said)
        monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
        return made

    return make


@pytest.fixture
def evidence(tmp_path: Path) -> Callable[[str, Sequence[str]], Path]:
    """A writer ``evidence(topic, lines)`` of ``<topic>.md`` with date, commit and machine above the lines.

    `make soak` names the folder (docs/evidence); a bounded form writes to a temporary one.
    """
    named = os.environ.get("ISOLINE_EVIDENCE")
    folder = PROJECT / named if named else tmp_path

    def write(topic: str, lines: Sequence[str]) -> Path:
        commit = subprocess.run(
            ["git", "-C", str(PROJECT), "rev-parse", "--short=10", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
        head = [
            f"# {topic}",
            "",
            f"- date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            f"- commit: {commit.stdout.strip() or 'unknown'}",
            f"- machine: {os.cpu_count()} cores, {platform.machine()}, {platform.system()}, "
            f"Python {platform.python_version()}",
            "",
        ]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{topic}.md"
        path.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")
        return path

    return write
