"""The ``isoline`` command: finds the group, runs it, and turns every ending into one exit code.

Groups are imported only when they are used, so that ``isoline --help`` and a typing error cost
milliseconds. To add a command, add a row to :data:`COMMANDS`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

# pydantic, which typer loads, would look for plugins in every installed package at each start.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from isoline.errors import IsolineError

START_HERE = """\
Start here:
  isoline doctor                  what works on this machine, what is missing, how to get it
  isoline sweep run demo          measure a small real model; run it again and nothing is measured twice
  isoline results ingest          bring what was measured into the warehouse
  isoline frontier --sweep demo   the curve as a table: throughput against the speed each user sees
  isoline dashboard serve --open  the same in the browser"""


@dataclass(frozen=True)
class Entry:
    """One word after ``isoline``: where its code is and its line in ``--help``.

    ``attr`` names a ``typer.Typer`` (a group) or a function (a command without a noun) in ``module``.
    """

    name: str
    module: str
    help: str
    attr: str = "app"
    hidden: bool = False


COMMANDS: tuple[Entry, ...] = (
    Entry(
        "doctor",
        "isoline.cli.doctor",
        "What works on this machine, what is missing, how to get it.",
        "doctor",
    ),
    Entry("recipe", "isoline.cli.recipe", "List, show, check and render recipes."),
    Entry("engine", "isoline.cli.engine", "Known engines and their arguments; learn those of a version."),
    Entry("sweep", "isoline.cli.sweep", "Plan, run and watch sweeps."),
    Entry("launch", "isoline.cli.launch", "Start one server of a recipe and keep it.", "launch"),
    Entry("logs", "isoline.cli.logs", "Server log and client log of a point or launch.", "logs"),
    Entry("pool", "isoline.cli.pool", "Check, set up and operate pools of machines."),
    Entry("results", "isoline.cli.results", "Ingest, rebuild, query and verify results."),
    Entry(
        "frontier",
        "isoline.cli.frontier",
        "The non-dominated points of each curve, and readings.",
        "frontier",
    ),
    Entry(
        "compare", "isoline.cli.compare", "Two curves at equal interactivity: readings and ratios.", "compare"
    ),
    Entry(
        "history",
        "isoline.cli.history",
        "Curves and points over time: the state of each night, and the steps.",
        "history",
    ),
    Entry("target", "isoline.cli.target", "The best official reading of each SKU, to be beaten.", "target"),
    Entry(
        "reproduce", "isoline.cli.reproduce", "Run one point again from its lock and compare.", "reproduce"
    ),
    Entry("dashboard", "isoline.cli.dashboard", "Serve the dashboard."),
    Entry(
        "setup",
        "isoline.cli.setup",
        "Make environments and fetch weights (make setup).",
        "setup",
        hidden=True,
    ),
    Entry("reference", "isoline.cli.reference", "Write docs/cli.md (make docs).", "reference", hidden=True),
)


def load_entry(entry: Entry) -> Any:
    """The click command of ``entry``; imports its module."""
    target = getattr(import_module(entry.module), entry.attr)
    if isinstance(target, typer.Typer):
        # get_group, not get_command: a group with one verb must still be typed with its verb.
        command: Any = get_group(target)
        command.no_args_is_help = True
    else:
        single = typer.Typer(add_completion=False)
        single.command(entry.name)(target)
        command = get_command(single)
    command.name = entry.name
    command.hidden = entry.hidden
    if not command.help:
        command.help = entry.help
    for each in (command, *getattr(command, "commands", {}).values()):
        each.help = _unwrapped(each.help or "")
    return command


def _unwrapped(text: str) -> str:
    """Each paragraph on one line: the terminal decides where it breaks, not the source file."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


class LazyGroup(TyperGroup):
    """The top group: knows the names and help lines of all commands, imports one only to run it."""

    entries: tuple[Entry, ...] = COMMANDS

    def list_commands(self, ctx: Any) -> list[str]:
        return [entry.name for entry in self.entries]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        for entry in self.entries:
            if entry.name == cmd_name:
                return load_entry(entry)
        return None

    def get_help(self, ctx: Any) -> str:
        shown = [entry for entry in self.entries if not entry.hidden]
        width = max(len(entry.name) for entry in shown)
        return "\n".join(
            [
                START_HERE,
                "",
                "Usage: isoline [--version] [--help] COMMAND ...",
                "",
                "Nightly, reproducible LLM-inference benchmarks.",
                "",
                "Commands:",
                *(f"  {entry.name.ljust(width)}  {entry.help}" for entry in shown),
                "",
                "`isoline COMMAND --help` says more. Exit codes: 0 fine, 1 wrong input, 2 a gate failed,",
                "3 something is invalid or incomplete, 4 infrastructure, 130 interrupted.",
            ]
        )


