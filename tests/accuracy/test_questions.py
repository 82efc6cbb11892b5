"""Grading, reading of questions, and asking a batch against a small local server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isoline.accuracy.questions import Question, ask_batch, grade, read_questions
from isoline.errors import InputError


@pytest.mark.parametrize(
    ("answer", "text", "correct", "parsed"),
    [
        ("12", "12", True, True),
        ("12", "The answer is 12.", True, True),
        ("12", "5 + 7 = 12", True, True),
        ("12", "12 is 5 + 7", False, True),  # the last number counts
        ("1200", "that is 1,200 coins", True, True),
        ("1234567", "1,234,567", True, True),
        ("1234.5", "$1,234.50", True, True),
        ("34", "3,4", False, True),  # no thousands
        ("4", "3,4", True, True),
        ("5", "we had 10, then 5,", True, True),
        ("-5", "it is -5", True, True),
        ("-5", "it is \N{MINUS SIGN}5", True, True),
        ("5", "10-5", True, True),  # a range or a difference, no negative number
        ("-5", "10-5", False, True),
        ("0.5", "0.5", True, True),
        ("5", "0.5", False, True),
        ("12", "", False, False),
        ("12", "none", False, False),
        ("12", "twelve", False, False),
        ("12", "\N{SUPERSCRIPT TWO}", False, False),
        ("12", "9" * 400, False, False),  # garbage in one breath is no number
    ],
)
def test_numbers(answer: str, text: str, correct: bool, parsed: bool) -> None:
    """A number is the last one of the text, with thousands, sign and fraction as people write them."""
    assert grade(Question("q", "?", answer, "number"), text) == (correct, parsed)


def test_nothing_is_never_right() -> None:
    """Two answers without a number, or two empty words, are not equal: nothing is not an answer."""
    assert grade(Question("q", "?", "none", "number"), "nothing") == (False, False)
    assert grade(Question("q", "?", "", "number"), "") == (False, False)
    assert grade(Question("q", "?", "", "word"), "") == (False, False)
    assert grade(Question("q", "?", "", "word"), "anything") == (False, True)


@pytest.mark.parametrize(
    ("answer", "text", "correct"),
    [
        ("Paris", "It is Paris.", True),
        ("Paris", "PARIS", True),
        ("Paris", "Parisian food", False),
        ("cat", "concatenate", False),
        ("cat", "(cat)", True),
        ("2+2", "it is 2+2", True),
        ("a.b", "axb", False),  # a point is a point
        ("Zürich", "in zürich today", True),
        ("blue", " \n ", False),
    ],
)
def test_words(answer: str, text: str, correct: bool) -> None:
    """A word must occur as a whole word, in any case, with nothing read as a pattern."""
    assert grade(Question("q", "?", answer), text)[0] is correct


def test_all_questions_of_the_project_can_be_answered(project_root: Path) -> None:
    """Each question's own answer is graded right, and garbage is not."""
    for name in ("canary-smollm2", "arithmetic-mini"):
        questions = read_questions(project_root / "datasets" / f"{name}.jsonl")
        assert len(questions) >= 12
        for item in questions:
            assert grade(item, f"Well, {item.answer}!") == (True, True)
            assert not grade(item, "@@@@ ### the the the")[0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[1]", "not a question"),
        ("{", "not a question"),
        ('{"id": "a", "question": "?"}', "missing"),
        ('{"id": "a", "question": "?", "answer": "x", "more": 1}', "unexpected"),
        ('{"id": "a", "question": "?", "answer": ""}', "answer is ''"),
        ('{"id": "a", "question": "?", "answer": 5}', "answer is 5, a text"),
        ('{"id": "a", "question": "?", "answer": "x", "kind": "song"}', "kind is 'song'"),
        ('{"id": "a", "question": "?", "answer": "x", "kind": "number"}', "'x' is no number"),
        ('{"id": "first", "question": "?", "answer": "x"}', "'first' is there twice"),
    ],
)
def test_wrong_questions_are_told(tmp_path: Path, line: str, words: str) -> None:
    """A question that nothing or everything would answer is refused with its line."""
    path = tmp_path / "q.jsonl"
    path.write_text('{"id": "first", "question": "?", "answer": "a"}\n\n' + line + "\n")
    with pytest.raises(InputError) as caught:
        read_questions(path)
    assert caught.value.line().startswith("q.jsonl:3: not a question: ")
    assert words in caught.value.line()


