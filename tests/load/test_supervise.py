"""AIPerf as a child: what it gets, how it is ended, and that nothing of it stays. With a stand-in."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from isoline.errors import InfraError
from isoline.load import supervise
from isoline.load.command import LoadSpec
from isoline.load.profile import profile
from isoline.load.supervise import LoadOutcome, LoadProgress, aiperf_version, child_env, run_load

STUB = """#!{python}
import json, os, signal, subprocess, sys, time
from pathlib import Path
if "--version" in sys.argv:
    print("0.13.0"); sys.exit(0)
out = Path(sys.argv[sys.argv.index("--output-artifact-dir") + 1])
(out / "env.json").write_text(json.dumps(dict(os.environ)))
(out / "pid").write_text(str(os.getpid()))
mode = os.environ.get("STUB_MODE", "")
if "children" in mode:
    code = "import os, signal, time; signal.signal(2, signal.SIG_IGN); os.setpgid(0, 0); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code])
    (out / "child").write_text(str(child.pid))
if "stubborn" in mode:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
elif "polite" in mode:
    def leave(*_):
        (out / "partial").write_text("x"); sys.exit(0)
    signal.signal(signal.SIGINT, leave)
if "rows" in mode:
    with (out / "profile_export.jsonl").open("a") as file:
        for index in range(3):
            for phase in ("warmup", "profiling"):
                file.write('{{"metadata":{{"benchmark_phase":"%s"}}}}\\n' % phase)
    time.sleep(0.8)
if "suicide" in mode:
    os.kill(os.getpid(), signal.SIGKILL)
if "seven" in mode:
    sys.exit(7)
if "wait" in mode:
    time.sleep(600)
"""


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """A program that behaves like AIPerf at its edges."""
    path = tmp_path / "aiperf"
    path.write_text(STUB.format(python=sys.executable))
    path.chmod(0o755)
    return path


@pytest.fixture
def spec(tmp_path: Path) -> LoadSpec:
    """A small load."""
    return LoadSpec(
        url="http://127.0.0.1:9",
        model="m",
        tokenizer="local/tiny",
        kind="fixed_length",
        concurrency=1,
        requests=5,
        seed=1,
        profile=profile("shared-cpu"),
        artifact_dir=tmp_path / "out",
        request_timeout_s=5,
        isl=8,
        osl=8,
        tick_hz=50,
    )


def _run(spec: LoadSpec, stub: Path, mode: str, **more: object) -> LoadOutcome:
    options: dict[str, object] = {
        "aiperf_bin": stub,
        "hf_home": Path("/nowhere"),
        "env": {"STUB_MODE": mode, "ISOLINE_OWNER": "label"},
        "log": spec.artifact_dir.parent / "log",
        "deadline_s": 60.0,
    }
    return run_load(spec, **(options | more))  # type: ignore[arg-type]


def _is_gone(path: Path) -> bool:
    pid = int(path.read_text())
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_exit_code_is_recorded(spec: LoadSpec, stub: Path) -> None:
    """An exit code other than 0 is a fact of the outcome, not an exception."""
    outcome = _run(spec, stub, "seven")
    assert (outcome.exit_code, outcome.signal, outcome.stop_reason) == (7, None, "")
    assert outcome.wall_s > 0 and outcome.ended_ns > outcome.started_ns


def test_a_kill_from_outside_is_told_from_ours(spec: LoadSpec, stub: Path) -> None:
    """SIGKILL by somebody else has its mark."""
    outcome = _run(spec, stub, "suicide")
    assert (outcome.exit_code, outcome.signal, outcome.killed_from_outside) == (None, 9, True)


def test_environment_is_offline_labelled_and_clean(
    spec: LoadSpec, stub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner's label reaches it, the shell's AIPERF_ settings and proxies do not; scratch is removed."""
    monkeypatch.setenv("AIPERF_WORKER_CPU_UTILIZATION_FACTOR", "9")
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    _run(spec, stub, "")
    env = json.loads((spec.artifact_dir / "env.json").read_text())
    assert env["ISOLINE_OWNER"] == "label" and env["HF_HUB_OFFLINE"] == "1"
    assert "AIPERF_WORKER_CPU_UTILIZATION_FACTOR" not in env and "http_proxy" not in env
    assert env["TMPDIR"] == env["HOME"] and not Path(env["TMPDIR"]).exists()
    assert len(env["TMPDIR"]) < 60  # AIPerf puts sockets below it


def test_should_stop_ends_it_with_sigint(spec: LoadSpec, stub: Path) -> None:
    """A reason code stops the load politely, so that partial results are written."""
    asked = time.monotonic()
    outcome = _run(
        spec, stub, "polite wait", should_stop=lambda: "stalled" if time.monotonic() - asked > 0.7 else None
    )
    assert outcome.stop_reason == "stalled" and outcome.exit_code == 0 and not outcome.killed_from_outside
    assert (spec.artifact_dir / "partial").exists()
    assert outcome.wall_s < 4


