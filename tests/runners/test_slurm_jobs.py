"""Slurm's words: what a job is, why it ended, and when nothing may be concluded."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from isoline.catalog.pools import Pool
from isoline.runners.launchers.interface import PhaseFailedError
from isoline.runners.machine.hosts import Host, ToolUnavailableError
from isoline.runners.ownership import gc, quarantine
from isoline.runners.slurm.commands import comment_of, our_jobs, read_comment, read_job, seconds, show, submit
from isoline.runners.slurm.gc import Jobs
from isoline.runners.slurm.job import FollowedJob
from isoline.runners.slurm.nodes import (
    Unclean,
    all_unclean,
    away_from,
    is_clean,
    nodes_to_judge,
    note_unclean,
)

# As Slurm 22.05 prints it, shortened.
LINE = (
    "JobId=12 JobName=abc-1 UserId=root(0) Priority=4294901758 Nice=0 Account=(null) QOS=(null) "
    "JobState={state} Reason={why} Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 "
    "ExitCode={code} RunTime={run} TimeLimit=00:05:00 TimeMin=N/A PreemptTime={preempt} "
    "SuspendTime=None Partition=cpu NodeList={nodes} BatchHost=n1 Comment=isoline;run=r;JobState=X"
)


def line(
    state: str,
    code: str = "0:0",
    run: str = "00:00:10",
    preempt: str = "None",
    nodes: str = "n[1-2]",
    why: str = "None",
) -> str:
    return LINE.format(state=state, code=code, run=run, preempt=preempt, nodes=nodes, why=why)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (line("RUNNING"), None),
        (line("COMPLETING", "143:0"), None),
        (line("COMPLETED"), None),
        (line("FAILED", "1:0"), None),
        (line("PREEMPTED", "0:15"), "preempted"),
        (line("NODE_FAIL", "0:15"), "node_failed"),
        (line("BOOT_FAIL"), "node_failed"),
        (line("TIMEOUT", "0:15"), "job_time_limit"),
        (line("CANCELLED", "0:15"), "job_cancelled"),
        (line("OUT_OF_MEMORY", "0:125"), "oom"),
        (line("FAILED", "143:0", run="00:04:31"), "job_time_limit"),
        (line("FAILED", "143:0", run="00:03:40"), "job_time_limit"),
        (line("FAILED", "143:0", run="00:01:00"), None),
        (line("FAILED", "143:0", preempt="2026-12-01T08:00:00"), "preempted"),
        (line("FAILED", "91:0"), "no_nodes"),
        (line("FAILED", "94:0"), "launch_timeout"),
        (line("FAILED", "95:0"), "drivers_differ"),
        (line("FAILED", "96:0"), "gpu_busy"),
        (line("FAILED", "97:0"), "device_lost"),
    ],
)
def test_why_a_job_ended(text: str, reason: str | None) -> None:
    """Each state has its code; a script that was told early ends by itself, and the times say why."""
    assert read_job(text).reason == reason


def test_a_job_is_read_in_full() -> None:
    """Numbers, nodes and times; words of a comment are not the job's own."""
    job = read_job(line("PENDING", nodes="(null)", why="Resources"))
    assert (job.id, job.state, job.why, job.nodes, job.is_pending) == (12, "PENDING", "Resources", "", True)
    assert read_job(line("RUNNING")).nodes == "n[1-2]"
    assert read_job(line("CANCELLED", "0:15")).status().signal == 15
    assert read_job(line("FAILED", "3:0")).status().exit_code == 3


def test_times() -> None:
    """Slurm's times in seconds; no limit is None."""
    assert [seconds(text) for text in ("1-02:03:04", "02:03:04", "03:04", "UNLIMITED")] == [
        93784.0,
        7384.0,
        184.0,
        None,
    ]


def test_comments_come_back() -> None:
    """Labels survive the way through a comment; a foreign comment is nobody's."""
    labels = {"run": "r", "host": "h", "start": "5@b-c@pid:[4026]"}
    assert read_comment(comment_of(labels, "t")) == {
        "isoline.run": "r",
        "isoline.host": "h",
        "isoline.start": "5@b-c@pid:[4026]",
        "isoline.token": "t",
    }
    assert read_comment("nightly") is None and read_comment("") is None


