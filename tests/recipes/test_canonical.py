"""Command lines in one form."""

from __future__ import annotations

import pytest

from isoline.recipes import canonical


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("sglang", ["--tp", "8"]),
        ("sglang", ["--tp-size=8"]),
        ("vllm", ["-tp", "8"]),
        ("vllm", ["--tensor_parallel_size=8"]),
        ("atom", ["-tp", "8"]),
    ],
)
def test_spellings_of_one_argument_are_one(engine: str, words: list[str]) -> None:
    """Aliases, one or two dashes, blank or equals sign make no other argument."""
    assert canonical.parse_words(words, engine) == {"tensor-parallel-size": 8}


def test_values_are_read_by_what_they_are() -> None:
    """Numbers, JSON, negative numbers, flags alone and lists come out as such; texts stay texts."""
    words = ["--a", "0.80", "--b", '{"x": [1, 2]}', "--c", "-1", "--d", "--e", "1", "2"]
    words += ["--f", "fp8", "--g=9a"]
    assert canonical.parse_words(words, "vllm") == {
        "a": 0.8,
        "b": {"x": [1, 2]},
        "c": -1,
        "d": True,
        "e": [1, 2],
        "f": "fp8",
        "g": "9a",
    }


def test_keys_of_a_json_argument_come_together() -> None:
    """``--config.key=True`` beside the JSON of ``--config`` is one argument."""
    words = ["--attention_config.use_fp4_indexer_cache=True"]
    words += ["--attention-config", '{"backend": "FLASHINFER"}']
    assert canonical.parse_words(words, "vllm") == {
        "attention-config": {"use_fp4_indexer_cache": True, "backend": "FLASHINFER"}
    }


def test_a_repeated_argument_is_the_last_one() -> None:
    """As the engines read it."""
    words = ["--max-num-seqs", "1", "--max-num-seqs", "2"]
    assert canonical.parse_words(words, "vllm") == {"max-num-seqs": 2}


def test_topology_arguments_leave_out_what_is_one() -> None:
    """1 is every engine's default, and a switch stays."""
    args = {"tensor-parallel-size": 1, "data-parallel-size": 8, "enable-expert-parallel": True, "x": 1}
    assert canonical.topology_args(args, "vllm") == {"data-parallel-size": 8, "enable-expert-parallel": True}


def test_differences_are_paths() -> None:
    """A value, a missing key and a switch that is not the number 1 are each found, at their path."""
    one = {"a": {"b": 1, "c": 2}, "d": True, "e": 0.8}
    other = {"a": {"b": 1, "c": 3, "x": None}, "d": 1, "e": 0.80}
    assert canonical.differing(one, other) == ["a.c", "a.x", "d"]
    assert canonical.differing(one, one) == []
