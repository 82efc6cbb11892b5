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
    """One answer. Times are seconds since the batch began; nothing that failed is ``correct``."""

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

    :raises InputError: with the line that is wrong: one that nothing or everything would answer.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", where=path.name) from None
    questions: dict[str, Question] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            question = Question(**json.loads(line))
        except (TypeError, ValueError) as error:
            raise InputError(f"not a question: {error}", where=f"{path.name}:{number}") from None
        problem = _problem_of(question)
        if problem or question.id in questions:
            problem = problem or f"id {question.id!r} is there twice"
            raise InputError(f"not a question: {problem}", where=f"{path.name}:{number}")
        questions[question.id] = question
    if not questions:
        raise InputError("no questions in this file", where=path.name)
    return list(questions.values())


def _problem_of(question: Question) -> str:
    for name, value in asdict(question).items():
        if not isinstance(value, str) or not value.strip():
            return f"{name} is {value!r}, a text is expected"
    if question.kind not in ("word", "number"):
        return f"kind is {question.kind!r}, word or number is expected"
    if question.kind == "number" and _number(question.answer) is None:
        return f"answer {question.answer!r} is no number"
    return ""


# A comma groups thousands only; a minus belongs to the number only where no word or digit is before it.
_NUMBER = re.compile(r"(?:(?<![\w)])-)?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?", re.ASCII)
MAX_DIGITS = 30


def _number(text: str) -> float | None:
    """The last number of a text; None where there is none, or where it is too long to be one."""
    found = _NUMBER.findall(text.replace("\N{MINUS SIGN}", "-"))
    return float(found[-1].replace(",", "")) if found and len(found[-1]) <= MAX_DIGITS else None


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
    if not question.answer.strip():
        return False, True  # an empty word is in every text
    pattern = rf"(?<!\w){re.escape(question.answer)}(?!\w)"
    return re.search(pattern, text, re.IGNORECASE) is not None, True


def _parts(content: Any) -> tuple[str, int | None, int | None]:
    """(text, output tokens, cached tokens) of a reply's JSON.

    :raises ValueError: when it is no chat completion.
    """
    try:
        text = content["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        said = content.get("error") if isinstance(content, dict) else None
        raise ValueError(f"no chat completion: {said or content!r}") from None
    if text is not None and not isinstance(text, str):
        raise ValueError(f"the answer is no text: {text!r}")

    def count(holder: Any, name: str) -> int | None:
        value = holder.get(name) if isinstance(holder, dict) else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    usage = content.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    return text or "", count(usage, "completion_tokens"), count(details, "cached_tokens")


class _Asker:
    """Asks one question after another of one batch; times are seconds since it was made."""

    def __init__(
        self, client: httpx.AsyncClient, url: str, model: str, max_tokens: int, extra: Mapping[str, Any]
    ) -> None:
        self.client = client
        self.url = f"{url}/v1/chat/completions"
        self.fixed = {"model": model, "max_tokens": max_tokens, "temperature": 0, "stream": False, **extra}
        self.began = time.monotonic()

    def now_s(self) -> float:
        return round(time.monotonic() - self.began, 4)

    async def ask(self, question: Question, gate: asyncio.Semaphore, deadline_s: float) -> Answer:
        """One answer, whatever happens; only a batch that is ended from outside is cut short."""
        sent_s: float | None = None
        text, error, tokens, cached = "", None, None, None
        try:
            async with asyncio.timeout(deadline_s), gate:
                sent_s = self.now_s()
                body = {**self.fixed, "messages": [{"role": "user", "content": question.question}]}
                reply = await self.client.post(self.url, json=body)
                reply.raise_for_status()
                text, tokens, cached = _parts(reply.json())
        except TimeoutError:
            error = "deadline"
        except asyncio.CancelledError:
            error = "stopped"
        except (httpx.HTTPError, ValueError) as problem:
            error = f"{type(problem).__name__}: {problem}"[:300]
        done_s = self.now_s()
        correct, parsed = (False, False) if error else grade(question, text)
        return Answer(
            id=question.id,
            text=text,
            expected=question.answer,
            correct=correct,
            parsed=parsed,
            error=error,
            # One that was never sent was in flight for no time.
            sent_s=done_s if sent_s is None else sent_s,
            done_s=done_s,
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
    # A fresh connection for each request: servers close idle ones when they like.
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=None, limits=limits, trust_env=False) as client:
        asker = _Asker(client, url, model, max_tokens, extra)
        tasks = [asyncio.create_task(asker.ask(item, gate, deadline_s)) for item in questions]
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
