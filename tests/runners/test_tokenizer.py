"""GGUF metadata becomes a tokenizer in a hub cache of our own."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from isoline.errors import InputError
from isoline.runners.staging.gguf import read_metadata
from isoline.runners.staging.tokenizer import convert, ensure_tokenizer
from isoline.settings import Settings

TOKENS = ["<unk>", "<|im_start|>", "<|im_end|>", "a", "b", "ab", "1", "2", "Ġ", "Ġa", "12"]

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.context_length": 256,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3, 3, 3, *[1] * 8],
    "tokenizer.ggml.merges": ["a b", "Ġ a", "1 2"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": "{{ x }}",
}


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def typed(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)


def write_gguf(path: Path, values: dict[str, Any], tensors: bytes = b"tensor data") -> Path:
    body = b"".join(text(name) + typed(value) for name, value in values.items())
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, len(values)) + body + tensors)
    return path


def test_metadata_is_read_back(tmp_path: Path) -> None:
    """Every value comes back, and the tensors do not change the digest."""
    one = read_metadata(write_gguf(tmp_path / "a.gguf", METADATA))
    two = read_metadata(write_gguf(tmp_path / "b.gguf", METADATA, b"other"))
    assert one.values == METADATA
    assert one.sha256 == two.sha256
    other = read_metadata(write_gguf(tmp_path / "c.gguf", METADATA | {"llama.context_length": 257}))
    assert other.sha256 != one.sha256


def test_broken_files_are_clear_errors(tmp_path: Path) -> None:
    """A file that ends early, is no GGUF, has absurd counts or is missing gives one line that names it."""
    whole = write_gguf(tmp_path / "a.gguf", METADATA, b"").read_bytes()
    cases = {
        "ends early": whole[:-3],
        "not a GGUF": b"PK\3\4" + whole[4:],
        "version 9": b"GGUF" + struct.pack("<I", 9) + whole[8:],
        "too large": b"GGUF" + struct.pack("<IQQ", 3, 1, 1 << 60),
        "unknown GGUF value type": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("x") + struct.pack("<I", 77),
    }
    for message, data in cases.items():
        path = tmp_path / "broken.gguf"
        path.write_bytes(data)
        with pytest.raises(InputError, match=message):
            read_metadata(path)
    with pytest.raises(InputError, match=r"absent\.gguf"):
        read_metadata(tmp_path / "absent.gguf")


def test_conversion_keeps_ids_and_splits_digits() -> None:
    """Merges and control tokens apply, and this pre-tokenizer never joins digits."""
    tokenizer, config = convert(METADATA)
    encoded = tokenizer.encode("<|im_start|>ab a12<|im_end|>")
    assert encoded.ids == [1, 5, 9, 6, 7, 2]
    assert tokenizer.decode(encoded.ids, skip_special_tokens=True) == "ab a12"
    assert config["eos_token"] == "<|im_end|>" and config["model_max_length"] == 256
    joined, _ = convert(METADATA | {"tokenizer.ggml.pre": "gpt-2"})
    assert joined.encode("12").ids == [10]


def test_bos_is_given_only_to_models_that_want_it() -> None:
    """A model that does not begin with a BOS gets none: AIPerf would write it into traces."""
    assert "bos_token" not in convert(METADATA)[1]
    assert convert(METADATA | {"tokenizer.ggml.add_bos_token": True})[1]["bos_token"] == "<|im_start|>"


@pytest.mark.parametrize("change", [{"tokenizer.ggml.model": "llama"}, {"tokenizer.ggml.pre": "qwen9"}])
def test_unknown_kinds_are_refused(change: dict[str, str]) -> None:
    """A vocabulary that we cannot convert exactly is refused instead of guessed."""
    with pytest.raises(InputError, match="cannot be converted"):
        convert(METADATA | change)


def test_hub_entry(settings: Settings, tmp_path: Path) -> None:
    """The tokenizer lies where a hub cache has it; a second call changes nothing."""
    gguf = write_gguf(tmp_path / "a.gguf", METADATA)
    info = ensure_tokenizer(settings, gguf, "tiny")
    assert info.repo == "isoline/tiny"
    folder = info.hf_home / "hub" / "models--isoline--tiny"
    revision = (folder / "refs" / "main").read_text()
    assert info.tokenizer_json == folder / "snapshots" / revision / "tokenizer.json"
    assert Tokenizer.from_file(str(info.tokenizer_json)).encode("ab").ids == [5]
    config = json.loads((info.tokenizer_json.parent / "tokenizer_config.json").read_text())
    assert config["chat_template"] == "{{ x }}"
    assert info.env()["HF_HUB_OFFLINE"] == "1"
    before = info.tokenizer_json.stat().st_mtime_ns
    assert ensure_tokenizer(settings, gguf, "tiny") == info
    assert info.tokenizer_json.stat().st_mtime_ns == before


def test_other_weights_move_the_entry(settings: Settings, tmp_path: Path) -> None:
    """Another vocabulary under the same alias becomes the entry's main revision."""
    first = ensure_tokenizer(settings, write_gguf(tmp_path / "a.gguf", METADATA), "tiny")
    changed = METADATA | {"tokenizer.ggml.merges": ["Ġ a", "1 2"]}
    second = ensure_tokenizer(settings, write_gguf(tmp_path / "b.gguf", changed), "tiny")
    assert second.tokenizer_json != first.tokenizer_json
    folder = second.hf_home / "hub" / "models--isoline--tiny"
    assert second.tokenizer_json.parent.name == (folder / "refs" / "main").read_text()


@pytest.mark.parametrize("alias", ["a/b", "..", "a--b", "", "a b"])
def test_alias_is_a_plain_name(settings: Settings, tmp_path: Path, alias: str) -> None:
    """An alias that would leave its folder, or split the hub's name, is refused."""
    with pytest.raises(InputError, match="no name"):
        ensure_tokenizer(settings, write_gguf(tmp_path / "a.gguf", METADATA), alias)
