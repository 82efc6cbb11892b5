"""The project's own datasets can be made again."""

from __future__ import annotations

import json
from pathlib import Path

from isoline.datasets.generate import ARITHMETIC_MINI, DEMO_CHAT, chat_sessions, word_problems


def test_files_are_what_their_makers_make(project_root: Path) -> None:
    """The files in datasets/ are byte for byte what the named commands give."""
    folder = project_root / "datasets"
    assert (folder / "demo-chat.jsonl").read_bytes() == chat_sessions(**DEMO_CHAT).encode()
    assert (folder / "arithmetic-mini.jsonl").read_bytes() == word_problems(**ARITHMETIC_MINI).encode()


def test_another_seed_is_another_text() -> None:
    """A seed decides the content, and the same seed gives the same."""
    assert word_problems(count=8, seed=1) == word_problems(count=8, seed=1)
    assert word_problems(count=8, seed=1) != word_problems(count=8, seed=2)


def test_answers_are_right() -> None:
    """Each word problem's answer follows from the numbers in its question."""
    for line in word_problems(count=200, seed=7).splitlines():
        row = json.loads(line)
        numbers = [int(word) for word in row["question"].replace(".", " ").split() if word.isdigit()]
        a, b = numbers
        wanted = (
            a * b if "in each" in row["question"] else a - b if "gives away" in row["question"] else a + b
        )
        assert int(row["answer"]) == wanted


def test_sessions_share_one_prefix() -> None:
    """Every session begins with the same system prompt, and asks for the same output length."""
    rows = [json.loads(line) for line in chat_sessions(**DEMO_CHAT).splitlines()]
    assert len(rows) == DEMO_CHAT["sessions"]
    assert len({row["turns"][0]["text"] for row in rows}) == 1
    for row in rows:
        users = row["turns"][1:]
        assert [turn["role"] for turn in users] == ["user"] * DEMO_CHAT["turns"]
        assert {turn["output_length"] for turn in users} == {DEMO_CHAT["output_tokens"]}
