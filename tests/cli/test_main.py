"""The ``isoline`` command: help, and one exit code for each ending."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from isoline.cli import main as cli
from isoline.errors import GateFailedError, IncompleteError, InfraError, InputError

ISOLINE = Path(sys.executable).parent / "isoline"


def run_program(*args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ISOLINE, *args], capture_output=True, text=True, timeout=60, check=False, **more)


def tree(action: Callable[[], None]) -> Callable[[], Any]:
    """A command tree ``isoline act`` that does ``action``."""

    def build() -> Any:
        app = typer.Typer(add_completion=False)
        app.command("act")(action)
        app.command("other")(lambda: None)
        return typer.main.get_group(app)

    return build


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project as working folder, so that reports land there."""
    (tmp_path / "recipes").mkdir()
    (tmp_path / "sweeps").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_begins_with_five_lines_start_here() -> None:
    """The first thing that help says is what to type first, in five lines."""
    result = run_program("--help")
    lines = result.stdout.splitlines()
    assert result.returncode == 0
    assert lines[0] == "Start here:"
    assert all(line.startswith("  isoline ") for line in lines[1:6])
    assert lines[6] == ""


def test_start_here_names_commands_that_exist() -> None:
    """Each line of "Start here" names a command and, for a group, a verb of it."""
    for line in cli.START_HERE.splitlines()[1:]:
        words = line.split()[1:]
        entry = next(entry for entry in cli.COMMANDS if entry.name == words[0])
        command = cli.load_entry(entry)
        if hasattr(command, "commands"):
            assert words[1] in command.commands, line


def test_no_arguments_show_the_help() -> None:
    """``isoline`` alone is a question: it gets the help and no error."""
    result = run_program()
    assert result.returncode == 0
    assert result.stdout.startswith("Start here:")


@pytest.mark.parametrize("entry", cli.COMMANDS, ids=lambda entry: entry.name)
def test_every_command_of_the_table_loads(entry: cli.Entry) -> None:
    """A row of the table points at code that exists, has a help text and shows it."""
    command = cli.load_entry(entry)
    assert command.name == entry.name
    assert command.help
    assert cli.run([entry.name, "--help"]) == 0


def test_help_and_version_import_no_heavy_library() -> None:
    """Help stays fast because the data libraries are not imported for it."""
    code = (
        "import sys; from isoline.cli.main import run; run(['--help']); "
        "heavy = {'pandas', 'numpy', 'pyarrow', 'duckdb', 'dash', 'pydantic', 'scipy'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_version() -> None:
    """--version prints name and version."""
    assert re.fullmatch(r"isoline \d+\.\d+\.\d+\S*\n", run_program("--version").stdout)


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["recip"], ["no such command 'recip'", "did you mean recipe?"]),
        (["zzz"], ["no such command 'zzz'", "known: doctor, recipe"]),
        (["--versoin"], ["no such option --versoin", "did you mean --version?"]),
        (
            ["doctor", "--formt", "json"],
            ["isoline doctor:", "no such option --formt", "did you mean --format?"],
        ),
        (["doctor", "--format", "xml"], ["isoline doctor:", "'xml'", "table", "json", "csv"]),
        (["doctor", "extra"], ["isoline doctor:", "extra"]),
        (["doctor", "--format"], ["isoline:", "--format", "argument"]),
    ],
)
def test_usage_errors_are_one_line_and_exit_1(args: list[str], parts: list[str]) -> None:
    """A typing error exits with 1, not with the library's 2, and one line names the nearest known word."""
    result = run_program(*args)
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    for part in parts:
        assert part in result.stderr


