"""Arguments of engines, read from captured help texts."""

from __future__ import annotations

import runpy
from datetime import date
from pathlib import Path

import pytest

from isoline.catalog.documents import validate_text
from isoline.catalog.engines import Engine, Flags, FlagStyle
from isoline.catalog.facts import load_catalog
from isoline.catalog.learn import as_text, learned, parse_help, takes_of
from isoline.errors import InputError

ARGPARSE = """\
usage: serve [-h] [--model MODEL] [--block-size {1,8,16}]

options:
  -h, --help            show this help message and exit
  --model MODEL         name of the model
                        --not-an-option stands in a description
  --block-size {1,8,16}
                        tokens of a block
  --enable-chunked, --no-enable-chunked
                        switch
  --tensor-parallel-size TENSOR_PARALLEL_SIZE, -tp TENSOR_PARALLEL_SIZE
                        devices
  --sizes [SIZES ...]   several
  --trust-remote-code   a switch
"""
CLICK = """\
Options:
  --tp_size INTEGER               Tensor parallelism.
  --kv_fraction FLOAT RANGE       Share.  [0<=x<=1]
  --backend [pytorch|tensorrt]    Which.
  --log / --no-log                Say more.
  --config TEXT                   File.
"""
LLAMA = """\
-c,    --ctx-size N                     size of the prompt context
-fa,   --flash-attn FA                  flash attention
       --mlock                          keep it in memory
"""
FACTS = Engine(
    name="Some",
    flag_style=FlagStyle(aliases={"tp_size": "tensor-parallel-size"}, source="a test", dated="2026-12-01"),
    source="a test",
    dated="2026-12-01",
)


def test_three_ways_of_printing_help() -> None:
    """argparse, click and llama.cpp print options in other ways; names and values are read from each."""
    assert parse_help(ARGPARSE) == {
        "model": "text",
        "block-size": "text",
        "enable-chunked": "nothing",
        "tensor-parallel-size": "text",
        "sizes": "list",
        "trust-remote-code": "nothing",
    }
    assert parse_help(CLICK) == {
        "tp_size": "int",
        "kv_fraction": "float",
        "backend": "text",
        "log": "nothing",
        "config": "text",
    }
    llama = parse_help(
        "\n".join(f"  {line}" if line.startswith("-") else line for line in LLAMA.splitlines())
    )
    assert llama == {"ctx-size": "int", "flash-attn": "text", "mlock": "nothing"}


def test_what_an_option_takes() -> None:
    """The word behind an option tells what it takes, as far as it can."""
    assert [takes_of(word) for word in (None, "N", "FLOAT", "JSON", "[A ...]", "PATH")] == [
        "nothing", "int", "float", "json", "list", "text",
    ]  # fmt: skip


def test_learning_a_version(tmp_path: Path) -> None:
    """A new version's arguments join the known ones, each with the versions that it was seen in."""
    first = learned("some", FACTS, "0.9.1", ARGPARSE, before=None, today=date(2026, 12, 1))
    text = ARGPARSE.replace("--sizes [SIZES ...]", "--fresh FRESH      ")
    second = learned("some", FACTS, "0.10.0", text, before=first, today=date(2026, 12, 2))
    assert second.complete
    assert second.versions == ["0.9.1", "0.10.0"]  # by number, not by letter
    assert second.flags["sizes"].seen == ["0.9.1", "0.9.1"]
    assert second.flags["fresh"].seen == ["0.10.0", "0.10.0"]
    assert second.flags["model"].seen == ["0.9.1", "0.10.0"]
    assert validate_text(as_text(second), Flags, "x") == second


@pytest.mark.parametrize(
    ("version", "text", "words"),
    [("0.1", "", "no options"), ("0.1", "Traceback …", "no options"), ("../x", ARGPARSE, "is no version")],
)
def test_what_is_no_help_text(version: str, text: str, words: str) -> None:
    """A captured error message teaches nothing, and is refused."""
    with pytest.raises(InputError, match=words):
        learned("some", FACTS, version, text, before=None, today=date(2026, 12, 1))


def test_the_embedded_engine_s_arguments_are_those_of_its_start_script(project_root: Path) -> None:
    """The flag file of llama.cpp is the start script's own table: neither has a flag that the other lacks."""
    script = runpy.run_path(
        str(project_root / "src/isoline/runners/engines/llamacpp_server.py"), run_name="read"
    )
    known = load_catalog().known_flags("llamacpp")
    assert known is not None
    table = {name.removeprefix("--"): flag for name, flag in script["FLAGS"].items()}
    assert set(known.flags) == {*table, script["ARGS_FILE"].removeprefix("--")}
    for name, flag in table.items():
        assert (known.flags[name].takes == "nothing") == (flag.take is None), name
