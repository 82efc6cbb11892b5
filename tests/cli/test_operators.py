"""The operator's verbs: pools and their nodes, commands to runs, logs; each says what it did."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from isoline.cli.launch import seconds
from isoline.cli.main import run
from isoline.cli.pool_nodes import moment_of
from isoline.errors import InputError
from isoline.runners.ownership import leases, quarantine
from isoline.settings import load_settings
from isoline.sweeps.planning.prepare import open_points
from isoline.sweeps.state.control import read_controls
from isoline.sweeps.state.runs import Run, read_run

NOW = datetime(2026, 12, 1, 2, tzinfo=UTC)


@pytest.fixture
def state(project: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """State and store of their own."""
    monkeypatch.setenv("ISOLINE_PROJECT", str(project.root))
    monkeypatch.setenv("ISOLINE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("ISOLINE_STORE", str(tmp_path / "store"))
    return tmp_path / "state"


@pytest.fixture
def demo(state: Path, bundles: Any, tmp_path: Path) -> Run:
    """A run of the demo: c1 valid, c4 invalid, the others without an attempt."""
    bad = bundles.Outcome(reasons=("canary_failed",))
    folder = bundles.make_run(
        tmp_path / "store",
        bundles.make_plan(),
        outcomes={(2, 1): None, (4, 1): bad, (8, 1): None},
    )
    found = read_run(folder)
    assert found is not None
    return found


def told(capsys: pytest.CaptureFixture[str]) -> str:
    """What was printed."""
    return capsys.readouterr().out


def point_at(item: Run, concurrency: int) -> str:
    """The point at a concurrency."""
    points = [point for launch in item.plan.launches for point in launch.points]
    return next(point.point_id for point in points if point.concurrency == concurrency)


# --- nodes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["drain", "quarantine"])
def test_a_node_is_not_closed_without_a_reason(
    state: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty reason tells nobody anything: it is refused, and the node stays open."""
    assert run(["pool", kind, "local", "--reason", " "]) == 1
    assert "--reason: it is empty" in capsys.readouterr().err
    assert quarantine.all_nodes(state) == []


