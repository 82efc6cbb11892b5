"""The arguments of an engine, read from what its ``--help`` printed. Pure but for :func:`write_flags`.

The text is only read: options are the lines that begin with a dash, as argparse, click and
llama.cpp print them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, Literal

from isoline.catalog.documents import validate
from isoline.catalog.engines import Engine, Flag, Flags
from isoline.errors import InputError

Takes = Literal["nothing", "int", "float", "text", "json", "list"]

_OPTION = re.compile(r"^\s{1,8}-{1,2}[A-Za-z]")
_SPEC = re.compile(r"^(?P<flag>--?[A-Za-z][A-Za-z0-9_.-]*)(?:[ =](?P<meta>.+))?\Z")
_VERSION = re.compile(r"^\d+(\.\d+)*([.+-]?[A-Za-z0-9]+)*\Z")
_INT = frozenset(("INTEGER", "INT", "N", "INTEGER RANGE"))
_FLOAT = frozenset(("FLOAT", "FLOAT RANGE"))
_HELP = frozenset(("help", "version", "h", "usage"))


def takes_of(meta: str | None) -> Takes:
    """What an option takes, by the word behind it; ``text`` where that does not tell."""
    if meta is None:
        return "nothing"
    if "..." in meta:
        return "list"
    word = meta.strip()
    if word in _INT:
        return "int"
    if word in _FLOAT:
        return "float"
    return "json" if word.upper() == "JSON" else "text"


def _specs(line: str) -> list[str]:
    """The spellings on one line, without the description behind them."""
    tight = re.sub(r",\s+(?=-)", ",\0", line.strip())  # llama.cpp aligns the spellings with blanks
    head = re.split(r"\s{2,}|\t", tight)[0]
    return [part.strip() for part in re.split(r",\0| / ", head)]


def parse_help(text: str) -> dict[str, Takes]:
    """Name (without dashes) -> what it takes. ``--no-X`` beside ``--X`` is no argument of its own.

    Where only the last spelling bears the value's name, it is that of all.
    """
    found: dict[str, Takes] = {}
    for line in text.splitlines():
        if not _OPTION.match(line):
            continue
        matched = [hit for spec in _specs(line) if (hit := _SPEC.match(spec)) is not None]
        meta = next((hit["meta"] for hit in matched if hit["meta"]), None)
        long = [hit["flag"].lstrip("-") for hit in matched if hit["flag"].startswith("--")]
        for name in long or [hit["flag"].lstrip("-") for hit in matched]:
            positive = name.removeprefix("no-")
            if name in _HELP or (positive != name and positive in {*long, *found}):
                continue
            # A later mention is in an example or a description.
            found.setdefault(name, takes_of(meta))
    return found


def learned(
    engine: str, facts: Engine, version: str, help_text: str, *, before: Flags | None, today: date
) -> Flags:
    """The flags of one more version of an engine, on those that were known before.

    :raises InputError: for a text without options, or a version that is none.
    """
    if not _VERSION.match(version):
        raise InputError(f"{version!r} is no version", remedy="write it as the engine prints it: 0.11.2")
    options = parse_help(help_text)
    if not options:
        raise InputError(
            "no options in this text", remedy="capture what the engine's server prints for --help"
        )
    rows: dict[str, Flag] = dict(before.flags) if before else {}
    for option, takes in options.items():
        name = facts.canonical(option)
        old = rows.get(name)
        # What was seen in use says more than a help text that only names the value.
        kept = old.takes if old is not None and takes == "text" else takes
        rows[name] = Flag(takes=kept, seen=_span(old.seen if old else [], version))
    return Flags(
        schema_version=1,
        engine=engine,
        complete=True,
        versions=_span(before.versions if before else [], version),
        flags=dict(sorted(rows.items())),
        source=f"--help of {facts.name} {version}" + (f"; {before.source}" if before else ""),
        dated=today.isoformat(),
    )


def version_key(version: str) -> tuple[int, ...]:
    """For ordering: the whole numbers of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _span(seen: list[str], version: str) -> list[str]:
    listed = sorted({*seen, version}, key=version_key)
    return [listed[0], listed[-1]]


def as_tree(flags: Flags) -> dict[str, Any]:
    """The flags as they are written: defaults left out."""
    return flags.model_dump(mode="json", exclude_defaults=True) | {
        "flags": {
            name: item.model_dump(mode="json", exclude_defaults=True) for name, item in flags.flags.items()
        }
    }


def as_text(flags: Flags) -> str:
    """The YAML of a flag file, one line an argument."""
    tree = as_tree(flags)
    rows: Mapping[str, Any] = tree.pop("flags")
    lines = [f"{name}: {_scalar(value)}" for name, value in tree.items()]
    lines.append("flags:")
    for name, row in rows.items():
        inner = ", ".join(f"{key}: {_scalar(value)}" for key, value in row.items())
        lines.append(f"  {_key(name)}: {{{inner}}}")
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return (
        name
        if re.match(r"^[A-Za-z][A-Za-z0-9_.-]*\Z", name) and name not in ("y", "n", "on", "off", "yes", "no")
        else f'"{name}"'
    )


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_scalar(item) for item in value) + "]"
    if isinstance(value, int):
        return str(value)
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def write_flags(path: Path, flags: Flags) -> None:
    """Write a flag file; what is written is read back first.

    :raises DocumentError: should it not be a good one.
    """
    from isoline.catalog.trees import parse_yaml

    text = as_text(flags)
    validate(parse_yaml(text, path.name), Flags, path.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