def test_a_hidden_command_is_not_offered() -> None:
    """What make calls is not offered to people."""
    assert "setup" not in run_program("zzz").stderr
    assert "\n  setup" not in run_program("--help").stdout


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("bad"), 1),
        (GateFailedError("bad"), 2),
        (IncompleteError("bad"), 3),
        (InfraError("bad"), 4),
    ],
)
def test_expected_errors_print_their_line(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    """An expected error is one line and its own exit code, without a report."""

    def action() -> None:
        raise error

    assert cli.run(["act"], tree(action)) == code
    assert capsys.readouterr().err == "isoline: bad\n"
    assert not (project / ".isoline").exists()


def test_a_command_chooses_its_exit_code(project: Path) -> None:
    """``typer.Exit(3)`` in a command is the exit code of the program."""

    def action() -> None:
        raise typer.Exit(3)

    assert cli.run(["act"], tree(action)) == 3
    assert cli.run(["other"], tree(action)) == 0


def test_an_unexpected_error_leaves_a_report(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    """A bug of ours gives one line that names a file with the traceback and the command line; exit code 1."""

    def action() -> None:
        raise RuntimeError("wheel\nfell off")

    assert cli.run(["act"], tree(action)) == 1
    line = capsys.readouterr().err
    report = next((project / ".isoline" / "reports").iterdir())
    assert line == f"isoline: unexpected error: RuntimeError: wheel fell off; the report is in {report}\n"
    text = report.read_text(encoding="utf-8")
    assert "argv: ['act']" in text
    assert "Traceback (most recent call last)" in text
    assert "in action" in text


def test_two_errors_leave_two_reports(project: Path) -> None:
    """A report never overwrites another one."""
    paths = {cli.write_report(ValueError(str(n)), ["x"]) for n in range(3)}
    assert len(paths) == 3


def test_a_report_that_cannot_be_written_is_printed(
    capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    """On a full or read-only disk the traceback goes to the terminal instead of being lost."""
    (project / ".isoline").write_text("a file where the folder should be")

    def action() -> None:
        raise RuntimeError("boom")

    assert cli.run(["act"], tree(action)) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "no report file could be written" in err


def test_an_unexpected_error_outside_a_project_is_reported_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a project the report goes to the folder for temporary files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.tempfile, "gettempdir", lambda: str(tmp_path / "t"))

    def action() -> None:
        raise RuntimeError("boom")

    assert cli.run(["act"], tree(action)) == 1
    assert len(list((tmp_path / "t/isoline-reports").iterdir())) == 1


def test_interrupt_exits_130(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    """Ctrl-C is 130 and no traceback."""

    def action() -> None:
        raise KeyboardInterrupt

    assert cli.run(["act"], tree(action)) == 130
    assert capsys.readouterr().err == "isoline: interrupted\n"


SLOW = """
import sys, time, typer
from isoline.cli import main as cli
app = typer.Typer(add_completion=False)
@app.command("act")
def act():
    print("started", flush=True)
    time.sleep(30)
@app.command("flood")
def flood():
    for n in range(200000):
        print("a line of output", n)
@app.command("inner")
def inner():
    raise BrokenPipeError("a socket of ours")
sys.exit(cli.run(sys.argv[1:], lambda: typer.main.get_group(app)))
"""


def test_a_real_interrupt_exits_130(project: Path) -> None:
    """SIGINT to the running program ends it with 130 and one line."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, "act"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err == "isoline: interrupted\n"


def test_a_closed_pipe_is_quiet(project: Path) -> None:
    """``isoline ... | head -1`` prints no traceback and leaves no report."""
    script = f'{sys.executable} -c "$SLOW" flood | head -1'
    result = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "SLOW": SLOW},
    )
    assert result.stdout == "a line of output 0\n"
    assert result.stderr == ""
    assert not (project / ".isoline").exists()


def test_a_broken_pipe_of_ours_is_no_closed_output(project: Path) -> None:
    """A broken pipe elsewhere, while our output is fine, is an unexpected error like any other."""
    result = subprocess.run(
        [sys.executable, "-c", SLOW, "inner"], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 1
    assert "unexpected error: BrokenPipeError: a socket of ours" in result.stderr


def test_a_group_with_one_verb_keeps_its_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    """``dashboard`` with the single verb ``serve`` is still typed ``dashboard serve``."""
    app = typer.Typer()
    app.command("serve")(lambda: None)
    monkeypatch.setattr(typer, "one_verb_app", app, raising=False)
    command = cli.load_entry(cli.Entry("dashboard", "typer", "Serve.", "one_verb_app"))
    assert list(command.commands) == ["serve"]


def test_no_help_text_keeps_the_line_breaks_of_its_source() -> None:
    """Help is broken by the terminal alone: the page shows no ragged lines."""
    entry = next(entry for entry in cli.COMMANDS if entry.name == "results")
    for command in cli.load_entry(entry).commands.values():
        assert "\n" not in command.help.replace("\n\n", "")