def test_a_node_is_drained_and_released(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run changes nothing; then the node is closed with its reason everywhere, until it is released."""
    assert run(["pool", "drain", "local", "--reason", "new fan", "--dry-run"]) == 0
    assert "local would be drained until `isoline pool release`: new fan" in told(capsys)
    assert quarantine.all_nodes(state) == []
    assert run(["pool", "drain", "local", "--reason", "new fan", "--until", "6h"]) == 0
    capsys.readouterr()
    assert run(["pool", "status", "local", "--format", "json"]) == 0
    (row,) = json.loads(told(capsys))
    assert row["state"].startswith("drained until ")
    assert row["launch"] is None
    assert run(["pool", "list", "--format", "json"]) == 0
    assert next(row for row in json.loads(told(capsys)) if row["pool"] == "local")["closed"] == ["local"]
    assert run(["pool", "release", "local", "--dry-run"]) == 0
    assert "local would take launches again; it was drained" in told(capsys)
    assert run(["pool", "release", "local"]) == 0
    assert run(["pool", "release", "local"]) == 0
    assert "nothing to do" in told(capsys)
    assert quarantine.all_nodes(state) == []


def test_a_quarantine_ends_by_itself(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a time it has one all the same."""
    assert run(["pool", "quarantine", "local", "--reason", "odd numbers"]) == 0
    assert "local quarantined until 20" in told(capsys)
    (record,) = quarantine.all_nodes(state)
    assert record.hold is not None
    assert record.hold.until is not None


def test_a_misspelt_node_is_refused(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody drains a node that no pool has."""
    assert run(["pool", "drain", "locla", "--reason", "x"]) == 1
    assert "no pool has a node 'locla'; did you mean 'local'?" in capsys.readouterr().err


def test_no_name_of_a_node(project: Any, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where Slurm's nodes may be any name, one that could be something else is refused all the same."""
    text = "schema_version: 1\nname: s\nlauncher: slurm\nsku: cpu\nslurm: {partition: x, container: none}\n"
    project.write("runners/s.yaml", text)
    for node in ("a\nb", "-x", "n" * 300, "../x", ""):
        assert run(["pool", "drain", "--reason", "x", "--", node]) == 1
        assert "is no name of a node" in capsys.readouterr().err
    assert run(["pool", "drain", "n1", "--reason", "x"]) == 0


def test_nodes_of_slurm_that_take_nothing_are_shown(
    project: Any, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Quarantined by its errors, or with one lately: a row each, though nobody here places launches there;
    machines that we place launches on are not among them."""
    text = "schema_version: 1\nname: s\nlauncher: slurm\nsku: cpu\nslurm: {partition: x, container: none}\n"
    project.write("runners/s.yaml", text)
    now = quarantine.stamp(datetime.now(UTC))
    lost = quarantine.NodeError(now, "s", "r", "l-1", "node_failed", "job 5 lost n1")
    for _ in range(3):
        quarantine.note_error(state, "n1", lost)
    quarantine.note_error(state, "n2", lost)
    quarantine.note_error(state, "local", quarantine.NodeError(now, "local", "r", "l", "gpu_busy", "x"))
    assert run(["pool", "status", "--format", "json"]) == 0
    rows = {row["node"]: row for row in json.loads(told(capsys)) if row["pool"] == "s"}
    assert set(rows) == {"n1", "n2"}
    assert rows["n1"]["state"].startswith("quarantined until ") and "node_failed" in rows["n1"]["state"]
    assert (rows["n2"]["state"], rows["n2"]["last_error"]) == ("open", f"{now} node_failed: job 5 lost n1")
    assert run(["pool", "list", "--format", "json"]) == 0
    assert {row["pool"]: row["closed"] for row in json.loads(told(capsys))}["s"] == ["n1"]


def test_a_lease_that_cannot_be_read_is_shown(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every node is held by nobody known, with what to do; gc leaves the file until it is old."""
    folder = leases.leases_folder(state)
    folder.mkdir(parents=True)
    (folder / "3fa.json").write_text('{"token": "3fa", "pl')
    assert run(["pool", "status", "local", "--format", "json"]) == 0
    (row,) = json.loads(told(capsys))
    assert row["state"].startswith("held by nobody known: lease 3fa.json cannot be read")
    assert "delete leases/3fa.json in the state folder" in row["state"]
    assert run(["pool", "gc", "local"]) == 0
    assert (folder / "3fa.json").exists()
    old = datetime.now(UTC).timestamp() - 2 * leases.UNREADABLE_S
    os.utime(folder / "3fa.json", (old, old))
    assert run(["pool", "gc", "local"]) == 0
    assert not (folder / "3fa.json").exists() and "of nobody who lives" in told(capsys)


def test_a_state_folder_that_is_none(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be written is one line that names the setting."""
    state.parent.mkdir(exist_ok=True)
    state.write_text("a file")
    assert run(["pool", "drain", "local", "--reason", "x"]) == 4
    assert "ISOLINE_STATE names another folder" in capsys.readouterr().err


def test_nothing_is_held_on_a_drained_node(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bring-up keeps away from it too, and says why and how to go on."""
    assert run(["pool", "drain", "local", "--reason", "new fan"]) == 0
    words = ["launch", "smollm2-135m/llamacpp-cpu-q4_1", "--concurrency", "4", "--hold", "5s"]
    assert run(words) == 4
    assert "node local takes nothing: drained: new fan; `isoline pool release" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "after"), [("6h", timedelta(hours=6)), ("90m", timedelta(minutes=90)), ("2d", timedelta(days=2))]
)
def test_spans_of_time(text: str, after: timedelta) -> None:
    """Minutes, hours and days from now."""
    assert moment_of(text, NOW) == NOW + after


def test_lengths_of_time() -> None:
    """A server is held for some time, and not for ever."""
    assert seconds("1h30m") == 5400
    for text in ("2x", "0s", "0h0m", "9" * 30 + "h", "721h"):
        with pytest.raises(InputError, match="--hold"):
            seconds(text)


def test_moments() -> None:
    """A time needs its zone and must be to come."""
    assert moment_of("2026-12-01T07:00Z", NOW) == NOW + timedelta(hours=5)
    for text in ("soon", "2026-12-01T07:00", "2026-12-01T01:00Z", "0m", "9999999d", "9" * 30 + "d"):
        with pytest.raises(InputError, match="--until"):
            moment_of(text, NOW)


def test_the_status_shows_a_launch_in_flight(
    state: Path, demo: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Node, devices, launch, phase, since, expected end and the last error, off lease and journal."""
    from isoline.sweeps.state.journal import JOURNAL, Journal

    journal = Journal(demo.work / JOURNAL)
    journal.write("sealed", point_id="p", verdict="invalid", cause="oom: full", launch_id="aaaaaaaaaa-1")
    journal.write("phase", phase="load", point_id="q", launch_id="aaaaaaaaaa-2")
    lease = leases.take(
        state,
        pool="local",
        run_id=demo.run_id,
        launch_id="aaaaaaaaaa-2",
        places=(("local", (0,)),),
        is_whole=True,
        run_folder=demo.folder,
        ends_at="2100-01-01T00:00:00Z",
    )
    assert run(["pool", "status", "local", "--format", "json"]) == 0
    (row,) = json.loads(told(capsys))
    assert (row["node"], row["state"], row["devices"]) == ("local", "busy", [0])
    assert (row["launch"], row["point"], row["phase"]) == ("aaaaaaaaaa-2", "q", "load")
    assert row["eta_s"] > 0
    assert row["last_error"].endswith("oom: full")
    assert run(["pool", "status", "local-podman", "--format", "json"]) == 0
    (row,) = json.loads(told(capsys))
    assert row["state"] == "busy for pool local", "one machine, another pool"
    assert run(["pool", "gc", "--dry-run"]) == 0
    assert "no rows" in told(capsys), "a living lease is nobody's waste"
    leases.give_back(state, lease)


def test_a_server_is_not_held_at_a_concurrency_of_no_recipe(
    project: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recipe is named, with what it lists: no sweep has part in it."""
    assert run(["launch", "smollm2-135m/llamacpp-cpu-q4_1", "--concurrency", "64"]) == 1
    said = capsys.readouterr().err
    assert "concurrency 64 is not in scenario 'demo-short' of this recipe; name one of 1, 2, 4, 8" in said


def test_the_logs_of_a_held_launch(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the id that `isoline launch` prints, while it starts and while it is held; another id is unknown."""
    folder = state / "held" / "aaaaaaaaaa-hbeef"
    folder.mkdir(parents=True)
    (folder / "server.log").write_text("one\ntwo\n")
    assert run(["logs", "aaaaaaaaaa-hbeef", "--lines", "1"]) == 0
    assert told(capsys) == f"==> server of held launch aaaaaaaaaa-hbeef: {folder / 'server.log'}\ntwo\n"
    assert run(["logs", "aaaaaaaaaa-hbee"]) == 1


# --- commands to runs -------------------------------------------------------------------------


def test_commands_are_kept_and_said(demo: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """By the sweep's name or the run's id; --dry-run writes nothing; who obeys when is said."""
    assert run(["sweep", "pause", "demo", "--dry-run"]) == 0
    assert told(capsys).startswith("would be told: run ")
    assert not demo.work.exists() or not list(demo.work.glob("control-*"))
    assert run(["sweep", "pause", "demo"]) == 0
    assert "nothing works at it now: it counts from the next `isoline sweep run demo`" in told(capsys)
    assert read_controls(demo.work).is_paused
    assert run(["sweep", "cancel", demo.run_id, "--reason", "wrong image"]) == 0
    assert read_controls(demo.work).is_cancelled
    assert run(["sweep", "resume", "demo"]) == 0
    assert not read_controls(demo.work).is_cancelled
    assert run(["sweep", "pause", "nosuch"]) == 1
    assert "no run of sweep 'nosuch'" in capsys.readouterr().err


def test_a_launch_is_skipped_by_its_digest(demo: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """By the id of a start too; what fits no launch is refused with those that there are."""
    digest = demo.plan.launches[0].launch_digest
    assert run(["sweep", "skip", "demo", "feedfeed-1"]) == 1
    assert digest[:10] in capsys.readouterr().err
    assert run(["sweep", "skip", "demo", f"{digest[:10]}-3", "--reason", "slow"]) == 0
    assert read_controls(demo.work).why_skipped(digest) == "skipped by hand: slow"


def test_a_point_is_due_once_more(demo: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """An invalid one is; a valid one is refused with the command that repeats it."""
    invalid, valid = point_at(demo, 4), point_at(demo, 1)

    def due() -> set[str]:
        assert run(["sweep", "status", "demo", "--format", "json"]) == 0
        return {row["point_id"] for row in json.loads(told(capsys)) if row["due"]}

    def planned() -> set[str]:
        return {point.point_id for point in open_points(demo.plan, demo)}

    assert invalid not in due() | planned()
    assert run(["sweep", "retry", "demo", valid]) == 1
    assert "isoline reproduce" in capsys.readouterr().err
    assert run(["sweep", "retry", "demo", "nobody"]) == 1
    assert run(["sweep", "retry", "demo", invalid]) == 0
    capsys.readouterr()
    assert invalid in due() and invalid in planned()


def test_the_status_says_what_was_left_out(
    demo: Run, bundles: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A point without an attempt shows the cause that the run gave."""
    bundles.seal_skipped(demo.folder, {point_at(demo, 8): "window_closed"})
    assert run(["sweep", "status", "demo", "--format", "json"]) == 0
    rows = {row["point_id"]: row["reasons"] for row in json.loads(told(capsys))}
    assert rows[point_at(demo, 8)] == "skipped: window_closed"
    assert rows[point_at(demo, 2)] is None


def test_following_an_ended_run_prints_lines_of_json(demo: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """One object a line, and it ends because the run has."""
    from isoline.sweeps.state.journal import JOURNAL, Journal

    journal = Journal(demo.work / JOURNAL)
    journal.write("run", run_id=demo.run_id)
    journal.write("phase", phase="load", point_id="p", launch_id="a-1")
    journal.write("end", skipped={})
    assert run(["sweep", "status", "demo", "--follow", "--format", "json"]) == 0
    rows = [json.loads(text) for text in told(capsys).splitlines()]
    assert [row["phase"] for row in rows] == ["begin", "load", "end"]
    assert run(["sweep", "status", "demo", "--follow"]) == 0
    assert "p load" in told(capsys)


def test_logs_of_a_point(demo: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Each log with its path above it."""
    assert run(["logs", point_at(demo, 1)]) == 0
    text = told(capsys)
    assert text.startswith("==> server of launch ")
    assert "listening" in text
    assert run(["logs", "nobody"]) == 1
    assert load_settings().store.name in capsys.readouterr().err