def test_files_without_questions(tmp_path: Path) -> None:
    """An empty file and binary bytes are refused: a check of nothing would pass."""
    (tmp_path / "q.jsonl").write_bytes(b"\n")
    with pytest.raises(InputError, match="no questions"):
        read_questions(tmp_path / "q.jsonl")
    (tmp_path / "q.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        read_questions(tmp_path / "q.jsonl")


def some(count: int, answer: str = "blue") -> list[Question]:
    return [Question(f"q{number}", f"question {number}", answer) for number in range(count)]


def ask(url: str, questions: list[Question], **more: Any) -> Any:
    options = {"concurrency": 4, "max_tokens": 8, "deadline_s": 10.0, **more}
    return ask_batch(url, "m", questions, **options)


def test_a_batch_reaches_its_concurrency(serve: Callable[..., Any]) -> None:
    """As many requests as asked are open at once, never more, and each question is asked once."""
    server = serve("It is blue.", delay_s=0.05)
    batch = ask(server.url, some(12))
    assert server.most == 4
    assert (batch.asked_concurrency, batch.reached_concurrency) == (4, 4)
    assert (batch.correct, batch.unparsed, len(batch.answers)) == (12, 0, 12)
    assert [answer.id for answer in batch.answers] == [f"q{number}" for number in range(12)]
    assert {(answer.output_tokens, answer.cached_tokens) for answer in batch.answers} == {(3, 2)}
    assert sorted(b["messages"][0]["content"] for b in server.bodies) == sorted(
        f"question {number}" for number in range(12)
    )


def test_a_batch_says_what_it_did_not_reach(serve: Callable[..., Any]) -> None:
    """Fewer questions than lanes: the reached concurrency is what was in flight, not what was asked."""
    batch = ask(serve("blue", delay_s=0.05).url, some(2), concurrency=8)
    assert (batch.asked_concurrency, batch.reached_concurrency) == (8, 2)


def test_the_body_is_greedy_and_takes_extras(serve: Callable[..., Any]) -> None:
    """Every request is greedy, names the model, and carries the extra fields."""
    server = serve("blue")
    ask(server.url, some(1), extra={"ignore_eos": True})
    (body,) = server.bodies
    assert body["path"] == "/v1/chat/completions"
    assert (body["temperature"], body["model"], body["max_tokens"]) == (0, "m", 8)
    assert body["ignore_eos"] is True
    assert body["stream"] is False


@pytest.mark.parametrize(
    ("status", "data", "words"),
    [
        (500, b"{}", "HTTPStatusError"),
        (200, b"not json", "JSONDecodeError"),
        (200, b"", "JSONDecodeError"),
        (200, b'{"error": {"message": "no slot"}}', "no slot"),
        (200, b'{"choices": []}', "no chat completion"),
        (200, b"[1, 2]", "no chat completion"),
        (200, b'{"choices": [{"message": {"content": ["blue"]}}]}', "the answer is no text"),
    ],
)
def test_what_a_server_may_do_is_an_answer(
    serve: Callable[..., Any], status: int, data: bytes, words: str
) -> None:
    """HTTP errors and replies that are no completion are answers with an error, never right, never raised."""
    server = serve(lambda number, _body: (status, data) if number == 0 else (200, data))
    batch = ask(server.url, some(1))
    (answer,) = batch.answers
    assert words in str(answer.error)
    assert (answer.correct, answer.parsed, answer.output_tokens) == (False, False, None)


def test_odd_usage_is_no_usage(serve: Callable[..., Any]) -> None:
    """A usage of another form gives null, not a crash and not 0; an empty text is unparsed."""
    for usage in (
        None,
        [],
        {"completion_tokens": "3"},
        {"prompt_tokens_details": [], "completion_tokens": True},
    ):
        data = json.dumps({"choices": [{"message": {"content": None}}], "usage": usage}).encode()
        (answer,) = ask(serve(lambda _n, _b, data=data: (200, data)).url, some(1)).answers
        assert (answer.error, answer.correct, answer.parsed) == (None, False, False)
        assert (answer.output_tokens, answer.cached_tokens) == (None, None)


def test_nobody_listens(serve: Callable[..., Any]) -> None:
    """A server that is gone gives an error for each question."""
    server = serve("blue")
    url = server.url
    server.close()
    batch = ask(url, some(3))
    assert all("ConnectError" in str(answer.error) for answer in batch.answers)
    assert batch.correct == 0


def test_the_deadline_is_for_the_whole_batch(serve: Callable[..., Any]) -> None:
    """A server that hangs holds a batch for its deadline once, not once for each question."""
    server = serve("blue", delay_s=3.0)
    began = time.monotonic()
    batch = ask(server.url, some(12), deadline_s=0.5)
    assert time.monotonic() - began < 2.0
    assert {answer.error for answer in batch.answers} == {"deadline"}
    assert batch.reached_concurrency == 4  # they were in flight, though nothing came of it


def test_should_stop_ends_a_batch(serve: Callable[..., Any]) -> None:
    """A wish to stop ends open and waiting questions within a moment."""
    server = serve("blue", delay_s=3.0)
    began = time.monotonic()
    batch = ask(
        server.url, some(12), should_stop=lambda: "interrupted" if time.monotonic() - began > 0.3 else None
    )
    assert time.monotonic() - began < 2.0
    assert {answer.error for answer in batch.answers} == {"stopped"}
    assert len(server.bodies) == 4


def test_one_bad_answer_among_good_ones(serve: Callable[..., Any], completion: Callable[..., bytes]) -> None:
    """One failed request is one wrong answer; the others stand."""
    good = completion("blue", completion_tokens=1)
    server = serve(lambda number, _body: (503, b"") if number == 2 else (200, good))
    batch = ask(server.url, some(5), concurrency=1)
    assert [answer.correct for answer in batch.answers] == [True, True, False, True, True]
    assert batch.as_dict()["answers"][2]["error"].startswith("HTTPStatusError")
