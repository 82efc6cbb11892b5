"""A small project of its own with the real engine and the real load generator, driven by the CLI.

Environments, weights and tokenizer are the checkout's (links); owner records, ports, pools, scratch and
store are new, so that no test sees or ends anybody else's processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from isoline.results.bundles.bundle import attempts, bundle_digest, read_manifest, run_folders, sealed_bundles
from isoline.results.bundles.records import Plan, PointRecord
from isoline.sweeps.state.runs import read_point

PROJECT = Path(__file__).resolve().parents[2]
STATE = PROJECT / ".isoline"
ISOLINE = Path(sys.executable).with_name("isoline")
MODEL = "smollm2-135m"
RECIPE = f"{MODEL}/llamacpp-cpu-q4_1"
POLL_S = 0.005

# One thread: two would wait for each other actively, and a busy neighbour makes that five times slower.
SERVER_ARGS: dict[str, Any] = {
    "parallel": 4,
    "ctx-size": 2048,
    "threads": 1,
    "threads-batch": 1,
    "cache-ram": 0,
    "cache-type-k": "f16",
    "cache-type-v": "f16",
}

SHORT = {
    "schema_version": 1,
    "name": "tiny-short",
    "version": 1,
    "kind": "fixed_length",
    "dataset": "synthetic-text",
    "isl": 64,
    "osl": 16,
    "requests": {"minimum": 4, "per_concurrency": 2},
    "cache": "forbid",
    "limits": {"ttft_ms": 3000, "tpot_ms": 100},
    "deadlines": {"request_s": 120, "stall_s": 8, "load_s": 240},
    "canary_min_questions": 2,
}

CHAT = {
    "schema_version": 1,
    "name": "tiny-chat",
    "version": 1,
    "kind": "trace",
    "dataset": "tiny-chat",
    "cache": "expect",
    "limits": {"ttft_ms": 3000, "tpot_ms": 100},
    "deadlines": {"request_s": 120, "stall_s": 8, "load_s": 240},
    "canary_min_questions": 2,
}


@dataclass(frozen=True)
class Done:
    """An ended command."""

    code: int
    out: str
    err: str
    took_s: float

    def json(self) -> Any:
        """What it printed with ``--format json``."""
        return json.loads(self.out)


@dataclass
class Running:
    """A command that runs; its output goes to files."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path
    began: float
    journal_from: Mapping[Path, int] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self, timeout_s: float = 240) -> Done:
        """Wait for its end."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"no end within {timeout_s} s\n{self.text()}") from None
        return Done(code, self.out.read_text(), self.err.read_text(), time.monotonic() - self.began)

    def text(self) -> str:
        """What it has printed so far."""
        return self.out.read_text() + self.err.read_text()


class Tiny:
    """A project folder with small recipes, scenarios and sweeps, and the commands on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "project"
        self.state = root / "state"
        self.real_state = STATE
        self.store = self.project / "results" / "store"
        # Short: sockets lie below it, and their paths may have 107 bytes.
        self.tmp = Path(tempfile.mkdtemp(prefix="e2e-"))
        self._count = 0
        self._running: list[Running] = []
        self._make()

    def _make(self) -> None:
        for name in ("recipes", "sweeps/scenarios", "runners"):
            (self.project / name).mkdir(parents=True)
        shutil.copytree(PROJECT / "datasets", self.project / "datasets")
        shutil.copy(PROJECT / "runners" / "local.yaml", self.project / "runners")
        self.state.mkdir()
        for name in ("envs", "hf", "weights"):
            (self.state / name).symlink_to(STATE / name)
        self.dataset("tiny-chat", "demo-chat", self._short_sessions(), sessions=2, turns=4)
        lines = (PROJECT / "datasets" / "arithmetic-mini.jsonl").read_text().splitlines()[:8]
        self.dataset("tiny-sums", "arithmetic-mini", lines)
        for scenario in (SHORT, CHAT):
            self.yaml(f"sweeps/scenarios/{scenario['name']}.yaml", scenario)
        self.recipe()

    def _short_sessions(self) -> list[str]:
        lines = []
        for text in (PROJECT / "datasets" / "demo-chat.jsonl").read_text().splitlines()[:2]:
            session = json.loads(text)
            session["turns"] = session["turns"][:3]
            for turn in session["turns"][1:]:
                turn["output_length"] = 12
            lines.append(json.dumps(session))
        return lines

    # --- files --------------------------------------------------------------------------------

    def yaml(self, name: str, content: Mapping[str, Any], comment: str = "") -> Path:
        """Write a file; JSON is YAML too."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {comment}\n{json.dumps(content, indent=1)}\n")
        return path

    def dataset(self, name: str, like: str, lines: list[str], **fields: Any) -> None:
        """A dataset of these lines, described like one of the checkout's."""
        from ruamel.yaml import YAML

        text = "\n".join(lines) + "\n"
        (self.project / "datasets" / f"{name}.jsonl").write_text(text)
        content = dict(YAML(typ="safe").load(self.project / "datasets" / f"{like}.yaml"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        content |= {"name": name, "file": f"{name}.jsonl", "sha256": digest, **fields}
        self.yaml(f"datasets/{name}.yaml", content)

    def recipe(
        self,
        variant: str = "",
        comment: str = "",
        scenarios: Mapping[str, Any] | None = None,
        **args: Any,
    ) -> str:
        """Write a recipe; its id. ``args`` change the server's arguments (``_`` for ``-``)."""
        recipe_id = RECIPE + (f"-{variant}" if variant else "")
        content = {
            "schema_version": 1,
            "model": "smollm2-135m-instruct",
            "engine": "llamacpp",
            "sku": "cpu",
            "precision": {"weights": "q4_1", "kv": "f16"},
            "image": {"packages": ["xllamacpp==2026.10.11549"]},
            "topologies": [{"aggregated": {"workers": 1, "tp": 1}}],
            "server": {"args": SERVER_ARGS | {key.replace("_", "-"): item for key, item in args.items()}},
            "readiness": {"ready_s": 40, "stop_s": 5},
            "scenarios": {
                "tiny-short": {"concurrency": [1, 2, 3, 4]},
                "tiny-chat": {"concurrency": [1, 2]},
                **(scenarios or {}),
            },
            "canary": "canary-smollm2",
            "accuracy": {
                "tiny-sums": {"correct_share": 0.37, "tolerance": 0.3, "n": 8, "source": "a test"},
            },
            "status": "verified",
            "owner": "tests",
            "upstream": "a test",
        }
        self.yaml(f"recipes/{recipe_id}.yaml", content, comment)
        return recipe_id

    def scenario(self, name: str, **fields: Any) -> None:
        """Write a scenario like tiny-short with other fields."""
        self.yaml(f"sweeps/scenarios/{name}.yaml", SHORT | {"name": name} | fields)

    def sweep(self, name: str, *select: Mapping[str, Any], **fields: Any) -> None:
        """Write a sweep. A selection is of the tiny recipe unless it says otherwise."""
        rows = [{"recipes": [RECIPE], "scenario": "tiny-short"} | dict(row) for row in select]
        self.yaml(
            f"sweeps/{name}.yaml",
            {"schema_version": 1, "name": name, "pool": "local", "select": rows, **fields},
        )

    # --- commands -----------------------------------------------------------------------------

    def env(self) -> dict[str, str]:
        """The environment of a command."""
        places = {"ISOLINE_PROJECT": self.project, "ISOLINE_STATE": self.state, "TMPDIR": self.tmp}
        return os.environ | {name: str(path) for name, path in places.items()}

    def start(
        self, *args: str, program: list[str] | None = None, wrapper: list[str] | None = None
    ) -> Running:
        """Start ``isoline ARGS``. ``program`` stands in for it, ``wrapper`` is put in front."""
        self._count += 1
        out, err = (self.root / f"command-{self._count}.{name}" for name in ("out", "err"))
        argv = [*(wrapper or []), *(program or [str(ISOLINE)]), *args]
        journals = {path: len(path.read_bytes().splitlines()) for path in self.journals()}
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                argv, stdout=stdout, stderr=stderr, cwd=self.project, env=self.env(), start_new_session=True
            )
        running = Running(process, out, err, time.monotonic(), journals)
        self._running.append(running)
        return running

    def run(self, *args: str, timeout_s: float = 240, **more: Any) -> Done:
        """``isoline ARGS``, to its end."""
        return self.start(*args, **more).end(timeout_s)

    def sweep_run(self, name: str, *args: str, code: int | None = 0, **more: Any) -> Done:
        """``isoline sweep run NAME``; its exit code is checked unless it is None."""
        done = self.run("sweep", "run", name, *args, **more)
        assert code is None or done.code == code, f"exit code {done.code}\n{done.out}{done.err}"
        return done

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Rows of ``isoline results query``."""
        done = self.run("results", "query", sql, "--format", "json")
        assert done.code == 0, done.err
        rows: list[dict[str, Any]] = done.json()
        return rows

    # --- what is on disk ----------------------------------------------------------------------

    def journals(self) -> list[Path]:
        """The journals of all runs."""
        try:
            return sorted(self.store.glob("[0-9]*/*/*/*/.work/journal.jsonl"))
        except FileNotFoundError:  # a folder was renamed while it was read: the next look finds it
            return []

    def runs(self) -> list[Path]:
        """The folders of all runs, oldest first."""
        return list(run_folders(self.store)) if self.store.is_dir() else []

    def the_run(self) -> Path:
        """The folder of the only run."""
        (run,) = self.runs()
        return run

    def plan(self, run: Path) -> Plan:
        """The plan of a run."""
        return Plan.model_validate_json((run / "_run" / "plan.json").read_bytes())

    def attempts(self, run: Path) -> dict[str, list[PointRecord]]:
        """point id -> its sealed attempts in order, for each expected point."""
        found: dict[str, list[PointRecord]] = {}
        for launch in self.plan(run).launches:
            for point in launch.points:
                found[point.point_id] = [read_point(path) for path in attempts(run, point.point_id)]
        return found

    def at(self, run: Path, concurrency: int) -> list[PointRecord]:
        """The attempts at the only expected point of a concurrency."""
        (found,) = (items for name, items in self.attempts(run).items() if f".c{concurrency}.r" in name)
        return found

    def digests(self) -> dict[str, str]:
        """Sealed bundle -> digest over its content and its manifest."""
        found = {}
        for run in self.runs():
            for folder in sealed_bundles(run):
                manifest = hashlib.sha256((folder / "MANIFEST.json").read_bytes()).hexdigest()
                found[str(folder)] = f"{bundle_digest(read_manifest(folder))} {manifest}"
        return found

    def events(self, running: Running) -> list[dict[str, Any]]:
        """What the journals say since the command was started."""
        events = []
        for path in self.journals():
            for line in path.read_bytes().splitlines()[running.journal_from.get(path, 0) :]:
                with contextlib.suppress(ValueError):
                    events.append(json.loads(line))
        return events

    def wait_phase(
        self, running: Running, phase: str, concurrency: int | None = None, timeout_s: float = 120
    ) -> None:
        """Wait until the command enters a phase (of a point at this concurrency, where it is given)."""
        part = f".c{concurrency}.r" if concurrency else ""

        def entered() -> bool:
            return any(
                event.get("phase") == phase and part in (event.get("point_id") or "")
                for event in self.events(running)
            )

        self.wait(running, entered, f"phase {phase}", timeout_s)

    def wait_requests(self, running: Running, concurrency: int, attempt: int = 1, count: int = 1) -> None:
        """Wait until the load of an attempt at a concurrency has so many measured requests done."""

        def flows() -> bool:
            pattern = f"*/*/*/*/.work/*.c{concurrency}.r*~{attempt}.*/aiperf/profile_export.jsonl"
            done = sum(
                path.read_bytes().count(b'"benchmark_phase":"profiling"') for path in self.store.glob(pattern)
            )
            return done >= count

        self.wait(running, flows, f"{count} requests", 120)

    def wait(self, running: Running, is_so: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
        """Wait for something while the command runs."""
        until = time.monotonic() + timeout_s
        while not is_so():
            assert running.process.poll() is None, f"ended before {what}\n{running.text()}"
            assert time.monotonic() < until, f"no {what} within {timeout_s} s\n{running.text()}"
            time.sleep(POLL_S)

    # --- processes ----------------------------------------------------------------------------

    def child(self, what: str) -> int:
        """The pid of the living server or client, from the owner records."""
        found = []
        for path in (self.state / "owners").glob("*.json"):
            note = path.with_suffix(".child")
            if json.loads(path.read_text())["what"] == what and note.exists():
                found.append(int(json.loads(note.read_text())["pid"]))
        (pid,) = found
        return pid

    def processes(self) -> dict[int, str]:
        """Every living process that has to do with this folder, found without our own records."""
        mine = {os.getpid(), *(item.pid for item in self._running)}
        found = {}
        for name in os.listdir("/proc"):  # noqa: PTH208
            if name.isdigit() and int(name) not in mine:
                text = self._traces(Path("/proc") / name)
                if str(self.root) in text:
                    found[int(name)] = text[:200]
        return found

    @staticmethod
    def _traces(folder: Path) -> str:
        parts = []
        with contextlib.suppress(OSError):
            if (folder / "stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return ""
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                parts.append((folder / name).read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        for name in ("cwd", "fd/1", "fd/2"):
            with contextlib.suppress(OSError):
                parts.append(str((folder / name).readlink()))
        return " ".join(parts)

    def close(self) -> None:
        """End what this project started, whatever the test did."""
        for item in self._running:
            if item.process.poll() is None:
                item.kill(signal.SIGCONT)
                item.kill()
                item.process.wait()
        for _ in range(3):
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        shutil.rmtree(self.tmp, ignore_errors=True)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Tiny]:
    """A new small project; its processes are ended after the test."""
    made = Tiny(tmp_path / "e2e")
    yield made
    made.close()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    """A small project shared by the tests of a module."""
    made = Tiny(tmp_path_factory.mktemp("e2e"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def plain_client(support: Callable[[str], ModuleType]) -> ModuleType:
    """tests/support/plain_client.py."""
    return support("plain_client")
