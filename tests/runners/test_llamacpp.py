"""The llama.cpp adapter's readers and comparisons, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from isoline.catalog.facts import load_catalog
from isoline.errors import InputError
from isoline.runners.engines import EngineCallError, engine_adapter
from isoline.runners.engines.llamacpp import LlamaCpp, parse_metrics
from isoline.runners.engines.openai import read_stream

ARGV = (
    "python", "script.py", "--model", "/m.gguf", "--port", "1", "--parallel", "8", "--ctx-size", "8192",
    "--cache-type-k", "f16", "--flash-attn", "on", "--slot-save-path", "/s", "--no-warmup", "--temp", "0.7",
)  # fmt: skip


def reported(**changes: Any) -> dict[str, Any]:
    """Effective arguments that match ARGV, with changes to ``args`` (or ``props_*``)."""
    args: dict[str, Any] = {
        "model": "/m.gguf", "port": 1, "parallel": 8, "ctx-size": 8192, "cache-type-k": "f16",
        "flash-attn": "enabled", "slot-save-path": "/s/", "warmup": False, "temp": 0.7,
    }  # fmt: skip
    props: dict[str, Any] = {"total_slots": 8, "slot_ctx": 1024, "sampling": {"temperature": 0.699999988}}
    for name, value in changes.items():
        if name.startswith("props_"):
            props[name.removeprefix("props_")] = value
        else:
            args[name.replace("_", "-")] = value
    return {"args": args, "props": props}


def test_equal_arguments_have_no_difference() -> None:
    """Other spellings of the same value are no difference."""
    assert LlamaCpp().differences(ARGV, reported()) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cache_type_k": "q8_0"}, "--cache-type-k: asked f16, effective q8_0"),
        ({"flash_attn": "auto"}, "--flash-attn: asked on, effective auto"),
        ({"warmup": True}, "--no-warmup: asked False, effective True"),
        ({"model": "/other.gguf"}, "--model: asked /m.gguf, effective /other.gguf"),
        ({"props_total_slots": 4}, "--parallel: asked 8, the server has 4 slots"),
        ({"props_slot_ctx": 512}, "--ctx-size: asked 1024 a slot, the server has 512"),
        ({"props_sampling": {"temperature": 0.8}}, "--temp: asked 0.7, the server has 0.8"),
    ],
)
def test_each_difference_is_named(changes: dict[str, Any], expected: str) -> None:
    """An argument that is not effective is named with what was asked and what is."""
    assert LlamaCpp().differences(ARGV, reported(**changes)) == [expected]


def test_metrics_take_our_names() -> None:
    """Counters come under our names, the rest under llama.cpp's; comments and others are passed over."""
    found = parse_metrics(
        "# HELP x\nllamacpp:prompt_tokens_total 5\nllamacpp:n_tokens_max 7\nother:thing 1\nllamacpp:bad x\n\n"
    )
    assert found == {"input_tokens": 5.0, "n_tokens_max": 7.0}


def test_stream_is_read_as_a_client_does() -> None:
    """Text, usage and chunks with text are counted; the role chunk is none."""
    lines = [
        'data: {"choices":[{"delta":{"role":"assistant","content":null}}]}',
        "",
        'data: {"choices":[{"delta":{"content":"a"}}]}',
        'data: {"choices":[{"delta":{"reasoning_content":"b"}}]}',
        'data: {"choices":[],"usage":{"completion_tokens":2}}',
        "data: [DONE]",
    ]
    assert read_stream(lines) == (2, "ab", 2)
    assert read_stream([]) == (None, "", 0)


def test_error_inside_a_stream_is_an_error() -> None:
    """HTTP 200 with an error inside is no answer, and neither is a broken chunk."""
    with pytest.raises(EngineCallError, match="holds an error"):
        read_stream(['data: {"error": {"message": "boom"}}'])
    with pytest.raises(EngineCallError, match="broken chunk"):
        read_stream(["data: {"])


def test_log_explains_the_exit() -> None:
    """The log tells a taken port and a lack of memory from other ends."""
    adapter = LlamaCpp()
    assert adapter.explain_exit("E srv start: couldn't bind HTTP server socket, hostname: x") == "port_in_use"
    assert adapter.explain_exit("ggml: failed to allocate buffer of size 9") == "oom"
    assert adapter.explain_exit("failed to load model") is None


def test_every_engine_with_a_process_has_an_adapter() -> None:
    """The catalog names no start script that does not exist."""
    for name, engine in load_catalog().engines.items():
        if engine.process:
            assert engine_adapter(name).script().name == engine.process.script
            assert engine_adapter(name).script().is_file()
    with pytest.raises(InputError, match="no engine 'warp' in the catalog"):
        engine_adapter("warp")