def test_deadline_ends_it(spec: LoadSpec, stub: Path) -> None:
    """No load runs for hours: its deadline is a reason of its own."""
    outcome = _run(spec, stub, "polite wait", deadline_s=0.7)
    assert outcome.stop_reason == "load_timeout" and outcome.wall_s < 4


def test_one_that_was_stopped_is_told_from_a_slow_one(
    spec: LoadSpec, stub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held by SIGSTOP when its time is over: the load generator's end, not the engine's slowness."""
    monkeypatch.setattr(supervise, "INTERRUPT_GRACE_S", 0.5)

    def stop(progress: LoadProgress) -> None:
        path = spec.artifact_dir / "pid"
        if path.exists() and progress.elapsed_s < 1.5:
            os.kill(int(path.read_text()), signal.SIGSTOP)

    held = _run(spec, stub, "children wait", deadline_s=1.5, on_progress=stop)
    assert held.stop_reason == "load_timeout" and held.was_stopped
    assert not _run(spec, stub, "polite wait", deadline_s=0.7).was_stopped


def test_nothing_of_it_stays(spec: LoadSpec, stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ignores SIGINT and its child in another group are both gone afterwards."""
    monkeypatch.setattr(supervise, "INTERRUPT_GRACE_S", 0.5)
    outcome = _run(spec, stub, "children stubborn wait", deadline_s=0.7)
    assert outcome.stop_reason == "load_timeout" and outcome.signal == 9
    assert not outcome.killed_from_outside
    assert _is_gone(spec.artifact_dir / "pid") and _is_gone(spec.artifact_dir / "child")


def test_children_of_a_dead_parent_are_ended(spec: LoadSpec, stub: Path) -> None:
    """AIPerf killed from outside leaves services running; they are ended too."""
    _run(spec, stub, "children suicide")
    assert _is_gone(spec.artifact_dir / "child")


def test_an_error_in_the_callback_leaves_no_orphan(spec: LoadSpec, stub: Path) -> None:
    """Whatever the caller's code does, the child does not outlive the call."""

    def fail(progress: LoadProgress) -> None:
        if progress.elapsed_s > 0.5:
            raise RuntimeError("caller")

    with pytest.raises(RuntimeError, match="caller"):
        _run(spec, stub, "children wait", on_progress=fail)
    assert _is_gone(spec.artifact_dir / "pid") and _is_gone(spec.artifact_dir / "child")


def test_progress_counts_measured_requests(spec: LoadSpec, stub: Path) -> None:
    """Warm-up rows are not progress."""
    seen: list[int] = []
    _run(spec, stub, "rows", on_progress=lambda progress: seen.append(progress.done))
    assert seen[-1] == 3 and seen == sorted(seen)


def test_relative_folders_are_the_callers(
    spec: LoadSpec, stub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AIPerf runs elsewhere, yet a relative artefact folder lies where the caller stands."""
    monkeypatch.chdir(spec.artifact_dir.parent)
    _run(replace(spec, artifact_dir=Path("out")), stub, "")
    assert (spec.artifact_dir / "pid").exists()


def test_a_missing_aiperf_says_what_to_do(spec: LoadSpec, tmp_path: Path) -> None:
    """The remedy is in the line."""
    missing = tmp_path / "none"
    with pytest.raises(InfraError, match="make setup"):
        _run(spec, missing, "")
    with pytest.raises(InfraError, match="make setup"):
        aiperf_version(missing)


@pytest.mark.parametrize(
    ("text", "code", "ok"), [("0.13.2", 0, True), ("0.14.0", 0, False), ("boom", 1, False)]
)
def test_the_version_is_checked(tmp_path: Path, text: str, code: int, ok: bool) -> None:
    """Another minor version is refused, as its exports may mean something else."""
    path = tmp_path / "aiperf"
    path.write_text(f"#!/bin/sh\necho {text}\nexit {code}\n")
    path.chmod(0o755)
    if ok:
        assert aiperf_version(path) == text
    else:
        with pytest.raises(InfraError, match="make setup"):
            aiperf_version(path)


def test_child_env_keeps_the_callers_own_values() -> None:
    """What the caller adds wins."""
    env = child_env(
        {"PATH": "/bin"}, {"X": "1"}, hf_home=Path("/h"), scratch=Path("/s"), url="http://10.0.0.1:1"
    )
    assert env["PATH"] == "/bin" and env["X"] == "1" and env["NO_PROXY"] == "10.0.0.1"
    assert os.environ.get("X") is None
