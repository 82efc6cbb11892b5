"""One shared way to print rows: a table for people, JSON and CSV for programs.

Every command that prints data takes ``format: FormatOption = "table"`` and ends in :func:`emit`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, TextIO

import typer

Format = Literal["table", "json", "csv"]

#: The type of every ``--format`` option: ``format: FormatOption = "table"``.
FormatOption = Annotated[
    Format, typer.Option("--format", help="How to print: a table for people, json or csv for programs.")
]

MISSING_IN_TABLE = "-"
Row = Mapping[str, Any]


def plain(value: Any) -> Any:
    """``value`` as JSON knows it: None, bool, int, float, str, list or dict.

    NaN, infinities and the "missing" values of pandas become None (absent is null, never 0). Datetimes
    become ISO 8601 in UTC (one without a zone is taken as UTC), durations become seconds.
    """
    if type(value) is str or type(value) is int:  # nearly all cells
        return value
    if value is None or isinstance(value, (bool, int)):
        return value if not isinstance(value, Enum) else value.value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return plain(float(value))
    if isinstance(value, str):
        return str(value)
    if isinstance(value, datetime):
        if value != value:  # pandas' NaT is a datetime that is not equal to itself
            return None
        zoned = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return zoned.isoformat().replace("+00:00", "Z")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
        return [plain(item) for item in items]
    return _plain_foreign(value)


def _plain_foreign(value: Any) -> Any:
    """Values of libraries that this module does not import: numpy, pandas, pydantic; else their text."""
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return plain(value.tolist())
    if hasattr(value, "model_dump"):
        return plain(value.model_dump())
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def emit(
    rows: Sequence[Row],
    fmt: Format = "table",
    columns: Sequence[str] | None = None,
    title: str | None = None,
    *,
    file: TextIO | None = None,
) -> None:
    """Print ``rows`` to ``file`` (standard output).

    :param columns: which keys, in which order; None: all keys in the order of their first appearance.
        A key that a row lacks is null.
    :param title: a line above the table; JSON and CSV never carry it.
    """
    out = file if file is not None else sys.stdout
    names = list(columns) if columns is not None else list(dict.fromkeys(key for row in rows for key in row))
    cells = [[plain(row.get(name)) for name in names] for row in rows]
    if fmt == "json":
        objects = [dict(zip(names, line, strict=True)) for line in cells]
        out.write(json.dumps(objects, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    elif fmt == "csv":
        out.write(_csv(names, cells))
    else:
        out.write(_table(names, cells, title, bold=use_color(out)))


def use_color(out: TextIO) -> bool:
    """Whether ``out`` is a terminal that wants colour (https://no-color.org)."""
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _csv(names: list[str], cells: list[list[Any]]) -> str:
    def text(value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (list, dict)):
            return json.dumps(value, ensure_ascii=False)
        return str(value)

    if not names:
        return ""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([text(value) for value in line] for line in cells)
    return buffer.getvalue()


def cell_text(value: Any) -> str:
    """One cell of a table, on one line: numbers with about four digits, "-" for what is missing."""
    if type(value) is str and value.isprintable():
        return value
    if value is None:
        return MISSING_IN_TABLE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _number_text(value)
    if isinstance(value, list):
        return ", ".join(cell_text(item) for item in value)
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
    # A newline or an escape sequence out of a server log must not change the table or the terminal.
    return "".join(char if char.isprintable() else " " for char in text)


def _number_text(value: float) -> str:
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1e15 or size < 1e-3:
        return f"{value:.3g}"
    decimals = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 4
    return f"{value:.{decimals}f}"


def _table(names: list[str], cells: list[list[Any]], title: str | None, *, bold: bool) -> str:
    def strong(text: str) -> str:
        return f"\033[1m{text}\033[0m" if bold else text

    lines = [strong(title)] if title else []
    if not cells:
        return "\n".join([*lines, "no rows"]) + "\n"
    texts = [[cell_text(value) for value in line] for line in cells]
    widths = [
        max(len(name), *map(len, column))
        for name, column in zip(names, zip(*texts, strict=True), strict=True)
    ]
    numeric = [
        all(
            line[i] is None or (isinstance(line[i], (int, float)) and not isinstance(line[i], bool))
            for line in cells
        )
        for i in range(len(names))
    ]

    def joined(line: list[str]) -> str:
        padded = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        return "  ".join(padded).rstrip()

    lines.append(strong(joined(names)))
    lines.append("  ".join("-" * width for width in widths))
    lines.extend(joined(line) for line in texts)
    return "\n".join(lines) + "\n"