def tools(folder: Path, monkeypatch: pytest.MonkeyPatch, **bodies: str) -> Host:
    for name, body in bodies.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Host("here")


LOST = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"


def test_silence_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller out of reach is never read as "gone"; its own word is."""
    host = tools(tmp_path, monkeypatch, scontrol=LOST, squeue=LOST, sbatch=LOST)
    for ask in (
        lambda: show(host, 12),
        lambda: our_jobs(host),
        lambda: submit(host, tmp_path / "job.sh", "isoline;token=t"),
    ):
        with pytest.raises(ToolUnavailableError):
            ask()
    tools(tmp_path, monkeypatch, scontrol="echo 'JobState=COMPLETED ExitCode=zz'")
    with pytest.raises(ToolUnavailableError, match="printed no job"):
        show(host, 12)
    tools(tmp_path, monkeypatch, scontrol="echo 'error: Invalid job id specified' >&2; exit 1")
    assert show(host, 12) is None


def test_a_submission_without_an_answer_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sbatch hung after the job was taken: it is found by its comment."""
    monkeypatch.setattr("isoline.runners.slurm.commands.SUBMIT_S", 0.3)
    host = tools(
        tmp_path,
        monkeypatch,
        sbatch="exec sleep 60",
        squeue="echo '7|RUNNING|isoline;run=r;token=t'; echo '8|RUNNING|other'",
    )
    assert submit(host, tmp_path / "job.sh", comment_of({"run": "r"}, "t")) == 7
    with pytest.raises(ToolUnavailableError):
        submit(host, tmp_path / "job.sh", comment_of({"run": "r"}, "u"))


def test_ids_come_from_sbatch_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A greeting before the id and a cluster's name behind it do not matter; a refusal is told as it is."""
    monkeypatch.setenv("SECRET_OF_THE_SHELL", "x")
    seen = tmp_path / "seen"
    host = tools(tmp_path, monkeypatch, sbatch=f"env >{seen}; echo 'Welcome 5'; echo '31;cluster'")
    assert submit(host, tmp_path / "job.sh", "isoline;token=t") == 31
    assert "SECRET_OF_THE_SHELL" not in seen.read_text()
    tools(tmp_path, monkeypatch, sbatch="echo 'sbatch: error: invalid partition specified: x' >&2; exit 1")
    with pytest.raises(PhaseFailedError, match="invalid partition") as failed:
        submit(host, tmp_path / "job.sh", "isoline;token=t")
    assert failed.value.code == "job_rejected"


