"""Writes ``docs/cli.md`` out of the command tree itself, so that it cannot say something else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from isoline.cli.main import root_command
from isoline.cli.metrics_page import PAGE as METRICS_PAGE
from isoline.cli.metrics_page import write_page
from isoline.cli.schemas import write_schemas
from isoline.errors import GateFailedError
from isoline.settings import SETTINGS, find_project

PAGE = "docs/cli.md"
HEAD = """\
# Commands

Written by `make docs` from the program itself; do not edit. A test compares it with the program.

Exit codes: 0 fine; 1 wrong input, usage errors too, or an unexpected error with a report file; 2 a gate
failed or a regression was found; 3 something is invalid, incomplete or quarantined; 4 infrastructure;
130 interrupted.
"""


def walk(group: Any, context: Any) -> Iterator[tuple[Any, Any]]:
    """Every visible command below ``group`` with its context, in the order of ``--help``."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        child = command.make_context(name, [], parent=context, resilient_parsing=True)
        yield command, child
        if isinstance(command, TyperGroup):
            yield from walk(command, child)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _code(text: str) -> str:
    return "`" + " ".join(text.split()).replace("|", "\\|") + "`"


def _section(command: Any, context: Any) -> list[str]:
    depth = "##" if isinstance(command, TyperGroup) or context.command_path.count(" ") == 1 else "###"
    text = " ".join((command.help or "").split("\f")[0].split())
    lines = [f"{depth} {context.command_path}", "", *([text, ""] if text else [])]
    if isinstance(command, TyperGroup):
        return lines
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines += ["```", usage, "```", ""]
    records = [p.get_help_record(context) for p in command.params if not getattr(p, "hidden", False)]
    rows = [record for record in records if record is not None]
    if rows:
        lines += ["| argument or option | meaning |", "|---|---|"]
        lines += [f"| {_code(name)} | {_cell(meaning)} |" for name, meaning in rows]
        lines.append("")
    return lines


def _settings_table() -> list[str]:
    lines = [
        "## Settings",
        "",
        "A flag wins over the environment, that over `isoline.toml`, that over the default.",
    ]
    lines += ["", "| `isoline.toml` | environment | default | meaning |", "|---|---|---|---|"]
    for setting in SETTINGS:
        default = _code(setting.default) if setting.default else ""
        lines.append(f"| `{setting.name}` | `{setting.env}` | {default} | {_cell(setting.help)} |")
    return [*lines, ""]


def render_reference(root: Any = None) -> str:
    """The whole page as Markdown; the same bytes on every machine."""
    group = root if root is not None else root_command()
    lines = [HEAD]
    with group.make_context("isoline", [], resilient_parsing=True) as context:
        for command, child in walk(group, context):
            lines += _section(command, child)
    lines += _settings_table()
    return "\n".join(lines).rstrip() + "\n"


def reference(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 2 when one of them is old.")
    ] = False,
) -> None:
    """Write docs/cli.md, docs/schema/*.json and the generated part of docs/metrics.md."""
    project = find_project()
    for name in write_schemas(project, check=check):
        print(f"{name} written")
    if write_page(project, check=check):
        print(f"{METRICS_PAGE} written")
    path = project / PAGE
    text = render_reference()
    if check:
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            raise GateFailedError("differs from the program", where=PAGE, remedy="run `make docs`")
        return
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"{PAGE} written")
