"""What one OpenAI-style response was: token-bearing chunks, text, usage, how it ended. Pure.

The load generator's own view is not taken: it counts what the client tokenised, and a stream that
broke off can look complete to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

Ending = Literal["complete", "early_end", "empty_stream", "stream_error"]


@dataclass
class Stream:
    """One response, read.

    :param times: time of each token-bearing chunk, in the clock of the caller.
    :param tokens: tokens of each, or None where the server does not say.
    :param first_output: time of the first token-bearing chunk that is not reasoning, or None.
    :param usage: the last usage object of the server, or None.
    :param text: the answer's text; None where the answer has parts that are no plain text
        (reasoning, tool calls), which cannot be counted by tokenising again.
    """

    times: list[int] = field(default_factory=list)
    tokens: list[int] | None = None
    first_output: int | None = None
    usage: Mapping[str, Any] | None = None
    text: str | None = ""
    ending: Ending = "complete"
    message: str = ""


def _bearing(choice: Mapping[str, Any]) -> tuple[str, bool, bool]:
    """(text, has reasoning, has a tool call) that one choice of a chunk or message brings."""
    text = choice.get("text")
    if isinstance(text, str) and text:
        return text, False, False
    delta = choice.get("delta") or choice.get("message") or {}
    if not isinstance(delta, Mapping):
        return "", False, False
    content = delta.get("content")
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    calls = False
    for call in delta.get("tool_calls") or []:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping) and (function.get("arguments") or function.get("name")):
            calls = True
    return (content if isinstance(content, str) else ""), bool(reasoning), calls


def _error_of(value: Mapping[str, Any]) -> str | None:
    error = value.get("error")
    if not error:
        return None
    if isinstance(error, Mapping):
        return str(error.get("message") or error)
    return str(error)


def _count(usage: Mapping[str, Any] | None) -> int | None:
    value = usage.get("completion_tokens") if usage else None
    return value if isinstance(value, int) else None


def usage_numbers(usage: Mapping[str, Any] | None) -> dict[str, int | None]:
    """input, cached, output and reasoning tokens of a usage object; None where it does not say."""

    def number(*path: str) -> int | None:
        value: Any = usage
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    return {
        "input_tokens": number("prompt_tokens"),
        "cached_tokens": number("prompt_tokens_details", "cached_tokens"),
        "output_tokens": number("completion_tokens"),
        "reasoning_tokens": number("completion_tokens_details", "reasoning_tokens"),
    }


def read_stream(messages: Iterable[tuple[int, str]], *, streamed: bool = True) -> Stream:
    """Read the data messages of one response.

    :param messages: (time, data) of each message, in order; data is JSON or ``[DONE]``.
    :param streamed: False for one whole JSON body.
    """
    stream = Stream()
    running: list[int | None] = []  # usage's running count at each token-bearing chunk
    finished = False
    plain: list[str] = []
    is_plain = True
    for time, data in messages:
        if data.strip() == "[DONE]":
            finished = True
            continue
        try:
            value = json.loads(data)
        except ValueError:
            stream.ending, stream.message = "stream_error", f"not JSON: {data[:80]!r}"
            continue
        if not isinstance(value, Mapping):
            continue
        if (error := _error_of(value)) is not None:
            stream.ending, stream.message = "stream_error", error
            continue
        usage = value.get("usage")
        if isinstance(usage, Mapping):
            stream.usage = usage
        bears = output = False
        for choice in value.get("choices") or []:
            if not isinstance(choice, Mapping):
                continue
            finished = finished or bool(choice.get("finish_reason"))
            text, reasoning, calls = _bearing(choice)
            plain.append(text)
            is_plain = is_plain and not reasoning and not calls
            bears = bears or bool(text) or reasoning or calls
            output = output or bool(text) or calls
        if bears:
            stream.times.append(time)
            running.append(_count(usage if isinstance(usage, Mapping) else None))
            if output and stream.first_output is None:
                stream.first_output = time
    stream.text = "".join(plain) if is_plain else None
    stream.tokens = _chunk_tokens(running, _count(stream.usage))
    if not streamed:
        finished = True
    if stream.ending == "complete":
        if not finished:
            stream.ending = "early_end"
        elif not stream.times:
            stream.ending = "empty_stream"
    # A stream that closed without a word is empty, however it closed.
    if stream.ending == "early_end" and not stream.times:
        stream.ending = "empty_stream"
    return stream


def _chunk_tokens(running: list[int | None], total: int | None) -> list[int] | None:
    """Tokens of each token-bearing chunk, from running usage; one each where the counts agree."""
    if not running:
        return None
    counts = [value for value in running if value is not None]
    # A usage object on the last chunk only is the total, not a running count.
    if len(counts) == len(running) and (len(running) == 1 or counts[0] < counts[-1]):
        steps = [counts[0], *(after - before for before, after in pairwise(counts))]
        if min(steps) >= 0:
            return steps
    if total == len(running):
        return [1] * len(running)
    return None
