"""What dead orchestrators leave is found and ended, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from isoline.results.bundles.bundle import write_file
from isoline.runners.machine import ports, proc
from isoline.runners.ownership import owners
from isoline.runners.ownership.owners import Owner, sweep_orphans

Spawn = Callable[..., subprocess.Popen[bytes]]
Eventually = Callable[..., None]

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
STUBBORN = [sys.executable, "-c", "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]


def claim(state: Path, **more: Path) -> Owner:
    return owners.claim(state, run_id="r", launch_id="l-1", what="server", **more)


def orphan(state: Path, owner: Owner) -> Owner:
    """The same record, as of an orchestrator that is gone: our pid with another start."""
    dead = replace(owner, orchestrator_start_ticks=owner.orchestrator_start_ticks - 1)
    write_file(state / "owners" / f"{owner.token}.json", json.dumps(asdict(dead)).encode())
    return dead


def start_child(
    state: Path, owner: Owner, spawn: Spawn, argv: list[str], **options: object
) -> subprocess.Popen[bytes]:
    env = dict(os.environ) | owners.label(owner)
    child = spawn(owners.wrap(state, owner, argv), env=env, **options)
    until = time.monotonic() + 10
    while owners.child_of(state, owner.token) is None:
        assert child.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    return child


def alive(pid: int) -> bool:
    return proc.is_alive(pid, None)


def test_record_is_written_before_the_child(state: Path) -> None:
    """A claim leaves a readable record with pid, start and boot of this orchestrator."""
    owner = claim(state)
    assert owners.all_owners(state) == [owner]
    assert owner.orchestrator_pid == os.getpid()
    assert owners.orchestrator_state(owner) == "alive"
    assert sweep_orphans(state) == []
    assert owners.all_owners(state) == [owner]


def test_child_notes_itself(state: Path, spawn: Spawn) -> None:
    """The child's note names its pid, session and start before the program runs."""
    owner = claim(state)
    child = start_child(state, owner, spawn, SLEEPER)
    noted = owners.child_of(state, owner.token)
    found = proc.read_proc(child.pid)
    assert noted and found
    assert (noted.pid, noted.sid, noted.start_ticks) == (child.pid, child.pid, found.start_ticks)


def test_orphan_is_ended_and_forgotten(state: Path, spawn: Spawn) -> None:
    """The server of a dead orchestrator ends; its record, note and port lease go."""
    owner = claim(state)
    port = ports.lease(state, owner.token, "127.0.0.1")
    child = start_child(state, owner, spawn, SLEEPER)
    orphan(state, owner)
    (swept,) = sweep_orphans(state)
    assert swept.ended == (child.pid,) and swept.left == ()
    assert child.wait(1) == -signal.SIGTERM
    assert owners.all_owners(state) == []
    assert list((state / "owners").iterdir()) == []
    assert ports.holder(state, port) is None


