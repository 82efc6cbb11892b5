"""Counts the tokens of a sample of answers again: the server's usage is believed, and checked."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from tokenizers import Tokenizer

from isoline.errors import InputError

SAMPLE = 32


def sample_texts(texts: Mapping[str, str], seed: int, size: int = SAMPLE) -> dict[str, str]:
    """A seeded sample of ``size`` answers, by request id; all where there are fewer."""
    ids = sorted(texts)
    chosen = ids if len(ids) <= size else random.Random(seed).sample(ids, size)
    return {request_id: texts[request_id] for request_id in chosen}


def count_tokens(texts: Mapping[str, str], tokenizer_file: Path) -> dict[str, int]:
    """Tokens of each text by a ``tokenizer.json``, without special tokens around it.

    :raises InputError: when the tokenizer cannot be read.
    """
    try:
        tokenizer = Tokenizer.from_file(str(tokenizer_file))
    except Exception as error:  # the library raises plain Exception
        raise InputError(f"not a tokenizer: {error}", where=str(tokenizer_file)) from None
    ids = list(texts)
    encoded = tokenizer.encode_batch([texts[key] for key in ids], add_special_tokens=False)
    return {key: len(item.ids) for key, item in zip(ids, encoded, strict=True)}