def test_jobs_name_only_nodes_that_slurm_has(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drained node of another pool is not in a job's exclude list: Slurm would take no job at all."""
    host = tools(tmp_path, monkeypatch, sinfo="printf 'n1\\nn2\\nn2\\n'")
    now = datetime(2026, 12, 1, tzinfo=UTC)
    fields = {"schema_version": 1, "name": "p", "launcher": "slurm", "sku": "cpu"}
    slurm = {"partition": "x", "container": "none"}
    pool = Pool.model_validate({**fields, "slurm": slurm, "exclude": [{"node": "n[7-9]", "reason": "slow"}]})
    for node in ("n2", "elsewhere"):
        quarantine.hold(state, node, "drained", "fan", None, now)
    assert set(away_from(host, state, pool, now)) == {"n2", "n[7-9]"}
    tools(tmp_path, monkeypatch, sinfo=LOST)
    with pytest.raises(ToolUnavailableError):
        away_from(host, state, pool, now)


def test_a_lost_node_is_judged_not_its_neighbour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a job that lost a node only that one is spoken of, of another end all; silence blames all."""
    host = tools(
        tmp_path,
        monkeypatch,
        sinfo="printf 'n1 idle\\nn2 down*\\nn2 down*\\n'",
        scontrol="printf 'n1\\nn2\\n'",
    )
    lost, over = read_job(line("NODE_FAIL")), read_job(line("FAILED", "1:0"))
    assert nodes_to_judge(host, lost, ["n1", "n2"]) == ("n2",)
    assert nodes_to_judge(host, lost, []) == ("n2",), "it ended before it wrote its nodes"
    assert nodes_to_judge(host, over, ["n1", "n2"]) == ("n1", "n2")
    tools(tmp_path, monkeypatch, sinfo="printf 'n1 idle\\nn2 idle\\n'")
    assert nodes_to_judge(host, lost, ["n1", "n2"]) == ("n1", "n2"), "both are back: nobody knows which"
    monkeypatch.setenv("PATH", "/nowhere")
    assert nodes_to_judge(host, lost, ["n1", "n2"]) == ("n1", "n2")
    assert nodes_to_judge(host, read_job(line("PENDING", nodes="(null)")), []) == ()


def test_a_node_whose_devices_are_wanting_is_judged_alone(tmp_path: Path) -> None:
    """The job's script names it; where it names none of the job's, or the log is not there, all are."""
    host, log = Host("here"), tmp_path / "job.log"
    gone = read_job(line("FAILED", "97:0"))
    assert nodes_to_judge(host, gone, ["n1", "n2"], log) == ("n1", "n2")
    log.write_bytes(b"srun: \xff\nisoline: node n2: 7 of 8 devices\nsrun: error: n2: task 1: Exited 97\n")
    assert nodes_to_judge(host, gone, ["n1", "n2"], log) == ("n2",)
    assert nodes_to_judge(host, gone, ["n3"], log) == ("n3",)
    assert nodes_to_judge(host, read_job(line("FAILED", "1:0")), ["n1", "n2"], log) == ("n1", "n2")


def test_a_follower_lives_through_garbled_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of somebody else and content that was cut are passed by; the job's end is still seen."""
    said = "echo 'Welcome to n1 abc'; echo '= nodes bjE='; echo '= hosts a'; exit 0"
    running, over = line("RUNNING", nodes="n1"), line("COMPLETED", nodes="n1")
    host = tools(tmp_path, monkeypatch, scontrol=f"echo '{running}'", srun=said)
    job = FollowedJob(host, 12, tmp_path / "scratch", {}, is_shared=False)
    job.look()
    assert (job.nodes, job.job.state) == (["n1"], "RUNNING")
    tools(tmp_path, monkeypatch, scontrol=f"echo '{over}'")
    assert job.end(orderly_s=10, forced_s=10)


def test_nodes_to_clean_are_kept_in_mind(tmp_path: Path) -> None:
    """What stood in the way is known to the next run; a broken or renamed record is none, and stays."""
    item = Unclean("p", "n[1-2]", "r", "l-1", "lost")
    note_unclean(tmp_path, item)
    (folder,) = tmp_path.iterdir()
    (folder / "r-l-2.json").write_text('{"pool": "p"}')
    (folder / "other.json").write_text((folder / "r-l-1.json").read_text())
    assert all_unclean(tmp_path) == [item]
    is_clean(tmp_path, item)
    assert sorted(path.name for path in folder.iterdir()) == ["other.json", "r-l-2.json"]
    assert all_unclean(tmp_path) == []


def test_nodes_are_cleaned_by_the_pool_of_their_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another pool's partition does not have them: asking there fails, and would be tried for ever."""
    calls = tmp_path / "calls"
    host = tools(
        tmp_path,
        monkeypatch,
        scontrol=f"echo '{line('NODE_FAIL', nodes='n1')}'",
        scancel="exit 0",
        srun=f"echo \"$1\" >>{calls}; echo 'not available' >&2; exit 1",
    )
    jobs = Jobs()
    for partition in ("cpu", "gpu"):
        slurm = {"partition": partition, "container": "docker", "image_cache": "/images"}
        container = {"device_profile": "cpu", "model_cache": "/m", "scratch": "/s"}
        fields = {"schema_version": 1, "name": partition, "launcher": "slurm", "sku": "cpu"}
        jobs.pools[partition] = Pool.model_validate({**fields, "slurm": slurm, "container": container})
    left = gc.Left("job", "12", host.name, "r", "l-1", handle=(host, 12))
    assert "not available" in jobs.remove(tmp_path, left)
    assert calls.read_text().split() == ["--partition=cpu"]
    assert [(item.pool, item.nodes) for item in all_unclean(tmp_path)] == [("cpu", "n1")]