def test_live_orchestrators_server_is_untouched(state: Path, spawn: Spawn) -> None:
    """A server whose orchestrator lives keeps running, whoever sweeps."""
    owner = claim(state)
    child = start_child(state, owner, spawn, SLEEPER)
    swept = subprocess.run(
        [
            sys.executable, "-c",
            "import sys; from pathlib import Path;"
            "from isoline.runners.ownership.owners import sweep_orphans;"
            "print(len(sweep_orphans(Path(sys.argv[1]))))", str(state),
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert swept.stdout.strip() == "0"
    assert alive(child.pid)
    assert owners.all_owners(state) == [owner]


def test_foreign_process_is_untouched(state: Path, spawn: Spawn) -> None:
    """Processes without our label and session survive, also those with another token."""
    owner = orphan(state, claim(state))
    foreign = spawn(SLEEPER)
    other = spawn(SLEEPER, env=dict(os.environ) | {owners.LABEL: "0" * 24})
    (swept,) = sweep_orphans(state)
    assert swept.owner == owner and swept.ended == ()
    assert alive(foreign.pid) and alive(other.pid)


def test_session_members_without_label_are_ended(state: Path, spawn: Spawn, tmp_path: Path) -> None:
    """Processes that lost the label are found by the session that the child noted."""
    owner = claim(state)
    parent = [
        sys.executable, "-c",
        "import subprocess,sys,time;"
        f"p=subprocess.Popen({SLEEPER!r}, env={{}}); print(p.pid, flush=True); time.sleep(600)",
    ]  # fmt: skip
    child = start_child(state, owner, spawn, ["/usr/bin/env", "-i", *parent], stdout=subprocess.PIPE)
    assert child.stdout
    inner = int(child.stdout.readline())
    assert owners.LABEL not in proc.read_environ(child.pid)
    orphan(state, owner)
    (swept,) = sweep_orphans(state)
    assert set(swept.ended) == {child.pid, inner}
    assert not alive(inner) and not alive(child.pid)


def test_members_outlive_their_leader(
    state: Path, spawn: Spawn, tmp_path: Path, eventually: Eventually
) -> None:
    """When the session's leader is gone too, its members are known by the log that they write to."""
    log = tmp_path / "client.log"
    owner = claim(state, log=log)
    script = [
        sys.executable, "-c",
        f"import subprocess,sys; p=subprocess.Popen({SLEEPER!r}, env={{}}); print(p.pid, flush=True)",
    ]  # fmt: skip
    with log.open("wb") as file:
        child = start_child(state, owner, spawn, script, stdout=file)
    child.wait(10)
    eventually(lambda: log.read_text().strip())
    inner = int(log.read_text())
    orphan(state, owner)
    (swept,) = sweep_orphans(state)
    assert swept.ended == (inner,)
    assert not alive(inner)


def test_session_of_a_reused_pid_is_untouched(state: Path, spawn: Spawn) -> None:
    """A later process that got the child's pid, and its session, are somebody else's."""
    stranger = spawn(SLEEPER)
    found = proc.read_proc(stranger.pid)
    assert found
    owner = orphan(state, claim(state))
    note = {"pid": found.pid, "pgid": found.pgid, "sid": found.sid, "start_ticks": found.start_ticks - 50}
    (state / "owners" / f"{owner.token}.child").write_text(json.dumps(note))
    (swept,) = sweep_orphans(state)
    assert swept.ended == ()
    assert alive(stranger.pid)


def test_leaderless_session_of_others_is_untouched(
    state: Path, spawn: Spawn, tmp_path: Path, eventually: Eventually
) -> None:
    """Members of a session of that number that neither carry our label nor write to our log stay."""
    foreign_log = tmp_path / "foreign.log"
    with foreign_log.open("wb") as file:
        leader = spawn(
            [
                sys.executable,
                "-c",
                f"import subprocess; print(subprocess.Popen({SLEEPER!r}).pid, flush=True)",
            ],
            stdout=file,
        )
    leader.wait(10)
    eventually(lambda: foreign_log.read_text().strip())
    inner = int(foreign_log.read_text())
    owner = orphan(state, claim(state, log=tmp_path / "ours.log"))
    note = {"pid": leader.pid, "pgid": leader.pid, "sid": leader.pid, "start_ticks": 1}
    (state / "owners" / f"{owner.token}.child").write_text(json.dumps(note))
    sweep_orphans(state)
    try:
        assert alive(inner)
    finally:
        os.kill(inner, signal.SIGKILL)


def test_record_without_a_child_is_removed(state: Path) -> None:
    """An orchestrator killed between record and fork leaves a record and a port, both go."""
    owner = claim(state)
    port = ports.lease(state, owner.token, "127.0.0.1")
    orphan(state, owner)
    (swept,) = sweep_orphans(state)
    assert swept.ended == ()
    assert owners.all_owners(state) == [] and ports.holder(state, port) is None


def test_child_without_a_note_is_found_by_label(state: Path, spawn: Spawn) -> None:
    """A child that was started but never noted itself is found by its label."""
    owner = claim(state)
    child = spawn(SLEEPER, env=dict(os.environ) | owners.label(owner))
    orphan(state, owner)
    (swept,) = sweep_orphans(state)
    assert swept.ended == (child.pid,)


def test_program_is_not_started_for_a_dead_orchestrator(state: Path, spawn: Spawn, tmp_path: Path) -> None:
    """Where record or orchestrator are gone the child ends instead of becoming the program."""
    owner = claim(state)
    proof = tmp_path / "ran"
    touch = owners.wrap(state, owner, ["/usr/bin/touch", str(proof)])
    write_file(
        state / "owners" / f"{owner.token}.json",
        json.dumps(asdict(replace(owner, orchestrator_pid=1))).encode(),
    )
    assert spawn(touch).wait(10) == 125
    owners.release(state, owner)
    assert spawn(touch).wait(10) == 125
    assert not proof.exists()


def test_stubborn_and_stopped_orphans_are_killed(state: Path, spawn: Spawn) -> None:
    """One that ignores SIGTERM and one that is stopped are gone within the bound."""
    ignoring, stopped = claim(state), claim(state)
    first = start_child(state, ignoring, spawn, STUBBORN)
    second = start_child(state, stopped, spawn, SLEEPER)
    time.sleep(0.3)  # the first must have set its handler
    os.kill(second.pid, signal.SIGSTOP)
    orphan(state, ignoring)
    orphan(state, stopped)
    began = time.monotonic()
    assert len(sweep_orphans(state, term_s=0.5)) == 2
    assert time.monotonic() - began < 8
    assert first.wait(1) == -signal.SIGKILL
    assert second.wait(1) in (-signal.SIGTERM, -signal.SIGKILL)


def test_other_hosts_and_boots(state: Path, spawn: Spawn) -> None:
    """A record of another host is left alone; one of an earlier boot of this host is only removed."""
    far = replace(claim(state), host="another-host")
    write_file(state / "owners" / f"{far.token}.json", json.dumps(asdict(far)).encode())
    old = replace(claim(state), boot_id="earlier")
    write_file(state / "owners" / f"{old.token}.json", json.dumps(asdict(old)).encode())
    child = spawn(SLEEPER, env=dict(os.environ) | owners.label(old))
    (swept,) = sweep_orphans(state)
    assert swept.owner.token == old.token and swept.ended == ()
    assert owners.all_owners(state) == [far]
    assert alive(child.pid)


def test_scratch_goes_only_where_scratch_lies(state: Path, tmp_path: Path) -> None:
    """An orphan's scratch folder is removed inside the state folder, never elsewhere."""
    inside, outside = state / "scratch" / "x", tmp_path / "precious"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        orphan(state, claim(state, scratch=folder))
    sweep_orphans(state)
    assert not inside.exists() and outside.exists()


def test_broken_record_stops_nothing(state: Path) -> None:
    """A file that is no record is passed over and the others are swept."""
    (state / "owners").mkdir()
    (state / "owners" / "bad.json").write_text("{")
    orphan(state, claim(state))
    assert len(sweep_orphans(state)) == 1


def test_owned_block_leaves_nothing(state: Path, spawn: Spawn) -> None:
    """After the block the child and its record are gone, also when the block raised."""
    with pytest.raises(RuntimeError), owners.owned(state, run_id="r", launch_id="l", what="client") as owner:
        child = spawn(SLEEPER, env=dict(os.environ) | owners.label(owner))
        owners.note_child(state, owner, child.pid)
        raise RuntimeError
    assert child.wait(1) == -signal.SIGTERM
    assert owners.all_owners(state) == []


def test_killed_orchestrator_end_to_end(state: Path, eventually: Eventually) -> None:
    """SIGKILL of a real orchestrator leaves a server; the next sweep ends that server and only it."""
    code = (
        "import os,subprocess,sys,time; from pathlib import Path;"
        "from isoline.runners.ownership import owners as o;"
        "s=Path(sys.argv[1]); w=o.claim(s, run_id='r', launch_id='l', what='server');"
        f"c=o.wrap(s, w, {SLEEPER!r});"
        "subprocess.Popen(c, env=dict(os.environ)|o.label(w), start_new_session=True);"
        "time.sleep(600)"
    )
    orchestrator = subprocess.Popen([sys.executable, "-c", code, str(state)])
    try:
        eventually(lambda: any((state / "owners").glob("*.child")) if (state / "owners").exists() else False)
    finally:
        orchestrator.kill()
        orchestrator.wait()
    (swept,) = sweep_orphans(state)
    assert len(swept.ended) == 1 and not alive(swept.ended[0])


def test_a_dead_runs_temporary_folder_is_removed_and_no_other(tmp_path: Path) -> None:
    """The load generator's scratch of a dead owner goes; a folder of another name stays."""
    mine = Path(tempfile.mkdtemp(prefix=owners.SCRATCH_PREFIX))
    other = Path(tempfile.mkdtemp(prefix="somebody-else-"))
    try:
        for scratch in (mine, other):
            owner = owners.claim(tmp_path, run_id="r", launch_id="l", what="client", scratch=scratch)
            record = tmp_path / "owners" / f"{owner.token}.json"
            data = json.loads(record.read_text())
            record.write_text(json.dumps({**data, "orchestrator_start_ticks": 1}))
        owners.sweep_orphans(tmp_path)
        assert not mine.exists()
        assert other.exists()
    finally:
        shutil.rmtree(mine, ignore_errors=True)
        shutil.rmtree(other, ignore_errors=True)


def test_a_forged_record_leads_to_no_other_file(state: Path) -> None:
    """A token that is not the file's own name is no record: removing it would remove another file."""
    dead = orphan(state, claim(state))
    other = state / "victim.json"
    other.write_text("{}")
    forged = json.dumps(asdict(replace(dead, token="../victim")))
    (state / "owners" / "forged.json").write_text(forged)
    assert [item.owner.token for item in sweep_orphans(state)] == [dead.token]
    assert other.exists()


@pytest.mark.parametrize("text", ["[" * 100_000, "5", '{"token": "x"}', "wrong types"])
def test_a_damaged_record_stops_no_clean_up(state: Path, text: str) -> None:
    """What is no record is passed by; the others are cleaned."""
    dead = orphan(state, claim(state))
    if text == "wrong types":
        text = json.dumps({**asdict(dead), "token": "x", "orchestrator_pid": "1", "log": 5, "scratch": 7})
    (state / "owners" / "x.json").write_text(text)
    assert [item.owner.token for item in sweep_orphans(state)] == [dead.token]
