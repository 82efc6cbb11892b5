"""From the artefact folder to what the judge needs; answers counted again."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from tokenizers import Tokenizer

from isoline.errors import InputError
from isoline.load.collect import collect, complete_table
from isoline.load.command import LoadSpec
from isoline.load.profile import profile
from isoline.load.retokenise import SAMPLE, count_tokens, sample_texts
from isoline.load.supervise import LoadOutcome
from isoline.results.bundles.requests import REQUESTS_SCHEMA


def test_the_sample_is_seeded_and_bounded() -> None:
    """The same seed gives the same 32 answers, another one others; few answers are all taken."""
    texts = {f"r{index}": str(index) for index in range(200)}
    first = sample_texts(texts, 1)
    assert len(first) == SAMPLE and first == sample_texts(dict(reversed(texts.items())), 1)
    assert first != sample_texts(texts, 2)
    assert sample_texts({"a": "x"}, 1) == {"a": "x"}


def test_counts_are_those_of_the_tokenizer(tokenizer_file: Path) -> None:
    """Tokens are counted without special tokens around the text."""
    text = "def request(send: float) -> None:"
    expected = len(Tokenizer.from_file(str(tokenizer_file)).encode(text, add_special_tokens=False).ids)
    assert count_tokens({"a": text, "b": ""}, tokenizer_file) == {"a": expected, "b": 0}


def test_a_broken_tokenizer_is_one_line(tmp_path: Path) -> None:
    """A file that is no tokenizer is named."""
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        count_tokens({"a": "x"}, path)


def test_the_table_keeps_its_schema(tables: ModuleType) -> None:
    """Asked lengths and counted tokens land in their columns; where nothing was counted there is null."""
    table = complete_table(
        tables.table(tables.closed_loop(1, 3)), requested_input_tokens=64, text_tokens={"r1": 11}
    )
    assert table.schema.equals(REQUESTS_SCHEMA, check_metadata=True)
    assert table.column("requested_input_tokens").to_pylist() == [64] * 3
    assert table.column("text_tokens").to_pylist() == [None, 11, None]


def test_an_unreadable_export_is_a_fact_for_the_judge(tmp_path: Path) -> None:
    """Nothing in the folder: no table, the reason and the exit code are kept."""
    spec = LoadSpec(
        url="http://127.0.0.1:9",
        model="m",
        tokenizer="local/tiny",
        kind="fixed_length",
        concurrency=1,
        requests=1,
        seed=1,
        profile=profile("gpu-host"),
        artifact_dir=tmp_path,
        request_timeout_s=1,
    )
    outcome = LoadOutcome(1, None, "", False, 0, 1, 1.0, 1.0)
    export, facts = collect(spec, outcome, None)
    assert export is None and facts.exit_code == 1 and "no profile_export" in facts.error


def test_a_step_of_the_clock_is_seen() -> None:
    """Wall clock and monotonic clock differ by what was set; what slewing explains is none."""
    for wall_s, seconds, step_s in (
        (60.0, 60.0, 0.0),
        (60.0, 60.1, 0.0),
        (60.0, 65.0, 5.0),
        (60.0, 58.0, -2.0),
    ):
        outcome = LoadOutcome(0, None, "", False, 10**18, 10**18 + round(seconds * 1e9), wall_s, 1.0)
        assert outcome.clock_step_s == pytest.approx(step_s)
