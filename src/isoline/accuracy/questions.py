"""Asking a server questions in a batch and grading the answers; used by canary and accuracy checks."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from isoline.errors import InputError

STOP_POLL_S = 0.1


@dataclass(frozen=True)
class Question:
    """One question. ``answer`` is a number or a word; ``task`` tells how it is graded."""

    id: str
    question: str
    answer: str
    kind: str = "word"  # word | number


@dataclass(frozen=True)
class Answer:
    """One answer. Times are seconds since the batch began; ``correct`` is None where nothing came."""

    id: str
    text: str
    expected: str
    correct: bool
    parsed: bool
    error: str | None
    sent_s: float
    done_s: float
    output_tokens: int | None
    cached_tokens: int | None = None


@dataclass(frozen=True)
class Batch:
    """A batch of answers, and how many requests were in flight at once at the most."""

    answers: list[Answer]
    asked_concurrency: int
    reached_concurrency: int

    @property
    def correct(self) -> int:
        return sum(answer.correct for answer in self.answers)

    @property
    def unparsed(self) -> int:
        return sum(not answer.parsed for answer in self.answers)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_questions(path: Path) -> list[Question]:
    """The questions of a JSON-lines file.

    :raises InputError: with the line that is wrong.
    """
    questions = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            questions.append(Question(**json.loads(line)))
        except (TypeError, json.JSONDecodeError) as error:
            raise InputError(f"not a question: {error}", where=f"{path.name}:{number}") from None
    if not questions:
        raise InputError("no questions in this file", where=path.name)
    return questions


_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def _number(text: str) -> float | None:
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def grade(question: Question, text: str) -> tuple[bool, bool]:
    """(correct, parsed). A number is the last one of the text; a word must occur as a whole word.

    An answer that cannot be parsed is never correct: None is not equal to None here.
    """
    if question.kind == "number":
        got, want = _number(text), _number(question.answer)
        if got is None or want is None:
            return False, False
        return got == want, True
    if not text.strip():
        return False, False
    pattern = rf"(?<!\w){re.escape(question.answer)}(?!\w)"
    return re.search(pattern, text, re.IGNORECASE) is not None, True


async def _ask(
    client: httpx.AsyncClient,
    url: str,
    model: str,
    question: Question,
    max_tokens: int,
    began: float,
    extra: Mapping[str, Any],
) -> Answer:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question.question}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": False,
        **extra,
    }
    text, error, tokens, cached = "", None, None, None
    sent = time.monotonic() - began
    try:
        reply = await client.post(f"{url}/v1/chat/completions", json=body)
        reply.raise_for_status()
        content = reply.json()
        text = content["choices"][0]["message"]["content"] or ""
        usage = content.get("usage") or {}
        tokens = usage.get("completion_tokens")
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as problem:
        error = f"{type(problem).__name__}: {problem}"[:300]
    correct, parsed = (False, False) if error else grade(question, text)
    return Answer(
        id=question.id,
        text=text,
        expected=question.answer,
        correct=correct,
        parsed=parsed,
        error=error,
        sent_s=round(sent, 4),
        done_s=round(time.monotonic() - began, 4),
        output_tokens=tokens,
        cached_tokens=cached,
    )


def _most_in_flight(answers: list[Answer]) -> int:
    marks = sorted([(a.sent_s, 1) for a in answers] + [(a.done_s, -1) for a in answers])
    level = most = 0
    for _, step in marks:
        level += step
        most = max(most, level)
    return most


async def _ask_all(
    url: str,
    model: str,
    questions: list[Question],
    concurrency: int,
    max_tokens: int,
    deadline_s: float,
    extra: Mapping[str, Any],
    should_stop: Callable[[], str | None],
) -> Batch:
    gate = asyncio.Semaphore(concurrency)
    began = time.monotonic()
    # A fresh connection for each request: servers close idle ones when they like.
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=deadline_s, limits=limits, trust_env=False) as client:

        async def one(question: Question) -> Answer:
            try:
                async with gate, asyncio.timeout(max(deadline_s - (time.monotonic() - began), 0.01)):
                    return await _ask(client, url, model, question, max_tokens, began, extra)
            except (TimeoutError, asyncio.CancelledError) as error:
                now = round(time.monotonic() - began, 4)
                why = "deadline" if isinstance(error, TimeoutError) else "stopped"
                return Answer(question.id, "", question.answer, False, False, why, now, now, None)

        tasks = [asyncio.create_task(one(question)) for question in questions]
        pending = set(tasks)
        while pending:
            _, pending = await asyncio.wait(pending, timeout=STOP_POLL_S)
            if pending and should_stop():
                for task in pending:
                    task.cancel()
        answers = [task.result() for task in tasks]
    return Batch(answers, concurrency, _most_in_flight(answers))


def ask_batch(
    url: str,
    model: str,
    questions: list[Question],
    *,
    concurrency: int,
    max_tokens: int,
    deadline_s: float,
    extra: Mapping[str, Any] | None = None,
    should_stop: Callable[[], str | None] = lambda: None,
) -> Batch:
    """Ask all questions, ``concurrency`` at a time, greedily (temperature 0).

    Never raises for what the server does: a failed request is an answer with an error.

    :param deadline_s: for the whole batch.
    :param extra: top-level fields of each request body, such as ``ignore_eos``.
    :param should_stop: asked ten times a second; a text ends the batch, open requests are errors then.
    """
    return asyncio.run(
        _ask_all(url, model, questions, concurrency, max_tokens, deadline_s, extra or {}, should_stop)
    )
