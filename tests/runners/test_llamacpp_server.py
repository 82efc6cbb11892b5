"""The start script of llama.cpp: flags become parameters, and nothing is ignored silently."""

from __future__ import annotations

import json
import subprocess
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from isoline.runners.engines import llamacpp_server as script
from isoline.runners.engines.llamacpp_server import UsageError, apply, effective, parse

NEEDED = ["--model", "m.gguf", "--port", "1"]


class GgmlType(Enum):
    """As xllamacpp names them."""

    GGML_TYPE_F16 = 1
    GGML_TYPE_Q8_0 = 8


class Flash(Enum):
    """As xllamacpp names them."""

    LLAMA_FLASH_ATTN_TYPE_AUTO = -1
    LLAMA_FLASH_ATTN_TYPE_DISABLED = 0
    LLAMA_FLASH_ATTN_TYPE_ENABLED = 1


@pytest.fixture
def params(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stand-in for CommonParams with every parameter of the table."""
    module = ModuleType("xllamacpp")
    module.ggml_type = GgmlType  # type: ignore[attr-defined]
    module.llama_flash_attn_type = Flash  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "xllamacpp", module)
    made = SimpleNamespace()
    for flag in script.FLAGS.values():
        *parents, last = flag.path.split(".")
        owner = made
        for name in parents:
            owner.__dict__.setdefault(name, SimpleNamespace())
            owner = getattr(owner, name)
        setattr(owner, last, 0)
    return made


def test_flags_set_parameters(params: SimpleNamespace) -> None:
    """Values, constants, lists and enumerations reach the right parameter, with ``=`` or a blank."""
    words = [
        *NEEDED, "--alias", "a", "--host=127.0.0.1", "--ctx-size", "8192", "--threads-batch=3", "--no-warmup",
        "--metrics", "--cache-type-k", "q8_0", "--flash-attn", "on", "--slot-save-path", "/s",
        "--temp", "0.5",
    ]  # fmt: skip
    found, args_file = parse([*words, "--effective-args-file", "/e.json"])
    apply(params, found)
    assert args_file == "/e.json"
    assert params.model.path == "m.gguf" and params.port == 1
    assert params.model_alias == {"a"} and params.hostnames == ["127.0.0.1"]
    assert params.n_ctx == 8192 and params.cpuparams_batch.n_threads == 3
    assert params.warmup is False and params.endpoint_metrics is True
    assert params.cache_type_k is GgmlType.GGML_TYPE_Q8_0
    assert params.flash_attn_type is Flash.LLAMA_FLASH_ATTN_TYPE_ENABLED
    assert params.slot_save_path == "/s/"
    shown = effective(params)
    assert shown["cache-type-k"] == "q8_0" and shown["flash-attn"] == "enabled"
    assert shown["warmup"] is False and "no-warmup" not in shown
    assert shown["alias"] == "a" and shown["temp"] == 0.5
    json.dumps(shown)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--paralel", "8", *NEEDED], "unknown flag --paralel; known:.*--parallel"),
        ([*NEEDED, "stray"], "unknown flag stray"),
        ([*NEEDED, "--parallel", "8", "--parallel", "9"], "--parallel is given twice"),
        ([*NEEDED, "--parallel"], "--parallel needs a value"),
        ([*NEEDED, "--parallel", "--metrics"], "--parallel needs a value"),
        ([*NEEDED, "--metrics=1"], "--metrics takes no value"),
        (["--model", "m"], "--port is missing"),
    ],
)
def test_wrong_words_are_errors(words: list[str], message: str) -> None:
    """An unknown, double, or half flag is an error that names it."""
    with pytest.raises(UsageError, match=message):
        parse(words)


@pytest.mark.parametrize(
    "words", [["--parallel", "many"], ["--cache-type-v", "f17"], ["--flash-attn", "perhaps"]]
)
def test_wrong_values_are_errors(params: SimpleNamespace, words: list[str]) -> None:
    """A value that the flag cannot take is an error that names both."""
    found, _ = parse([*NEEDED, *words])
    with pytest.raises(UsageError, match=f"{words[0]}: cannot use '{words[1]}'"):
        apply(params, found)


def test_script_stands_alone(tmp_path: Path) -> None:
    """The script runs where Isoline is not installed, and a wrong flag exits with 2 and one line."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", script.__file__, "--wrong"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("llamacpp_server: unknown flag --wrong; known: --alias")
    assert len(done.stderr.splitlines()) == 1
