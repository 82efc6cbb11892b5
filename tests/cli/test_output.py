"""The shared output of rows."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from isoline.cli.output import FormatOption, cell_text, emit, plain


class Color(Enum):
    RED = "red"


def printed(rows: list[dict[str, Any]], fmt: Any, **more: Any) -> str:
    out = io.StringIO()
    emit(rows, fmt, file=out, **more)
    return out.getvalue()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (0, 0),
        (False, False),
        (float("nan"), None),
        (float("inf"), None),
        (float("-inf"), None),
        (pd.NA, None),
        (pd.NaT, None),
        (np.float64("nan"), None),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.array([1.0, float("nan")]), [1.0, None]),
        (Decimal("1.5"), 1.5),
        (Color.RED, "red"),
        (Path("a/b"), "a/b"),
        (date(2026, 12, 1), "2026-12-01"),
        (datetime(2026, 12, 1, 3, 4, 5), "2026-12-01T03:04:05Z"),
        (datetime(2026, 12, 1, 3, tzinfo=timezone(timedelta(hours=2))), "2026-12-01T01:00:00Z"),
        (pd.Timestamp("2026-12-01T03:00:00", tz=UTC), "2026-12-01T03:00:00Z"),
        (timedelta(seconds=1.5), 1.5),
        ({"a": (1, None)}, {"a": [1, None]}),
        ({3, 1, 2}, [1, 2, 3]),
        (b"\x01\xff", "01ff"),
    ],
)
def test_plain_knows_each_kind_of_value(value: Any, expected: Any) -> None:
    """Every value of the warehouse and its libraries becomes a JSON value; what is missing becomes null."""
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)


def test_json_is_a_list_of_objects_with_null_for_missing() -> None:
    """A key that a row lacks, and NaN, are null; the order of keys is that of first appearance."""
    found = json.loads(printed([{"b": 1, "a": float("nan")}, {"c": 0}], "json"))
    assert found == [{"b": 1, "a": None, "c": None}, {"b": None, "a": None, "c": 0}]
    assert list(found[0]) == ["b", "a", "c"]


def test_json_of_no_rows_is_an_empty_list() -> None:
    """A program reads an empty list, never a sentence."""
    assert json.loads(printed([], "json", title="points")) == []


def test_columns_choose_and_order() -> None:
    """``columns`` decides which keys are printed and in which order, in each format."""
    rows = [{"a": 1, "b": 2, "c": 3}]
    assert json.loads(printed(rows, "json", columns=["c", "a", "x"])) == [{"c": 3, "a": 1, "x": None}]
    assert printed(rows, "csv", columns=["c", "a", "x"]) == "c,a,x\n3,1,\n"
    assert printed(rows, "table", columns=["c", "a", "x"]).splitlines()[0].split() == ["c", "a", "x"]


def test_csv_keeps_full_numbers_and_leaves_missing_empty() -> None:
    """CSV carries every digit, an empty field for null, and JSON inside a field for lists."""
    text = printed([{"x": 0.1234567890123, "y": None, "z": [1, "a"], "q": 'say "hi", you', "t": True}], "csv")
    assert next(csv.DictReader(io.StringIO(text))) == {
        "x": "0.1234567890123",
        "y": "",
        "z": '[1, "a"]',
        "q": 'say "hi", you',
        "t": "true",
    }


def test_csv_of_no_rows_still_has_its_header() -> None:
    """A reader of an empty result learns its columns."""
    assert printed([], "csv", columns=["a", "b"]) == "a,b\n"


def test_table_shows_missing_as_a_dash_and_zero_as_zero() -> None:
    """What is absent can be told from what is zero."""
    lines = printed([{"name": "a", "v": None}, {"name": "bb", "v": 0.0}], "table", title="T").splitlines()
    assert lines == ["T", "name  v", "----  -", "a     -", "bb    0"]


def test_table_never_cuts_a_value() -> None:
    """A long identifier is printed whole: people copy it into the next command."""
    name = "x" * 300
    assert name in printed([{"point_id": name}], "table")


def test_a_cell_cannot_change_the_terminal() -> None:
    """Newlines and escape sequences out of a log become spaces."""
    lines = printed([{"log": "a\n\x1b[31mb\tc"}], "table").splitlines()
    assert lines[-1] == "a  [31mb c"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.567, "1235"), (123.456, "123.5"), (1.23456, "1.23"), (0.012345, "0.0123"),
        (0.0000123, "1.23e-05"),
        (-1234.5, "-1234"), (0.0, "0"), (1e20, "1e+20"), (12, "12"), (True, "yes"), (["a", None], "a, -"),
        ({"a": 1}, '{"a": 1}'),
    ],
)  # fmt: skip
def test_numbers_have_about_four_digits(value: Any, text: str) -> None:
    """A table is for reading: about four digits, whole numbers as they are."""
    assert cell_text(value) == text


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.none() | st.floats() | st.integers() | st.text(max_size=5))
    )
)
def test_json_is_always_valid_and_whole(rows: list[dict[str, Any]]) -> None:
    """Any rows give strict JSON with one object for each row."""
    text = printed(rows, "json")
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert len(found) == len(rows)


def test_no_color_and_pipes_get_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bold is for terminals only, and NO_COLOR wins."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    emit([{"a": 1}], file=out)
    assert "\x1b[1m" in out.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    emit([{"a": 1}], file=out)
    assert "\x1b" not in out.getvalue()
    assert "\x1b" not in printed([{"a": 1}], "table")


def test_format_option_is_one_option_for_all_commands() -> None:
    """``format: FormatOption`` gives --format table|json|csv and refuses other words."""
    app = typer.Typer()

    @app.command()
    def show(format: FormatOption = "table") -> None:
        emit([{"a": 1}], format)

    runner = CliRunner()
    assert json.loads(runner.invoke(app, ["--format", "json"]).stdout) == [{"a": 1}]
    assert runner.invoke(app, []).stdout.startswith("a\n")
    assert runner.invoke(app, ["--format", "xml"]).exit_code != 0
