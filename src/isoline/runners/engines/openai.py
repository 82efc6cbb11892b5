"""What all engines' servers share: HTTP calls, the OpenAI chat stream, and waiting until one is at rest."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import httpx

from isoline.runners.engines.base import EngineCallError
from isoline.runners.launchers.interface import PhaseFailedError, ShouldStop, StoppedError

CONNECT_S = 1.0
PROMPT = "Count from one to ten in words."


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """Made once: it costs twenty milliseconds, and each call has a client of its own."""
    return ssl.create_default_context()


def call(method: str, url: str, timeout_s: float, **options: Any) -> httpx.Response:
    try:
        # No keep-alive between calls, no proxy of the environment: this is a local server.
        limit = httpx.Timeout(timeout_s, connect=CONNECT_S)
        with httpx.Client(trust_env=False, timeout=limit, verify=_tls()) as client:
            answer = client.request(method, url, **options)
    except httpx.HTTPError as error:
        raise EngineCallError(f"{method} {url}: {type(error).__name__} {error}".strip()) from error
    if answer.status_code != 200:
        raise EngineCallError(f"{method} {url}: HTTP {answer.status_code} {answer.text[:200]}")
    return answer


def as_json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise EngineCallError(f"{answer.url}: not JSON: {answer.text[:100]!r}") from None


def read_stream(lines: list[str]) -> tuple[int | None, str, int]:
    """(tokens by usage or None, text, chunks with text) of one stream.

    :raises EngineCallError: for an error inside the stream, or a line that is not JSON.
    """
    tokens: int | None = None
    parts = []
    for line in lines:
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or data == "[DONE]":
            continue
        try:
            chunk = json.loads(data)
        except ValueError:
            raise EngineCallError(f"the stream holds a broken chunk: {data[:100]!r}") from None
        if "error" in chunk:
            raise EngineCallError(f"the stream holds an error: {json.dumps(chunk['error'])[:200]}")
        for choice in chunk.get("choices", []):
            delta = choice.get("delta", {})
            parts.append(delta.get("content") or delta.get("reasoning_content") or "")
        if chunk.get("usage"):
            tokens = chunk["usage"].get("completion_tokens")
    texts = [part for part in parts if part]
    return tokens, "".join(texts), len(texts)


def generate(
    url: str, alias: str, tokens: int, timeout_s: float, extra: Mapping[str, Any], prompt: str = PROMPT
) -> tuple[int, str]:
    """One streaming chat completion of exactly ``tokens`` tokens: (tokens by usage, text).

    :param extra: more keys of the body.
    :raises EngineCallError: no answer in time, an error, no usage, or no text.
    """
    body = {
        "model": alias,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **extra,
    }
    answer = call("POST", f"{url}/v1/chat/completions", timeout_s, json=body)
    counted, text, chunks = read_stream(answer.text.splitlines())
    if counted is None:
        raise EngineCallError("the stream ended without usage", definite=True)
    if counted != tokens:
        raise EngineCallError(f"{tokens} tokens were asked for, {counted} came", definite=True)
    if not chunks:
        raise EngineCallError(f"{tokens} tokens were counted, no text came", definite=True)
    return counted, text


def at_rest(
    counters: Callable[[float], Mapping[str, float]], deadline_s: float, should_stop: ShouldStop | None
) -> None:
    """Wait until nothing runs and nothing waits.

    :param counters: asks the server, within so many seconds.
    :raises PhaseFailedError: ``reset_failed`` past the deadline.
    :raises StoppedError: when ``should_stop`` says so.
    """
    began = time.monotonic()
    last = "no answer"
    while True:
        if should_stop and (why := should_stop()):
            raise StoppedError(why)
        left = deadline_s - (time.monotonic() - began)
        if left <= 0:
            raise PhaseFailedError("reset_failed", f"not at rest after {deadline_s:.0f} s: {last}")
        try:
            now = counters(min(2.0, left))
        except EngineCallError as error:
            if not last.endswith("waiting"):  # what it said last is worth more than one silence
                last = str(error)
        else:
            last = f"{now['running']:.0f} running, {now['waiting']:.0f} waiting"
            if now["running"] == 0 and now["waiting"] == 0:
                return
        time.sleep(0.05)
