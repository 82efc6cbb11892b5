"""A tokenizer for the load generator, made from the weights themselves: no hub is asked.

A GGUF file holds the vocabulary and merges of its byte-level BPE. They become a ``tokenizer.json``,
placed as an entry of a Hugging Face hub cache of our own, because AIPerf accepts a bare folder only
on some of its paths. Use it with ``HF_HOME=<hf_home> HF_HUB_OFFLINE=1`` under the name ``repo``.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from isoline.errors import InputError
from isoline.results.bundles.bundle import file_sha256
from isoline.results.identity import digest
from isoline.runners.staging.gguf import read_metadata
from isoline.settings import Settings

CONVERTER_VERSION = 1
"""Raise it whenever the conversion gives other files: it is part of their cache key."""

CONTROL = 3
"""GGUF's token type of control tokens, which are special in ``tokenizers``' words."""

SPLIT_DIGITS = ("smollm", "starcoder", "refact", "command-r")
"""GGUF pre-tokenizers that split each digit and then use GPT-2's pattern (source: llama.cpp's table)."""

GPT2_PATTERN = ("default", "gpt-2", "gpt2", "mpt", "olmo", "jais")

ALIAS = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,80}\Z")


@dataclass(frozen=True)
class TokenizerInfo:
    """Where a tokenizer lies. ``sha256`` is that of ``tokenizer.json``."""

    hf_home: Path
    repo: str
    tokenizer_json: Path
    sha256: str

    def env(self) -> dict[str, str]:
        """The environment in which the name ``repo`` is found, without any network."""
        return {"HF_HOME": str(self.hf_home), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def convert(metadata: dict[str, Any]) -> tuple[Tokenizer, dict[str, Any]]:
    """The tokenizer and the content of ``tokenizer_config.json`` from GGUF metadata. Pure.

    :raises InputError: for a vocabulary that is not byte-level BPE of a known pre-tokenizer: a guess
        would count tokens wrongly and nobody would see it.
    """
    kind = metadata.get("tokenizer.ggml.model")
    pre = metadata.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or pre not in (*SPLIT_DIGITS, *GPT2_PATTERN):
        raise InputError(
            f"tokenizer {kind!r} with pre-tokenizer {pre!r} cannot be converted",
            remedy="give a tokenizer.json of the model instead",
        )
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    bytes_level = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)
    tokenizer.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_level])
        if pre in SPLIT_DIGITS
        else bytes_level
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = metadata.get("tokenizer.ggml.token_type", [])
    control = [token for token, kind in zip(tokens, types, strict=False) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])

    def named(key: str) -> str | None:
        number = metadata.get(f"tokenizer.ggml.{key}_token_id")
        return tokens[number] if number is not None and 0 <= number < len(tokens) else None

    architecture = metadata.get("general.architecture", "")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": metadata.get(f"{architecture}.context_length", 8192),
        "eos_token": named("eos"),
        "unk_token": named("unknown"),
        "pad_token": named("padding"),
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
    }
    # A model that does not begin its input with a BOS must not be given one: for SmolLM2 it is
    # <|im_start|>, and AIPerf would write it between the blocks of a trace, opening false turns.
    if metadata.get("tokenizer.ggml.add_bos_token", False):
        config["bos_token"] = named("bos")
    if "tokenizer.chat_template" in metadata:
        config["chat_template"] = metadata["tokenizer.chat_template"]
    return tokenizer, {key: value for key, value in config.items() if value is not None}


def tokenizer_place(settings: Settings, alias: str) -> tuple[Path, str, Path]:
    """(hf_home, repo, folder of the hub-cache entry) of an alias.

    :raises InputError: for an alias that is no plain name.
    """
    if not ALIAS.match(alias) or ".." in alias or "--" in alias:
        raise InputError(f"{alias!r} is no name for a tokenizer", remedy="use letters, digits, '.', '_', '-'")
    home = settings.state / "hf"
    return home, f"isoline/{alias}", home / "hub" / f"models--isoline--{alias}"


def ensure_tokenizer(settings: Settings, gguf: Path, alias: str) -> TokenizerInfo:
    """The tokenizer of a GGUF file as hub-cache entry ``isoline/<alias>``, made where it is not there.

    :raises InputError: when the file is not readable or its tokenizer is of an unknown kind.
    """
    home, repo, folder = tokenizer_place(settings, alias)
    metadata = read_metadata(gguf)
    revision = digest({"metadata": metadata.sha256, "converter": CONVERTER_VERSION})[:40]
    snapshot = folder / "snapshots" / revision
    target = snapshot / "tokenizer.json"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f".{folder.name}.lock", timeout=120):
        if not target.is_file():
            tokenizer, config = convert(metadata.values)
            snapshot.parent.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
            try:
                tokenizer.save(str(work / "tokenizer.json"))
                text = json.dumps(config, ensure_ascii=False, indent=1)
                (work / "tokenizer_config.json").write_text(text, encoding="utf-8", errors="surrogateescape")
                work.chmod(0o755)
                work.rename(snapshot)
            finally:
                shutil.rmtree(work, ignore_errors=True)
        ref = folder / "refs" / "main"
        if not ref.is_file() or ref.read_text(encoding="utf-8") != revision:
            ref.parent.mkdir(exist_ok=True)
            part = ref.with_name(".main.part")
            part.write_text(revision, encoding="utf-8")  # the hub's own form: no line end
            part.replace(ref)
    return TokenizerInfo(hf_home=home, repo=repo, tokenizer_json=target, sha256=file_sha256(target))