def _version(wanted: bool) -> None:
    if wanted:
        from isoline import __version__

        print(f"isoline {__version__}")
        raise typer.Exit


def root_command() -> Any:
    """The whole command tree as one click group (its branches load when they are asked for)."""
    app = typer.Typer(cls=LazyGroup, add_completion=False, no_args_is_help=True)

    @app.callback()
    def isoline(
        version: bool = typer.Option(
            False, "--version", is_eager=True, callback=_version, help="Print the version."
        ),
    ) -> None:
        """Nightly, reproducible LLM-inference benchmarks."""

    return get_group(app)


def usage_line(error: typer.TyperException) -> str:
    """A usage error on one line: where, what, and the nearest known name."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "isoline"
    message = " ".join(error.format_message().split()).rstrip(".").replace(": Value error, ", ": ")
    option = getattr(error, "option_name", None)
    command = context.command if context is not None else None
    if option and message.startswith("No such option"):
        known = [name for param in command.params for name in param.opts] if command is not None else []
        return f"{where}: no such option {option}; {_nearest(option, [*known, '--help'], where)}"
    if message.startswith("No such command") and isinstance(command, TyperGroup) and context is not None:
        word = message.split("'")[1] if "'" in message else ""
        hidden = (
            {entry.name for entry in COMMANDS if entry.hidden} if isinstance(command, LazyGroup) else set()
        )
        known = [name for name in command.list_commands(context) if name not in hidden]
        return f"{where}: no such command {word!r}; {_nearest(word, known, where)}"
    return f"{where}: {message[:1].lower()}{message[1:]}; see `{where} --help`"


def _nearest(word: str, known: list[str], where: str) -> str:
    match = get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {match[0]}?" if match else f"known: {', '.join(known)}; see `{where} --help`"


def _report_folder() -> Path:
    """``<state>/reports``, or a folder for temporary files when there is no project here."""
    from isoline.settings import load_settings

    try:
        return load_settings().state / "reports"
    except IsolineError:
        return Path(tempfile.gettempdir()) / "isoline-reports"


def write_report(error: BaseException, argv: Sequence[str], folder: Path | None = None) -> Path:
    """Write the traceback and the command line of an unexpected error to a new file; returns its path."""
    where = folder if folder is not None else _report_folder()
    where.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = where / f"{now:%Y%m%dT%H%M%S.%fZ}.txt"
    from isoline import __version__

    text = "".join(traceback.format_exception(error))
    head = f"time: {now.isoformat()}\nisoline: {__version__}\npython: {sys.version.split()[0]}\n"
    path.write_text(f"{head}argv: {list(argv)!r}\n\n{text}", encoding="utf-8")
    return path


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _output_closed() -> bool:
    """Whether it is our own output whose reader went away; if so, later flushes go to nowhere."""
    closed = False
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            # Asked of the system: a stream forgets its failed bytes, so flushing again proves nothing.
            poll = select.poll()
            poll.register(stream.fileno(), 0)
            if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
                closed = True
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return closed


def _invoke(argv: Sequence[str], command: Callable[[], Any]) -> int:
    try:
        root = command()
        with root.make_context("isoline", list(argv)) as context:
            root.invoke(context)
        code = 0
    except typer.Exit as ending:
        code = ending.exit_code
    sys.stdout.flush()  # here, where a closed pipe is understood, not while Python shuts down
    return code


def run(argv: Sequence[str], command: Callable[[], Any] = root_command) -> int:
    """Run one command line (without the program's name); returns the exit code of DESIGN 5.7."""
    try:
        return _invoke(argv, command)
    except IsolineError as error:
        _say(f"isoline: {error.line()}")
        return error.exit_code
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message())
            return 0
        _say(usage_line(error))
        return 1
    except (KeyboardInterrupt, typer.Abort):
        _say("isoline: interrupted")
        return 130
    except BrokenPipeError as error:
        if _output_closed():
            return 1  # the reader of our output went away: nothing to say, and nobody to say it to
        return _unexpected(error, argv)
    except Exception as error:
        if type(error) is RuntimeError and str(error) == "Query interrupted":  # what DuckDB makes of SIGINT
            _say("isoline: interrupted")
            return 130
        return _unexpected(error, argv)


def _unexpected(error: Exception, argv: Sequence[str]) -> int:
    what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    try:
        report = write_report(error, argv)
    except OSError:
        traceback.print_exception(error)
        _say(f"isoline: unexpected error, and no report file could be written: {what}")
    else:
        _say(f"isoline: unexpected error: {what}; the report is in {report}")
    return 1


def main() -> None:
    """Entry point of the ``isoline`` program."""
    # Python's defaults look for cycles every 700 new objects: a fifth of the time of a large plan, for
    # garbage that is hardly there.
    gc.set_threshold(50_000, 20, 20)
    sys.exit(run(sys.argv[1:]))
