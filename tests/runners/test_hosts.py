"""Commands on the machines of a pool: bounded in time, and silence is never an answer."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from isoline.runners.machine.hosts import Host, ToolUnavailableError, this_host


def test_what_it_says_comes_back() -> None:
    """Output, errors and exit code of a command are returned, whatever the code is."""
    done = this_host().run(["sh", "-c", "echo out; echo first >&2; echo why >&2; exit 3"])
    assert (done.exit_code, done.stdout, done.last_line(), done.ok) == (3, "out\n", "why", False)


def test_input_and_environment_are_passed() -> None:
    """Input goes to the command; the host's own environment is added."""
    host = Host("here", env={"ONE": "1"})
    done = host.run(["sh", "-c", 'cat; echo "$ONE"'], input="in\n")
    assert done.stdout == "in\n1\n"


def test_a_missing_tool_is_not_an_answer() -> None:
    """A program that is not there raises; nothing is concluded."""
    with pytest.raises(ToolUnavailableError, match="no-such-tool is not on PATH"):
        this_host().run(["no-such-tool"])


def test_a_hanging_tool_is_ended_with_its_children(tmp_path: Path) -> None:
    """Past its time-out the command and what it started are gone, and the error says so."""
    note = tmp_path / "child"
    with pytest.raises(ToolUnavailableError, match=r"did not answer within 0\.5 s"):
        this_host().run(["sh", "-c", f"sleep 60 & echo $! > {note}; wait"], timeout_s=0.5)
    pid = int(note.read_text())
    for _ in range(50):
        if not Path(f"/proc/{pid}").exists() or "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
            break
        time.sleep(0.1)
    else:
        pytest.fail("the child of a timed-out command still runs")


def test_words_over_ssh_are_quoted_once() -> None:
    """A command for another machine arrives there as the same words."""
    words = Host("node", "me@node", env={"A": "x y"}).words(["echo", "a b", "$HOME"])
    assert words[0] == "ssh"
    assert words[-3:] == ["me@node", "--", "env 'A=x y' echo 'a b' '$HOME'"]


@pytest.mark.parametrize(
    ("code", "message"), [(255, "ssh: no route to host"), (127, "docker is not on PATH there")]
)
def test_a_machine_out_of_reach_is_not_an_answer(
    code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ssh itself fails with is told apart from what the command says."""
    fake = tmp_path / "ssh"
    fake.write_text(f"#!/bin/sh\necho 'no route to host' >&2\nexit {code}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ToolUnavailableError, match=message):
        Host("node", "node").run(["docker", "ps"])


def test_a_tool_that_prints_on_and_on_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output past the limit is no answer, and is not kept until the time-out."""
    monkeypatch.setattr("isoline.runners.machine.hosts.MOST_BYTES", 1_000_000)
    began = time.monotonic()
    for command in ("yes", "yes >&2"):
        with pytest.raises(ToolUnavailableError, match="sh prints more than 1 MB"):
            this_host().run(["sh", "-c", command], timeout_s=60)
    assert time.monotonic() - began < 60
